//! The story in sentences: one for each action, veto and verdict, with its price if known.

use rondpoint_core::cost::Cause;
use rondpoint_core::trial;
use rondpoint_core::units::{Bytes, Nanos, PAGE_BYTES, SignedPercent};

use super::decided::Route;
use super::{Deed, Done, Kind, Process, Verdict};
use crate::compared;

/// Percent below which a cause of lost time is not named.
const LEAST_LOSS: f64 = 0.5;
/// Routes that a sentence names; the rest is a number.
const MOST_ROUTES: usize = 4;

/// `+31 %`; below ten percent with one digit more, and `0.0 %` without a sign.
pub(crate) fn percent(change: f64) -> String {
    SignedPercent(change).to_string()
}

/// `1,488`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 page`, `1,488 pages`.
pub(crate) fn many(number: u64, what: &str) -> String {
    let plural = if what.ends_with('s') { "es" } else { "s" };
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { plural })
}

impl Process {
    /// What it loses by cause, as [`causes`] tells it.
    pub(crate) fn causes(&self) -> Option<String> {
        causes(self.lost_by_cause.iter().map(|loss| (loss.cause, loss.percent)))
    }
}

/// What a process loses by cause in percent, the largest first, as the cost model says; `None`
/// where that is little or not known.
pub(crate) fn causes(lost: impl Iterator<Item = (Cause, f64)>) -> Option<String> {
    let mut lost: Vec<(Cause, f64)> = lost.filter(|(_, percent)| *percent >= LEAST_LOSS).collect();
    lost.sort_by(|a, b| b.1.total_cmp(&a.1));
    let parts: Vec<String> =
        lost.iter().map(|(cause, percent)| format!("{cause} {percent:.0} %")).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The name of a cause in JSON, in the protocol and in metrics, such as `remote-dram`.
pub(crate) fn name_of(cause: Cause) -> String {
    match serde_json::to_value(cause) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a cause is a word: {other:?}"),
    }
}

impl Deed {
    /// What was wanted, with its price before and its outcome or veto behind.
    pub(crate) fn sentence(&self) -> String {
        match &self.veto {
            None => {
                let price = self.predicted.0.map_or(String::new(), |won| percent(won) + ": ");
                let outcome = self.came_of_it.text(self);
                let outcome = outcome.map_or(String::new(), |text| format!("; {text}"));
                format!("{price}{}: {}{outcome}", self.what(), self.because)
            }
            Some(veto) => {
                let price = self.predicted.0.map_or(String::new(), |won| {
                    let direction = if won < 0.0 { "slower" } else { "faster" };
                    let change = percent(won);
                    format!(
                        "; predicted to be {} {direction}",
                        change.trim_start_matches(['+', '-'])
                    )
                });
                format!("not done: {}: {}{price}", self.what(), veto.because)
            }
        }
    }

    /// What it does, without the process.
    pub(crate) fn what(&self) -> String {
        let pages = || format!("{} ({})", many(self.pages, "page"), Bytes(self.bytes));
        match self.kind {
            Kind::CoLocation => format!("{} to the node that uses them{}", pages(), self.ways()),
            Kind::Interleaving => format!("{} spread over nodes{}", pages(), self.ways()),
            Kind::Offloading => format!("{} away from their own node{}", pages(), self.ways()),
            Kind::Following => format!("{} after their threads{}", pages(), self.ways()),
            Kind::Replication => format!("{} copied to each node", pages()),
            Kind::EndOfReplication => format!("copies of {} taken back", pages()),
            Kind::Threads => self.thread_moves(),
            Kind::Memory => {
                let frozen = if self.frozen { ", frozen meanwhile" } else { "" };
                format!("{} of memory{}{frozen}", Bytes(self.bytes), self.ways())
            }
            Kind::Sampling => match self.sample_every {
                None => "samples off".to_string(),
                Some(cycles) => format!("a sample every {} cycles", grouped(cycles)),
            },
        }
    }

    fn ways(&self) -> String {
        ways(&self.routes)
    }

    fn thread_moves(&self) -> String {
        let place = |nodes: &str| match nodes.contains(['-', ',']) {
            true => format!("to nodes {nodes}"),
            false => format!("to node {nodes}"),
        };
        let one = |group: &super::decided::ThreadMove| match group.tids.as_slice() {
            [tid] => format!("thread {tid} {}", place(&group.nodes)),
            tids => format!("{} {}", many(tids.len() as u64, "thread"), place(&group.nodes)),
        };
        self.threads.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// ` 0→1, 0→2`, the widest way first.
fn ways(routes: &[Route]) -> String {
    let mut routes = routes.to_vec();
    routes.sort_by_key(|way| (std::cmp::Reverse(way.pages), way.from, way.to));
    let shown = routes.iter().take(MOST_ROUTES);
    let mut ways: Vec<String> = shown.map(|way| format!("{}→{}", way.from, way.to)).collect();
    if routes.len() > MOST_ROUTES {
        ways.push(many((routes.len() - MOST_ROUTES) as u64, "other way"));
    }
    if ways.is_empty() { String::new() } else { format!(" {}", ways.join(", ")) }
}

impl Done {
    /// What the host did of a deed; `None` where the recording does not say.
    pub(crate) fn text(&self, deed: &Deed) -> Option<String> {
        if self.known == 0 {
            return None;
        }
        let mut parts = Vec::new();
        let moves_pages = !matches!(deed.kind, Kind::Threads | Kind::Sampling);
        match (moves_pages, self.done) {
            (_, 0) => {}
            (true, _) => parts.push(format!("{} moved", Bytes(self.pages.moved * PAGE_BYTES))),
            (false, done) if done < deed.actions => parts.push(format!("{done} done")),
            (false, _) => parts.push("done".to_string()),
        }
        for (count, what) in [
            (self.pages.busy, "busy"),
            (self.pages.no_memory, "without room"),
            (self.pages.failed, "failed"),
        ] {
            if count > 0 {
                parts.push(format!("{} {what}", many(count, "page")));
            }
        }
        if self.gone > 0 {
            parts.push(format!("{} had ended", self.gone));
        }
        if self.unsupported > 0 {
            parts.push("not offered by this host".to_string());
        }
        if self.refused > 0 {
            let errno = self.errno.map_or(String::new(), |errno| format!(" (errno {errno})"));
            parts.push(format!("{} refused by the host{errno}", self.refused));
        }
        let time = |seconds: f64| Nanos((seconds * 1e9) as u64);
        let in_time = if moves_pages && self.done > 0 {
            format!(" in {}", time(self.spent_s))
        } else {
            String::new()
        };
        let frozen = match self.frozen_s > 0.0 {
            true => format!(", the process was stopped for {}", time(self.frozen_s)),
            false => String::new(),
        };
        Some(parts.join(", ") + &in_time + &frozen)
    }
}

impl Verdict {
    /// What came of a trial: verdict, measured, predicted.
    pub(crate) fn sentence(&self) -> String {
        let plans: Vec<String> = self.plans.iter().map(u64::to_string).collect();
        let plans = match plans.as_slice() {
            [one] => format!("plan {one}"),
            many => format!("plans {}", many.join(", ")),
        };
        format!("{plans} of {}: {}", self.policy, self.judgement())
    }

    /// The same without plan and policy.
    pub(crate) fn judgement(&self) -> String {
        let measured = match self.compared.as_slice() {
            [] => "nothing to compare".to_string(),
            compared => format!("measured {}", compared::told(compared)),
        };
        let predicted =
            self.predicted.map_or(String::new(), |won| format!("; predicted {}", percent(won)));
        format!("{}; {measured}{predicted}", self.word())
    }

    /// The verdict in a few words.
    pub(crate) fn word(&self) -> &'static str {
        match self.verdict {
            trial::Verdict::Better => "better",
            trial::Verdict::Worse => "worse, taken back",
            trial::Verdict::Unclear => "no clear change",
            trial::Verdict::PhaseChange => "the program changed, no verdict",
            trial::Verdict::NoWayBack => "worse, cannot be undone",
            trial::Verdict::Traded => "worse, but others gained more",
            trial::Verdict::Returned => "taken back with its partner",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_are_not_named_are_counted_in_the_singular_and_in_the_plural() {
        let told = |count: usize| {
            let way = |to| Route { from: 0, to, pages: Some(1) };
            ways(&(1..=count).map(way).collect::<Vec<_>>())
        };
        assert_eq!(told(0), "");
        assert_eq!(told(4), " 0→1, 0→2, 0→3, 0→4");
        assert!(told(5).ends_with("0→4, 1 other way"), "{}", told(5));
        assert!(told(6).ends_with("0→4, 2 other ways"), "{}", told(6));
    }
}
