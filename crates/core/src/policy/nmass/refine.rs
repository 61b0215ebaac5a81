//! The cache-aware refinement of N-MASS [N-MASS algorithm 3], repaired.
//!
//! The printed loop has five defects. It computes the difference of the pressures and never uses
//! it. It keeps the pressures of refused moves. It runs "until decision != CURRENT": it stops after
//! one success and never stops without one. It may load the more loaded side. It does not define
//! the result for an empty list.
//!
//! The text and figure 6(c) show the intention: shift less than half of the difference. Then both
//! sides are even after the penalty is charged. The shift never reaches the pressure that saturates
//! the link.
//!
//! A moved process goes to the front of its new list, behind all natives in the order of moves. One
//! run therefore never moves a process back and forth.

use super::maximum_local::take_core;
use super::{Cause, Mapping, Place, Preset, Process, Processor, Refinement};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Moves processes between processors by the preset's rule. `places`: the result of maximum-local,
/// penalty descending.
#[must_use]
pub fn refine(
    processes: &[Process],
    processors: &[Processor],
    places: Vec<Place>,
    preset: &Preset,
) -> Mapping {
    let mut state = State::new(processes, processors, places, preset);
    match preset.refinement {
        Refinement::Difference => while state.may_continue() && state.shrink_difference() {},
        Refinement::Printed => while state.may_continue() && state.printed_round() {},
        Refinement::None => {}
    }
    Mapping { pressures: state.charged_pressures(), places: state.places, shifts: state.shifts }
}

/// A possible move or exchange, with the pressures after it.
#[derive(Clone, Copy)]
struct Candidate {
    /// Index of the processor that the process leaves.
    source: usize,
    /// Index of the processor that it joins.
    target: usize,
    /// Index into the places.
    place: usize,
    /// The place that moves from target to source, for an exchange.
    exchanged: Option<usize>,
    /// Pressure of the source after the move, MPKI.
    source_after: f64,
    /// Pressure of the target after the move, MPKI.
    target_after: f64,
}

impl Candidate {
    fn difference(&self) -> f64 {
        (self.source_after - self.target_after).abs()
    }
}

/// Places and pressures during refinement.
struct State<'a> {
    processes: &'a [Process],
    processors: &'a [Processor],
    preset: &'a Preset,
    places: Vec<Place>,
    /// Places on each processor, penalty descending; moved processes are at the front.
    queues: Vec<VecDeque<usize>>,
    /// CPUs of free cores, by processor.
    free: Vec<Vec<usize>>,
    /// Pressures by processor, MPKI; charged with penalties except for [`Refinement::Printed`].
    pressures: Vec<f64>,
    /// Processes moved, in the order of the moves.
    shifts: Vec<usize>,
}

impl<'a> State<'a> {
    fn new(
        processes: &'a [Process],
        processors: &'a [Processor],
        places: Vec<Place>,
        preset: &'a Preset,
    ) -> Self {
        let mut queues = vec![VecDeque::new(); processors.len()];
        let mut free: Vec<Vec<usize>> =
            processors.iter().map(|processor| processor.cpus.clone()).collect();
        for (index, place) in places.iter().enumerate() {
            queues[place.processor].push_back(index);
            free[place.processor].retain(|&cpu| cpu != place.cpu);
        }
        let mut state = Self {
            processes,
            processors,
            preset,
            places,
            queues,
            free,
            pressures: Vec::new(),
            shifts: Vec::new(),
        };
        state.pressures = match preset.refinement {
            Refinement::Printed => state.sum_pressures(|process, _| process.mpki),
            Refinement::Difference | Refinement::None => state.charged_pressures(),
        };
        state
    }

    /// Whether another round is allowed: fewer moves than processes (inferred).
    fn may_continue(&self) -> bool {
        self.shifts.len() < self.places.len()
    }

    fn sum_pressures(&self, charge: impl Fn(&Process, usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.processors.len()];
        for place in &self.places {
            sums[place.processor] +=
                charge(&self.processes[place.process], self.processors[place.processor].node);
        }
        sums
    }

    fn charged_pressures(&self) -> Vec<f64> {
        self.sum_pressures(Process::charge)
    }

    fn charge(&self, place: usize, processor: usize) -> f64 {
        self.processes[self.places[place].process].charge(self.processors[processor].node)
    }

    fn may_move(&self, place: usize, target: usize) -> bool {
        let process = &self.processes[self.places[place].process];
        self.free[target].iter().any(|&cpu| process.may_use(cpu))
    }

    /// One round of the repaired form: a move from the most loaded processor to the least loaded
    /// one with a free core. False if none improves.
    ///
    /// The paper examines both directions, but only a move to the less loaded side can shrink the
    /// difference. For two processors the result is the same; this form extends to more.
    fn shrink_difference(&mut self) -> bool {
        let Some(source) = self.most_loaded() else { return false };
        let best = self.to_free_core(source).or_else(|| self.exchange(source));
        best.map(|candidate| self.apply(candidate)).is_some()
    }

    fn most_loaded(&self) -> Option<usize> {
        let mut order: Vec<usize> =
            (0..self.processors.len()).filter(|&p| !self.queues[p].is_empty()).collect();
        order.sort_by(|&a, &b| self.pressures[b].total_cmp(&self.pressures[a]));
        order.first().copied()
    }

    fn least_loaded(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        (0..self.processors.len())
            .filter(|&p| wanted(p))
            .min_by(|&a, &b| self.pressures[a].total_cmp(&self.pressures[b]))
    }

    /// The move of the source's last process that may use a free core elsewhere, if it improves.
    fn to_free_core(&self, source: usize) -> Option<Candidate> {
        let movable = |target: usize| {
            self.queues[source].iter().rev().copied().find(|&p| self.may_move(p, target))
        };
        let target = self.least_loaded(|target| target != source && movable(target).is_some())?;
        let place = movable(target)?;
        let candidate = Candidate {
            source,
            target,
            place,
            exchanged: None,
            source_after: self.pressures[source] - self.charge(place, source),
            target_after: self.pressures[target] + self.charge(place, target),
        };
        self.is_improvement(&candidate).then_some(candidate)
    }

    /// The exchange of the source's last process with the last one of the least loaded full
    /// processor, if the preset has exchanges and it improves.
    fn exchange(&self, source: usize) -> Option<Candidate> {
        if !self.preset.swap_when_full {
            return None;
        }
        let is_full =
            |target: usize| self.free[target].is_empty() && !self.queues[target].is_empty();
        let target = self.least_loaded(|target| target != source && is_full(target))?;
        let (&place, &other) = (self.queues[source].back()?, self.queues[target].back()?);
        let candidate = Candidate {
            source,
            target,
            place,
            exchanged: Some(other),
            source_after: self.pressures[source] - self.charge(place, source)
                + self.charge(other, source),
            target_after: self.pressures[target] - self.charge(other, target)
                + self.charge(place, target),
        };
        let may_use = |p: usize, cpu: usize| self.processes[self.places[p].process].may_use(cpu);
        let allowed =
            may_use(place, self.places[other].cpu) && may_use(other, self.places[place].cpu);
        (allowed && self.is_improvement(&candidate)).then_some(candidate)
    }

    /// Whether the target stays below the threshold and the difference of the pressures shrinks.
    fn is_improvement(&self, candidate: &Candidate) -> bool {
        let (source, target) = (self.pressures[candidate.source], self.pressures[candidate.target]);
        // With more than two processors moves could go round in circles. The highest pressure must
        // therefore not rise (inferred).
        let is_pair = self.processors.len() == 2;
        candidate.target_after < self.preset.threshold_mpki
            && candidate.source_after < source
            && (is_pair || candidate.target_after < source)
            && candidate.difference() < (source - target).abs()
    }

    /// One round as printed: the last process with the smallest `mpki × penalty` moves, whatever
    /// the pressures. A process moves once in a run. False if none can move.
    fn printed_round(&mut self) -> bool {
        let mut directions: Vec<Candidate> = (0..self.processors.len())
            .flat_map(|source| (0..self.processors.len()).map(move |target| (source, target)))
            .filter(|(source, target)| source != target)
            .filter_map(|(source, target)| self.printed_candidate(source, target))
            .collect();
        let cost = |c: &Candidate| {
            let process = &self.processes[self.places[c.place].process];
            process.mpki * process.penalty
        };
        directions.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        directions.first().map(|&candidate| self.apply(candidate)).is_some()
    }

    fn printed_candidate(&self, source: usize, target: usize) -> Option<Candidate> {
        let place = *self.queues[source].back()?;
        let process = &self.processes[self.places[place].process];
        let target_after = self.pressures[target] + process.mpki * process.penalty;
        let was_moved = self.shifts.contains(&self.places[place].process);
        let fits = target_after < self.preset.threshold_mpki && self.may_move(place, target);
        (fits && !was_moved).then(|| Candidate {
            source,
            target,
            place,
            exchanged: None,
            source_after: self.pressures[source] - process.mpki,
            target_after,
        })
    }

    fn apply(&mut self, candidate: Candidate) {
        let cause = Cause::Shifted {
            source_before: self.pressures[candidate.source],
            source_after: candidate.source_after,
            target_before: self.pressures[candidate.target],
            target_after: candidate.target_after,
        };
        let Candidate { source, target, place, .. } = candidate;
        let left = self.places[place].cpu;
        if let Some(other) = candidate.exchanged {
            self.free[target].push(self.places[other].cpu);
            self.settle(other, target, source, left, cause);
        }
        let process = &self.processes[self.places[place].process];
        let taken = take_core(&mut self.free[target], process)
            .expect("a candidate has a core on its target");
        self.settle(place, source, target, taken, cause);
        if candidate.exchanged.is_none() {
            self.free[source].push(left);
        }
        self.pressures[source] = candidate.source_after;
        self.pressures[target] = candidate.target_after;
    }

    /// Records that a place moved: it goes to the front of the target's queue.
    fn settle(&mut self, place: usize, source: usize, target: usize, cpu: usize, cause: Cause) {
        self.queues[source].retain(|&other| other != place);
        self.queues[target].push_front(place);
        self.places[place] =
            Place { process: self.places[place].process, processor: target, cpu, cause };
        self.shifts.push(self.places[place].process);
    }
}
