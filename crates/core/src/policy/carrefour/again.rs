//! Times at which an application is judged again.

use super::gates::Gates;
use super::reason::{CarrefourReason, SamplingCause};
use super::state::AppState;
use super::{Carrefour, proposal};
use crate::cost::{Price, WORTH_MOVING, lost_to_latency};
use crate::model::{App, Model};
use crate::plan::{Action, Proposal, Sampling};
use crate::topology::Topology;
use crate::trial::PHASE_CHANGE;
use crate::units::{Nanos, Pid};
use alloc::vec::Vec;

impl Carrefour {
    /// Judges every process again, because mechanisms that failed before may help now. Returns the
    /// changes of the sampling rate to the accurate one.
    pub(in crate::policy) fn look_again(&mut self) -> Vec<Proposal> {
        (self.wait, self.quiet_rounds) = (None, 0);
        let accurate = self.preset.sampling.accurate;
        self.apps.iter_mut().filter_map(|(pid, state)| anew(*pid, state, accurate)).collect()
    }

    /// Judges a process again if it surely loses more CPU time to memory latency than at its last
    /// judgement. The increase must be large enough for a new phase, and larger than the least gain
    /// of an action. Processes at the accurate rate are left out. Returns the changes of the
    /// sampling rate.
    pub(in crate::policy) fn notice(
        &mut self,
        model: &Model,
        topology: &Topology,
    ) -> Vec<Proposal> {
        let accurate = self.preset.sampling.accurate;
        let mut proposals = Vec::new();
        for app in &model.apps {
            let Some(state) = self.apps.get_mut(&app.pid) else { continue };
            let is_watched = state.sampling == Some(accurate) && state.wait(model.at).is_none();
            let lost = lost_cpus(model, topology, app);
            if let (Some(lost), Some(known), false) = (lost, state.lost_cpus, is_watched)
                && lost.least > (1.0 + PHASE_CHANGE) * known + WORTH_MOVING * cpus(app)
            {
                proposals.extend(anew(app.pid, state, accurate));
                (self.wait, self.quiet_rounds, self.has_noticed) = (None, 0, true);
            }
        }
        proposals
    }

    /// The shortest wait of any application, if all applications wait or are left alone.
    pub(super) fn shortest_wait<E>(
        &self,
        model: &Model,
        verdicts: &[Result<Gates, E>],
    ) -> Option<Nanos> {
        let wait = |app: &App| self.apps.get(&app.pid).and_then(|state| state.wait(model.at));
        let is_watched =
            |(app, verdict): (&App, &Result<Gates, E>)| verdict.is_ok() && wait(app).is_none();
        let is_idle = !model.apps.iter().zip(verdicts).any(is_watched);
        model.apps.iter().filter_map(wait).min().filter(|_| is_idle)
    }

    /// Whether a process has to be judged as soon as possible. Resets the answer.
    pub(in crate::policy) fn take_noticed(&mut self) -> bool {
        core::mem::take(&mut self.has_noticed)
    }
}

fn anew(pid: Pid, state: &mut AppState, accurate: Sampling) -> Option<Proposal> {
    state.begin_anew();
    let changes = state.sampling.replace(accurate).is_some_and(|before| before != accurate);
    let action = Action::SetSampling { pid: Some(pid), sampling: accurate };
    changes.then(|| proposal(action, CarrefourReason::Sampling(SamplingCause::Changed)))
}

/// CPU time that an application loses to memory latency, in seconds per second.
pub(super) fn lost_cpus(model: &Model, topology: &Topology, app: &App) -> Option<Price> {
    let Price { likely, least } = lost_to_latency(model, topology, app)?;
    Some(Price { likely: likely * cpus(app), least: least * cpus(app) })
}

fn cpus(app: &App) -> f64 {
    app.cpu_percent / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::matrix::Matrix;
    use crate::model::{Thread, Traffic};
    use crate::policy::Policy;
    use crate::policy::carrefour::preset::STEADY;
    use crate::random::Random;
    use crate::topology::synthetic;
    use crate::units::Tid;
    use alloc::vec;

    const PID: Pid = Pid(1);

    /// An application whose threads wait for this share of their time.
    fn model(threads: u32, stalled: f64) -> Model {
        let thread = |number| {
            let mut thread = Thread::new(Tid(1 + number), 0, 0, CpuSet::first(4));
            (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(stalled));
            thread
        };
        let mut app = App::new(PID, 0..threads as usize);
        app.cpu_percent = 100.0 * f64::from(threads);
        (app.latency_cycles, app.latency_accesses) = (Some(800.0), 1e6);
        Model { threads: (0..threads).map(thread).collect(), apps: vec![app], ..Model::empty(2) }
    }

    /// Whether an application is judged again in the state `now`, after a judgement in the state
    /// `judged` that set this sampling rate.
    fn notices(judged: &Model, sampling: Sampling, now: &Model) -> bool {
        let topology = synthetic::parse("node:2 core:2 mhz:2000").expect("a machine");
        let mut carrefour = Carrefour::new(STEADY);
        carrefour.follow_processes(judged);
        let _ = carrefour.judge(judged, &topology, 0);
        carrefour.apps.get_mut(&PID).expect("followed").sampling = Some(sampling);
        let proposals = carrefour.notice(now, &topology);
        let rate = |one: &Proposal| {
            matches!(one.action, Action::SetSampling { pid, sampling }
            if pid == Some(PID) && sampling == STEADY.sampling.accurate)
        };
        assert!(proposals.iter().all(rate));
        assert_eq!(carrefour.take_noticed(), !proposals.is_empty());
        assert!(!carrefour.take_noticed(), "it is told once");
        !proposals.is_empty()
    }

    #[test]
    fn an_application_that_loses_more_than_when_it_was_judged_is_looked_at_closely() {
        let cheap = STEADY.sampling.cheap;
        let serial = model(1, 0.2);
        assert!(notices(&serial, cheap, &model(1, 0.6)), "it waits longer");
        assert!(notices(&serial, cheap, &model(4, 0.2)), "more threads wait");
        assert!(!notices(&serial, cheap, &serial), "as before");
        assert!(!notices(&serial, cheap, &model(1, 0.1)), "less");
        assert!(!notices(&serial, cheap, &model(1, 0.25)), "the same phase");
        let accurate = STEADY.sampling.accurate;
        assert!(!notices(&serial, accurate, &model(4, 0.6)), "it is looked at closely already");
    }

    #[test]
    fn a_round_that_had_no_samples_is_followed_by_another_as_soon_as_there_are_some() {
        let topology = synthetic::parse("node:2 core:2 mhz:2000").expect("a machine");
        let mut carrefour = Carrefour::new(STEADY);
        let mut round = |requests: f64, stalled: f64| {
            let traffic = Traffic::new(Matrix::from_fn(2, |_, home| requests * (1 - home) as f64));
            let model = Model { traffic: Some(traffic), ..model(4, stalled) };
            let _ = carrefour.propose(&model, &topology, &mut Random::new(1));
            carrefour.take_noticed()
        };
        assert!(!round(0.01, 0.0), "nothing is sampled from now on");
        assert!(round(30.0, 0.5), "samples begin to come");
        assert!(!round(30.0, 0.5), "they came");
    }
}
