//! The policies. A policy is a state machine that turns a model into proposals. It cannot act and
//! knows no budget.
//!
//! A new policy is one file here and one line in [`POLICIES`]; `docs/new-policy.md` has an example.

pub mod asymsched;
pub mod auto;
pub mod carrefour;
pub mod gather;
pub mod home;
pub mod nmass;
pub mod observe;
pub mod renamed;
pub mod sam;
pub mod sharing;
pub mod shuffle;
pub mod views;

use self::renamed::Renamed;
use self::views::Views;
use crate::cost::Partners;
use crate::model::Model;
use crate::plan::{Choice, Outcome, Plan, Proposal};
use crate::random::Random;
use crate::topology::Topology;
use crate::trial::Judged;
use crate::units::{Nanos, Pid};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Turns models into proposals.
pub trait Policy {
    /// Returns proposals with reasons. Equal state, model, topology and random numbers give equal
    /// proposals.
    fn propose(&mut self, model: &Model, topology: &Topology, random: &mut Random)
    -> Vec<Proposal>;

    /// Called when the program has begun another phase: actions that failed before may help now.
    /// Returns the sampling rates that the policy wants.
    fn wake(&mut self) -> Vec<Proposal> {
        Vec::new()
    }

    /// Called once with the outcomes of each plan, before the next [`Policy::propose`]. The plan
    /// includes steps of other policies.
    fn learn(&mut self, _plan: &Plan, _outcomes: &[Outcome]) {}

    /// Called for members of `auto` when threads moved to other nodes with their memory. Knowledge
    /// about the old nodes then holds for the new nodes.
    fn rename(&mut self, _topology: &Topology, _renamed: &Renamed) {}

    /// Called with the trials that ended, with predicted and measured changes. Trials of other
    /// policies are included.
    fn judge(&mut self, _judged: &[Judged], _now: Nanos) {}

    /// Takes what the policy chose among its own proposals in the last [`Policy::propose`].
    fn take_choice(&mut self) -> Choice {
        Choice::default()
    }

    /// Whether later steps of the policy will complete an action on a process. The trial of the
    /// action waits for them, for a bounded time.
    fn is_under_way(&self, _pid: Pid) -> bool {
        false
    }

    /// Whether [`Policy::is_under_way`] holds for any process. The policy is then asked each
    /// second, however quiet the machine is.
    fn is_any_under_way(&self) -> bool {
        false
    }

    /// Whether a member of `auto` waits for samples of a process. They are then taken at the
    /// accurate rate of Carrefour.
    fn wants_samples(&self, _pid: Pid) -> bool {
        false
    }

    /// Whether it uses [`Model::touches`], which cost time and memory to collect.
    fn wants_touches(&self) -> bool {
        false
    }

    /// The threads that exchange data with each other, as samples named them for this policy.
    /// Predictions of the cost model use them.
    fn partners(&self) -> Option<&Partners> {
        None
    }

    /// Number of lanes, at least one. A lane is a part of the policy with its own period and its
    /// own interval since its last decision. The first lane decides in every step in which any lane
    /// does.
    fn lanes(&self) -> usize {
        1
    }

    /// The times of a lane.
    fn pace(&self, _lane: usize) -> Pace {
        Pace::every(self.period())
    }

    /// Whether a lane's interval begins anew after this step, as after a change of phase. Called
    /// once after each step that included the policy.
    fn begins_anew(&mut self, _lane: usize) -> bool {
        false
    }

    /// As [`Policy::propose`], for a policy with several lanes. Called when one of them is due.
    fn propose_due(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        views.due(0).map_or_else(Vec::new, |model| self.propose(model, topology, random))
    }

    /// Cycles between two samples at the highest rate that the policy ever asks for; `None` = not
    /// known in advance. The budget is scaled to this rate, so that a low first request stays low.
    fn full_sampling(&self) -> Option<u64> {
        None
    }

    /// Time between two decisions, the shortest of all lanes.
    fn period(&self) -> Nanos {
        Nanos::from_secs(1)
    }

    /// How long it takes until the policy has made all its proposals, if nothing changes.
    fn settles_within(&self) -> Nanos {
        self.period()
    }
}

/// The times of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time between two decisions.
    pub period: Nanos,
    /// Shortest interval, used after the beginning or a change of phase. Each further interval is
    /// twice as long, up to the period.
    pub shortest: Nanos,
    /// How long the lane is shown samples again after its first decision on them. Samples of pages
    /// that have moved are left out.
    pub remembers: Nanos,
}

impl Pace {
    /// The pace of a lane that decides once a period, by the samples since its last decision.
    #[must_use]
    pub const fn every(period: Nanos) -> Self {
        Self { period, shortest: period, remembers: Nanos(0) }
    }
}

/// One line of [`POLICIES`].
pub struct Registered {
    /// Name on the command line.
    pub name: &'static str,
    /// One sentence for `--help`.
    pub about: &'static str,
    /// Names of its presets, the default first; empty if it has none.
    pub presets: &'static [&'static str],
    /// Makes the policy with a preset of `presets` (`None` = the default). Returns `None` for an
    /// unknown preset.
    pub make: fn(preset: Option<&str>) -> Option<Box<dyn Policy>>,
    /// Makes the member of `auto`, which `auto` calls once an epoch; `None` if the policy is no
    /// such member.
    pub in_auto: Option<fn() -> Box<dyn Policy>>,
}

/// Every built-in policy.
pub const POLICIES: &[Registered] = &[
    observe::REGISTERED,
    carrefour::REGISTERED,
    nmass::REGISTERED,
    asymsched::REGISTERED,
    sam::REGISTERED,
    sharing::REGISTERED,
    gather::REGISTERED,
    home::REGISTERED,
    auto::REGISTERED,
    shuffle::REGISTERED,
];

/// The built-in policy of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Registered> {
    POLICIES.iter().find(|policy| policy.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_made_with_each_of_its_presets_and_no_other() {
        for policy in POLICIES {
            assert!((policy.make)(None).is_some(), "{}", policy.name);
            assert!((policy.make)(Some("no such preset")).is_none(), "{}", policy.name);
            for preset in policy.presets {
                assert!((policy.make)(Some(preset)).is_some(), "{} {preset}", policy.name);
            }
        }
    }
}
