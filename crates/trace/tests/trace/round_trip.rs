//! Whatever enters a controller, and whatever it decides, comes out of the file as it was.

use proptest::collection::vec;
use proptest::prelude::*;
use rondpoint_core::controller::{Input, Step};
use rondpoint_core::observation::ProcessObservation;
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Observation, Topology};
use rondpoint_trace::{Decision, Header, Reader, Record, Writer};

use crate::arbitrary;

/// The bytes of a trace.
pub(crate) fn written(header: &Header, steps: &[(Input, Step)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "memory", header).expect("a vector takes everything");
    for (input, step) in steps {
        writer.step(input, step).expect("a vector takes everything");
    }
    file
}

fn read(file: &[u8]) -> (Header, Vec<Record>) {
    let mut reader = Reader::new(file, "memory").expect("just written");
    let records = reader.by_ref().map(|record| record.expect("just written")).collect();
    assert_eq!(reader.truncated(), None);
    (reader.header().clone(), records)
}

/// A header with nothing in it but a machine.
pub(crate) fn plain_header(topology: Topology) -> Header {
    Header {
        written_by: "a test".to_string(),
        unix_s: None,
        host: None,
        command: Vec::new(),
        policies: Vec::new(),
        seed: 1,
        guard: Default::default(),
        topology,
        notes: Vec::new(),
    }
}

/// A whole recording.
pub(crate) fn recording() -> impl Strategy<Value = (Header, Vec<(Input, Step)>)> {
    arbitrary::header().prop_flat_map(|header| {
        let step = (arbitrary::input(&header.topology), arbitrary::step());
        let steps = vec(step, 0..4).prop_map(|mut steps| {
            // Nothing was done before the first step.
            steps.iter_mut().take(1).for_each(|(first, _)| first.outcomes.clear());
            steps
        });
        (Just(header), steps)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn everything_is_read_as_it_was_written((header, steps) in recording()) {
        let (read_header, records) = read(&written(&header, &steps));
        prop_assert_eq!(read_header, header);
        prop_assert_eq!(records.len(), steps.len());
        for (record, (input, step)) in records.into_iter().zip(steps) {
            prop_assert_eq!(record.input, input);
            let decision = record.decision.expect("each step was decided");
            prop_assert_eq!(decision.difference(&Decision::from(&step)), None);
        }
    }
}

#[test]
fn progress_that_is_no_number_stays_none() {
    let topology = synthetic::parse("node:2 core:2").expect("a machine");
    let process = ProcessObservation { progress: Some(f64::NAN), ..ProcessObservation::default() };
    let observation = Observation { processes: vec![process], ..Observation::default() };
    let input = Input { observation, outcomes: Vec::new() };
    let (_, records) = read(&written(&plain_header(topology), &[(input, Step::default())]));
    let progress = records[0].input.observation.processes[0].progress;
    assert!(progress.is_some_and(f64::is_nan), "{progress:?}");
}
