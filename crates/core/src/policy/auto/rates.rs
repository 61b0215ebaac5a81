//! Sets one sampling rate for each process. While a policy waits for samples of the process, it is
//! the accurate rate: memory follows threads, or pairs of threads are to be named. Otherwise it is
//! Carrefour's rate, which depends on the changes of its last round. Data that goes from cache to
//! cache makes little traffic to memory, so Carrefour alone would switch samples off.

use crate::model::Model;
use crate::plan::{Action, Proposal, Sampling};
use crate::policy::carrefour;
use crate::policy::sharing;
use crate::units::{Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The rate while a policy waits for samples: Carrefour's accurate rate, which is the fastest.
const ACCURATE: Sampling = carrefour::preset::FINAL.sampling.accurate;

/// The rates of all processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Rates {
    of: BTreeMap<Pid, Rate>,
}

/// The rate of a process.
#[derive(Debug, Clone, Default)]
struct Rate {
    /// Start time of the process. It tells a reused pid.
    started: Nanos,
    /// The last request of Carrefour.
    of_carrefour: Option<Sampling>,
    /// The rate that was set last; `None` while the rate of the start holds.
    set: Option<Sampling>,
}

impl Rates {
    /// Keeps one rate for each process of the model. A reused pid gets a new one.
    pub(super) fn observe(&mut self, model: &Model) {
        let is_same = |pid, of: &Rate| model.app(pid).is_some_and(|app| app.started == of.started);
        self.of.retain(|pid, rate| is_same(*pid, rate));
        for app in &model.apps {
            let first = Rate { started: app.started, ..Rate::default() };
            self.of.entry(app.pid).or_insert(first);
        }
    }

    /// Keeps the requests of this step that change a rate, and replaces each by the resulting rate.
    /// `waits` = whether a policy waits for samples of a process.
    pub(super) fn merge(&mut self, proposals: &mut Vec<Proposal>, waits: impl Fn(Pid) -> bool) {
        proposals.retain_mut(|proposal| {
            let Action::SetSampling { pid: Some(pid), sampling } = &mut proposal.action else {
                return true;
            };
            let Some(rate) = self.of.get_mut(pid) else { return true };
            if proposal.policy == carrefour::REGISTERED.name {
                rate.of_carrefour = Some(*sampling);
            }
            // Without a request the rate stays as it is.
            let accurate = waits(*pid).then_some(ACCURATE);
            let Some(wanted) = accurate.or(rate.of_carrefour) else { return false };
            *sampling = wanted;
            let before = rate.set.replace(wanted);
            // The rate of the start is the highest, which is enough to name pairs.
            let is_enough = before.is_none() && proposal.policy == sharing::NAME;
            before != Some(wanted) && !is_enough
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::App;
    use crate::plan::Reason;
    use alloc::format;
    use alloc::string::{String, ToString as _};

    /// The cycles of the accurate rate, in `wishes`.
    const FAST: &str = "fast";

    fn model(started: Nanos) -> Model {
        let mut model = Model::empty(1);
        model.apps.push(App { started, ..App::new(Pid(1), 0..0) });
        model
    }

    /// Checks the sampling rates after each wish. A wish is `placing:cycles`, or the begin or the
    /// end of a wait for samples: `naming`, `named`, `following`, `followed`.
    fn check(wishes: &str, expected: &str) {
        let mut rates = Rates::default();
        rates.observe(&model(Nanos(0)));
        let mut waits = (false, false);
        let told: Vec<String> =
            wishes.split(' ').map(|wish| told(&mut rates, &mut waits, wish)).collect();
        assert_eq!(told.join(" "), expected);
    }

    fn told(rates: &mut Rates, waits: &mut (bool, bool), wish: &str) -> String {
        let (who, cycles) = wish.split_once(':').unwrap_or((wish, FAST));
        let policy = match who {
            "placing" => carrefour::REGISTERED.name,
            "naming" | "named" => {
                waits.0 = who == "naming";
                sharing::NAME
            }
            _ => {
                waits.1 = who == "following";
                "asymsched"
            }
        };
        let sampling = match (cycles, cycles.parse()) {
            (FAST, _) => ACCURATE,
            (_, Ok(cycles)) => Sampling::Every { cycles, tracked_pages: 1 },
            (..) => Sampling::Off,
        };
        let action = Action::SetSampling { pid: Some(Pid(1)), sampling };
        let reason = Reason::Other(who.to_string());
        let mut proposals = Vec::from([Proposal { policy, action, reason }]);
        rates.merge(&mut proposals, |_| waits.0 || waits.1);
        match proposals.first().map(|one| &one.action) {
            Some(Action::SetSampling { sampling: ACCURATE, .. }) => FAST.into(),
            Some(Action::SetSampling { sampling, .. }) => {
                sampling.cycles().map_or("off".into(), |cycles| format!("{cycles}"))
            }
            _ => "-".into(),
        }
    }

    #[test]
    fn carrefours_rate_holds_again_when_memory_has_followed() {
        check("placing:4 following placing:8 followed", "4 fast - 8");
        check("placing:4 following placing:off followed", "4 fast - off");
        check("placing:fast following placing:4 followed", "fast - - 4");
        check("following placing:off followed", "fast - off");
    }

    #[test]
    fn samples_go_on_while_they_are_to_name_threads() {
        check("placing:off naming placing:8 named", "off fast - 8");
        check("naming placing:off placing:4 named", "- - - 4");
        check("naming named placing:off", "- - off");
        check("placing:off naming following named followed", "off fast - - off");
    }

    #[test]
    fn a_policy_with_nothing_on_the_way_asks_for_nothing_beside_carrefour() {
        check("followed placing:off followed", "- off -");
        check("following followed", "fast -");
    }

    #[test]
    fn a_new_process_with_the_number_of_an_old_one_inherits_no_rate() {
        let mut rates = Rates::default();
        let mut set = |started: Nanos| {
            rates.observe(&model(started));
            told(&mut rates, &mut (false, false), "placing:off")
        };
        assert_eq!([0, 0, 1].map(|started| set(Nanos(started))), ["off", "-", "off"]);
    }
}
