//! A trace as the loop's host: it cannot be told from the one that was recorded.

use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;

use proptest::prelude::*;
use proptest::sample::Index;
use rondpoint_core::controller::{Input, Step};
use rondpoint_core::host::{Host, Witness, run};
use rondpoint_core::plan::{Outcome, StepResult};
use rondpoint_core::policy::POLICIES;
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Nanos, Observation};
use rondpoint_trace::{
    Decision, Header, Outcomes, PolicyChoice, Reader, Recorder, Replayed, Retaken, TraceError,
    Writer,
};

use crate::round_trip::{plain_header, recording, written};

const CARREFOUR: &str = include_str!("../../../../fixtures/traces/carrefour.trace");

/// Everything that goes through the loop.
#[derive(Default)]
struct Diary {
    inputs: Vec<Input>,
    outcomes: Vec<Vec<Outcome>>,
}

impl Witness for Diary {
    fn input(&mut self, input: &Input) {
        self.inputs.push(input.clone());
    }

    fn step(&mut self, _: &Step, outcomes: &[Outcome]) {
        self.outcomes.push(outcomes.to_vec());
    }
}

fn inputs(file: &str) -> Vec<Input> {
    let records = Reader::new(file.as_bytes(), "file").expect("a trace");
    records.map(|record| record.expect("a trace").input).collect()
}

#[test]
fn the_loop_is_given_what_it_was_given_when_it_was_recorded() {
    let reader = Reader::new(CARREFOUR.as_bytes(), "file").expect("a trace");
    let mut controller = reader.header().controller().expect("built in");
    let mut numbers = Vec::new();
    let mut host = Replayed::new(reader, Outcomes::Recorded, |retaken: Retaken<'_>| {
        numbers.push((retaken.number, retaken.line));
    });
    let mut diary = Diary::default();
    run(&mut host, &mut controller, &mut diary).expect("a trace");
    assert_eq!(diary.inputs, inputs(CARREFOUR));
    assert_eq!(numbers, (1..=12).map(|step| (step, 2 * step)).collect::<Vec<_>>());
}

#[test]
fn of_another_decision_nothing_was_done() {
    let reader = Reader::new(CARREFOUR.as_bytes(), "file").expect("a trace");
    let mut controller = reader.header().controller().expect("built in");
    let mut host = Replayed::new(reader, Outcomes::Refused, |_: Retaken<'_>| {});
    let mut diary = Diary::default();
    run(&mut host, &mut controller, &mut diary).expect("a trace");
    let results: Vec<&StepResult> =
        diary.outcomes.iter().flatten().map(|one| &one.result).collect();
    assert!(results.iter().any(|result| matches!(result, StepResult::Refused { .. })));
    assert!(results.iter().all(|result| !matches!(result, StepResult::Pages(_))), "{results:?}");
}

#[test]
fn a_step_that_was_given_and_not_brought_back_is_known() {
    let reader = Reader::new(CARREFOUR.as_bytes(), "file").expect("a trace");
    let mut controller = reader.header().controller().expect("built in");
    let mut host = Replayed::new(reader, Outcomes::Recorded, |_: Retaken<'_>| {});
    assert_eq!(host.pending(), None);
    let observation = host.observe(controller.period()).expect("a trace").expect("a step");
    assert_eq!(host.pending(), Some((1, 2, observation.at)));
    let step = controller.step(Input { observation, outcomes: Vec::new() });
    host.apply(&step).expect("a trace");
    assert_eq!(host.pending(), None);
}

#[test]
fn recording_a_replay_gives_the_same_file() {
    let reader = Reader::new(CARREFOUR.as_bytes(), "file").expect("a trace");
    let header = reader.header().clone();
    let mut controller = header.controller().expect("built in");
    let mut host = Replayed::new(reader, Outcomes::Recorded, |_: Retaken<'_>| {});
    let mut file = Vec::new();
    let writer = Writer::new(&mut file, "file", &header).expect("a vector takes everything");
    let mut recorder = Recorder::new(writer);
    run(&mut host, &mut controller, &mut recorder).expect("a trace");
    assert_eq!(recorder.finish().expect("a vector takes everything"), 12);
    assert_eq!(String::from_utf8(file).expect("JSON is UTF-8"), CARREFOUR);
}

/// A disk with room for `room` bytes.
struct Disk {
    room: usize,
    /// Bytes that came, and how many of them were flushed.
    came: Rc<Cell<(usize, usize)>>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (came, flushed) = self.came.get();
        let count = bytes.len().min(self.room - came);
        self.came.set((came + count, flushed));
        match count {
            0 => Err(io::Error::from(io::ErrorKind::StorageFull)),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let (came, _) = self.came.get();
        self.came.set((came, came));
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_run() {
    let header = plain_header(synthetic::parse("node:2 core:2").expect("a machine"));
    let came = Rc::new(Cell::new((0, 0)));
    let disk = Disk { room: 2_000, came: Rc::clone(&came) };
    let mut recorder = Recorder::new(Writer::new(disk, "/full/disk", &header).expect("room"));
    for second in 0..100 {
        let observation = Observation { at: Nanos::from_secs(second), ..Observation::default() };
        recorder.input(&Input { observation, outcomes: Vec::new() });
        recorder.step(&Step::default(), &[]);
    }
    assert_eq!(came.get().0, 2_000, "as much as fits was written");
    let said = recorder.finish().expect_err("the disk is full").to_string();
    assert!(said.starts_with("cannot write trace /full/disk: "), "{said}");
}

#[test]
fn each_line_is_out_before_the_next_thing_happens() {
    let header = plain_header(synthetic::parse("node:2 core:2").expect("a machine"));
    let came = Rc::new(Cell::new((0, 0)));
    let disk = Disk { room: usize::MAX, came: Rc::clone(&came) };
    let mut writer = Writer::new(disk, "disk", &header).expect("room");
    let mut before = 0;
    let mut check = || {
        let (came, flushed) = came.get();
        assert!(came > before && came == flushed, "{before} {came} {flushed}");
        before = came;
    };
    check();
    writer.input(&Input::default()).expect("room");
    check();
    writer.decision(&Step::default()).expect("room");
    check();
}

/// Replays a file under all policies at once.
fn replay(file: &[u8]) -> Result<(), TraceError> {
    let reader = Reader::new(file, "file")?;
    let all = POLICIES.iter().map(|policy| PolicyChoice::parse(policy.name)).collect();
    let header = Header { policies: all, ..reader.header().clone() };
    let mut controller = header.controller()?;
    let mut decided = 0;
    let mut host = Replayed::new(reader, Outcomes::Recorded, |retaken: Retaken<'_>| {
        decided += Decision::from(retaken.now).text().len();
    });
    run(&mut host, &mut controller, &mut ())
}

/// The recording with a few of its numbers changed.
fn other_numbers() -> impl Strategy<Value = String> {
    let places: Vec<(usize, &str)> = CARREFOUR
        .match_indices(|character: char| character.is_ascii_digit())
        .filter(|(place, _)| !CARREFOUR[..*place].ends_with(|before: char| before.is_ascii_digit()))
        .collect();
    let number = prop_oneof![
        (0_u64..8).prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        Just(u64::MAX.to_string()),
        Just("0".to_string()),
    ];
    proptest::collection::vec((any::<Index>(), number), 1..6).prop_map(move |changes| {
        let mut changes: Vec<(usize, String)> = changes
            .into_iter()
            .map(|(place, number)| (places[place.index(places.len())].0, number))
            .collect();
        changes.sort();
        changes.dedup_by_key(|(place, _)| *place);
        let mut file = CARREFOUR.to_string();
        for (place, number) in changes.into_iter().rev() {
            let digits = file[place..].bytes().take_while(u8::is_ascii_digit).count();
            file.replace_range(place..place + digits, &number);
        }
        file
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_can_be_read_can_be_decided_on((header, steps) in recording()) {
        let replayed = replay(&written(&header, &steps));
        prop_assert!(replayed.is_ok(), "{:?}", replayed);
    }

    #[test]
    fn no_number_makes_the_controller_panic(file in other_numbers()) {
        // Either it is read and decided on, or the reader says what is wrong with it.
        if let Err(error) = replay(file.as_bytes()) {
            prop_assert!(error.to_string().starts_with("file:"), "{}", error);
        }
    }
}
