//! Features of this kernel for placement, and Rondpoint's use of them.

use std::fmt::Write as _;

use rondpoint_linux::Root;
use rondpoint_linux::observe::offers::{Feature, Offer, offer};
use serde::Serialize;

/// How the kernel has a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// There and working.
    On,
    /// There, not in use.
    Off,
    /// Not in this kernel.
    Absent,
    /// Only root can tell.
    Unknown,
}

/// One feature of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Offered {
    pub(super) name: &'static str,
    pub(super) state: State,
    /// What it means for a managed program.
    pub(super) meaning: &'static str,
}

/// All features.
pub(super) fn offered(root: &Root) -> Vec<Offered> {
    Feature::ALL.into_iter().map(|feature| of(feature, offer(root, feature))).collect()
}

fn of(feature: Feature, offer: Offer) -> Offered {
    let state = match offer {
        Offer::On => State::On,
        Offer::Off => State::Off,
        Offer::Absent => State::Absent,
        Offer::Unknown => State::Unknown,
    };
    Offered { name: name(feature), state, meaning: meaning(feature, offer) }
}

const fn name(feature: Feature) -> &'static str {
    match feature {
        Feature::Balancing => "numa balancing",
        Feature::Promotion => "promotion",
        Feature::Demotion => "demotion",
        Feature::CacheAware => "cache-aware",
        Feature::WeightedInterleave => "weighted",
        Feature::AutomaticWeights => "automatic weights",
        Feature::Damon => "damon",
        Feature::HotPages => "hot pages",
        Feature::Bandwidth => "bandwidth",
        Feature::AssignedBandwidth => "assigned counters",
    }
}

const fn meaning(feature: Feature, offer: Offer) -> &'static str {
    match (feature, offer) {
        (_, Offer::Unknown) => {
            "debugfs cannot be read; as root, after: sudo mount -t debugfs none /sys/kernel/debug"
        }
        (Feature::Balancing, Offer::On) => {
            "moves pages beside Rondpoint; its page faults are seen where there are no address samples"
        }
        (Feature::Balancing, _) => "without address samples Rondpoint sees first touches alone",
        (Feature::Promotion, Offer::On) => {
            "the kernel moves hot pages of slow memory to fast memory beside Rondpoint"
        }
        (Feature::Promotion, _) => "hot pages stay in slow memory unless a policy moves them",
        (Feature::Demotion, Offer::On) => {
            "a full node gives cold pages to slow memory instead of swapping"
        }
        (Feature::Demotion, _) => "a full node swaps, whatever room slow memory has",
        (Feature::CacheAware, Offer::On) => {
            "the scheduler gathers threads that share a cache; SAM's pins of threads prevail over it"
        }
        (Feature::CacheAware, _) => "sharing threads meet in a cache only where SAM puts them",
        (Feature::WeightedInterleave, Offer::On) => {
            "used by `rondpoint run --weighted-interleave all`; policies interleave evenly"
        }
        (Feature::WeightedInterleave, _) => "interleaving is even, whatever the nodes' bandwidths",
        (Feature::AutomaticWeights, Offer::On) => {
            "the weights follow the firmware's bandwidths, of CXL memory too, until \
             `rondpoint weights --apply` sets measured ones"
        }
        (Feature::AutomaticWeights, _) => {
            "weights are those of `rondpoint weights --apply` or of an administrator, else even"
        }
        (Feature::Damon, Offer::On) => {
            "its schemes may page out or move what Rondpoint places; `other managers` names the movers"
        }
        (Feature::Damon, _) => "not used by Rondpoint: it sees pages, not which thread uses them",
        (Feature::HotPages, Offer::On) => {
            "it may hold AMD's op sampling, which Rondpoint samples with"
        }
        (Feature::HotPages, _) => "no other user of AMD's op sampling in the kernel",
        (Feature::Bandwidth, Offer::On) => {
            "not used by Rondpoint: it counts for groups of tasks, not for threads and nodes"
        }
        (Feature::Bandwidth, Offer::Off) => {
            "not used by Rondpoint; counts for groups of tasks once resctrl is mounted"
        }
        (Feature::Bandwidth, _) => "bandwidth is known from counters alone",
        (Feature::AssignedBandwidth, Offer::On) => {
            "not used by Rondpoint; bandwidth counters are never taken away unseen"
        }
        (Feature::AssignedBandwidth, _) => {
            "not used by Rondpoint; on AMD bandwidth counts may be reset unseen with many groups"
        }
    }
}

/// A line for each feature.
pub(super) fn put(text: &mut String, offered: &[Offered]) {
    for Offered { name, state, meaning } in offered {
        let state = match state {
            State::On => "on",
            State::Off => "off",
            State::Absent => "absent",
            State::Unknown => "unknown",
        };
        let _ = writeln!(text, "{state:<8} {name:<18} {meaning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_a_name_and_a_meaning_of_its_own() {
        for offer in [Offer::On, Offer::Off, Offer::Absent] {
            let mut all: Vec<Offered> =
                Feature::ALL.into_iter().map(|feature| of(feature, offer)).collect();
            all.sort_by_key(|one| one.meaning);
            all.dedup_by_key(|one| one.meaning);
            assert_eq!(all.len(), Feature::ALL.len(), "{offer:?}");
        }
        let unknown = of(Feature::CacheAware, Offer::Unknown);
        assert_eq!(unknown.name, "cache-aware");
        assert!(unknown.meaning.contains("sudo mount -t debugfs"), "{}", unknown.meaning);
    }

    /// The reference has each command's options; a test of the command line keeps it so.
    #[test]
    fn a_command_in_a_meaning_is_one_of_ours() {
        const REFERENCE: &str = include_str!("../../../../docs/reference.md");
        let of_feature = |feature| {
            [Offer::On, Offer::Off, Offer::Absent].map(|offer| of(feature, offer).meaning)
        };
        let named: Vec<&str> = Feature::ALL
            .into_iter()
            .flat_map(of_feature)
            .flat_map(|meaning| meaning.split('`').skip(1).step_by(2))
            .filter(|words| words.starts_with("rondpoint "))
            .collect();
        assert!(named.iter().any(|words| words.contains("run --weighted-interleave")), "{named:?}");
        assert!(named.iter().any(|words| words.contains("weights --apply")), "{named:?}");
        for words in named {
            let (command, options) = words.split_once(" --").expect("a command with an option");
            let option = options.split(' ').next().expect("its name");
            let (_, section) =
                REFERENCE.split_once(&format!("\n## {command}\n")).expect("a command of ours");
            let section = section.split("\n## ").next().expect("its text");
            assert!(section.contains(&format!("--{option}")), "{words}");
        }
    }

    #[test]
    fn a_line_says_state_name_and_meaning() {
        let mut text = String::new();
        put(&mut text, &[of(Feature::Promotion, Offer::Absent)]);
        let expected = "absent   promotion          hot pages stay in slow memory unless a policy moves them\n";
        assert_eq!(text, expected);
    }
}
