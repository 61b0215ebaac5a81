//! Sets one sampling rate for each process: the fastest that a policy wants. Carrefour's rate
//! depends on the changes of its last round. AsymSched and `gather` want many samples while memory
//! follows threads. `naming` wants many samples while they have to name pairs. Data that goes from
//! cache to cache makes little traffic to memory, so Carrefour alone would switch samples off.

use crate::model::Model;
use crate::plan::{Action, Proposal, Reason, Sampling};
use crate::policy::asymsched::AsymSchedReason;
use crate::policy::gather::GatherReason;
use crate::policy::sharing::{self, SharingReason};
use crate::units::Pid;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The last request of each policy for each process.
#[derive(Debug, Clone, Default)]
pub(super) struct Rates {
    wishes: BTreeMap<(Pid, &'static str), Sampling>,
}

impl Rates {
    /// Keeps the requests of this step that change a rate, and replaces each by the resulting rate.
    pub(super) fn merge(&mut self, proposals: &mut Vec<Proposal>) {
        proposals.retain_mut(|proposal| {
            let Action::SetSampling { pid: Some(pid), sampling } = &mut proposal.action else {
                return true;
            };
            let before = self.rate(*pid);
            let is_nobodys = self.of(*pid).all(|(policy, _)| policy == sharing::NAME);
            let holds = match proposal.reason {
                Reason::AsymSched(AsymSchedReason::Sampling { follows })
                | Reason::Gather(GatherReason::Sampling { follows }) => follows,
                Reason::Sharing(SharingReason::Sampling { names }) => names,
                _ => true,
            };
            match holds {
                true => self.wishes.insert((*pid, proposal.policy), *sampling),
                false => self.wishes.remove(&(*pid, proposal.policy)),
            };
            // Before Carrefour's first request, the rate is the highest, which is enough to name
            // pairs.
            if is_nobodys && proposal.policy == sharing::NAME {
                return false;
            }
            // Without a request the rate stays as it is.
            let Some(rate) = self.rate(*pid) else { return before.is_some() };
            *sampling = rate;
            before != Some(rate)
        });
    }

    /// Forgets processes that are gone.
    pub(super) fn forget_gone(&mut self, model: &Model) {
        self.wishes.retain(|(pid, _), _| model.app(*pid).is_some());
    }

    /// The requests for a process, with the policy of each.
    fn of(&self, pid: Pid) -> impl Iterator<Item = (&'static str, Sampling)> {
        let of_process = self.wishes.range((pid, "")..).take_while(move |((of, _), _)| *of == pid);
        of_process.map(|((_, policy), wish)| (*policy, *wish))
    }

    fn rate(&self, pid: Pid) -> Option<Sampling> {
        let wishes = self.of(pid).map(|(_, wish)| wish);
        wishes.min_by_key(|wish| wish.cycles().unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::{String, ToString as _};

    /// Checks the sampling rates after each wish. A wish is `placing:cycles`, `following:cycles`,
    /// `naming:cycles`, or the end of one: `followed:cycles`, `named:cycles`.
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
        let (policy, reason) = match who {
            "placing" => ("carrefour", Reason::Other(who.to_string())),
            "gathering" | "gathered" => {
                let follows = who == "gathering";
                ("gather", Reason::Gather(GatherReason::Sampling { follows }))
            }
            "naming" | "named" => {
                let names = who == "naming";
                (sharing::NAME, Reason::Sharing(SharingReason::Sampling { names }))
            }
            _ => {
                let follows = who == "following";
                ("asymsched", Reason::AsymSched(AsymSchedReason::Sampling { follows }))
            }
        };
        let action = Action::SetSampling { pid: Some(Pid(1)), sampling };
        let mut proposals = Vec::from([Proposal { policy, action, reason }]);
        rates.merge(&mut proposals);
        match proposals.first().map(|one| &one.action) {
            Some(Action::SetSampling { sampling, .. }) => {
                sampling.cycles().map_or("off".into(), |cycles| format!("{cycles}"))
            }
            _ => "-".into(),
        }
    }

    #[test]
    fn pages_that_have_followed_leave_the_rate_to_carrefour() {
        check("placing:200 gathering:100 gathered:off", "200 100 200");
        check("gathering:100 placing:off gathered:off", "100 - off");
    }

    #[test]
    fn carrefours_rate_holds_again_when_memory_has_followed() {
        check("placing:4 following:1 placing:8 followed:4", "4 1 - 8");
        check("placing:4 following:1 placing:off followed:4", "4 1 - off");
        check("placing:1 following:1 placing:4 followed:4", "1 - - 4");
    }

    #[test]
    fn samples_go_on_while_they_are_to_name_threads() {
        check("placing:off naming:1 placing:8 named:1", "off 1 - 8");
        check("naming:1 placing:off placing:4 named:1", "- - - 4");
        check("naming:1 named:1 placing:off", "- - off");
        check("placing:off naming:1 following:1 named:1 followed:4", "off 1 - - off");
    }

    #[test]
    fn a_policy_with_nothing_on_the_way_asks_for_nothing_beside_carrefour() {
        check("followed:4 placing:off followed:4", "- off -");
        check("following:1 followed:4", "1 4");
    }
}
