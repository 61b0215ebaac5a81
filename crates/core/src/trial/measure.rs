//! Measures of a process's progress in a window, and the comparison of two groups of windows.

use super::noise::{Change, LEAST_NOISE, change};
use crate::model::{App, Model, Thread, TrafficSource};
use alloc::vec::Vec;

/// Measures of one process in one window. A value that no sensor gave is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measure {
    /// Work per second, by the application's own count.
    pub progress_per_s: Option<f64>,
    /// Instructions per second, all threads.
    pub instructions_per_s: Option<f64>,
    /// Instructions per second of the slowest busy thread.
    pub slowest_per_s: Option<f64>,
    /// Mean latency of a DRAM access in cycles.
    pub latency_cycles: Option<f64>,
    /// Share of the cycles in which its threads did not wait for memory.
    pub unstalled_share: Option<f64>,
    /// Local access ratio in percent: used only if none of the other measures is known.
    pub local_percent: Option<f64>,
    /// Busy threads.
    pub threads: f64,
    /// CPU time in percent.
    pub cpu_percent: f64,
    /// Last-level cache misses per 1000 instructions.
    pub mpki: Option<f64>,
    /// Requests for memory per 1000 instructions, prefetches among them.
    pub requests_per_1000: Option<f64>,
}

/// A thread counts as busy with at least this share of the busiest thread's CPU time (our choice).
/// A thread that mostly waits for other threads is no measure of progress.
const BUSY_SHARE: f64 = 0.25;
/// A larger change of threads or CPU use is another phase (our choice; SAM-MPH uses a flag that
/// falls).
pub(crate) const PHASE_CHANGE: f64 = 0.3;
/// A larger change of memory traffic per instruction is another phase, unless the trial moved
/// threads, which changes traffic by itself. If misses and requests are both known, both have to
/// change. Late prefetches that come in time after a move turn misses into hits, but leave the
/// requests as they are.
const PHASE_CHANGE_DEMAND: f64 = 0.5;
/// A larger change of the local access ratio, in percentage points, is another placement (our
/// choice).
const OTHER_PLACEMENT: f64 = 30.0;
/// With a larger change of threads or CPU use, the slowest thread may be another one (our choice).
const SAME_THREADS: f64 = 0.1;
/// A fall of instructions by more than this beyond the noise is clear (our choice).
const CLEAR_FALL: f64 = 0.05;

impl Measure {
    /// Measures an application in a window.
    #[must_use]
    pub fn of(window: &Model, app: &App) -> Self {
        let threads = window.threads_of(app);
        let busiest = threads.iter().map(|thread| thread.cpu_share).fold(0.0, f64::max);
        let busy: Vec<&Thread> = threads
            .iter()
            .filter(|thread| busiest > 0.0 && thread.cpu_share >= BUSY_SHARE * busiest)
            .collect();
        let rates = |rate: fn(&Thread) -> Option<f64>| {
            busy.iter().filter_map(|thread| rate(thread)).collect::<Vec<f64>>()
        };
        let instructions = rates(|thread| thread.rates.instructions_per_s);
        let stalls = rates(|thread| thread.rates.stall_share);
        let misses = rates(|thread| Some(thread.rates.mpki? * thread.rates.instructions_per_s?));
        let sum = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>());
        let mpki = sum(&misses)
            .zip(sum(&instructions))
            .filter(|(_, all)| *all > 0.0)
            .map(|(misses, all)| misses / all);
        Self {
            progress_per_s: app.progress_per_s,
            instructions_per_s: sum(&instructions),
            slowest_per_s: instructions.iter().copied().min_by(f64::total_cmp),
            latency_cycles: app.latency_cycles,
            unstalled_share: sum(&stalls).map(|all| 1.0 - all / stalls.len() as f64),
            local_percent: app.traffic.as_ref().and_then(crate::model::Traffic::local_percent),
            threads: busy.len() as f64,
            cpu_percent: app.cpu_percent,
            mpki,
            requests_per_1000: sum(&instructions).and_then(|all| requests_per_1000(app, all)),
        }
    }

    /// Whether its threads' instructions were counted.
    pub(super) fn is_counted(&self) -> bool {
        self.instructions_per_s.is_some()
    }

    /// Whether the program is in the same phase as in another window, by its threads, CPU use and
    /// memory traffic.
    #[must_use]
    pub fn is_phase_of(&self, other: &Self) -> bool {
        let like = |a: f64, b: f64, most: f64| (a - b).abs() <= most * b.abs();
        let demands = [(self.mpki, other.mpki), (self.requests_per_1000, other.requests_per_1000)];
        let mut known = demands.into_iter().filter_map(|(a, b)| a.zip(b)).peekable();
        like(self.threads, other.threads, PHASE_CHANGE)
            && like(self.cpu_percent, other.cpu_percent, PHASE_CHANGE)
            && (known.peek().is_none() || known.any(|(a, b)| like(a, b, PHASE_CHANGE_DEMAND)))
    }

    /// Whether its threads were as near to the memory that they used as in another window.
    pub(super) fn is_placed_as(&self, other: &Self) -> bool {
        let known = self.local_percent.zip(other.local_percent);
        known.is_none_or(|(a, b)| (a - b).abs() <= OTHER_PLACEMENT)
    }
}

/// Requests for memory per 1000 instructions. Hint faults do not count: they show where memory is
/// used, not how much.
fn requests_per_1000(app: &App, instructions_per_s: f64) -> Option<f64> {
    let counted = app.traffic_source != TrafficSource::HintFaults && instructions_per_s > 0.0;
    let traffic = app.traffic.as_ref().filter(|_| counted)?;
    Some(traffic.total_per_us() * 1e9 / instructions_per_s)
}

/// The verdict of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Verdict {
    /// Better by more than the noise, and not by instructions alone.
    Better,
    /// Worse by more than the noise.
    Worse,
    /// Neither.
    Unclear,
    /// The program has begun another phase, so there is no comparison.
    PhaseChange,
    /// Worse, but the processes that were moved with it gained more. The change stays.
    Traded,
    /// Worse, but it cannot be undone, because the moved memory mixed with other memory of its
    /// process. The change stays and is not tried again soon.
    NoWayBack,
    /// Not worse itself, but undone because a process with which it exchanged places goes back.
    Returned,
}

impl Verdict {
    /// Whether the change is undone.
    #[must_use]
    pub fn is_undone(self) -> bool {
        matches!(self, Self::Worse | Self::Returned)
    }
}

/// Before and after.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Comparison {
    /// The application's own progress.
    pub progress: Option<Change>,
    /// Instructions per second.
    pub instructions: Option<Change>,
    /// The slowest thread.
    pub slowest: Option<Change>,
    /// Latency (a fall is better).
    pub latency: Option<Change>,
    /// Share of cycles not stalled.
    pub unstalled: Option<Change>,
    /// Local access ratio.
    pub local: Option<Change>,
    /// Change of speed that follows from that of the latency; `None` if nothing tells how much of
    /// its time the program waits for memory.
    pub by_latency: Option<Change>,
    /// The mean change that gave the verdict; `None` if nothing could be measured.
    pub combined: Option<Change>,
    /// Relative change of busy threads and CPU use, the larger; for a phase change.
    pub phase: f64,
    /// Relative change of misses per instruction or of requests, the smaller of both.
    pub misses: f64,
}

impl Comparison {
    /// Compares two groups of windows.
    #[must_use]
    pub fn between(before: &[Measure], after: &[Measure]) -> Self {
        let change = |value: fn(&Measure) -> Option<f64>| {
            let of = |windows: &[Measure]| windows.iter().map(value).collect::<Vec<_>>();
            change(&of(before), &of(after))
        };
        let progress = change(|m| m.progress_per_s);
        let instructions = change(|m| m.instructions_per_s);
        let slowest = change(|m| m.slowest_per_s);
        let latency = change(|m| m.latency_cycles).map(|c| Change { change: -c.change, ..c });
        let unstalled = change(|m| m.unstalled_share);
        let local = change(|m| m.local_percent);
        let parts: Vec<Change> =
            [instructions, slowest, latency, unstalled].into_iter().flatten().collect();
        let relative = |value: fn(&Measure) -> Option<f64>| change(value).map(|c| c.change.abs());
        let demands = [relative(|m| m.mpki), relative(|m| m.requests_per_1000)];
        Self {
            progress,
            instructions,
            slowest,
            latency,
            unstalled,
            local,
            by_latency: mean_of(before, |m| m.unstalled_share)
                .zip(latency)
                .map(|(unstalled, latency)| speed_by_latency(1.0 - unstalled, latency)),
            combined: progress.or_else(|| mean(&parts)).or(local),
            phase: [relative(|m| Some(m.threads)), relative(|m| Some(m.cpu_percent))]
                .into_iter()
                .flatten()
                .fold(0.0, f64::max),
            misses: demands.into_iter().flatten().min_by(f64::total_cmp).unwrap_or(0.0),
        }
    }

    /// Change of the program's own count of work, or of instructions if it has none.
    #[must_use]
    pub fn speed(&self) -> Option<Change> {
        self.progress.or(self.instructions)
    }

    /// The verdict. Moving threads changes misses by itself. So a change of misses means another
    /// phase only if the trial moved no threads.
    ///
    /// Instructions alone, of all threads or of the slowest, never confirm a gain: all threads may
    /// spin. If latency or stalls are known, one of them has to improve too.
    #[must_use]
    pub fn verdict(&self, moved_threads: bool) -> Verdict {
        if self.phase > PHASE_CHANGE || (!moved_threads && self.misses > PHASE_CHANGE_DEMAND) {
            return Verdict::PhaseChange;
        }
        let Some(combined) = self.combined else { return Verdict::Unclear };
        if combined.change < -combined.noise || self.is_slower() {
            return Verdict::Worse;
        }
        let memory = [self.latency, self.unstalled];
        let confirms = match self.progress {
            Some(_) => [self.progress, None],
            None if memory.iter().any(Option::is_some) => memory,
            None => [self.slowest, self.local_alone()],
        };
        let objects = self.slowest.filter(|_| self.progress.is_none());
        let better = confirms.iter().flatten().any(|part| part.change > part.noise);
        let worse =
            confirms.iter().chain([&objects]).flatten().any(|part| part.change < -part.noise);
        match combined.change > combined.noise && better && !worse {
            true => Verdict::Better,
            false => Verdict::Unclear,
        }
    }

    /// Whether the program is slower, whatever the mean of the measures shows. Less spinning at
    /// barriers lowers the sum of instructions, but not those of the slowest thread, for which the
    /// others wait. If both fall, the program is slower. If the slowest thread falls alone, the
    /// others may only spin more. Then memory must be known not to serve them better, and the busy
    /// threads must be the same. A program's own count of work overrides this.
    fn is_slower(&self) -> bool {
        let fell = |part: Option<Change>| {
            part.is_some_and(|part| part.change < -(part.noise + CLEAR_FALL))
        };
        let known = [self.latency, self.unstalled].into_iter().flatten();
        let gained = known.map(|part| part.change > part.noise).reduce(|one, other| one || other);
        let others_spin = gained == Some(false) && self.phase <= SAME_THREADS;
        self.progress.is_none() && fell(self.slowest) && (fell(self.instructions) || others_spin)
    }

    /// The local access ratio, if no other measure is known.
    fn local_alone(&self) -> Option<Change> {
        let others = [self.progress, self.instructions, self.slowest, self.latency, self.unstalled];
        self.local.filter(|_| others.iter().all(Option::is_none))
    }
}

/// Mean of a value over the windows in which it is known.
fn mean_of(windows: &[Measure], value: fn(&Measure) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = windows.iter().filter_map(value).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// Change of speed of a program that waits for memory for a share of its time, if each wait is
/// shorter by this change. Counters of stalls include some time in which other work is done, so
/// half of the change is in doubt (our choice).
fn speed_by_latency(waits: f64, latency: Change) -> Change {
    let time = (1.0 - waits * latency.change).max(f64::MIN_POSITIVE);
    let change = 1.0 / time - 1.0;
    let noise = libm::hypot(waits * latency.noise / (time * time), 0.5 * change);
    Change { change, noise: noise.max(LEAST_NOISE) }
}

/// The mean of the measures of one process. Their noises are averaged too, because the measures are
/// not independent.
fn mean(parts: &[Change]) -> Option<Change> {
    let count = parts.len() as f64;
    (!parts.is_empty()).then(|| Change {
        change: parts.iter().map(|part| part.change).sum::<f64>() / count,
        noise: parts.iter().map(|part| part.noise).sum::<f64>() / count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_set::CpuSet;
    use crate::matrix::Matrix;
    use crate::model::Traffic;
    use crate::units::{Pid, Tid};

    /// Windows as `instructions slowest latency stalls progress`. `-`: not known.
    fn windows(text: &str) -> Vec<Measure> {
        let window = |line: &str| {
            let numbers: Vec<Option<f64>> =
                line.split_whitespace().map(|word| word.parse().ok()).collect();
            Measure {
                instructions_per_s: numbers[0],
                slowest_per_s: numbers[1],
                latency_cycles: numbers[2],
                unstalled_share: numbers[3].map(|stalled| 1.0 - stalled),
                progress_per_s: numbers[4],
                threads: 4.0,
                cpu_percent: 400.0,
                ..Measure::default()
            }
        };
        text.split('/').map(window).collect()
    }

    fn check(before: &str, after: &str, expected: Verdict) {
        let comparison = Comparison::between(&windows(before), &windows(after));
        assert_eq!(comparison.verdict(false), expected, "{comparison:?}");
    }

    #[test]
    fn a_change_within_the_windows_own_noise_is_none() {
        check(
            "100 20 500 - - / 110 22 550 - - / 90 18 450 - -",
            "108 21 480 - - / 95 19 470 - - / 112 23 490 - -",
            Verdict::Unclear,
        );
        check(
            "100 20 500 - - / 101 20 501 - - / 99 20 499 - -",
            "108 21 480 - - / 107 21 481 - - / 109 21 479 - -",
            Verdict::Better,
        );
    }

    #[test]
    fn more_instructions_alone_are_no_success_and_fewer_may_be_one() {
        let before = "100 20 500 0.5 - / 101 20 501 0.5 - / 99 20 499 0.5 -";
        check(before, "150 20 500 0.5 - / 151 20 501 0.5 - / 149 20 499 0.5 -", Verdict::Unclear);
        // Threads spin less: all instructions fall, and those of the slowest thread and the latency
        // improve.
        check(before, "80 25 300 0.3 - / 81 25 301 0.3 - / 79 25 299 0.3 -", Verdict::Better);
    }

    #[test]
    fn all_threads_slower_is_worse_whatever_the_latency_says() {
        let before = "100 20 500 0.9 - / 101 20 501 0.9 - / 99 20 499 0.9 -";
        check(before, "70 14 300 0.5 - / 71 14 301 0.5 - / 69 14 299 0.5 -", Verdict::Worse);
    }

    #[test]
    fn a_slower_slowest_thread_is_worse_unless_memory_serves_the_others_better() {
        let before = "100 20 500 0.9 - / 101 20 501 0.9 - / 99 20 499 0.9 -";
        check(before, "145 17 520 0.9 - / 146 17 521 0.9 - / 144 17 519 0.9 -", Verdict::Worse);
        check(before, "145 17 300 0.5 - / 146 17 301 0.5 - / 144 17 299 0.5 -", Verdict::Unclear);
        check(before, "145 20 520 0.9 - / 146 20 521 0.9 - / 144 20 519 0.9 -", Verdict::Unclear);
    }

    #[test]
    fn the_latency_tells_the_speed_of_a_program_that_waits_for_memory() {
        let of = |before: &str, after: &str| {
            Comparison::between(&windows(before), &windows(after)).by_latency
        };
        let before = "100 20 500 0.8 - / 101 20 500 0.8 - / 99 20 500 0.8 -";
        let change = of(before, "- - 250 - - / - - 250 - - / - - 250 - -").expect("known");
        assert!((change.change - (1.0 / 0.6 - 1.0)).abs() < 1e-9, "0.4 of its time is saved");
        let without = before.replace("0.8", "-");
        assert_eq!(of(&without, "- - 250 - - / - - 250 - - / - - 250 - -"), None);
    }

    #[test]
    fn the_applications_own_progress_decides_where_it_tells_one() {
        let before = "100 20 500 0.5 10 / 101 20 501 0.5 10 / 99 20 499 0.5 10";
        check(before, "50 10 900 0.9 12 / 51 10 901 0.9 12 / 49 10 899 0.9 12", Verdict::Better);
        check(before, "100 20 400 0.5 12 / 101 20 401 0.5 12 / 99 20 399 0.5 12", Verdict::Better);
        check(before, "150 30 400 0.3 8 / 151 30 401 0.3 8 / 149 30 399 0.3 8", Verdict::Worse);
    }

    #[test]
    fn a_window_in_which_something_was_not_counted_leaves_it_to_the_others() {
        // The latency alone would be a change for the worse.
        let before = "- - 150 - - / 100 20 150 - - / 101 20 151 - - / 99 20 149 - -";
        let after = "140 28 180 - - / 141 28 181 - - / 139 28 - - - / 140 28 181 - -";
        check(before, after, Verdict::Unclear);
        check("100 20 150 - - / - - 151 - - / 99 20 149 - -", after, Verdict::Worse);
    }

    #[test]
    fn without_any_measure_nothing_is_confirmed_or_undone() {
        check(
            "- - - - - / - - - - - / - - - - -",
            "- - - - - / - - - - - / - - - - -",
            Verdict::Unclear,
        );
    }

    /// After a move of memory, threads spin at a barrier. They execute five times the instructions
    /// and make half of the requests to memory, with less latency.
    #[test]
    fn threads_that_spin_are_another_phase_also_where_only_requests_are_counted() {
        let window = |instructions_per_s, requests_per_us, latency, source| {
            let mut window = Model::empty(1);
            let mut app = App::new(Pid(1), 0..1);
            app.traffic = Some(Traffic::new(Matrix::filled(1, requests_per_us)));
            (app.traffic_source, app.latency_cycles) = (source, Some(latency));
            let mut thread = Thread::new(Tid(1), 0, 0, CpuSet::first(1));
            (thread.cpu_share, thread.rates.instructions_per_s) = (1.0, Some(instructions_per_s));
            window.threads.push(thread);
            window.apps.push(app);
            Measure::of(&window, &window.apps[0])
        };
        let verdict = |source| {
            let before = [1.0, 1.001, 0.999].map(|x| window(x * 1e8, x * 8.0, x * 500.0, source));
            let after = [1.0, 1.001, 0.999].map(|x| window(x * 5e8, x * 4.0, x * 200.0, source));
            Comparison::between(&before, &after).verdict(false)
        };
        assert_eq!(verdict(TrafficSource::Samples), Verdict::PhaseChange);
        // Page faults do not tell the amount of work, so the phase change is not seen.
        assert_eq!(verdict(TrafficSource::HintFaults), Verdict::Better);
    }

    /// Late prefetches of a stream come in time once its memory is spread. Misses become hits, and
    /// the program asks as much of memory as before.
    #[test]
    fn prefetches_that_come_in_time_are_no_other_phase() {
        let verdict = |requests: f64| {
            let window = |ripple: f64, speed: f64, mpki, requests| Measure {
                instructions_per_s: Some(100.0 * speed * ripple),
                slowest_per_s: Some(20.0 * speed * ripple),
                latency_cycles: Some(500.0 / speed * ripple),
                threads: 4.0,
                cpu_percent: 400.0,
                mpki: Some(mpki),
                requests_per_1000: Some(requests),
                ..Measure::default()
            };
            let before = [1.0, 1.01, 0.99].map(|ripple| window(ripple, 1.0, 40.0, 60.0));
            let after = [1.0, 1.01, 0.99].map(|ripple| window(ripple, 2.3, 10.0, requests));
            Comparison::between(&before, &after).verdict(false)
        };
        assert_eq!(verdict(60.0), Verdict::Better);
        assert_eq!(
            verdict(15.0),
            Verdict::PhaseChange,
            "less is asked: they spin, or do something else"
        );
    }

    #[test]
    fn all_threads_that_spin_faster_confirm_nothing() {
        check(
            "100 20 500 0.5 - / 101 20 501 0.5 - / 99 20 499 0.5 -",
            "150 30 500 0.5 - / 151 30 501 0.5 - / 149 30 499 0.5 -",
            Verdict::Unclear,
        );
    }

    #[test]
    fn fewer_busy_threads_are_another_phase() {
        let before = windows("100 20 500 - - / 101 20 501 - - / 99 20 499 - -");
        let mut after = before.clone();
        after.iter_mut().for_each(|window| window.threads = 2.0);
        assert_eq!(Comparison::between(&before, &after).verdict(true), Verdict::PhaseChange);
    }
}
