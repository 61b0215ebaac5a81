//! Tests of the answers, by the measurements and actions of a run.

use super::super::super::account::StepLine;
use super::*;
use crate::compared::Compared;

const SEEN: PeriodLine = PeriodLine {
    seconds: 3.0,
    unit: "accesses",
    accesses_per_us: None,
    faults_per_s: None,
    lar_percent: Some(25.0),
    imbalance_percent: Some(173.2),
    latency_cycles: None,
    instructions_per_s: None,
};

/// What a test varies.
struct Case {
    diary: Diary,
    total: Account,
    trials: Vec<TrialLine>,
    before: Option<PeriodLine>,
    act: bool,
}

impl Case {
    fn new(rung: Rung) -> Self {
        let mut diary = Diary::default();
        diary.rungs.insert(rung);
        let before = Some(SEEN.clone());
        Self { diary, total: Account::default(), trials: Vec::new(), before, act: true }
    }

    fn answers(&self) -> Answers {
        Answers::of(&Evidence {
            diary: &self.diary,
            total: &self.total,
            threads: &ThreadMoves::default(),
            trials: &self.trials,
            before: self.before.as_ref(),
            act: self.act,
            memory_nodes: 4,
            elapsed_s: 4.0,
            rested_s: 0.0,
            own_cpu_s: 0.02,
        })
    }

    fn moved(mut self, verdicts: &[(Verdict, f64)]) -> Self {
        self.total.interleaved.moved = 512;
        (self.diary.first_action_s, self.diary.last_action_s) = (Some(1.0), Some(1.5));
        let trial = |(verdict, change): &(Verdict, f64)| TrialLine {
            at_s: 2.0,
            pid: 7,
            policy: "carrefour",
            verdict: *verdict,
            change: Some(*change),
            noise: Some(0.02),
            compared: vec![Compared { what: "memory latency", change: -change, noise: 0.02 }],
            plans: vec![1],
            predicted: None,
            measured: None,
        };
        self.trials = verdicts.iter().map(trial).collect();
        self
    }
}

#[test]
fn the_next_start_is_advised_on_where_the_gain_is_sure_and_large() {
    let gain = |least, likely| Interval { least, likely, most: 2.0 * likely };
    assert_eq!(next_time(None), None);
    assert_eq!(next_time(Some(gain(0.02, 0.1))), None);
    let told = next_time(Some(gain(0.3, 0.6))).expect("it is advised on");
    assert!(told.contains("rondpoint run --interleave all"), "{told}");
    assert!(told.contains("60 %") && told.contains("30 %"), "{told}");
}

#[test]
fn gains_and_losses_are_told_with_their_size() {
    let helped =
        |verdicts: &[(Verdict, f64)]| Case::new(Rung::Samples).moved(verdicts).answers().helped;
    assert_eq!(
        helped(&[(Verdict::Better, 0.231)]),
        "Helped: the trial found +23.1 % by memory latency (noise 2.0 %)."
    );
    assert_eq!(
        helped(&[(Verdict::Better, 0.1), (Verdict::Worse, -0.2), (Verdict::Better, 0.3)]),
        "Helped: 2 of 3 trials found +10.0 % to +30.0 % by memory latency (noise 2.0 %). Did not \
         help: 1 of 3 trials found -20.0 % by memory latency (noise 2.0 %), and was taken back."
    );
    assert!(helped(&[(Verdict::NoWayBack, -0.1)]).starts_with("Harmed: the trial found -10.0"));
    assert!(helped(&[(Verdict::Unclear, 0.01)]).starts_with("No clear change: the trial"));
    assert!(helped(&[(Verdict::PhaseChange, 0.5)]).starts_with("Not known"));
    assert!(helped(&[]).contains("ended before a trial was complete"));
}

#[test]
fn nothing_to_repair_is_said_only_where_it_is_so() {
    let state = |local, imbalance| {
        let mut case = Case::new(Rung::Samples);
        let seen = PeriodLine { lar_percent: local, imbalance_percent: imbalance, ..SEEN };
        case.before = Some(seen);
        case.answers().helped
    };
    assert_eq!(
        state(Some(98.0), Some(3.0)),
        "Nothing to repair: 98 % of the accesses are local, controller imbalance 3 %."
    );
    assert_eq!(
        state(Some(25.0), Some(173.2)),
        "No change was made: 25 % of the accesses are local, controller imbalance 173 %."
    );
    assert!(state(Some(98.0), Some(173.2)).starts_with("No change was made"));
    assert!(state(None, None).starts_with("Not known: no memory traffic"));
    let mut short = Case::new(Rung::Samples);
    short.before = None;
    assert!(short.answers().helped.starts_with("Too short to judge"));
}

#[test]
fn page_faults_are_not_called_accesses_and_their_limits_are_told() {
    let answers = Case::new(Rung::HintFaults).answers();
    assert!(answers.helped.contains("of the page faults are local"), "{answers:?}");
    assert!(answers.not_seen.expect("a limit").contains("how often memory is used"));
    let mut sampled = Case::new(Rung::Samples);
    assert_eq!(sampled.answers().not_seen, None);
    sampled.diary.rungs.insert(Rung::Counters);
    assert_eq!(sampled.answers().not_seen, None, "samples were off for a while");
}

#[test]
fn what_was_moved_and_why_and_at_what_cost() {
    let mut case = Case::new(Rung::Samples).moved(&[]);
    let step = |policy, is_sampling, reason: &str| StepLine {
        at_s: 1.0,
        plan: 1,
        policy,
        action: String::new(),
        reason: reason.to_string(),
        outcome: String::new(),
        is_sampling,
        mask: None,
    };
    case.diary.steps = vec![
        step("carrefour", true, "9 DRAM requests/µs"),
        step("carrefour", false, "imbalance 173 %"),
        step("carrefour", false, "imbalance 90 %"),
        step("sam", false, "shares data"),
    ];
    case.total.spent = rondpoint_core::Nanos(250_000_000);
    let answers = case.answers();
    assert_eq!(answers.moved, "512 pages (2.0 MiB) spread over the nodes; from 1.0 s to 1.5 s.");
    assert_eq!(answers.why, ["carrefour: imbalance 173 %", "sam: shares data"]);
    case.diary.pages_back = 100;
    let moved = case.answers().moved;
    assert!(moved.ends_with("to 1.5 s; 100 pages of it went back after a trial."), "{moved}");
    assert_eq!(answers.cost, "0.02 s of CPU to manage (0.5 % of one CPU); 0.25 s to move.");
}

#[test]
fn a_manager_that_only_watches_says_what_it_wanted() {
    let mut case = Case::new(Rung::Samples);
    case.act = false;
    case.diary.wanted = Wanted { pages: 40, threads: 1 };
    let answers = case.answers();
    assert!(answers.helped.starts_with("Something to repair: 25 %"), "{answers:?}");
    let expected = "nothing (--dry-run). Proposed: up to 40 pages and 1 thread in one step.";
    assert_eq!(answers.moved, expected);
}

#[test]
fn where_nothing_was_done_the_policy_and_the_guard_are_asked() {
    let mut case = Case::new(Rung::Samples);
    case.diary.last_reason = Some(("carrefour", "0.1 DRAM requests/µs".to_string()));
    case.diary.refused = [("low-confidence".to_string(), 3)].into();
    let why = case.answers().why;
    assert_eq!(
        why,
        ["carrefour: 0.1 DRAM requests/µs", "held back by the guard: low-confidence 3"]
    );
}
