//! What holds for any threads and any sharing.

use crate::notation::Case;
use proptest::prelude::*;
use rondpoint_core::policy::sharing::{Hold, Pair, Preset, Role, Sharer, Shift, clusters};

fn sharer(nodes: usize) -> impl Strategy<Value = Sharer> {
    let may_use =
        prop_oneof![3 => Just(vec![]), 1 => proptest::collection::vec(any::<bool>(), nodes)];
    let accesses = prop_oneof![Just(vec![]), proptest::collection::vec(0_u32..50, nodes)];
    let demand = prop_oneof![3 => Just(1.0), 1 => 0.0..1.0];
    (0..nodes, demand, 0.0..0.6, accesses, may_use, proptest::bool::weighted(0.1)).prop_map(
        |(node, demand, pressure, accesses, may_use, is_fixed)| Sharer {
            node,
            demand,
            pressure,
            accesses,
            may_use,
            is_fixed,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    (proptest::collection::vec(1_usize..6, 2..5), 2_usize..20).prop_flat_map(|(cores, count)| {
        let threads = proptest::collection::vec(sharer(cores.len()), count);
        let pair = (0..count as u32, 0..count as u32, 5_u32..50);
        (Just(cores), threads, proptest::collection::vec(pair, 0..30)).prop_map(
            |(cores, threads, pairs)| {
                let mut pairs: Vec<Pair> = pairs
                    .into_iter()
                    .filter(|(a, b, _)| a != b)
                    .map(|(a, b, samples)| Pair { lower: a.min(b), upper: a.max(b), samples })
                    .collect();
                pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.samples), pair.lower, pair.upper));
                Case { cores, threads, pairs }
            },
        )
    })
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}\n{:#?}\n{:?}", self.cores, self.threads, self.pairs)
    }
}

fn presets() -> impl Strategy<Value = Preset> {
    proptest::sample::select(Preset::ALL.to_vec())
}

/// Sum over the threads of each node, before or after.
fn by_node(case: &Case, shifts: &[Shift], amount: fn(&Sharer) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; case.cores.len()];
    for (index, thread) in case.threads.iter().enumerate() {
        let shifted = shifts.iter().find(|shift| shift.thread as usize == index);
        sums[shifted.map_or(thread.node, |shift| shift.to)] += amount(thread);
    }
    sums
}

fn busiest(case: &Case, shifts: &[Shift]) -> f64 {
    let demands = by_node(case, shifts, |thread| thread.demand);
    demands
        .iter()
        .zip(&case.cores)
        .map(|(demand, &cores)| demand / cores as f64)
        .fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn every_shift_is_allowed_and_each_thread_has_one(case in case(), preset in presets()) {
        let shifts = case.shifts(&preset);
        for (place, shift) in shifts.iter().enumerate() {
            let thread = &case.threads[shift.thread as usize];
            prop_assert!(!thread.is_fixed && thread.may_use.get(shift.to).copied().unwrap_or(true));
            prop_assert!(shift.from == thread.node && shift.to != shift.from);
            prop_assert!(shifts[..place].iter().all(|earlier| earlier.thread != shift.thread));
        }
    }

    #[test]
    fn the_busiest_node_gets_no_busier_unless_cores_are_idle(case in case(), preset in presets()) {
        let after = busiest(&case, &case.shifts(&preset));
        prop_assert!(after <= busiest(&case, &[]).max(1.0) + 1e-9, "{after}");
    }

    #[test]
    fn a_node_that_receives_threads_bears_them(case in case()) {
        let shifts = case.shifts(&Preset::KAMALI);
        let pressure = by_node(&case, &shifts, |thread| thread.pressure);
        let running = by_node(&case, &shifts, |thread| f64::from(u8::from(thread.demand >= 0.1)));
        for shift in &shifts {
            prop_assert!(pressure[shift.to] < 1.0 + 1e-9);
            prop_assert!(running[shift.to] <= case.cores[shift.to] as f64);
        }
    }

    #[test]
    fn a_node_that_receives_threads_bears_no_more_than_another_or_a_group(case in case()) {
        let groups = clusters(&case.pairs, case.threads.len());
        let pressure_of = |threads: &[u32]| -> f64 {
            threads.iter().map(|&thread| case.threads[thread as usize].pressure).sum()
        };
        let most_cores = case.cores.iter().copied().max().unwrap_or(0);
        let fitting = groups.iter().filter(|group| group.threads.len() <= most_cores);
        let alone = fitting.map(|group| pressure_of(&group.threads)).fold(1.0, f64::max);
        let before = by_node(&case, &[], |thread| thread.pressure).into_iter().fold(0.0, f64::max);
        let shifts = case.shifts(&Preset::EXCHANGING);
        let pressure = by_node(&case, &shifts, |thread| thread.pressure);
        for shift in &shifts {
            prop_assert!(pressure[shift.to] < before.max(alone) + 1e-6);
        }
    }

    #[test]
    fn once_a_thread_moves_those_with_their_group_are_held_there(case in case(), preset in presets()) {
        let placed = case.placed(&preset);
        let shift_of = |thread: u32| placed.shifts.iter().find(|shift| shift.thread == thread);
        let node = |thread: u32| {
            shift_of(thread).map_or(case.threads[thread as usize].node, |shift| shift.to)
        };
        for stay in &placed.stays {
            let thread = &case.threads[stay.thread as usize];
            prop_assert!(thread.node == stay.node && !thread.is_fixed);
            prop_assert!(shift_of(stay.thread).is_none());
            prop_assert!(!placed.shifts.is_empty());
            let is_with_it = |pair: &Pair| {
                let ends = [pair.lower, pair.upper];
                ends.contains(&stay.thread) && ends.map(node) == [stay.node; 2]
            };
            prop_assert!(case.pairs.iter().any(is_with_it));
        }
        prop_assert!(preset.hold == Hold::Node || placed.stays.is_empty());
    }

    #[test]
    fn without_sharing_nobody_moves(mut case in case(), preset in presets()) {
        case.pairs.clear();
        prop_assert_eq!(case.shifts(&preset), []);
    }

    #[test]
    fn members_of_a_group_end_on_the_node_of_another_member(case in case(), preset in presets()) {
        let shifts = case.shifts(&preset);
        let node = |thread: u32| {
            let shifted = shifts.iter().find(|shift| shift.thread == thread);
            shifted.map_or(case.threads[thread as usize].node, |shift| shift.to)
        };
        for shift in shifts.iter().filter(|shift| matches!(shift.role, Role::Member { .. })) {
            let sharers = case.pairs.iter().filter_map(|pair| match shift.thread {
                thread if thread == pair.lower => Some(pair.upper),
                thread if thread == pair.upper => Some(pair.lower),
                _ => None,
            });
            prop_assert!(sharers.into_iter().any(|other| node(other) == shift.to));
        }
    }

    #[test]
    fn the_same_input_gives_the_same_shifts(case in case(), preset in presets()) {
        prop_assert_eq!(case.shifts(&preset), case.shifts(&preset));
    }
}
