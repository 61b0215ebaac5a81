//! The last line of output, for people and machines alike: `workload=kmeans seconds=1.25
//! result=ok`.

use std::fmt;

/// Why a workload could not run at all: one sentence.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

/// What a workload found; `result=ok` or `result=wrong` comes last.
#[derive(Debug)]
pub(crate) struct Report {
    pairs: Vec<(&'static str, String)>,
    round_ends: Vec<f64>,
    rounds_each: usize,
    wrong: Option<String>,
}

impl Report {
    pub(crate) fn new(workload: &str) -> Self {
        let pairs = vec![("workload", workload.to_owned())];
        Self { pairs, round_ends: Vec::new(), rounds_each: 1, wrong: None }
    }

    /// Adds a pair. Values are single words, so that the line splits at spaces.
    pub(crate) fn pair(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        assert!(!value.contains(char::is_whitespace), "{key}={value} would not split at spaces");
        self.pairs.push((key, value));
        self
    }

    /// Adds a line before the last: when rounds ended, in seconds, so that a reader sees the pace
    /// change.
    pub(crate) fn round_ends(mut self, ends: Vec<f64>) -> Self {
        self.round_ends = ends;
        self
    }

    /// Says how many rounds each of these ends stands for, where not one.
    pub(crate) fn rounds_each(mut self, rounds: usize) -> Self {
        self.rounds_each = rounds;
        self
    }

    /// States a check; the first that fails is named in the line.
    pub(crate) fn check(mut self, name: &str, holds: bool) -> Self {
        if !holds && self.wrong.is_none() {
            self.wrong = Some(name.to_owned());
        }
        self
    }

    /// True if every check held.
    pub(crate) fn right(&self) -> bool {
        self.wrong.is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.round_ends.is_empty() {
            let ends: Vec<String> = self.round_ends.iter().map(|end| format!("{end:.6}")).collect();
            writeln!(f, "round_ends_s={}", ends.join(","))?;
            if self.rounds_each != 1 {
                writeln!(f, "rounds_each={}", self.rounds_each)?;
            }
        }
        for (key, value) in &self.pairs {
            write!(f, "{key}={value} ")?;
        }
        match &self.wrong {
            None => write!(f, "result=ok"),
            Some(check) => write!(f, "result=wrong check={check}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_found_and_which_check_failed_first() {
        let report = Report::new("sort").pair("seconds", 1.5).check("sum", true);
        assert_eq!(report.to_string(), "workload=sort seconds=1.5 result=ok");
        let report = report.check("order", false).check("count", false);
        assert_eq!(report.to_string(), "workload=sort seconds=1.5 result=wrong check=order");
        assert!(!report.right());
        let report = Report::new("sort").round_ends(vec![0.5, 1.25]);
        assert_eq!(report.to_string(), "round_ends_s=0.500000,1.250000\nworkload=sort result=ok");
    }
}
