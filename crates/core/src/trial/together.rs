//! Judges processes together if one plan moved threads of all of them. One process may have gained
//! by the loss of another.
//!
//! N-MASS moves one process away from its memory so that another process, with more misses, can be
//! near its own. The first process loses by itself. So a plan stays if its processes gain on
//! average.
//!
//! Otherwise the processes that lost most move back, half of the losers at a time. A bad plan of n
//! processes is thus undone after log2 n trials. Processes that exchanged places with a returning
//! process return too, and so do all processes of one placement. Half an exchange would put two
//! threads where one was. The other losers are judged again, because the returning processes may
//! have caused their loss. Of two processes that share a cache far from their memory, one alone may
//! gain.

use super::measure::Verdict;
use super::noise::Change;
use super::{Judged, Trial};
use crate::limits::{MAX_TRIAL_WINDOWS, MIN_TRIAL_WINDOWS};
use crate::plan::{Action, Kind, Plan, Proposal, Reason};
use crate::units::{Pid, Tid};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Relations between the moves of threads in one plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Together {
    /// Policies that move threads of more than one process.
    several: BTreeSet<&'static str>,
    /// Pairs of processes that exchange places or belong to one placement, in both directions.
    partners: BTreeSet<(Pid, Pid)>,
}

impl Together {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut together = Self::default();
        let mut first: BTreeMap<&'static str, Pid> = BTreeMap::new();
        let mut owners: BTreeMap<Tid, Pid> = BTreeMap::new();
        let tried = || plan.steps.iter().filter(|step| !matches!(step.reason, Reason::Undo(_)));
        for step in tried() {
            let Action::SetAffinity { pid, tid, .. } = step.action else { continue };
            owners.insert(tid, pid);
            if *first.entry(step.policy).or_insert(pid) != pid {
                together.several.insert(step.policy);
            }
        }
        let is_placed = |step: &&Proposal| step.reason.is_indivisible();
        let first_placed = tried().find(is_placed).and_then(|step| step.action.pid());
        for step in tried() {
            let exchanged = step.reason.exchanged_with().and_then(|tid| owners.get(&tid).copied());
            let placed = first_placed.filter(|_| step.reason.is_indivisible());
            for other in [exchanged, placed].into_iter().flatten() {
                let pair = step.action.pid().filter(|pid| *pid != other).map(|pid| (pid, other));
                together.partners.extend(pair.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]));
            }
        }
        together
    }

    /// Notes in the trial of one process its relations with the others.
    pub(super) fn note(&self, pid: Pid, plan: u64, trial: &mut Trial) {
        if self.several.contains(trial.policy) {
            trial.together.insert(plan);
        }
        let own = self.partners.range((pid, Pid(0))..=(pid, Pid(u32::MAX)));
        trial.partners.extend(own.map(|(_, other)| *other));
    }
}

impl Trial {
    /// Whether enough windows have passed since its last action.
    fn is_settled(&self) -> bool {
        self.quiet > MIN_TRIAL_WINDOWS || self.is_overdue()
    }

    /// Whether a move of threads looks like harm so far, within the noise: the loss is larger than
    /// half of the noise (our choice). More windows have less noise, and threads stay where they
    /// are after the verdict. Rounds of page moves follow each other, so the next one tells.
    fn is_doubtful(&self, pid: Pid) -> bool {
        let is_harm = |judged: &Judged| {
            let whole = judged.comparison.combined;
            let looks = whole.is_some_and(|whole| whole.change < -0.5 * whole.noise);
            looks && judged.verdict == Verdict::Unclear
        };
        self.kinds.contains(&Kind::Affinity) && is_harm(&self.judged(pid))
    }

    /// Whether the trial has reached its longest time, so that the last windows decide.
    fn is_overdue(&self) -> bool {
        self.after.len() >= MAX_TRIAL_WINDOWS
    }
}

/// Trials that are judged now, in groups. A trial with enough windows waits for the others of its
/// group, and while one of them is doubtful, until one is overdue.
pub(super) fn due(trials: &BTreeMap<Pid, &Trial>) -> Vec<Vec<Pid>> {
    let mut groups = Vec::new();
    let mut left: BTreeSet<Pid> = trials.keys().copied().collect();
    while let Some(first) = left.pop_first() {
        let group = with_related(first, &mut left, trials);
        let settled: Vec<Pid> =
            group.iter().copied().filter(|pid| trials[pid].is_settled()).collect();
        let is_clear = || group.iter().all(|pid| !trials[pid].is_doubtful(*pid));
        let is_due = settled.len() == group.len() && is_clear()
            || group.iter().any(|pid| trials[pid].is_overdue());
        if is_due && !settled.is_empty() {
            groups.push(settled);
        }
    }
    groups
}

/// Takes out of `left` a process and all processes that were moved with it, directly or through
/// others.
fn with_related(first: Pid, left: &mut BTreeSet<Pid>, trials: &BTreeMap<Pid, &Trial>) -> Vec<Pid> {
    let mut group = Vec::from([first]);
    let mut next = 0;
    while let Some(pid) = group.get(next) {
        let one = trials[pid];
        let are_related = |other: &&Pid| !one.together.is_disjoint(&trials[*other].together);
        let related: Vec<Pid> = left.iter().filter(are_related).copied().collect();
        related.iter().for_each(|other| {
            left.remove(other);
        });
        group.extend(related);
        next += 1;
    }
    group
}

/// Gives each process of a group its verdict by the mean of the group. Returns the processes to
/// judge again. `partners` has the processes with which each exchanged places.
pub(super) fn settle(group: &mut [Judged], partners: &[BTreeSet<Pid>]) -> BTreeSet<Pid> {
    let compared = group.iter().filter(|judged| judged.verdict != Verdict::PhaseChange);
    let changes: Vec<Change> = compared.filter_map(|judged| judged.comparison.combined).collect();
    let gains = mean_of_processes(&changes).is_some_and(|whole| whole.change > whole.noise)
        && group.iter().any(|judged| judged.verdict == Verdict::Better);
    if gains {
        let worse = group.iter_mut().filter(|judged| judged.verdict == Verdict::Worse);
        worse.for_each(|judged| judged.verdict = Verdict::Traded);
        return BTreeSet::new();
    }
    let mut losers = worst_first(group);
    let mut again: BTreeSet<Pid> = losers.split_off(losers.len().div_ceil(2)).into_iter().collect();
    let mut going_back: BTreeSet<Pid> = losers.into_iter().collect();
    loop {
        let goes_with = |(judged, partners): &(&mut Judged, &BTreeSet<Pid>)| {
            !going_back.contains(&judged.pid) && !partners.is_disjoint(&going_back)
        };
        let Some((judged, _)) = group.iter_mut().zip(partners).find(goes_with) else {
            return again;
        };
        if !again.remove(&judged.pid) {
            judged.verdict = Verdict::Returned;
        }
        going_back.insert(judged.pid);
    }
}

/// The mean gain of processes. Their noises are independent, so the squares of the noises add.
/// Example from a run of demo-pairs: a gain of 49 % ± 21 and a loss of 17 % ± 17 make 16 % ± 14.
/// With averaged noises this would be no gain, and both would go back.
fn mean_of_processes(changes: &[Change]) -> Option<Change> {
    let count = changes.len() as f64;
    (!changes.is_empty()).then(|| Change {
        change: changes.iter().map(|one| one.change).sum::<f64>() / count,
        noise: libm::sqrt(changes.iter().map(|one| one.noise * one.noise).sum()) / count,
    })
}

/// The processes that are worse off, the greatest loss first.
fn worst_first(group: &[Judged]) -> Vec<Pid> {
    let change = |judged: &Judged| judged.comparison.combined.map_or(0.0, |whole| whole.change);
    let mut losers: Vec<&Judged> = group.iter().filter(|one| one.verdict.is_undone()).collect();
    losers.sort_by(|a, b| change(a).total_cmp(&change(b)));
    losers.into_iter().map(|judged| judged.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Trials;
    use super::*;
    use crate::index_set::CpuSet;
    use crate::limits::MAX_TRIAL_WAIT;
    use crate::model::{App, Model};
    use crate::policy::asymsched::{AsymSchedReason, PlacementReason};
    use crate::units::Nanos;
    use alloc::format;
    use alloc::string::{String, ToString as _};
    use alloc::vec;

    /// A window in which each process, by number, makes this progress per second.
    fn window(progress: &[f64]) -> Model {
        let mut model = Model::empty(2);
        let app = |(number, progress): (usize, &f64)| App {
            progress_per_s: Some(*progress),
            cpu_percent: 100.0,
            cpu_time: Nanos(1),
            ..App::new(Pid(number as u32 + 1), 0..0)
        };
        model.apps = progress.iter().enumerate().map(app).collect();
        model
    }

    fn plan(number: u64, pids: &[u32]) -> Plan {
        let step = |pid: &u32| Proposal {
            policy: "test",
            action: Action::SetAffinity {
                pid: Pid(*pid),
                tid: Tid(*pid),
                cpus: CpuSet::first(1),
                via: None,
            },
            reason: Reason::Other("a test".to_string()),
        };
        Plan { number, steps: pids.iter().map(step).collect(), ..Plan::default() }
    }

    /// Checks the verdicts. The processes make the progress `before`, then `plans` move them one
    /// window after the other, then they make the progress `after`.
    fn check(before: &[f64], plans: &[&[u32]], after: &[f64], expected: &str) {
        let mut trials = Trials::default();
        (0..4).for_each(|_| assert_eq!(trials.observe(&window(before), |_| false), []));
        for (number, pids) in (1..).zip(plans) {
            drop(trials.begin(&plan(number, pids)));
            assert_eq!(trials.observe(&window(before), |_| false), []);
        }
        let mut told: Vec<String> = Vec::new();
        for late in 1..=12 {
            let judged = trials.observe(&window(after), |_| false);
            told.extend(judged.iter().map(|one| format!("{late}:{} {:?}", one.pid, one.verdict)));
        }
        assert_eq!(told.join(", "), expected);
        assert_eq!(trials.running(), BTreeMap::new());
    }

    #[test]
    fn a_process_that_is_worse_off_stays_where_the_others_gained_more() {
        check(&[10.0, 10.0], &[&[1, 2]], &[16.0, 8.0], "3:1 Better, 3:2 Traded");
        check(&[10.0, 10.0], &[&[1, 2]], &[12.0, 7.0], "3:1 Better, 3:2 Worse");
        check(&[10.0, 10.0], &[&[1, 2]], &[12.0, 12.0], "3:1 Better, 3:2 Better");
    }

    #[test]
    fn the_noise_of_a_mean_falls_with_those_it_is_of() {
        let of = |change, noise| Change { change, noise };
        let whole = mean_of_processes(&[of(0.49, 0.21), of(-0.17, 0.17)]).expect("two");
        assert!((whole.change - 0.16).abs() < 1e-9 && (whole.noise - 0.135).abs() < 1e-3);
        assert_eq!(mean_of_processes(&[of(0.1, 0.05)]), Some(of(0.1, 0.05)));
        assert_eq!(mean_of_processes(&[]), None);
    }

    #[test]
    fn of_two_that_lose_the_one_that_lost_more_goes_back_and_the_other_is_judged_without_it() {
        // On the new node the two processes share a cache. A process alone there gains.
        let mut trials = Trials::default();
        (0..4).for_each(|_| assert_eq!(trials.observe(&window(&[10.0, 10.0]), |_| false), []));
        drop(trials.begin(&plan(1, &[1, 2])));
        let mut away = BTreeSet::from([1, 2]);
        let mut told: Vec<String> = Vec::new();
        for late in 1..=12 {
            let speed = |pid| match (away.contains(&pid), away.len()) {
                (false, _) => 10.0,
                (true, 1) => 14.0,
                (true, _) => 9.0 - f64::from(pid),
            };
            for one in trials.observe(&window(&[speed(1), speed(2)]), |_| false) {
                told.push(format!("{late}:{} {:?}", one.pid, one.verdict));
                away.retain(|pid| !(one.verdict.is_undone() && one.pid == Pid(*pid)));
            }
        }
        assert_eq!(told.join(", "), "4:2 Worse, 8:1 Better");
    }

    /// Windows of a program that differ by a fifth of the mean.
    fn noisy(mean: f64, number: u32) -> f64 {
        mean + if number.is_multiple_of(2) { 1.0 } else { -1.0 }
    }

    /// The number of windows before the verdicts, and these, after a move of threads. `program`
    /// gives the progress of each process, before and after.
    fn judged_after(pids: &[u32], program: impl Fn(bool, u32) -> Vec<f64>) -> (u32, Vec<Verdict>) {
        let mut trials = Trials::default();
        (0..6).for_each(|one| drop(trials.observe(&window(&program(false, one)), |_| false)));
        drop(trials.begin(&plan(1, pids)));
        let judged = |late: u32| (late, trials.observe(&window(&program(true, late)), |_| false));
        let first = (1..=13).map(judged).find(|(_, judged)| !judged.is_empty());
        let (late, judged) = first.expect("a verdict");
        (late, judged.iter().map(|one| one.verdict).collect())
    }

    #[test]
    fn a_move_of_threads_that_looks_like_harm_is_watched_until_it_is_clear() {
        let to = |then: f64| {
            judged_after(&[1], |after, one| vec![noisy(if after { then } else { 10.0 }, one)])
        };
        assert_eq!(to(10.0), (4, vec![Verdict::Unclear]), "it does not look like harm");
        let (late, verdicts) = to(8.0);
        assert!(late > 4 && verdicts == [Verdict::Worse], "{late}: {verdicts:?}");
    }

    #[test]
    fn processes_that_were_moved_together_are_judged_together_though_one_is_doubtful() {
        let (late, verdicts) = judged_after(&[1, 2], |after, one| {
            vec![10.0, noisy(if after { 8.5 } else { 10.0 }, one)]
        });
        assert!(late > 4 && verdicts.len() == 2, "{late}: {verdicts:?}");
    }

    #[test]
    fn many_that_lose_go_back_by_halves() {
        let before = [10.0; 5];
        let after = [9.0, 6.0, 8.0, 7.0, 5.0];
        let expected = "3:2 Worse, 3:4 Worse, 3:5 Worse, 7:3 Worse, 11:1 Worse";
        check(&before, &[&[1, 2, 3, 4, 5]], &after, expected);
    }

    #[test]
    fn a_placement_goes_back_as_a_whole() {
        let mut whole = plan(1, &[1, 2]);
        for step in &mut whole.steps {
            step.reason = Reason::AsymSched(AsymSchedReason::Placement(PlacementReason::default()));
        }
        let both = BTreeSet::from([(Pid(1), Pid(2)), (Pid(2), Pid(1))]);
        assert_eq!(Together::of(&whole).partners, both);
    }

    #[test]
    fn a_process_that_was_moved_alone_is_judged_alone() {
        check(&[10.0, 10.0], &[&[1], &[2]], &[10.0, 8.0], "2:1 Unclear, 3:2 Worse");
    }

    #[test]
    fn what_is_under_way_is_judged_when_it_is_complete_or_for_long_enough() {
        // The process is slower while its memory is remote and faster afterwards. The last number
        // counts the windows until the verdict.
        const WINDOW: Nanos = Nanos::from_millis(250);
        let told = |under_way: u64| {
            let mut trials = Trials::default();
            (0..4).for_each(|_| assert_eq!(trials.observe(&window(&[10.0]), |_| false), []));
            drop(trials.begin(&plan(1, &[1])));
            (1..40).find_map(|late| {
                let speed = if late <= under_way { 7.0 } else { 12.0 };
                let window = Model { at: Nanos(late * WINDOW.0), ..window(&[speed]) };
                let judged = trials.observe(&window, |_| late <= under_way);
                judged.first().map(|one| (one.verdict, late))
            })
        };
        assert_eq!(told(0), Some((Verdict::Better, 4)));
        assert_eq!(told(8), Some((Verdict::Better, 12)));
        assert_eq!(
            told(100),
            Some((Verdict::Worse, MAX_TRIAL_WAIT.0 / WINDOW.0 + 4)),
            "no policy keeps it open"
        );
    }

    #[test]
    fn the_related_wait_for_each_other_and_for_the_relatives_of_those() {
        check(
            &[10.0, 10.0, 10.0],
            &[&[1, 2], &[2, 3]],
            &[10.0, 8.0, 15.0],
            "3:1 Unclear, 3:2 Traded, 3:3 Better",
        );
    }

    #[test]
    fn pages_of_two_processes_have_nothing_to_do_with_each_other() {
        let mut both = plan(1, &[1, 2]);
        assert_eq!(Together::of(&both).several.len(), 1);
        both.steps[1].policy = "other";
        assert_eq!(Together::of(&both), Together::default());
        both = plan(1, &[1, 2]);
        both.steps[1].action = Action::Replicate { pid: Pid(2), pages: Vec::new() };
        assert_eq!(Together::of(&both), Together::default());
    }

    #[test]
    fn a_process_that_changed_places_with_one_that_goes_back_goes_back_too() {
        let judged = |pid: u32, progress: f64| {
            let mut trials = Trials::default();
            let pids: Vec<f64> = (1..=pid).map(|_| 10.0).collect();
            (0..4).for_each(|_| assert_eq!(trials.observe(&window(&pids), |_| false), []));
            drop(trials.begin(&plan(1, &[pid])));
            let mut after = pids;
            after[pid as usize - 1] = progress;
            let mut all = (0..6).flat_map(|_| trials.observe(&window(&after), |_| false));
            all.next().expect("it is judged")
        };
        let set = |pids: &[u32]| pids.iter().map(|pid| Pid(*pid)).collect::<BTreeSet<_>>();
        let mut group = [judged(1, 5.0), judged(2, 13.0), judged(3, 11.0), judged(4, 10.0)];
        let again = settle(&mut group, &[set(&[2]), set(&[1, 3]), set(&[2]), set(&[])]);
        assert_eq!(again, set(&[]));
        let verdicts = group.map(|one| one.verdict);
        let [back, stays] = [Verdict::Returned, Verdict::Unclear];
        assert_eq!(verdicts, [Verdict::Worse, back, back, stays]);
    }
}
