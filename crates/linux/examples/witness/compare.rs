//! A line of the event tables against the lists that know its processor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rondpoint_linux::perf::processors::{Entry, UncoreLine};
use serde::Deserialize;

use crate::lists::List;

/// One event string of a table.
pub(crate) struct Line {
    pub(crate) generation: String,
    pub(crate) metric: String,
    pub(crate) text: String,
}

/// What a list says about a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same code, mask and unit.
    Equal,
    /// The event of that name has other fields: at least one.
    Differs(Vec<Difference>),
    /// No list has an event of that name.
    Unknown(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => text.write_str("equal"),
            Self::Differs(all) => {
                let all: Vec<String> = all.iter().map(Difference::to_string).collect();
                text.write_str(&all.join("; "))
            }
            Self::Unknown(what) => text.write_str(what),
        }
    }
}

/// A field that a list has otherwise.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The list's name.
    list: String,
    values: Values,
}

impl fmt::Display for Difference {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Values { field, there, here } = &self.values;
        write!(text, "{field} is {there:#x} in {}, {here:#x} here", self.list)
    }
}

/// A field's values, in the list and in our table.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    field: String,
    there: u64,
    here: u64,
}

/// Why lines may differ or be unknown.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reason {
    /// Only for this generation.
    generation: Option<String>,
    /// Only for this metric.
    metric: Option<String>,
    /// Only for events of this unit.
    unit: Option<String>,
    /// Only for events whose names begin so.
    event: Option<String>,
    /// The one difference that it explains. Without it: why no list has the line.
    differs: Option<Values>,
    /// The reason.
    pub(crate) why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasons {
    reason: Vec<Reason>,
}

/// Reads the listed reasons.
pub(crate) fn reasons(text: &str) -> Result<Vec<Reason>, String> {
    let reasons: Reasons =
        toml::from_str(text).map_err(|error| format!("reasons.toml: {error}"))?;
    Ok(reasons.reason)
}

impl Reason {
    /// Whether it is about lines such as this.
    fn is_about(&self, line: &Line) -> bool {
        let fits = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        let (unit, name, _) = parts(&line.text);
        let is_named = |begin: &str| name.as_ref().is_some_and(|name| name.starts_with(begin));
        fits(&self.generation, &line.generation)
            && fits(&self.metric, &line.metric)
            && fits(&self.unit, &unit)
            && self.event.as_ref().is_none_or(|begin| is_named(begin))
    }
}

/// The reasons that explain a verdict, by their places; `None` if they leave anything unexplained.
pub(crate) fn explained(reasons: &[Reason], line: &Line, verdict: &Verdict) -> Option<Vec<usize>> {
    let place = |differs: Option<&Values>| {
        let explains =
            |reason: &Reason| reason.differs.as_ref() == differs && reason.is_about(line);
        reasons.iter().position(explains)
    };
    match verdict {
        Verdict::Equal => Some(Vec::new()),
        Verdict::Differs(all) => all.iter().map(|one| place(Some(&one.values))).collect(),
        Verdict::Unknown(_) => place(None).map(|place| vec![place]),
    }
}

/// All event strings of a generation that has a unit's terms; the kernel's generic events have
/// none, their codes are the kernel's affair.
pub(crate) fn lines(entry: &Entry) -> Vec<Line> {
    let core = entry.core.iter().map(|(metric, text)| (metric.as_str(), text.clone()));
    let sample = &entry.sample;
    let samples = [("loads", &sample.loads), ("stores", &sample.stores)];
    let samples = samples
        .into_iter()
        .flat_map(|(name, texts)| texts.iter().map(move |text| (name, text.clone())));
    let buffer = sample.buffer.iter().map(|text| ("buffer", text.clone()));
    let uncore = entry.uncore.iter().flat_map(|line| {
        UncoreLine::expanded(line).into_iter().map(|text| (line.metric.name(), text))
    });
    let all = core.chain(samples).chain(buffer).chain(uncore);
    let is_of_a_unit = |(_, text): &(&str, String)| text.contains('/');
    let line = |(metric, text): (&str, String)| Line {
        generation: entry.name.clone(),
        metric: metric.to_string(),
        text,
    };
    all.filter(is_of_a_unit).map(line).collect()
}

/// The verdict of each list that has events of the line's unit; one that none has.
pub(crate) fn line(line: &Line, lists: &[List]) -> Vec<Verdict> {
    let (unit, name, fields) = parts(&line.text);
    let Some(name) = name else {
        return vec![Verdict::Unknown("the line has no name=".to_string())];
    };
    let verdicts: Vec<Verdict> = lists
        .iter()
        .filter(|list| list.has_unit(&unit))
        .map(|list| verdict(list, &unit, &name, &fields))
        .collect();
    if verdicts.is_empty() {
        return vec![Verdict::Unknown(format!("no list has events of `{unit}`"))];
    }
    verdicts
}

fn verdict(list: &List, unit: &str, name: &str, fields: &BTreeMap<String, u64>) -> Verdict {
    let Some(known) = list.find(name, unit) else {
        return Verdict::Unknown(format!("{} has no `{name}`", list.name));
    };
    let names: BTreeSet<&str> =
        known.fields.keys().copied().chain(fields.keys().map(String::as_str)).collect();
    let difference = |field: &str| {
        let there = known.fields.get(field).copied().unwrap_or(0);
        let here = fields.get(field).copied().unwrap_or(0);
        let values = Values { field: field.to_string(), there, here };
        (there != here).then(|| Difference { list: list.name.clone(), values })
    };
    let differences: Vec<Difference> = names.into_iter().filter_map(difference).collect();
    if differences.is_empty() { Verdict::Equal } else { Verdict::Differs(differences) }
}

/// Unit, name and fields of an event string. A threshold of loads is no part of the event's code.
fn parts(text: &str) -> (String, Option<String>, BTreeMap<String, u64>) {
    let (unit, rest) = text.split_once('/').unwrap_or((text, ""));
    let terms = rest.split_once('/').map_or(rest, |(terms, _)| terms);
    let mut name = None;
    let mut fields = BTreeMap::new();
    for term in terms.split(',') {
        match term.split_once('=') {
            Some(("name", value)) => name = Some(value.to_string()),
            Some(("ldlat", _)) => {}
            Some((field, value)) => {
                let digits = value.strip_prefix("0x");
                let number =
                    digits.map_or_else(|| value.parse(), |digits| u64::from_str_radix(digits, 16));
                // A placeholder is a number of this machine, which no list can have.
                fields.insert(field.to_string(), number.unwrap_or(0));
            }
            None => drop(fields.insert(term.to_string(), 1)),
        }
    }
    (unit.to_string(), name, fields)
}
