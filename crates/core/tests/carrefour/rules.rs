//! Carrefour's rarer rules: bouncing pages, stabilisers, what is known from samples or hint faults
//! alone, nodes without memory.

use super::notation::{carrefour, model, proposals, render};
use rondpoint_core::model::TrafficSource;
use rondpoint_core::plan::{PageCounts, StepResult};
use rondpoint_core::policy::carrefour::{Carrefour, preset};
use rondpoint_core::{Action, Model, Nanos, Outcome, Plan, Policy, Proposal, Random, Topology};

fn learn_all(policy: &mut Carrefour, steps: Vec<Proposal>) {
    let moved = |proposal: &Proposal| match &proposal.action {
        Action::MovePages { pages, .. } => pages.len() as u64,
        _ => 0,
    };
    let outcome = |(step, proposal): (usize, &Proposal)| Outcome {
        plan: 1,
        step,
        result: StepResult::Pages(PageCounts { moved: moved(proposal), ..PageCounts::default() }),
        spent: Nanos(0),
        frozen: Nanos(0),
    };
    let outcomes: Vec<Outcome> = steps.iter().enumerate().map(outcome).collect();
    policy.learn(&Plan { number: 1, steps, ..Plan::default() }, &outcomes);
}

fn page_moves(proposals: &[Proposal]) -> usize {
    let moves = |proposal: &Proposal| match &proposal.action {
        Action::MovePages { pages, .. } => pages.len(),
        _ => 0,
    };
    proposals.iter().map(moves).sum()
}

fn round(policy: &mut Carrefour, topology: &Topology, model: &Model) -> Vec<Proposal> {
    policy.propose(model, topology, &mut Random::new(1))
}

#[test]
fn carrefour_lp_moves_a_huge_page_once_and_base_pages_again() {
    // No feedback, so that only this rule is seen.
    let preset = preset::Preset { feedback: None, ..preset::LP };
    let text = |kind: &str| {
        format!("node:2 core:4\nmatrix 0 40 / 40 0\napp 1\npages 5 home 0 {kind}: 1x3")
    };
    for (kind, again) in [("huge", 0), ("", 5)] {
        let mut policy = Carrefour::new(preset.clone());
        let first = proposals(&mut policy, &text(kind), 1);
        assert_eq!(page_moves(&first), 5);
        learn_all(&mut policy, first);
        assert_eq!(page_moves(&proposals(&mut policy, &text(kind), 2)), again, "{kind}");
    }
}

#[test]
fn a_round_is_skipped_when_few_pages_have_most_samples() {
    let stabiliser =
        preset::Stabiliser { max_sample_deviation: Some(200.0), ..preset::FINAL.stabiliser };
    let moves = |preset: preset::Preset, accesses: u32| {
        let text = format!(
            "node:2 core:4\nmatrix 0 40 / 40 0\napp 1\npages 30 home 0: 1x2\npages 1 home 0: 1x{accesses}"
        );
        page_moves(&proposals(&mut Carrefour::new(preset), &text, 1))
    };
    let with = preset::Preset { stabiliser, ..preset::FINAL };
    assert_eq!((moves(with.clone(), 2), moves(with, 500), moves(preset::FINAL, 500)), (31, 0, 31));
}

#[test]
fn an_application_that_never_uses_treated_pages_again_is_given_up() {
    let stabiliser =
        preset::Stabiliser { max_untreated_rounds: Some(3), ..preset::FINAL.stabiliser };
    let mut policy = Carrefour::new(preset::Preset { stabiliser, ..preset::FINAL });
    let mut rounds = Vec::new();
    for fresh in 0..8 {
        // Each round the program has gone on to other pages.
        let before = 20 * fresh;
        let text = format!(
            "node:2 core:4\nmatrix 0 40 / 40 0\napp 1\npages {} home 1: 1x1\npages 20 home 0: 1x3",
            before + 1
        );
        let proposed = proposals(&mut policy, &text, 1);
        rounds.push(page_moves(&proposed));
        learn_all(&mut policy, proposed);
    }
    assert_eq!(
        rounds,
        [20, 20, 20, 20, 20, 0, 0, 0],
        "nothing was treated before round 2; rounds 2 to 5 are untreated"
    );
}

#[test]
fn sampling_is_not_switched_off_where_it_is_the_only_sensor() {
    let (topology, mut calm) = model("node:2 core:4\nload 1 1\napp 1");
    for only in [TrafficSource::Samples, TrafficSource::HintFaults] {
        calm.apps[0].traffic_source = only;
        calm.apps[0].cpu_percent = 20.0;
        let text = render(&round(&mut carrefour("final"), &topology, &calm));
        assert!(text.starts_with("sample 1: every 260000 cycles"), "{only:?}: {text}");
    }
    calm.apps[0].traffic_source = TrafficSource::Counters;
    let text = render(&round(&mut carrefour("final"), &topology, &calm));
    assert!(text.starts_with("sample 1: off"), "{text}");
}

#[test]
fn hint_faults_pass_the_traffic_gate_by_cpu_use() {
    // A thousand faults a second say nothing about requests per microsecond.
    let (topology, mut model) =
        model("node:2 core:4\nmatrix 0 0.0005 / 0.0005 0\napp 1\npages 5 home 0: 1x3");
    model.apps[0].traffic_source = TrafficSource::HintFaults;
    let mut moves = |cpu_percent| {
        model.apps[0].cpu_percent = cpu_percent;
        page_moves(&round(&mut carrefour("final"), &topology, &model))
    };
    assert_eq!((moves(90.0), moves(20.0)), (5, 0));
    model.apps[0].cpu_percent = 90.0;
    let text = render(&round(&mut carrefour("final"), &topology, &model));
    assert!(
        text.contains("because 90 % CPU above 33 %; hint faults tell proportions only"),
        "{text}"
    );
}

#[test]
fn steady_leaves_pages_to_the_balancing_where_its_faults_alone_tell() {
    let jam = "node:4 core:4\nmatrix 20 0 0 0 / 20 0 0 0 / 20 0 0 0 / 20 0 0 0\napp 1";
    let pages = "pages 99 home 0: 1x3\npages 99 home 0: 1x3 2x3\npages 99 home 0: 0x3";
    let (topology, mut model) = model(&format!("{jam}\n{pages}"));
    model.apps[0].cpu_percent = 90.0;
    let mut moves = |preset, source| {
        model.apps[0].traffic_source = source;
        page_moves(&round(&mut carrefour(preset), &topology, &model))
    };
    assert!(moves("steady", TrafficSource::Samples) > 99);
    assert_eq!(moves("steady", TrafficSource::HintFaults), 0);
    assert!(moves("final", TrafficSource::HintFaults) > 0, "as published");
}

#[test]
fn a_page_used_by_a_node_without_memory_goes_to_the_nearest_with() {
    let (plain, model) =
        model("node:3 core:4\nmatrix 0 0 0 / 0 0 0 / 40 40 0\napp 1\npages 5 home 0: 2x3");
    let mut description = plain.description().clone();
    description.nodes[2].memory = rondpoint_core::Bytes(0);
    description.distances[(2, 0)] = 30;
    let topology = Topology::new(description).expect("a machine");
    let text = render(&round(&mut carrefour("final"), &topology, &model));
    assert!(text.contains("5 × 0→1"), "{text}");
}

#[test]
fn what_follows_an_undo_is_not_counted_as_an_action() {
    let mut policy = carrefour("final");
    let text = "node:4 core:4\nload 100 0 0 0\napp 1\npages 40 home 0: 1x2 2x3 w1";
    let mut steps = proposals(&mut policy, text, 1);
    let undo = rondpoint_core::plan::Undo { plan: 1, change: -0.1, noise: 0.01 };
    steps.iter_mut().for_each(|step| step.reason = rondpoint_core::Reason::Undo(undo));
    learn_all(&mut policy, steps);
    let text = render(&proposals(&mut policy, text, 2));
    assert!(text.contains("0 placements changed"), "{text}");
}

#[test]
fn a_process_that_started_anew_starts_anew_here_too() {
    let (topology, mut model) =
        model("node:4 core:4\nload 100 0 0 0\napp 1\npages 40 home 0: 1x2 2x3 w1");
    let mut policy = carrefour("final");
    let rate = |proposals: &[Proposal]| {
        proposals.iter().any(|one| matches!(one.action, Action::SetSampling { .. }))
    };
    assert!(rate(&round(&mut policy, &topology, &model)));
    learn_all(&mut policy, Vec::new());
    model.at = Nanos::from_secs(9);
    model.apps[0].started = Nanos::from_secs(8);
    let again = render(&round(&mut policy, &topology, &model));
    assert!(again.starts_with("sample 1: every 65000 cycles"), "{again}");
}
