//! The report that `rondpoint run --report` leaves in the guest, as far as the lab reads it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the report that is understood here.
const SCHEMA: u32 = 1;

/// What Rondpoint says of its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProductReport {
    pub(crate) schema: u32,
    pub(crate) policy: String,
    pub(crate) elapsed_s: f64,
    /// What it saw accesses with: `samples`, `counters`, `faults` or `statistics`.
    pub(crate) sensor: Option<String>,
    /// Seconds from the program's start.
    pub(crate) first_action_s: Option<f64>,
    pub(crate) last_action_s: Option<f64>,
    /// The guest's clock at the program's start, seconds since boot.
    pub(crate) began_s: Option<f64>,
    /// The first action that no trial judged worse, seconds from the program's start.
    pub(crate) first_kept_action_s: Option<f64>,
    /// Base pages that Rondpoint moved.
    pub(crate) pages_moved: Option<u64>,
    /// What came of each trial.
    #[serde(default)]
    pub(crate) trials: Vec<Trial>,
    pub(crate) own_cpu_s: Option<f64>,
    /// One sentence: what was seen, done and gained.
    pub(crate) summary: Option<String>,
    /// Whatever else it says, passed on.
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// One change that was judged by what it did to the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// `better`, `worse`, `unclear` or `phase-change`.
    pub(crate) verdict: String,
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl ProductReport {
    /// Base pages of all processes that got copies, each time counted.
    pub(crate) fn copied_pages(&self) -> u64 {
        let processes = self.other.get("processes").and_then(Value::as_array);
        let count = |process: &Value| process["account"]["replicated"]["moved"].as_u64();
        processes.into_iter().flatten().filter_map(count).sum()
    }

    /// Reads a report; the error says what is wrong with it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let report: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("rondpoint's report in the guest: {error}"))?;
        if report.schema != SCHEMA {
            let found = report.schema;
            return Err(format!("rondpoint's report has schema {found}, expected {SCHEMA}"));
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_passed_on_whole() {
        let text = r#"{"schema":1,"policy":"carrefour","elapsed_s":4.5,"pages_moved":12,
            "trials":[{"verdict":"better","change":0.31}],"new":[1]}"#;
        let report = ProductReport::parse(text.as_bytes()).expect("good");
        assert_eq!(report.pages_moved, Some(12));
        assert_eq!(report.trials[0].verdict, "better");
        let again = serde_json::to_value(&report).expect("text");
        assert_eq!(again["new"], serde_json::json!([1]));
        assert_eq!(again["trials"][0]["change"], 0.31);
    }

    #[test]
    fn pages_with_copies_are_those_of_all_processes_and_no_dropped_ones() {
        let text = r#"{"schema":1,"policy":"auto","elapsed_s":4.5,"processes":[
            {"account":{"replicated":{"moved":3,"busy":1},"dropped":{"moved":2}}},
            {"account":{"replicated":{"moved":4}}}]}"#;
        let report = ProductReport::parse(text.as_bytes()).expect("good");
        assert_eq!(report.copied_pages(), 7);
    }

    #[test]
    fn a_report_of_another_version_is_refused() {
        let text = br#"{"schema":2,"policy":"x","elapsed_s":1}"#;
        let error = ProductReport::parse(text).expect_err("newer");
        assert_eq!(error, "rondpoint's report has schema 2, expected 1");
        assert!(ProductReport::parse(b"{").is_err());
    }
}
