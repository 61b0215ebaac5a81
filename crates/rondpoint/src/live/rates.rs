//! The requested sampling rate of each process. All processes share the events, so the highest rate
//! applies.

use std::collections::{BTreeMap, BTreeSet};

use rondpoint_core::Pid;
use rondpoint_core::plan::Sampling;
use rondpoint_linux::observe::sampler::Rate;

/// By process.
#[derive(Default)]
pub(super) struct Rates {
    pub(super) wanted: BTreeMap<Option<Pid>, Sampling>,
    /// Cycles between two samples at the full rate: what the policies say, or the fewest that were
    /// ever asked for.
    pub(super) fastest: Option<u64>,
}

impl Rates {
    pub(super) fn note(&mut self, pid: Option<Pid>, sampling: Sampling) -> Rate {
        self.wanted.insert(pid, sampling);
        if let Sampling::Every { cycles, .. } = sampling {
            self.fastest = Some(self.fastest.map_or(cycles, |fastest| fastest.min(cycles)));
        }
        self.wanted()
    }

    /// Forgets the requests for processes that are gone. Returns the rate of the others, if there
    /// are any and one was forgotten.
    pub(super) fn forget_gone(&mut self, there: &BTreeSet<Pid>) -> Option<Rate> {
        let before = self.wanted.len();
        self.wanted.retain(|pid, _| pid.is_none_or(|pid| there.contains(&pid)));
        let is_other = !self.wanted.is_empty() && self.wanted.len() < before;
        is_other.then(|| self.wanted())
    }

    /// The rate that the policies want. Before the first request addresses are sampled at the full
    /// rate: a policy that sees nothing asks for nothing.
    pub(super) fn wanted(&self) -> Rate {
        let rate = |sampling: &Sampling| match sampling {
            Sampling::Off => Rate::Off,
            // The cheap rates of the published presets are a fourth of the accurate ones, our idle
            // one a sixteenth.
            Sampling::Every { cycles, .. } => match *cycles / self.fastest.unwrap_or(1).max(1) {
                0..2 => Rate::Full,
                2..8 => Rate::Cheap,
                _ => Rate::Idle,
            },
        };
        self.wanted.values().map(rate).max().unwrap_or(Rate::Full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_sampled_at_the_highest_rate_that_a_process_wants() {
        let every = |cycles| Sampling::Every { cycles, tracked_pages: 1 };
        let mut rates = Rates::default();
        assert_eq!(rates.wanted(), Rate::Full);
        assert_eq!(rates.note(Some(Pid(1)), Sampling::Off), Rate::Off);
        assert_eq!(rates.note(Some(Pid(2)), every(65_000)), Rate::Full);
        assert_eq!(rates.note(Some(Pid(2)), every(260_000)), Rate::Cheap);
        let rate = rates.forget_gone(&[Pid(1)].into());
        assert_eq!(rate, Some(rates.wanted()), "it holds from now on");
        assert_eq!(rates.forget_gone(&[Pid(1)].into()), None, "nothing is new");
        assert_eq!(rates.wanted(), Rate::Off);
        let mut told = Rates { fastest: Some(65_000), ..Rates::default() };
        assert_eq!(
            told.note(None, every(260_000)),
            Rate::Cheap,
            "also where it is asked for first"
        );
    }
}
