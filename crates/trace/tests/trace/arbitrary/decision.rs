//! Any decision, whether or not a controller would ever make it.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use rondpoint_core::controller::Step;
use rondpoint_core::plan::{
    Inverse, Kind, Mechanism, NodeMove, PageMove, Refusal, Refused, Sampling, Undo,
};
use rondpoint_core::trial::{Change, Comparison, Judged, Verdict};
use rondpoint_core::{Action, Bytes, Nanos, Pid, Plan, Proposal, Reason, Tid};

use super::{float, set, text};

fn page_move() -> impl Strategy<Value = PageMove> {
    (any::<u64>(), any::<u8>(), any::<u16>(), any::<u16>())
        .prop_map(|(address, shift, from, to)| PageMove { address, shift, from, to })
}

fn mechanism() -> impl Strategy<Value = Mechanism> {
    select(&[Mechanism::CoLocation, Mechanism::Interleaving, Mechanism::Following][..])
}

fn action() -> impl Strategy<Value = Action> {
    let pid = || any::<u32>().prop_map(Pid);
    let pages = || vec(page_move(), 0..4);
    let node = any::<[usize; 2]>().prop_map(|[from, to]| NodeMove { from, to });
    let memory = any::<u64>().prop_map(Bytes);
    let sampling = prop_oneof![
        Just(Sampling::Off),
        any::<(u64, usize)>()
            .prop_map(|(cycles, tracked_pages)| Sampling::Every { cycles, tracked_pages }),
    ];
    prop_oneof![
        (pid(), mechanism(), pages()).prop_map(|(pid, mechanism, pages)| Action::MovePages {
            pid,
            mechanism,
            pages
        }),
        (pid(), pages()).prop_map(|(pid, pages)| Action::Replicate { pid, pages }),
        (pid(), pages()).prop_map(|(pid, pages)| Action::Unreplicate { pid, pages }),
        (pid(), any::<u32>(), set(200), option::of(any::<usize>())).prop_map(
            |(pid, tid, cpus, via)| Action::SetAffinity { pid, tid: Tid(tid), cpus, via }
        ),
        (pid(), vec(node, 0..3), any::<bool>(), memory).prop_map(|(pid, nodes, freeze, memory)| {
            Action::MoveProcessMemory { pid, nodes, freeze, memory }
        }),
        (option::of(pid()), sampling)
            .prop_map(|(pid, sampling)| Action::SetSampling { pid, sampling }),
    ]
}

fn proposal() -> impl Strategy<Value = Proposal> {
    let undo = (any::<u64>(), float(), float())
        .prop_map(|(plan, change, noise)| Reason::Undo(Undo { plan, change, noise }));
    let reason = prop_oneof![text().prop_map(Reason::Other), undo];
    let policy = select(&["carrefour", "sam", "a name \"of\" another"][..]);
    (policy, action(), reason).prop_map(|(policy, action, reason)| Proposal {
        policy,
        action,
        reason,
    })
}

fn judged() -> impl Strategy<Value = Judged> {
    let change =
        || option::of((float(), float()).prop_map(|(change, noise)| Change { change, noise }));
    let changes = (change(), change(), change(), change(), change(), change(), change());
    let comparison = (changes, float(), float()).prop_map(|(changes, phase, misses)| Comparison {
        progress: changes.0,
        instructions: changes.1,
        slowest: changes.2,
        latency: changes.3,
        unstalled: changes.4,
        local: changes.5,
        by_latency: None, // not recorded
        combined: changes.6,
        phase,
        misses,
    });
    let kinds = [Kind::Replication, Kind::Affinity, Kind::Bulk, Kind::Sampling];
    let kind = prop_oneof![mechanism().prop_map(Kind::Pages), select(kinds.to_vec())];
    let verdicts = [
        Verdict::Better,
        Verdict::Worse,
        Verdict::Unclear,
        Verdict::PhaseChange,
        Verdict::Traded,
        Verdict::Returned,
    ];
    let verdict = select(verdicts.to_vec());
    let compared = (verdict, comparison, option::of(float()));
    (any::<u32>(), vec(any::<u64>(), 0..3), vec(kind, 0..3), compared).prop_map(
        |(pid, plans, kinds, (verdict, comparison, predicted))| Judged {
            pid: Pid(pid),
            policy: "sam",
            plans,
            kinds,
            verdict,
            comparison,
            predicted,
        },
    )
}

/// A plan and verdicts.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let inverse = (any::<u64>(), any::<usize>(), option::of(action()), any::<bool>())
        .prop_map(|(plan, step, action, exact)| Inverse { plan, step, action, exact });
    let refusal = prop_oneof![
        Just(Refusal::ObserveOnly),
        (float(), float())
            .prop_map(|(confidence, needed)| Refusal::LowConfidence { confidence, needed }),
        any::<u64>().prop_map(|left| Refusal::Residence { left: Nanos(left) }),
    ];
    let refused =
        (proposal(), refusal).prop_map(|(proposal, refusal)| Refused { proposal, refusal });
    let parts = (vec(proposal(), 0..3), vec(inverse, 0..3), vec(refused, 0..3));
    (any::<u64>(), parts, vec(judged(), 0..3)).prop_map(
        |(number, (steps, inverses, refused), judged)| Step {
            plan: Plan { number, steps, inverses, refused, ..Plan::default() },
            judged,
            window: None,
        },
    )
}
