//! Carrefour over several rounds: adaptive sampling, replication batches and collapses, the
//! feedback of Carrefour-LP.

use super::notation::{carrefour, model, proposals, render};
use expect_test::{Expect, expect};
use rondpoint_core::observation::Replica;
use rondpoint_core::plan::{PageCounts, Sampling, StepResult};
use rondpoint_core::policy::carrefour::{Carrefour, preset};
use rondpoint_core::{Action, Nanos, Outcome, Plan, Policy, Proposal, Random};

const SHARED: &str = "node:4 core:4\nload 100 0 0 0\napp 1\npages 40 home 0: 1x2 2x3 w1";

/// Tells the policy that everything in its plan was done, with this many pages moved by each step.
pub(crate) fn learn(policy: &mut Carrefour, steps: Vec<Proposal>, moved: u64) {
    let outcome = |(step, proposal): (usize, &Proposal)| Outcome {
        plan: 1,
        step,
        result: match proposal.action {
            Action::SetSampling { .. } => StepResult::Done,
            _ => StepResult::Pages(PageCounts { moved, ..PageCounts::default() }),
        },
        spent: Nanos(0),
        frozen: Nanos(0),
    };
    let outcomes: Vec<Outcome> = steps.iter().enumerate().map(outcome).collect();
    policy.learn(&Plan { number: 1, steps, ..Plan::default() }, &outcomes);
}

/// Two rounds on the same model, the first with `moved` pages: what the second says.
fn second_round(preset: &str, text: &str, moved: u64, expected: Expect) {
    let mut policy = carrefour(preset);
    let first = proposals(&mut policy, text, 1);
    learn(&mut policy, first, moved);
    let second = proposals(&mut policy, text, 2);
    expected.assert_eq(&render(&second));
}

#[test]
fn fewer_than_ten_actions_make_sampling_cheap() {
    second_round(
        "final",
        "node:4 core:4\nload 100 0 0 0\napp 1\npages 2 home 3: 1x2 2x3 w1",
        9,
        expect![[r#"
            sample 1: every 260000 cycles, 30000 pages tracked
              because 0 placements changed, 10 keep the accurate rate
        "#]],
    );
}

#[test]
fn ten_actions_keep_it_accurate() {
    let mut policy = carrefour("final");
    let first = proposals(&mut policy, SHARED, 1);
    learn(&mut policy, first, 10);
    let rates = |proposals: &[Proposal]| {
        proposals.iter().filter(|one| matches!(one.action, Action::SetSampling { .. })).count()
    };
    let second = proposals(&mut policy, SHARED, 2);
    assert_eq!(rates(&second), 0, "no change of the rate");
    learn(&mut policy, second, 9);
    assert_eq!(rates(&proposals(&mut policy, SHARED, 3)), 1, "nine are too few");
}

#[test]
fn the_author_code_tracks_fewer_pages_when_cheap() {
    second_round(
        "code",
        "node:4 core:4\nload 100 0 0 0\napp 1",
        0,
        expect![[r#"
            sample 1: every 262112 cycles, 10000 pages tracked
              because 0 placements changed, 10 keep the accurate rate
        "#]],
    );
}

#[test]
fn an_application_that_calms_down_is_not_sampled_any_more() {
    let mut policy = carrefour("final");
    let first = proposals(&mut policy, SHARED, 1);
    learn(&mut policy, first, 40);
    let calm = "node:4 core:4\nload 10 10 10 10\napp 1";
    expect![[r#"
        sample 1: off
          because 40.0 DRAM requests/µs, limit 50.0
    "#]]
    .assert_eq(&render(&proposals(&mut policy, calm, 2)));
    assert_eq!(render(&proposals(&mut policy, calm, 3)), "", "said once");
}

const READ_ONLY: &str = "node:4 core:4\nload 40 20 20 20\nfree 90\napp 1 reads 99\npages";

#[test]
fn the_author_code_replicates_single_pages_after_the_first_batch() {
    for (preset, pages_later) in [("code", 3), ("final", 0)] {
        let mut policy = carrefour(preset);
        let first = proposals(&mut policy, &format!("{READ_ONLY} 500 home 0: 1x2 2x3"), 1);
        assert!(render(&first).contains("replicate 500 pages"), "{preset}");
        learn(&mut policy, first, 500);
        let later = render(&proposals(&mut policy, &format!("{READ_ONLY} 3 home 0: 1x2 2x3"), 2));
        assert_eq!(later.contains("replicate 3 pages"), pages_later == 3, "{preset}: {later}");
    }
}

#[test]
fn a_page_that_collapsed_six_times_is_never_replicated_again() {
    let (topology, mut model) = model(&format!("{READ_ONLY} 501 home 0: 1x2 2x3"));
    let mut policy = carrefour("final");
    let address = model.pages.iter().next().expect("a page").address;
    let mut round = |collapses: Option<u32>| {
        let replica = |collapses| Replica { address, collapses };
        model.apps[0].replicas = Some(collapses.map(replica).into_iter().collect());
        let actions = policy.propose(&model, &topology, &mut Random::new(1));
        let lines = actions.iter().map(|proposal| format!("{}; ", proposal.action));
        lines.filter(|line| line.contains("replicate")).collect::<String>()
    };
    assert_eq!(round(None), "replicate 501 pages of 1; ");
    // Five collapses are borne; the page is replicated already and not asked for again.
    assert_eq!(round(Some(5)), "replicate 500 pages of 1; ");
    assert_eq!(round(Some(6)), "unreplicate 1 page of 1; replicate 500 pages of 1; ");
    assert_eq!(round(None), "replicate 500 pages of 1; ");
}

#[test]
fn steady_waits_where_writes_take_most_copies_back() {
    for (preset, expected) in [("steady", "1.3..6.."), ("final", "123456..")] {
        let (topology, mut model) = model(&format!("{READ_ONLY} 600 home 0: 1x2 2x3"));
        let mut policy = carrefour(preset);
        let mut tried = String::new();
        for second in 1..9 {
            model.at = Nanos::from_secs(second);
            let steps = policy.propose(&model, &topology, &mut Random::new(1));
            let copies = steps.iter().any(|one| matches!(one.action, Action::Replicate { .. }));
            tried += &if copies { second.to_string() } else { ".".into() };
            learn(&mut policy, steps, 600);
        }
        assert_eq!(tried, expected, "{preset}");
    }
}

#[test]
fn where_nothing_tells_writes_no_page_is_copied_and_the_reason_says_so() {
    let pages = "node:4 core:4\nload 100 0 0 0\nfree 90\napp 1\npages 600 home 0: 1x2 2x3";
    let text = render(&proposals(&mut carrefour("final"), pages, 1));
    assert!(!text.contains("replicate "), "{text}");
    let why = "600 of them only read: none is replicated, as nothing tells this process's writes";
    assert!(text.contains(why), "{text}");
}

#[test]
fn where_the_kernel_cannot_replicate_pages_are_interleaved_from_then_on() {
    let text = "node:4 core:4\nload 100 0 0 0\nfree 90\napp 1 reads 99\npages 500 home 0: 1x2 2x3";
    let mut policy = carrefour("final");
    let steps = proposals(&mut policy, text, 1);
    let step = steps
        .iter()
        .position(|one| matches!(one.action, Action::Replicate { .. }))
        .expect("a replication");
    let outcome = Outcome {
        plan: 1,
        step,
        result: StepResult::Unsupported,
        spent: Nanos(0),
        frozen: Nanos(0),
    };
    policy.learn(&Plan { number: 1, steps, ..Plan::default() }, &[outcome]);
    let second = render(&proposals(&mut policy, text, 2));
    assert!(second.contains("500 of them only read: replication would take them"), "{second}");
}

#[test]
fn a_kernel_that_tells_no_copies_is_not_asked_for_any() {
    let (topology, mut model) =
        model("node:4 core:4\nload 100 0 0 0\nfree 90\napp 1 reads 99\npages 500 home 0: 1x2 2x3");
    model.apps[0].replicas = None;
    let steps = carrefour("final").propose(&model, &topology, &mut Random::new(1));
    let text = render(&steps);
    assert!(!text.contains("replicate "), "{text}");
    assert!(text.contains("500 of them only read: replication would take them"), "{text}");
}

#[test]
fn the_lp_feedback_drops_what_did_not_help_and_rests_five_seconds() {
    let second = |text: &str| {
        let mut policy = carrefour("lp");
        drop(proposals(
            &mut policy,
            "node:4 core:4\nmatrix 40 0 0 0 / 20 0 0 0 / 20 0 0 0 / 20 0 0 0\napp 1",
            1,
        ));
        let actions =
            render(&proposals(&mut policy, &format!("{text}\napp 1\npages 9 home 0: 1x2 w1"), 2));
        (actions.contains("move 9"), policy.period())
    };
    // Imbalance fell from 200 to 172 % (−14 %): effective.
    let better = "node:4 core:4\nmatrix 40 6 0 0 / 20 0 0 0 / 20 0 6 0 / 20 0 0 0";
    assert_eq!(second(better), (true, Nanos::from_secs(1)));
    // Nothing changed: both mechanisms rest.
    let same = "node:4 core:4\nmatrix 40 0 0 0 / 20 0 0 0 / 20 0 0 0 / 20 0 0 0";
    assert_eq!(second(same), (false, Nanos::from_secs(5)));
    // The imbalance fell, but the local ratio fell from 40 to 30 %: harmful.
    let harmful = "node:4 core:4\nmatrix 30 0 0 20 / 10 0 0 0 / 20 0 0 0 / 20 0 0 0";
    assert_eq!(second(harmful), (false, Nanos::from_secs(5)));
}

#[test]
fn it_does_not_rest_while_another_program_is_looked_at_closely() {
    let jam = "node:4 core:4\nmatrix 40 0 0 0 / 20 0 0 0 / 20 0 0 0 / 20 0 0 0\napp 1";
    let two = format!("{jam}\napp 2");
    let mut policy = carrefour("lp");
    let mut period = |text: &str| {
        drop(proposals(&mut policy, text, 1));
        policy.period()
    };
    // In the second round the first is of no use and the other begins, in the third neither is of
    // use.
    let [one, five] = [1, 5].map(Nanos::from_secs);
    assert_eq!([jam, &two, &two].map(&mut period), [one, one, five]);
}

#[test]
fn the_same_seed_and_model_give_the_same_proposals() {
    let run = |seed| render(&proposals(&mut carrefour("final"), SHARED, seed));
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn an_exempt_application_is_watched_and_not_touched() {
    let (topology, mut model) = model(SHARED);
    model.apps[0].exempt = Some(rondpoint_core::observation::Exemption::OwnMemoryPolicy);
    let proposals = carrefour("final").propose(&model, &topology, &mut Random::new(1));
    assert!(proposals.iter().all(|one| matches!(one.action, Action::SetSampling { .. })));
}

/// Few accesses are local, but no page has a single user: the rate falls to a fourth, then to a
/// sixteenth.
#[test]
fn steady_samples_ever_less_while_it_finds_nothing_to_move() {
    let rates = |preset: &str| {
        let mut policy = carrefour(preset);
        let text =
            "node:4 core:4\nmatrix 20 20 20 20 / 20 20 20 20 / 20 20 20 20 / 20 20 20 20\napp 1";
        let (topology, model) = model(text);
        let mut cycles = Vec::new();
        for round in 0..6 {
            for step in policy.propose(&model, &topology, &mut Random::new(round)) {
                if let Action::SetSampling {
                    sampling: Sampling::Every { cycles: every, .. }, ..
                } = step.action
                {
                    cycles.push(every);
                }
            }
        }
        cycles
    };
    assert_eq!(rates("final"), [65_000, 260_000]);
    assert_eq!(rates("steady"), [65_000, 260_000, 1_040_000]);
}

#[test]
fn our_preset_looks_less_often_at_what_needs_nothing() {
    let (even, jam) = ("node:2 core:2\n load 9 9\n app 1", "node:2 core:2\n load 900 9\n app 1");
    let mut policy = carrefour("steady");
    let mut periods = |text: &str| {
        proposals(&mut policy, text, 1);
        policy.period()
    };
    let [one, two] = [1, 2].map(Nanos::from_secs);
    assert_eq!([even, even, even, jam, even].map(&mut periods), [one, two, two, one, one]);
}

#[test]
fn copies_that_were_never_made_are_not_found_useless() {
    let preset = preset::Preset { feedback: preset::LP.feedback, ..preset::STEADY };
    let mut policy = Carrefour::new(preset);
    let scene = "node:4 core:4\nload 40 20 20 20\nfree 90\napp 1 reads 99\n";
    // Too few pages for copies; the co-location that was tried brought nothing.
    let few = format!("{scene}pages 100 home 0: 1x2 2x3\npages 50 home 0: 3x4");
    let first = proposals(&mut policy, &few, 1);
    assert!(!render(&first).contains("replicate "), "{}", render(&first));
    learn(&mut policy, first, 50);
    let many = format!("{scene}pages 600 home 0: 1x2 2x3");
    let second = render(&proposals(&mut policy, &many, 2));
    assert!(second.contains("replicate 600 pages"), "{second}");
}
