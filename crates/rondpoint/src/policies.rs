//! Policies by their names on the command line: `NAME` or `NAME:PRESET`.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, bail};
use rondpoint_core::controller::Controller;
use rondpoint_core::policy::Policy;
use rondpoint_linux::perf::generation::Metric;
use rondpoint_trace::{Header, PolicyChoice, TraceError};

/// A chosen policy.
pub(crate) struct Chosen {
    /// As it was written.
    pub(crate) name: String,
    pub(crate) policy: Box<dyn Policy>,
}

/// The policy of one word; `preset` is for a word without one.
pub(crate) fn choose(word: &str, preset: Option<&str>) -> Result<Chosen> {
    if word.is_empty() {
        bail!("--policy: an empty name; expected NAME or NAME,NAME");
    }
    let mut choice = PolicyChoice::parse(word);
    choice.preset = choice.preset.or(preset.map(str::to_string));
    let policy = choice.make().map_err(of_option)?;
    Ok(Chosen { name: word.to_string(), policy })
}

/// The controller of a header whose policies were chosen by `--policy`.
pub(crate) fn controller(header: &Header) -> Result<Controller> {
    header.controller().map_err(of_option)
}

/// The error with the option, which names the policy once.
fn of_option(error: TraceError) -> anyhow::Error {
    match error {
        TraceError::Policy { name, expected } => anyhow!("--policy {name}: {expected}"),
        error => error.into(),
    }
}

/// What the policies want to know of each single thread, beside its instructions and cycles. Each
/// more is counted in turns with the others, so no policy gets an event that it does not read.
pub(crate) fn thread_metrics(policies: &[PolicyChoice]) -> Vec<Metric> {
    use Metric::{
        LlcMisses, LocalDram, LocalForward, LocalHitm, RemoteDram, RemoteForward, RemoteHitm,
        StallCycles,
    };
    // The four metrics of ALGORITHMS 4.2: MEM, RDR, COH and, counted directly, SNP.
    const SAM: [Metric; 6] =
        [LlcMisses, RemoteDram, RemoteHitm, RemoteForward, LocalHitm, LocalForward];
    let wanted = |choice: &PolicyChoice| -> Vec<Metric> {
        match (choice.name.as_str(), choice.preset.as_deref()) {
            ("sam", Some("mph")) => [&SAM[..], &[StallCycles]].concat(),
            ("sam", _) => SAM.to_vec(),
            ("nmass", _) => vec![LlcMisses, LocalDram, RemoteDram],
            ("home", _) => vec![LlcMisses],
            ("sharing", _) => vec![RemoteHitm, RemoteForward, StallCycles, LlcMisses],
            ("auto", _) => [&SAM[..], &[LocalDram]].concat(),
            _ => Vec::new(),
        }
    };
    let all: BTreeSet<Metric> = policies.iter().flat_map(wanted).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_threads_have_their_inputs_counted_and_those_of_pages_cost_no_counter() {
        let of = |words: &[&str]| {
            let choices: Vec<PolicyChoice> =
                words.iter().map(|word| PolicyChoice::parse(word)).collect();
            let names: Vec<String> =
                thread_metrics(&choices).into_iter().map(Metric::name).collect();
            names.join(" ")
        };
        assert_eq!(of(&["carrefour:steady", "observe", "asymsched"]), "");
        assert_eq!(of(&["nmass", "carrefour"]), "local_dram remote_dram llc_misses");
        let sam = "remote_dram remote_hitm remote_forward local_hitm local_forward llc_misses";
        assert_eq!(of(&["sam"]), sam);
        assert_eq!(of(&["sam:mph"]), format!("{sam} stall_cycles"));
        assert_eq!(of(&["auto"]), format!("local_dram {sam}"));
    }
}
