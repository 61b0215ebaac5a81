//! One rate of samples for each process: Carrefour's, which goes by what it finds, except while memory follows threads. Then AsymSched
//! wants each page to be seen, whatever there is to be done for Carrefour, and the faster of the two rates holds.

use crate::model::Model;
use crate::plan::{Action, Proposal, Reason, Sampling};
use crate::policy::asymsched::AsymSchedReason;
use crate::units::Pid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What was asked for last.
#[derive(Debug, Clone, Default)]
pub(super) struct Rates {
    /// By Carrefour.
    placing: BTreeMap<Pid, Sampling>,
    /// By AsymSched, while memory follows.
    following: BTreeMap<Pid, Sampling>,
}

impl Rates {
    /// Leaves of the wishes of this step those that change a rate, to what it is to be.
    pub(super) fn merge(&mut self, proposals: &mut Vec<Proposal>) {
        proposals.retain_mut(|proposal| {
            let Action::SetSampling { pid: Some(pid), sampling } = &mut proposal.action else {
                return true;
            };
            let before = self.rate(*pid);
            match proposal.reason {
                Reason::AsymSched(AsymSchedReason::Sampling { follows: true }) => {
                    self.following.insert(*pid, *sampling);
                }
                Reason::AsymSched(_) => {
                    self.following.remove(pid);
                }
                _ => {
                    self.placing.insert(*pid, *sampling);
                }
            }
            // Where Carrefour has not asked for a rate yet, the one that holds is nobody's wish.
            let Some(rate) = self.rate(*pid) else { return before.is_some() };
            *sampling = rate;
            before != Some(rate)
        });
    }

    /// Forgets who is gone.
    pub(super) fn forget_gone(&mut self, model: &Model) {
        self.placing.retain(|pid, _| model.app(*pid).is_some());
        self.following.retain(|pid, _| model.app(*pid).is_some());
    }

    fn rate(&self, pid: Pid) -> Option<Sampling> {
        let wishes = [self.placing.get(&pid), self.following.get(&pid)];
        wishes.into_iter().flatten().copied().min_by_key(|wish| wish.cycles().unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString as _};

    /// What comes of wishes, one after the other, `placing:cycles`, `following:cycles` and `followed:cycles`.
    fn check(wishes: &str, expected: &str) {
        let mut rates = Rates::default();
        let told: Vec<String> = wishes.split(' ').map(|wish| told(&mut rates, wish)).collect();
        assert_eq!(told.join(" "), expected);
    }

    fn told(rates: &mut Rates, wish: &str) -> String {
        let (who, cycles) = wish.split_once(':').expect("who:cycles");
        let sampling = match cycles.parse() {
            Ok(cycles) => Sampling::Every { cycles, tracked_pages: 1 },
            Err(_) => Sampling::Off,
        };
        let reason = match who {
            "placing" => Reason::Other(who.to_string()),
            _ => Reason::AsymSched(AsymSchedReason::Sampling { follows: who == "following" }),
        };
        let action = Action::SetSampling { pid: Some(Pid(1)), sampling };
        let mut proposals = Vec::from([Proposal { policy: "test", action, reason }]);
        rates.merge(&mut proposals);
        match proposals.first().map(|one| &one.action) {
            Some(Action::SetSampling { sampling, .. }) => {
                sampling.cycles().map_or("off".into(), |cycles| format!("{cycles}"))
            }
            _ => "-".into(),
        }
    }

    #[test]
    fn carrefours_rate_holds_again_when_memory_has_followed() {
        check("placing:4 following:1 placing:8 followed:4", "4 1 - 8");
        check("placing:4 following:1 placing:off followed:4", "4 1 - off");
        check("placing:1 following:1 placing:4 followed:4", "1 - - 4");
    }

    #[test]
    fn whoever_is_not_on_the_way_asks_for_nothing_beside_carrefour() {
        check("followed:4 placing:off followed:4", "- off -");
        check("following:1 followed:4", "1 4");
    }
}
