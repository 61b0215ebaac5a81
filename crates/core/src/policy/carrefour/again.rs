//! A program that does something else is judged anew.

use super::reason::{CarrefourReason, SamplingCause};
use super::{Carrefour, proposal};
use crate::plan::{Action, Proposal};
use alloc::vec::Vec;

impl Carrefour {
    /// What was of no use may be of some now, and every process is sampled at the accurate rate
    /// until it is judged. Gives the changes of rate.
    pub(in crate::policy) fn look_again(&mut self) -> Vec<Proposal> {
        (self.wait, self.quiet_rounds) = (None, 0);
        let accurate = self.preset.sampling.accurate;
        let mut proposals = Vec::new();
        for (pid, state) in &mut self.apps {
            state.begin_anew();
            if state.sampling.replace(accurate).is_some_and(|before| before != accurate) {
                let action = Action::SetSampling { pid: Some(*pid), sampling: accurate };
                proposals.push(proposal(action, CarrefourReason::Sampling(SamplingCause::Changed)));
            }
        }
        proposals
    }
}
