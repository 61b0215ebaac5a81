//! Recordings, which users send: read, and replayed through every policy.

use rondpoint_core::controller::Step;
use rondpoint_core::host::{Witness, run};
use rondpoint_core::plan::Outcome;
use rondpoint_trace::{Outcomes, Reader, Replayed, Retaken};

use crate::Target;

/// A recording, read to its end.
pub(crate) const READ: Target = Target { name: "trace", run: read, seeds };

/// A recording, from which its policies decide anew.
pub(crate) const REPLAY: Target = Target { name: "replay", run: replay, seeds };

fn read(bytes: &[u8]) -> bool {
    let Ok(mut reader) = Reader::new(bytes, "input.trace") else { return false };
    let (mut read, mut failed) = (0, false);
    for record in reader.by_ref() {
        assert!(!failed, "nothing follows an error");
        failed = record.is_err();
        read += u64::from(!failed);
    }
    let _ = reader.truncated();
    read > 0
}

/// What was decided, step by step.
#[derive(Default, PartialEq, Debug)]
struct Decisions(Vec<Step>);

impl Witness for Decisions {
    fn step(&mut self, step: &Step, _: &[Outcome]) {
        self.0.push(step.clone());
    }
}

fn replay(bytes: &[u8]) -> bool {
    let decide = |outcomes| {
        let reader = Reader::new(bytes, "input.trace").ok()?;
        let mut controller = reader.header().controller().ok()?;
        let mut host = Replayed::new(reader, outcomes, |_: Retaken<'_>| {});
        let mut decisions = Decisions::default();
        let ended = run(&mut host, &mut controller, &mut decisions);
        Some((decisions, ended.map_err(|error| error.to_string())))
    };
    let decided = decide(Outcomes::Recorded);
    assert_eq!(decided, decide(Outcomes::Recorded), "the same, decided again");
    let _ = decide(Outcomes::Refused);
    decided.is_some_and(|(decisions, _)| !decisions.0.is_empty())
}

fn seeds() -> Vec<Vec<u8>> {
    let files: [&[u8]; 2] = [
        include_bytes!("../../../fixtures/traces/every-field.v1.trace"),
        include_bytes!("../../../fixtures/traces/carrefour.trace"),
    ];
    files.map(<[u8]>::to_vec).to_vec()
}
