//! What must hold whatever the kernel answers where copies are asked for.

use super::notation::{carrefour, model};
use super::rounds::learn;
use proptest::prelude::*;
use rondpoint_core::observation::Replica;
use rondpoint_core::{Action, Nanos, Policy, Random};
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of a page that is offered copies.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Kept,
    /// Refused, or taken back before the next look.
    Lost,
    /// Kept until so many rounds later.
    Collapses(u64),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![Just(Fate::Kept), Just(Fate::Lost), (1..5_u64).prop_map(Fate::Collapses)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn pages_with_copies_stay_and_those_that_lose_them_six_times_are_left_alone(
        fates in prop::collection::vec(fate(), 1..8),
        steady in any::<bool>(),
    ) {
        let text = "node:4 core:4\nload 40 20 20 20\nfree 90\napp 1 reads 99\n\
                    pages 700 home 0: 1x2 2x3";
        let (topology, mut model) = model(text);
        let mut policy = carrefour(if steady { "steady" } else { "final" });
        let fate = |address: u64| fates[(address >> 12) as usize % fates.len()];
        let mut copies: BTreeMap<u64, u64> = BTreeMap::new();
        let mut offers: BTreeMap<u64, u32> = BTreeMap::new();
        for second in 1..100 {
            model.at = Nanos::from_secs(second);
            copies.retain(|&address, since| match fate(address) {
                Fate::Collapses(rounds) => second - *since <= rounds,
                _ => true,
            });
            let replica = |address: &u64| Replica { address: *address, collapses: 0 };
            model.apps[0].replicas = Some(copies.keys().map(replica).collect());
            let steps = policy.propose(&model, &topology, &mut Random::new(second));
            let mut made = 0;
            for step in &steps {
                match &step.action {
                    Action::MovePages { pages, .. } => {
                        let here: BTreeSet<u64> = pages.iter().map(|page| page.address).collect();
                        prop_assert!(copies.keys().all(|page| !here.contains(page)));
                    }
                    Action::Replicate { pages, .. } => for page in pages {
                        prop_assert!(!copies.contains_key(&page.address), "it has them");
                        *offers.entry(page.address).or_insert(0) += 1;
                        if fate(page.address) != Fate::Lost {
                            copies.insert(page.address, second);
                            made += 1;
                        }
                    },
                    _ => {}
                }
            }
            learn(&mut policy, steps, made);
        }
        let lost = offers.iter().filter(|(address, _)| fate(**address) == Fate::Lost);
        prop_assert!(lost.map(|(_, times)| *times).max().unwrap_or(0) <= 6);
    }
}
