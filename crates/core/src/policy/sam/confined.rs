//! Processes whose threads stay on certain CPUs, for a cause.

use super::decide::{Destination, Move};
use super::view::{Running, Use};
use crate::Pid;
use crate::index_set::CpuSet;
use crate::model::{App, Model};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The CPUs of each confined process, and why.
pub(super) struct Confined<H>(BTreeMap<Pid, (CpuSet, H)>);

impl<H: Copy> Confined<H> {
    pub(super) fn new(model: &Model, confine: impl Fn(&App) -> Option<(CpuSet, H)>) -> Self {
        Self(model.apps.iter().filter_map(|app| Some((app.pid, confine(app)?))).collect())
    }

    fn of(&self, running: &Running) -> Option<&(CpuSet, H)> {
        self.0.get(&running.pid?)
    }

    /// Why a move may not be made: it takes its thread, or the one that changes places with it, out of where it stays.
    pub(super) fn cause(&self, uses: &[Use], chosen: &Move) -> Option<H> {
        let leaves = |from: usize, to: usize| {
            let (cpus, cause) = self.of(uses[from].thread()?)?;
            (!cpus.contains(to)).then_some(*cause)
        };
        let partner = || match chosen.destination {
            Destination::Idle => None,
            Destination::CpuBound | Destination::Homeward | Destination::MemoryBound => {
                leaves(chosen.to, chosen.from)
            }
        };
        leaves(chosen.from, chosen.to).or_else(partner)
    }

    /// The same uses, where nobody may leave.
    pub(super) fn narrow(&self, uses: &[Use]) -> Vec<Use> {
        let mut uses = uses.to_vec();
        for cpu_use in &mut uses {
            let Use::Thread(running) = cpu_use else { continue };
            let Some((cpus, _)) = self.of(running) else { continue };
            let allowed = running.allowed.as_ref();
            running.allowed =
                Some(allowed.map_or_else(|| cpus.clone(), |allowed| allowed.intersection(cpus)));
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sam::Phase;
    use crate::units::Tid;
    use alloc::vec;

    fn thread(pid: u32, allowed: Option<CpuSet>) -> Use {
        Use::Thread(Running { tid: Tid(pid), pid: Some(Pid(pid)), allowed, ..Running::default() })
    }

    /// Process 1, which stays on CPUs 0 and 1; process 2, which may go anywhere; an idle CPU.
    fn scene() -> (Confined<&'static str>, Vec<Use>) {
        let cpus = [0, 1].into_iter().collect();
        let confined = Confined(BTreeMap::from([(Pid(1), (cpus, "why"))]));
        (confined, vec![thread(1, None), Use::Idle, thread(2, None)])
    }

    #[test]
    fn neither_who_moves_nor_who_changes_places_may_leave() {
        let (confined, uses) = scene();
        let check = |from, to, destination, expected| {
            let chosen = Move { phase: Phase::Bandwidth, from, to, destination };
            assert_eq!(confined.cause(&uses, &chosen), expected, "{chosen:?}");
        };
        check(0, 1, Destination::Idle, None);
        check(2, 1, Destination::Idle, None);
        check(0, 2, Destination::CpuBound, Some("why"));
        check(2, 0, Destination::CpuBound, Some("why"));
    }

    #[test]
    fn masks_get_narrower_and_never_wider() {
        let (confined, mut uses) = scene();
        uses[0] = thread(1, Some([1, 2].into_iter().collect()));
        let narrow = confined.narrow(&uses);
        let cpus = |cpu_use: &Use| cpu_use.thread().and_then(|one| one.allowed.clone());
        assert_eq!(cpus(&narrow[0]), Some([1].into_iter().collect()));
        assert_eq!(narrow[1..], uses[1..]);
    }
}
