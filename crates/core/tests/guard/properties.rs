//! What must hold for any proposals: allowed CPUs, budgets, bounded moves, exact undo of masks.

use super::scene::{Stage, affinity, move_pages};
use proptest::prelude::*;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::plan::PageMove;
use rondpoint_core::{Action, CpuSet, Nanos, Pid, Tid};
use std::collections::BTreeMap;

/// One proposal: a thread to a mask, or a page from node to node.
#[derive(Debug, Clone)]
enum Wish {
    Thread { thread: u32, mask: u32 },
    Page { pid: u32, page: u64, from: u16, to: u16 },
}

fn wishes() -> impl Strategy<Value = Vec<Vec<Wish>>> {
    let thread =
        (0..6_u32, 1..0x1_0000_u32).prop_map(|(thread, mask)| Wish::Thread { thread, mask });
    let page = (1..4_u32, 0..40_u64, 0..5_u16, 0..5_u16)
        .prop_map(|(pid, page, from, to)| Wish::Page { pid, page, from, to });
    prop::collection::vec(prop::collection::vec(prop_oneof![thread, page], 0..30), 1..25)
}

fn proposal(wish: &Wish) -> rondpoint_core::Proposal {
    match wish {
        Wish::Thread { thread, mask } => {
            let list: Vec<String> =
                (0..17).filter(|cpu| mask >> cpu & 1 == 1).map(|cpu| cpu.to_string()).collect();
            affinity(1 + thread / 2, 10 * (1 + thread / 2) + thread % 2, &list.join(","))
        }
        Wish::Page { pid, page, from, to } => move_pages(*pid, &[(page << 12, *from, *to)]),
    }
}

const STEP: Nanos = Nanos::from_millis(400);
const PAGES_PER_S: u64 = 12;
/// Several fit into the longest run.
const WINDOW: Nanos = Nanos::from_secs(3);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn limits_hold_whatever_is_proposed(steps in wishes(), allowed in prop::collection::vec(1..0xffff_u32, 6), isolated in 0..16_usize) {
        let settings = GuardSettings { bytes_per_s_per_node: PAGES_PER_S << 12, calls_per_s: 20, window: WINDOW, ..GuardSettings::acting() };
        let (window, most) = (settings.window, settings.max_moves_per_window as usize);
        let mut stage = Stage::with(settings);
        stage.isolate(isolated);
        for (thread, mask) in stage.model.threads.iter_mut().zip(&allowed) {
            thread.allowed = (0..16).filter(|cpu| mask >> cpu & 1 == 1).collect();
        }
        let mut node_bytes: Vec<(Nanos, [u64; 4])> = Vec::new();
        let mut moves: BTreeMap<(u8, u32, u64), Vec<Nanos>> = BTreeMap::new();
        let mut calls: Vec<(Nanos, usize)> = Vec::new();
        for wishes in &steps {
            let plan = stage.plan(wishes.iter().map(proposal).collect());
            let mut bytes = [0; 4];
            calls.push((stage.model.at, plan.steps.len()));
            for step in &plan.steps {
                match &step.action {
                    Action::SetAffinity { tid, cpus, .. } => {
                        let thread = stage.model.thread(*tid).expect("a known thread");
                        prop_assert!(thread.exempt.is_none());
                        prop_assert!(!cpus.is_empty() && cpus.is_subset(&thread.allowed) && !cpus.contains(isolated));
                        moves.entry((0, 0, u64::from(tid.0))).or_default().push(stage.model.at);
                    }
                    Action::MovePages { pid, pages, .. } => {
                        for PageMove { address, from, to, .. } in pages {
                            prop_assert!(*from < 4 && *to < 4 && from != to);
                            bytes[usize::from(*from)] += 4096;
                            bytes[usize::from(*to)] += 4096;
                            moves.entry((1, pid.0, *address)).or_default().push(stage.model.at);
                        }
                    }
                    other => prop_assert!(false, "unexpected {other}"),
                }
            }
            node_bytes.push((stage.model.at, bytes));
            stage.model.at += STEP;
        }
        // A bucket of one second's worth: in any time t at most (t + 1 s) of the rate.
        for first in 0..node_bytes.len() {
            for last in first..node_bytes.len() {
                let seconds = node_bytes[last].0.since(node_bytes[first].0).seconds() + 1.0;
                for node in 0..4 {
                    let sum: u64 = node_bytes[first..=last].iter().map(|(_, bytes)| bytes[node]).sum();
                    prop_assert!(sum as f64 <= seconds * (PAGES_PER_S << 12) as f64 + 0.5);
                }
                let made: usize = calls[first..=last].iter().map(|(_, calls)| calls).sum();
                prop_assert!(made as f64 <= seconds * 20.0 + 0.5);
            }
        }
        // In any stretch of the window's length.
        for times in moves.values() {
            for group in times.windows(most + 1) {
                prop_assert!(group[most].since(group[0]) >= window);
            }
        }
    }

    #[test]
    fn restoring_gives_back_the_first_masks(masks in prop::collection::vec((0..5_u32, 1..0x1_0000_u32), 1..40)) {
        let mut stage = Stage::new();
        let mut now: BTreeMap<Tid, CpuSet> = stage.model.threads.iter().map(|t| (t.tid, t.allowed.clone())).collect();
        let first = now.clone();
        let mut apply = |action: &Action| {
            if let Action::SetAffinity { tid, cpus, .. } = action {
                now.insert(*tid, cpus.clone());
            }
        };
        for (thread, mask) in masks {
            stage.model.at += Nanos::from_secs(12);
            let plan = stage.plan(vec![proposal(&Wish::Thread { thread, mask })]);
            plan.steps.iter().for_each(|step| apply(&step.action));
            prop_assert_eq!(plan.inverses.len(), plan.steps.len());
        }
        stage.ledger.restore().iter().for_each(&mut apply);
        prop_assert_eq!(now, first);
    }

    #[test]
    fn undoing_a_plan_gives_back_the_masks_before_it(before in 1..0x1_0000_u32, tried in 1..0x1_0000_u32) {
        let mut stage = Stage::new();
        let wish = |mask| vec![proposal(&Wish::Thread { thread: 0, mask })];
        stage.plan(wish(before));
        stage.model.at += Nanos::from_secs(12);
        let held = stage.ledger.mask(Tid(10)).cloned();
        let plan = stage.plan(wish(tried));
        let undo = stage.ledger.undo(Pid(1), &[plan.number]);
        match (plan.steps.len(), undo.as_slice()) {
            (0, []) => {}
            (1, [(_, Action::SetAffinity { cpus, .. })]) => prop_assert_eq!(Some(cpus), held.as_ref()),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
