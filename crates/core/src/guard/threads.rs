//! Admission of affinity masks. Both halves of an exchange are admitted, or neither.

use super::history::Subject;
use super::{Guard, Scene, Verdicts};
use crate::index_set::CpuSet;
use crate::model::{Model, Thread};
use crate::plan::{Action, Proposal, Refusal};
use crate::units::{Nanos, Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};

/// The other half of each exchange, by thread.
pub(super) fn exchanges(proposals: &[Proposal]) -> BTreeMap<Tid, Proposal> {
    let place_of = |(place, one): (usize, &Proposal)| Some((one.action.tid()?, place));
    let places: BTreeMap<Tid, usize> = proposals.iter().enumerate().filter_map(place_of).collect();
    let mut exchanges = BTreeMap::new();
    for partner in proposals {
        let both = partner.action.tid().zip(partner.reason.exchanged_with());
        let Some((tid, mover)) = both else { continue };
        if let Some(place) = places.get(&mover) {
            exchanges.insert(tid, proposals[*place].clone());
            exchanges.insert(mover, partner.clone());
        }
    }
    exchanges
}

impl Guard {
    /// Admits the CPUs of a mask that the thread may use.
    pub(super) fn admit_affinity(
        &mut self,
        mut proposal: Proposal,
        scene: &Scene<'_>,
        bulk: &BTreeSet<Pid>,
        verdicts: &mut Verdicts,
    ) {
        let checked = self.check_affinity(&proposal, 1.0, scene, verdicts).and_then(|allowed| {
            self.check_partner(&proposal, scene, bulk, verdicts).map(|()| allowed)
        });
        let Action::SetAffinity { tid, cpus, via, .. } = &mut proposal.action else { return };
        match checked {
            Err(refusal) => verdicts.refuse(proposal, refusal),
            Ok(allowed) => {
                *via = via.filter(|cpu| allowed.contains(*cpu));
                *cpus = allowed;
                self.calls.take(1.0);
                self.history.moved(Subject::Thread(*tid), scene.model.at, &self.settings);
                verdicts.moved_threads.insert(*tid);
                verdicts.admitted.push(proposal);
            }
        }
    }

    /// Checks that the other half of an exchange was admitted or can be.
    fn check_partner(
        &self,
        proposal: &Proposal,
        scene: &Scene<'_>,
        bulk: &BTreeSet<Pid>,
        verdicts: &Verdicts,
    ) -> Result<(), Refusal> {
        let Action::SetAffinity { tid, .. } = &proposal.action else { return Ok(()) };
        let Some(other) = verdicts.exchanges.get(tid) else { return Ok(()) };
        let Action::SetAffinity { tid: partner, .. } = &other.action else { return Ok(()) };
        if verdicts.moved_threads.contains(partner) {
            return Ok(());
        }
        let refused = verdicts.stayed_threads.contains(partner)
            || self.check_subject(other, scene, bulk).is_err()
            || self.check_affinity(other, 2.0, scene, verdicts).is_err();
        if refused { Err(Refusal::PartnerRefused) } else { Ok(()) }
    }

    /// A part of an indivisible placement is admitted only if all parts are. A thread that is
    /// already in place does not prevent it.
    pub(super) fn check_placement(
        &self,
        proposal: &Proposal,
        placement: &[Proposal],
        scene: &Scene<'_>,
        bulk: &BTreeSet<Pid>,
        verdicts: &mut Verdicts,
    ) -> Result<(), Refusal> {
        if !proposal.reason.is_indivisible() {
            return Ok(());
        }
        let calls = (placement.len() as f64).min(f64::from(self.settings.calls_per_s));
        let may = |part: &Proposal| {
            let checked = self.check_subject(part, scene, bulk);
            let checked =
                checked.and_then(|()| self.check_affinity(part, calls, scene, verdicts).map(drop));
            matches!(checked, Ok(()) | Err(Refusal::AlreadyThere))
        };
        let whole = verdicts.whole.unwrap_or_else(|| placement.iter().all(may));
        verdicts.whole = Some(whole);
        if whole {
            return Ok(());
        }
        // A part with a refusal of its own reports that one.
        let own = self.check_affinity(proposal, 1.0, scene, verdicts).err();
        Err(own.unwrap_or(Refusal::PartnerRefused))
    }

    /// The CPUs of a mask that a thread may use, if `calls` more calls are left.
    fn check_affinity(
        &self,
        proposal: &Proposal,
        calls: f64,
        scene: &Scene<'_>,
        verdicts: &Verdicts,
    ) -> Result<CpuSet, Refusal> {
        let Action::SetAffinity { pid, tid, cpus, .. } = &proposal.action else {
            return Err(Refusal::Malformed);
        };
        let thread = thread_of(scene.model, *pid, *tid).ok_or(Refusal::Unknown)?;
        if let Some(exemption) = thread.exempt {
            return Err(Refusal::Exempt { exemption });
        }
        let usable =
            |cpu: &usize| *cpu < scene.topology.cpu_count() && !scene.topology.cpu(*cpu).isolated;
        let allowed: CpuSet = cpus.intersection(&thread.allowed).iter().filter(usable).collect();
        if allowed.is_empty() {
            return Err(Refusal::NoAllowedCpu);
        }
        if scene.ledger.mask(*tid) == Some(&allowed) {
            return Err(Refusal::AlreadyThere);
        }
        if verdicts.moved_threads.contains(tid) {
            return Err(Refusal::Conflict);
        }
        // A placement may have more threads than the calls of one second. It then takes the whole
        // budget.
        let in_placement = verdicts.whole == Some(true) && proposal.reason.is_indivisible();
        if self.calls.left() < calls && !in_placement {
            return Err(Refusal::CallBudget);
        }
        self.check_residence(proposal, scene.model.at)?;
        Ok(allowed)
    }

    /// Checks that the thread of a mask has stayed for long enough and was not moved too often.
    pub(super) fn check_residence(&self, proposal: &Proposal, now: Nanos) -> Result<(), Refusal> {
        let Action::SetAffinity { tid, .. } = proposal.action else { return Ok(()) };
        let urgent = proposal.reason.is_urgent();
        self.history.may_move(Subject::Thread(tid), now, &self.settings, urgent)
    }
}

pub(super) fn thread_of(model: &Model, pid: Pid, tid: Tid) -> Option<&Thread> {
    let app = model.app(pid)?;
    let threads = model.threads_of(app);
    let place = threads.binary_search_by_key(&tid, |thread| thread.tid).ok()?;
    Some(&threads[place])
}
