//! Sums of windows, for the report's lines before and after.

use rondpoint_core::model::Traffic;
use rondpoint_core::{Matrix, Model, Nanos, Tid};

/// Share of a window's CPU time without counted instructions above which the mean leaves the window
/// out (our choice: a short-lived helper takes less).
const UNCOUNTED: f64 = 0.05;

/// The threads that a window counts. A thread is counted from its second look to its last. So a
/// window in which threads begin or end has more time than counted instructions.
#[derive(Default)]
pub(super) struct Counting {
    /// The threads of the last window and their share of a CPU.
    last: Vec<(Tid, f64)>,
}

impl Counting {
    /// Whether nearly all threads that ran in `window` were counted in it; windows come in order.
    pub(super) fn is_whole(&mut self, window: &Model) -> bool {
        let mut now: Vec<(Tid, f64)> =
            window.threads.iter().map(|thread| (thread.tid, thread.cpu_share)).collect();
        now.sort_unstable_by_key(|(tid, _)| *tid);
        let is_here = |tid: &Tid| now.binary_search_by_key(tid, |(tid, _)| *tid).is_ok();
        let left: f64 =
            self.last.iter().filter(|(tid, _)| !is_here(tid)).map(|(_, share)| share).sum();
        let ran: f64 = window.threads.iter().map(|thread| thread.cpu_share).sum();
        let uncounted = window.threads.iter().filter(|one| one.rates.instructions_per_s.is_none());
        let unknown = uncounted.map(|thread| thread.cpu_share).sum::<f64>() + left;
        self.last = now;
        unknown <= UNCOUNTED * (ran + left)
    }
}

/// Windows added up.
#[derive(Clone, Default)]
pub(super) struct Period {
    pub(super) seconds: f64,
    /// DRAM requests by `[accessing][holding]`.
    requests: Option<Matrix<f64>>,
    /// Latency times requests, and the requests.
    latency: (f64, f64),
    /// Instructions, and the seconds in which they were counted.
    instructions: (f64, f64),
}

impl Period {
    /// Adds a window. Its instructions count only if they are those of the whole window.
    pub(super) fn add(&mut self, window: &Model, is_counted: bool) {
        let seconds = window.elapsed.seconds();
        self.seconds += seconds;
        if is_counted {
            let threads = window.threads.iter();
            let rates = threads.filter_map(|thread| thread.rates.instructions_per_s);
            self.instructions.0 += rates.sum::<f64>() * seconds;
            self.instructions.1 += seconds;
        }
        let Some(traffic) = &window.traffic else { return };
        let counts = traffic.requests_per_us.map(|rate| rate * window.elapsed.micros());
        let total: f64 = counts.rows().flatten().sum();
        if let Some(cycles) = window.latency_cycles {
            self.latency = (self.latency.0 + cycles * total, self.latency.1 + total);
        }
        self.add_requests(counts);
    }

    fn add_requests(&mut self, counts: Matrix<f64>) {
        self.requests = Some(match self.requests.take() {
            Some(sum) => Matrix::from_fn(sum.size(), |n, m| sum[(n, m)] + counts[(n, m)]),
            None => counts,
        });
    }

    /// Adds another period.
    pub(super) fn join(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.latency = (self.latency.0 + other.latency.0, self.latency.1 + other.latency.1);
        let (count, seconds) = other.instructions;
        self.instructions = (self.instructions.0 + count, self.instructions.1 + seconds);
        if let Some(counts) = &other.requests {
            self.add_requests(counts.clone());
        }
    }

    /// Its traffic, if there was any.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        let elapsed = Nanos((self.seconds * 1e9) as u64);
        Traffic::from_counts(self.requests.as_ref()?, elapsed)
    }

    /// Mean latency of a DRAM access in cycles.
    pub(super) fn latency_cycles(&self) -> Option<f64> {
        (self.latency.1 > 0.0).then(|| self.latency.0 / self.latency.1)
    }

    /// Instructions per second of all threads; `None` where they are not counted.
    pub(super) fn instructions_per_s(&self) -> Option<f64> {
        let (count, seconds) = self.instructions;
        (count > 0.0 && seconds > 0.0).then(|| count / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::account::Diary;
    use super::*;
    use rondpoint_core::CpuSet;
    use rondpoint_core::model::Thread;

    /// A window of a second with threads of that instruction rate and share of a CPU.
    fn window(threads: &[(u32, Option<f64>, f64)]) -> Model {
        let mut window = Model::empty(1);
        window.elapsed = Nanos(1_000_000_000);
        for (tid, rate, share) in threads {
            let mut thread = Thread::new(Tid(*tid), 0, 0, CpuSet::default());
            thread.rates.instructions_per_s = *rate;
            thread.cpu_share = *share;
            window.threads.push(thread);
        }
        window
    }

    fn rate(windows: &[&[(u32, Option<f64>, f64)]]) -> Option<f64> {
        let mut diary = Diary::default();
        windows.iter().for_each(|threads| diary.take_in(&window(threads)));
        assert!((diary.before.seconds - windows.len() as f64).abs() < 1e-9);
        diary.before.instructions_per_s()
    }

    #[test]
    fn a_window_in_which_the_program_ended_does_not_lower_its_rate() {
        let busy: &[_] = &[(1, Some(4e6), 1.0), (2, Some(6e6), 1.0)];
        assert_eq!(rate(&[busy, busy, &[(1, Some(1e6), 0.2)]]), Some(10e6));
        assert_eq!(rate(&[busy, busy, &[]]), Some(10e6));
    }

    #[test]
    fn a_window_in_which_threads_were_born_does_not_lower_its_rate() {
        let busy: &[_] = &[(1, Some(4e6), 1.0), (2, Some(6e6), 1.0)];
        assert_eq!(rate(&[&[(1, Some(4e6), 1.0), (2, None, 0.9)], busy]), Some(10e6));
    }

    #[test]
    fn a_helper_that_comes_and_goes_hides_nothing() {
        let one: &[_] = &[(1, Some(4e6), 1.0), (2, Some(1e5), 0.02)];
        let other: &[_] = &[(1, Some(4e6), 1.0), (3, None, 0.01)];
        let (three, third) = (12.1e6, 3.0);
        assert_eq!(rate(&[one, other, &[(1, Some(4e6), 1.0)]]), Some(three / third));
    }

    #[test]
    fn without_counters_there_is_no_rate() {
        let busy: &[_] = &[(1, None, 1.0)];
        assert_eq!(rate(&[busy, busy]), None);
    }
}
