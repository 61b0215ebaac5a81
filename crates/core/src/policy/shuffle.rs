//! A policy for tests of the safety contract: it gives threads random CPUs.
//!
//! It helps no program, and it needs neither counters nor a second node. So tests can run the whole
//! product on any machine with two CPUs, from a decision to its undoing.

use super::{Policy, Registered};
use crate::model::Model;
use crate::plan::{Action, Proposal, Reason};
use crate::random::Random;
use crate::topology::Topology;
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

const NAME: &str = "shuffle";

/// Time between two decisions: ten in a second, so that a test of a few seconds sees many.
const PERIOD: Nanos = Nanos(100_000_000);

/// Its line in the table of policies.
pub(super) const REGISTERED: Registered = Registered {
    name: NAME,
    about: "give threads CPUs at random: to try the safety contract, of no use to a program",
    presets: &[],
    make: |preset| preset.is_none().then(|| Box::new(Shuffle) as Box<dyn Policy>),
    in_auto: None,
};

/// Gives each thread one of its allowed CPUs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shuffle;

impl Policy for Shuffle {
    fn propose(&mut self, model: &Model, _: &Topology, random: &mut Random) -> Vec<Proposal> {
        let threads = model.threads.iter().filter(|thread| !thread.allowed.is_empty());
        threads
            .map(|thread| {
                let chosen = random.below(thread.allowed.len());
                let action = Action::SetAffinity {
                    pid: model.apps[thread.app].pid,
                    tid: thread.tid,
                    cpus: thread.allowed.iter().skip(chosen).take(1).collect(),
                    via: None,
                };
                Proposal { policy: NAME, action, reason: Reason::Other("at random".to_string()) }
            })
            .collect()
    }

    fn period(&self) -> Nanos {
        PERIOD
    }
}
