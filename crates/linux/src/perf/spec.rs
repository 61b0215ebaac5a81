//! Event strings, as perf's own tools take them.
//!
//! ```text
//! cycles                      generic hardware or software event
//! dram_node0                  alias of the CPU's PMU, as in its sysfs events/ directory
//! cpu/event=0xd3,umask=0x01/  terms of a PMU's format/; `core` is the core's, whatever its name
//! lab_nb/mc_read/             alias of another PMU
//! uncore_imc/event=4,name=X/  X is the event's name and changes nothing
//! r01d3                       raw configuration, hexadecimal
//! …:u  …/u                    modifiers: u user only, k kernel only, p precise (up to three), D pinned
//! ```

use std::fmt;
use std::str::FromStr;

use crate::LinuxError;

/// One term between the slashes: a name, alone or with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The name of a format field, an alias, or one of perf's own (`config`, `period` …).
    pub name: String,
    /// The value; `None` for a bare name.
    pub value: Option<u64>,
}

/// Modifiers after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modifiers {
    /// `u`: user mode only (unless `k` is there too).
    pub user: bool,
    /// `k`: kernel mode only (unless `u` is there too).
    pub kernel: bool,
    /// Number of `p`s.
    pub precise: u8,
    /// `D`: pinned to a counter.
    pub pinned: bool,
}

/// The event named by an event string, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A word alone.
    Word(String),
    /// `rHEX`.
    Raw(u64),
    /// `pmu/terms/`.
    Terms {
        /// Name of the PMU.
        pmu: String,
        /// Terms between the slashes.
        terms: Vec<Term>,
    },
}

/// A parsed event string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSpec {
    /// The named event.
    pub named: Named,
    /// Modifiers of the event.
    pub modifiers: Modifiers,
    text: String,
}

impl fmt::Display for EventSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for EventSpec {
    type Err = LinuxError;

    fn from_str(text: &str) -> Result<Self, LinuxError> {
        let fail = |problem: &str| LinuxError::Input {
            what: format!("event `{text}`"),
            problem: problem.to_string(),
        };
        let (named, modifiers) = if let Some((pmu, rest)) = text.split_once('/') {
            let (terms, modifiers) =
                rest.split_once('/').ok_or_else(|| fail("a second `/` after the terms"))?;
            let named = Named::Terms { pmu: name(pmu, text)?, terms: terms_of(terms, text)? };
            (named, modifiers.trim_start_matches(':'))
        } else {
            let (word, modifiers) = text.split_once(':').unwrap_or((text, ""));
            (word_or_raw(word, text)?, modifiers)
        };
        Ok(Self { named, modifiers: modifiers_of(modifiers, text)?, text: text.to_string() })
    }
}

fn name(word: &str, text: &str) -> Result<String, LinuxError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !word.is_empty() && word.bytes().all(allowed) {
        return Ok(word.to_string());
    }
    Err(LinuxError::Input {
        what: format!("event `{text}`"),
        problem: format!("`{word}` where a name of letters, digits, `-`, `_`, `.` was expected"),
    })
}

fn word_or_raw(word: &str, text: &str) -> Result<Named, LinuxError> {
    let digits = word.strip_prefix('r').filter(|digits| !digits.is_empty());
    match digits.map(|digits| u64::from_str_radix(digits, 16)) {
        Some(Ok(config)) => Ok(Named::Raw(config)),
        _ => name(word, text).map(Named::Word),
    }
}

/// Parses terms separated by commas, as in event strings and in sysfs `events/*`.
///
/// # Errors
/// A term is empty, a name has an invalid letter, or a value is no decimal or `0x` number.
pub fn terms_of(terms: &str, text: &str) -> Result<Vec<Term>, LinuxError> {
    terms.trim().split(',').map(|term| one_term(term.trim(), text)).collect()
}

fn one_term(term: &str, text: &str) -> Result<Term, LinuxError> {
    let Some((left, right)) = term.split_once('=') else {
        return Ok(Term { name: name(term, text)?, value: None });
    };
    if left == "name" {
        // The vendor's name of the event, as perf's tools print it, has no effect.
        name(right, text)?;
        return Ok(Term { name: left.to_string(), value: None });
    }
    let value = match right.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => right.parse(),
    };
    let value = value.map_err(|_| LinuxError::Input {
        what: format!("event `{text}`"),
        problem: format!("`{right}` where a number such as 3 or 0x1f was expected"),
    })?;
    Ok(Term { name: name(left, text)?, value: Some(value) })
}

fn modifiers_of(letters: &str, text: &str) -> Result<Modifiers, LinuxError> {
    let mut modifiers = Modifiers::default();
    for letter in letters.chars() {
        match letter {
            'u' => modifiers.user = true,
            'k' => modifiers.kernel = true,
            'p' if modifiers.precise < 3 => modifiers.precise += 1,
            'D' => modifiers.pinned = true,
            other => {
                return Err(LinuxError::Input {
                    what: format!("event `{text}`"),
                    problem: format!("modifier `{other}`; known: u, k, p (up to three), D"),
                });
            }
        }
    }
    Ok(modifiers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        let shown = match text.parse::<EventSpec>() {
            Ok(EventSpec { named, modifiers: m, .. }) => {
                let flags = format!("{}{}{}{}", m.user, m.kernel, m.precise, m.pinned);
                let flags = flags.replace("false", "-").replace("true", "+");
                match named {
                    Named::Word(word) => format!("word {word} {flags}"),
                    Named::Raw(config) => format!("raw {config:#x} {flags}"),
                    Named::Terms { pmu, terms } => {
                        let terms: Vec<String> = terms
                            .iter()
                            .map(|term| match term.value {
                                Some(value) => format!("{}={value:#x}", term.name),
                                None => term.name.clone(),
                            })
                            .collect();
                        format!("{pmu} [{}] {flags}", terms.join(" "))
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn every_form_is_read() {
        check("cycles", "word cycles --0-");
        check("cache-misses:u", "word cache-misses +-0-");
        check("r01d3", "raw 0x1d3 --0-");
        check("remote_dram", "word remote_dram --0-");
        check("cpu/event=0xd3,umask=1/up", "cpu [event=0xd3 umask=0x1] +-1-");
        check("core/event=1,name=A.B_C/pp", "core [event=0x1 name] --2-");
        check("lab_nb/mc_read/", "lab_nb [mc_read] --0-");
        check(
            "cpu/mem-loads,ldlat=30/ppp:D",
            "event `cpu/mem-loads,ldlat=30/ppp:D`: modifier `:`; known: u, k, p (up to three), D",
        );
        check("cpu/mem-loads,ldlat=30/pppD", "cpu [mem-loads ldlat=0x1e] --3+");
    }

    #[test]
    fn what_is_wrong_is_named() {
        check("cpu/event=1", "event `cpu/event=1`: a second `/` after the terms");
        check(
            "cpu/event=z/",
            "event `cpu/event=z/`: `z` where a number such as 3 or 0x1f was expected",
        );
        check("cycles:x", "event `cycles:x`: modifier `x`; known: u, k, p (up to three), D");
        check("", "event ``: `` where a name of letters, digits, `-`, `_`, `.` was expected");
        check(
            "cpu/,/",
            "event `cpu/,/`: `` where a name of letters, digits, `-`, `_`, `.` was expected",
        );
    }

    proptest! {
        #[test]
        fn any_text_is_an_event_or_an_error(text in ".{0,40}") {
            let _ = text.parse::<EventSpec>();
        }
    }
}
