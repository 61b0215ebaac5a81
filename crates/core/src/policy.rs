//! The policies. A policy is a state machine that turns a model into proposals; it holds no handle
//! and knows no budget.
//!
//! A new policy is one file here and one line in [`POLICIES`]; `docs/new-policy.md` shows one.

pub mod asymsched;
pub mod auto;
pub mod carrefour;
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
use crate::plan::{Outcome, Plan, Proposal, Refused};
use crate::random::Random;
use crate::topology::Topology;
use crate::trial::Judged;
use crate::units::{Nanos, Pid};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Turns models into proposals.
pub trait Policy {
    /// What should change, with reasons. Same state, model, topology and random numbers: same
    /// proposals.
    fn propose(&mut self, model: &Model, topology: &Topology, random: &mut Random)
    -> Vec<Proposal>;

    /// The program does something else now: what was found to be of no use may be of some. Gives
    /// the samples that it wants to see of that.
    fn wake(&mut self) -> Vec<Proposal> {
        Vec::new()
    }

    /// What became of a plan: called once for each plan, before the next [`Policy::propose`]. Steps
    /// of other policies are in it too.
    fn learn(&mut self, _plan: &Plan, _outcomes: &[Outcome]) {}

    /// Threads went to other nodes and their memory with them. What was learnt of the old nodes
    /// holds for the new ones. Told to policies that `auto` asks.
    fn rename(&mut self, _topology: &Topology, _renamed: &Renamed) {}

    /// Trials that ended, with what was predicted and measured. Those of other policies are among
    /// them.
    fn judge(&mut self, _judged: &[Judged], _now: Nanos) {}

    /// What it vetoed itself in the last [`Policy::propose`], with the rule, for reports. Gives
    /// it once.
    fn take_vetoed(&mut self) -> Vec<Refused> {
        Vec::new()
    }

    /// Whether what it has begun on a process is still being completed, by its own next steps: the
    /// trial of it waits, for a while.
    fn is_under_way(&self, _pid: Pid) -> bool {
        false
    }

    /// Whether it looks at [`Model::touches`], which cost time and memory to collect.
    fn wants_touches(&self) -> bool {
        false
    }

    /// With whom threads exchange data, where samples named it for this policy. Predictions of what
    /// a plan wins rest on it.
    fn partners(&self) -> Option<&Partners> {
        None
    }

    /// For how long it wants to see samples beyond the decision that they were taken for. Samples
    /// of pages that were moved since are left out.
    fn sample_memory(&self) -> Nanos {
        Nanos(0)
    }

    /// In how many lanes it decides, at least one. Each lane has its own period and its own
    /// interval: what the host showed since that lane last decided. The first lane decides in every
    /// step in which any does.
    fn lanes(&self) -> usize {
        1
    }

    /// How often a lane wants to decide.
    fn lane_period(&self, _lane: usize) -> Nanos {
        self.period()
    }

    /// The shortest interval that may tell a lane enough, after the beginning or a change of the
    /// program. Each further one is twice as long, up to the lane's period.
    fn lane_least(&self, lane: usize) -> Nanos {
        self.lane_period(lane)
    }

    /// Whether a lane's interval begins anew after this step, as after a change of the program.
    /// Asked once after each step that included the policy.
    fn begins_anew(&mut self, _lane: usize) -> bool {
        false
    }

    /// As [`Policy::sample_memory`], of one lane.
    fn lane_memory(&self, _lane: usize) -> Nanos {
        self.sample_memory()
    }

    /// As [`Policy::propose`], of a policy with several lanes: asked when one of them is due.
    fn propose_due(
        &mut self,
        views: &Views<'_>,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Proposal> {
        views.due(0).map_or_else(Vec::new, |model| self.propose(model, topology, random))
    }

    /// Cycles between two samples at the highest rate that it ever asks for; `None` = not known
    /// before it asks. Budgets are set for that rate, so that a low one stays low where it is asked
    /// for first.
    fn full_sampling(&self) -> Option<u64> {
        None
    }

    /// How often it wants to decide.
    fn period(&self) -> Nanos {
        Nanos::from_secs(1)
    }

    /// For how long it has to be asked, while nothing changes, until it has found all that it wants
    /// to do.
    fn settles_within(&self) -> Nanos {
        self.period()
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
    /// Makes one with a preset of `presets` (`None` = the default); `None` if there is no such
    /// preset.
    pub make: fn(preset: Option<&str>) -> Option<Box<dyn Policy>>,
    /// Makes the one that `auto` asks once an epoch, if it asks this policy so.
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
