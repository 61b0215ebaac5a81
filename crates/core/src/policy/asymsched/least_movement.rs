//! The second criterion, exactly: among placements that are good enough, the one that moves least;
//! among those, the best.
//!
//! Local search gives a first placement, which already rules out most node sets. A Lagrangian
//! multiplier with a nearly feasible relaxed optimum then gives a better placement and a bound.
//!
//! Last, labels (value, bytes that stay) are built from the back, one list for each node set. A
//! label is kept if no other label of the set beats it in both. The bounds must also allow it to
//! end better than the placement in hand. The last label left is the optimum.

use super::local;
use super::part::Choice;
use super::problem::{SCORE_CEILING, SCORE_SHIFT};
use super::subset::{Mask, subsets};
use super::table::{Aim, IMPOSSIBLE, Stages, Table};
use alloc::vec;
use alloc::vec::Vec;

/// Largest number of multipliers tried (our choice). Each costs a table; the slope method seldom
/// needs more than four.
const MAX_MULTIPLIERS: u32 = 8;
/// Largest number of labels (our choice: 32 MB). A search that needs more returns the relaxation's
/// placement with its bound.
const MAX_LABELS: usize = 2_000_000;

/// A value and the bytes that stay, which one stage and those after it reach with a node set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Label {
    value: u64,
    kept: u64,
}

/// The placement that moves least among those good enough.
pub(super) struct Least {
    /// Node set of each block.
    pub(super) sets: Vec<Mask>,
    /// Upper bound on the bytes that any good enough placement keeps in place.
    pub(super) kept_bound: u64,
}

/// Finds the placement that keeps most bytes in place among those with at least `threshold`.
/// `best_sets` is a best placement, `back` the table of best values that gave it. The current
/// placement must be below the threshold.
pub(super) fn search(
    stages: &Stages<'_>,
    threshold: u64,
    best_sets: Vec<Mask>,
    back: &Table,
) -> Least {
    let problem = stages.problem;
    let all = stages.all();
    let kept = problem.kept(&best_sets);
    if kept == problem.bytes(problem.occupied()) {
        return Least { sets: best_sets, kept_bound: kept };
    }
    let good = local::good_enough(problem, threshold, best_sets);
    let kept = problem.kept(&good);
    let front = stages.front_table(Aim::VALUE, |stage, used| stages.may_keep(stage, used) >= kept);
    let alive = |_: usize, used: Mask| {
        front[used as usize] + back[(all & !used) as usize] >= threshold as i64
    };
    let relaxed = Relaxed::find(stages, threshold, good, alive);
    let front_relaxed = stages.front_table(relaxed.aim, alive);
    let bounds =
        Bounds { threshold, front: &front, front_relaxed: &front_relaxed, relaxed: &relaxed };
    match labels(stages, &bounds) {
        Some(labels) => {
            let end = labels.of(all).iter().max_by_key(|label| (label.kept, label.value));
            let end = *end.expect("the known placement is never cut off");
            Least { sets: trace(stages, &labels, end), kept_bound: end.kept }
        }
        None => Least { sets: relaxed.sets, kept_bound: relaxed.kept_bound },
    }
}

/// The best multiplier found, its table, and the best feasible placement that the search met.
struct Relaxed {
    aim: Aim,
    back: Table,
    sets: Vec<Mask>,
    kept: u64,
    kept_bound: u64,
}

impl Relaxed {
    /// Walks along the upper right hull of (bytes that stay, value) towards the point where it
    /// crosses the threshold.
    fn find(
        stages: &Stages<'_>,
        threshold: u64,
        good: Vec<Mask>,
        alive: impl Fn(usize, Mask) -> bool,
    ) -> Self {
        let problem = stages.problem;
        let measure =
            |sets: &[Mask]| Label { value: problem.value(sets), kept: problem.kept(sets) };
        let mut good = (measure(&good), good);
        let mut lazy = measure(&problem.homes());
        let mut result = None;
        for _ in 0..MAX_MULTIPLIERS {
            let Some(aim) = slope(good.0, lazy) else { break };
            let back = stages.back_table(aim, &alive);
            let top = back[stages.all() as usize];
            let sets = stages.trace(aim, &back);
            let found = measure(&sets);
            let is_new = top > aim.score(good.0.value, good.0.kept);
            if is_new && found.value >= threshold {
                good = (found, sets);
            } else {
                lazy = found;
            }
            result = Some((aim, back, bound(aim, top, threshold)));
            if !is_new {
                break;
            }
        }
        let (aim, back, kept_bound) = result.unwrap_or_else(|| {
            let aim = Aim::with_bytes(0);
            (aim, stages.back_table(aim, &alive), problem.bytes(problem.occupied()))
        });
        Self { aim, back, kept: good.0.kept, sets: good.1, kept_bound }
    }
}

/// The multiplier for which both placements score the same: `good` has more value, `lazy` keeps
/// more bytes. `None` if one of them is better in both. The relaxed search may not reach `lazy`.
fn slope(good: Label, lazy: Label) -> Option<Aim> {
    let gain = good.value.checked_sub(lazy.value).filter(|gain| *gain > 0)?;
    let bytes = lazy.kept.checked_sub(good.kept).filter(|bytes| *bytes > 0)?;
    let per_byte = ((gain << SCORE_SHIFT) / bytes).max(1);
    let most = SCORE_CEILING / lazy.kept;
    Some(Aim::with_bytes(per_byte.min(most) as i64))
}

/// Upper bound on the bytes that a good enough placement keeps. `top`: optimum of the relaxed
/// problem.
fn bound(aim: Aim, top: i64, threshold: u64) -> u64 {
    ((top - aim.score(threshold, 0)) / aim.per_byte.max(1)).max(0) as u64
}

/// Bounds that cut labels: the most that the parts before a stage can add, and the value to reach.
struct Bounds<'a> {
    threshold: u64,
    front: &'a Table,
    front_relaxed: &'a Table,
    relaxed: &'a Relaxed,
}

impl Bounds<'_> {
    /// Lower bound on the score of every placement at least as good as the known one.
    fn least_score(&self) -> i64 {
        self.relaxed.aim.score(self.threshold, self.relaxed.kept)
    }

    /// Whether a label on the nodes outside `used` may lead to a placement at least as good as the
    /// known one. `kept_in_front`: most bytes that the parts before it can keep.
    fn allow(&self, used: Mask, kept_in_front: u64, label: Label) -> bool {
        label.value as i64 + self.front[used as usize] >= self.threshold as i64
            && label.kept + kept_in_front >= self.relaxed.kept
            && self.relaxed.aim.score(label.value, label.kept) + self.front_relaxed[used as usize]
                >= self.least_score()
    }

    /// Whether any label on the nodes outside `used` may lead to such a placement.
    fn allow_any(&self, all: Mask, used: Mask) -> bool {
        let (front, back) =
            (self.front_relaxed[used as usize], self.relaxed.back[(all & !used) as usize]);
        front > IMPOSSIBLE / 2 && back > IMPOSSIBLE / 2 && front + back >= self.least_score()
    }
}

/// Lists of labels by set of available nodes.
struct Labels {
    range: Vec<(u32, u32)>,
    labels: Vec<Label>,
}

impl Labels {
    fn of(&self, available: Mask) -> &[Label] {
        let (start, end) = self.range[available as usize];
        &self.labels[start as usize..end as usize]
    }

    fn store(&mut self, available: Mask, labels: &[Label]) {
        let start = self.labels.len() as u32;
        self.labels.extend_from_slice(labels);
        self.range[available as usize] = (start, self.labels.len() as u32);
    }
}

/// All labels that the bounds allow, or `None` if they are more than [`MAX_LABELS`].
fn labels(stages: &Stages<'_>, bounds: &Bounds<'_>) -> Option<Labels> {
    let all = stages.all();
    let mut labels = Labels { range: vec![(0, 0); 1 << stages.problem.count], labels: Vec::new() };
    for used in stages.used_sets(stages.parts.len()).filter(|&used| bounds.allow_any(all, used)) {
        labels.store(all & !used, &[Label { value: 0, kept: stages.others_kept(all & !used) }]);
    }
    for stage in (0..stages.parts.len()).rev() {
        for used in stages.used_sets(stage).filter(|&used| bounds.allow_any(all, used)) {
            let front = front_of(stages, bounds, &labels, stage, used);
            labels.store(all & !used, &front);
            if labels.labels.len() > MAX_LABELS {
                return None;
            }
        }
    }
    Some(labels)
}

/// The labels of one stage on the nodes outside `used`. They combine each choice of the stage's
/// part with each label of the remaining nodes.
fn front_of(
    stages: &Stages<'_>,
    bounds: &Bounds<'_>,
    labels: &Labels,
    stage: usize,
    used: Mask,
) -> Vec<Label> {
    let part = &stages.parts[stage];
    let available = stages.all() & !used;
    let kept_in_front = stages.may_keep_in_front(stage, used);
    let mut front = Vec::new();
    for set in subsets(available, part.size) {
        let rest = labels.of(available & !set);
        if rest.is_empty() {
            continue;
        }
        for choice in part.choices(set) {
            for label in rest {
                let label = plus(choice, *label);
                if bounds.allow(used, kept_in_front, label) {
                    offer(&mut front, label);
                }
            }
        }
    }
    front
}

fn plus(choice: &Choice, label: Label) -> Label {
    Label { value: choice.value + label.value, kept: choice.kept + label.kept }
}

/// Adds a label to a Pareto front: no label of it is at most as good as another in both quantities.
fn offer(front: &mut Vec<Label>, new: Label) {
    if front.iter().any(|old| old.value >= new.value && old.kept >= new.kept) {
        return;
    }
    front.retain(|old| old.value > new.value || old.kept > new.kept);
    front.push(new);
}

/// The sets that lead to a label of the full machine: the smallest set for each part in turn.
fn trace(stages: &Stages<'_>, labels: &Labels, end: Label) -> Vec<Mask> {
    let mut sets = vec![0; stages.problem.blocks.len()];
    let mut available = stages.all();
    let mut wanted = end;
    for part in stages.parts {
        let step = |set: Mask| {
            let rest = labels.of(available & !set);
            let leads = |choice: &Choice| {
                rest.iter()
                    .find(|label| plus(choice, **label) == wanted)
                    .map(|label| (set, *choice, *label))
            };
            part.choices(set).iter().find_map(leads)
        };
        let (set, choice, rest) = subsets(available, part.size)
            .find_map(step)
            .expect("every label came from a choice and a label");
        part.write(set, choice, &mut sets);
        available &= !set;
        wanted = rest;
    }
    sets
}
