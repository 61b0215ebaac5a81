//! Threads that live for the whole run and go through rounds together.
//!
//! A thread keeps its identity and its partition from the first round to the last, as in the
//! programs that a placement policy watches. Starting threads anew each round would hide what the
//! policy learns.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use crate::flags::{Pace, Placement, Rule, Threads};
use crate::nodes;
use crate::pages::{Pages, Plain};
use crate::report::{Failure, Report};
use crate::system;

/// The threads of one run.
pub(crate) struct Team {
    /// Where each thread may run; `None` leaves it to the kernel.
    cpus: Vec<Option<Vec<usize>>>,
    pace: Pace,
    progress: Option<File>,
    barrier: Barrier,
    stop: AtomicBool,
    rounds: AtomicU64,
    nanoseconds: AtomicU64,
    ends: Mutex<RoundEnds>,
    oracle: bool,
}

/// One thread's place in the team.
pub(crate) struct Member<'t> {
    team: &'t Team,
    pub(crate) index: usize,
    started: Option<Instant>,
}

impl Team {
    /// A team as the flags say. Pins the calling thread too if they ask for pinning.
    pub(crate) fn new(
        threads: &Threads,
        placement: Placement,
        pace: &Pace,
    ) -> Result<Self, Failure> {
        let allowed = system::allowed_cpus()?;
        let count = threads.threads.map_or(allowed.len(), |count| count as usize);
        let oracle = placement.place == Some(Rule::Oracle);
        let pin = threads.pin || oracle;
        if pin {
            system::run_on(&allowed[..1])?;
        }
        let place = |index: usize| pin.then(|| vec![allowed[index % allowed.len()]]);
        Ok(Self { oracle, ..Self::placed((0..count).map(place).collect(), pace)? })
    }

    /// Where the oracle is asked: gives each thread's part of the values to the thread's node.
    pub(crate) fn place<T: Plain>(
        &self,
        pages: &Pages<T>,
        part: impl Fn(usize) -> Range<usize>,
    ) -> Result<(), Failure> {
        for (index, cpus) in self.cpus.iter().enumerate().filter(|_| self.oracle) {
            let cpu = cpus.as_ref().expect("the oracle pins")[0];
            pages.bind_values(part(index), nodes::node_of_cpu(cpu)?)?;
        }
        Ok(())
    }

    /// Where the oracle is asked: gives values that all threads use to the nodes in turn.
    pub(crate) fn spread<T: Plain>(&self, pages: &Pages<T>) -> Result<(), Failure> {
        if self.oracle { pages.interleave(&nodes::nodes_with_memory()?) } else { Ok(()) }
    }

    /// A team with a given place for each thread.
    pub(crate) fn placed(cpus: Vec<Option<Vec<usize>>>, pace: &Pace) -> Result<Self, Failure> {
        let create = |path: &std::path::PathBuf| {
            File::create(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
        };
        Ok(Self {
            progress: pace.progress.as_ref().map(create).transpose()?,
            barrier: Barrier::new(cpus.len()),
            cpus,
            pace: pace.clone(),
            stop: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            ends: Mutex::default(),
            oracle: false,
        })
    }

    pub(crate) fn size(&self) -> usize {
        self.cpus.len()
    }

    /// Finished rounds.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Time from the first round's start to the last one's end, as the first thread saw it.
    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// When rounds ended, seconds after the first one's start.
    pub(crate) fn round_ends(&self) -> Vec<f64> {
        self.ends.lock().expect("a panic ends the process").seconds.clone()
    }

    /// Runs `work` on every thread, each with its part, and returns the results in thread order. A
    /// team of one is the calling thread: some policies look at programs of one thread only.
    pub(crate) fn run<P: Send, R: Send>(
        &self,
        parts: Vec<P>,
        work: impl Fn(&mut Member<'_>, P) -> R + Sync,
    ) -> Result<Vec<R>, Failure> {
        assert_eq!(parts.len(), self.size(), "one part for each thread");
        let work = &work;
        if let [cpus] = &self.cpus[..] {
            cpus.as_ref().map_or(Ok(()), |cpus| system::run_on(cpus))?;
            let mut member = Member { team: self, index: 0, started: None };
            return Ok(parts.into_iter().map(|part| work(&mut member, part)).collect());
        }
        std::thread::scope(|scope| {
            let handles: Vec<_> = parts
                .into_iter()
                .enumerate()
                .map(|(index, part)| {
                    scope.spawn(move || {
                        let placed =
                            self.cpus[index].as_ref().map_or(Ok(()), |cpus| system::run_on(cpus));
                        // Even a thread that is out of place works: the others wait for it.
                        let mut member = Member { team: self, index, started: None };
                        let result = work(&mut member, part);
                        placed.map(|()| result)
                    })
                })
                .collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, _>| handle.join();
            handles
                .into_iter()
                .map(|handle| join(handle).expect("a panic ends the process"))
                .collect()
        })
    }
}

impl Report {
    /// Adds how many rounds a team finished, in how many seconds, and when each ended.
    pub(crate) fn rounds_of(self, team: &Team) -> Self {
        self.pair("iterations", team.rounds())
            .pair("seconds", format!("{:.6}", team.seconds()))
            .round_ends(team.round_ends())
    }
}

impl Member<'_> {
    /// Waits for all threads.
    pub(crate) fn wait(&self) {
        self.team.barrier.wait();
    }

    /// Begins the timed part: all threads together.
    pub(crate) fn start(&mut self) {
        self.wait();
        self.started = Some(Instant::now());
    }

    /// Ends a round together; true if there is another. The first thread decides for all.
    pub(crate) fn next_round(&mut self) -> bool {
        self.wait();
        if self.index == 0 {
            let elapsed = self.started.expect("rounds come after start").elapsed();
            let rounds = self.team.rounds.fetch_add(1, Ordering::Relaxed) + 1;
            self.team.nanoseconds.store(elapsed.as_nanos() as u64, Ordering::Relaxed);
            self.team.tell(rounds);
            self.team.ends.lock().expect("a panic ends the process").push(rounds, elapsed);
            let pace = &self.team.pace;
            let over = match pace.seconds {
                Some(seconds) => elapsed.as_secs_f64() >= seconds,
                None => rounds >= pace.iterations,
            };
            self.team.stop.store(over, Ordering::Relaxed);
        }
        self.wait();
        !self.team.stop.load(Ordering::Relaxed)
    }
}

impl Team {
    /// The number of rounds, always the same width: a reader never sees half of it. A
    /// failure to tell is no reason to stop working.
    fn tell(&self, rounds: u64) {
        if let Some(file) = &self.progress {
            let _ = file.write_all_at(format!("{rounds:20}\n").as_bytes(), 0);
        }
    }
}

/// When each round ended, or every nth round where there are many: the list stays short.
#[derive(Debug)]
struct RoundEnds {
    every: u64,
    seconds: Vec<f64>,
}

impl Default for RoundEnds {
    fn default() -> Self {
        Self { every: 1, seconds: Vec::with_capacity(Self::MOST) }
    }
}

impl RoundEnds {
    const MOST: usize = 1024;

    fn push(&mut self, rounds: u64, elapsed: Duration) {
        if rounds.is_multiple_of(self.every) {
            self.seconds.push(elapsed.as_secs_f64());
        }
        if self.seconds.len() == Self::MOST {
            let thinned = self.seconds.iter().skip(1).step_by(2).copied().collect();
            *self = Self { every: 2 * self.every, seconds: thinned };
        }
    }
}

/// The `index`-th of `count` nearly equal parts of `total` items.
pub(crate) fn part(total: usize, index: usize, count: usize) -> std::ops::Range<usize> {
    total * index / count..total * (index + 1) / count
}

/// Cuts a slice into `count` nearly equal parts.
pub(crate) fn parts_mut<T>(mut rest: &mut [T], count: usize) -> Vec<&mut [T]> {
    let total = rest.len();
    let mut parts = Vec::new();
    for index in 0..count {
        let (first, others) = rest.split_at_mut(part(total, index, count).len());
        parts.push(first);
        rest = others;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(iterations: u64, seconds: Option<f64>) -> Pace {
        Pace { iterations, seconds, progress: None }
    }

    #[test]
    fn parts_cover_everything_once() {
        for (total, count) in [(10, 3), (2, 4), (0, 2), (64, 64)] {
            let joined: Vec<usize> =
                (0..count).flat_map(|index| part(total, index, count)).collect();
            assert_eq!(joined, (0..total).collect::<Vec<_>>());
            let mut items: Vec<usize> = (0..total).collect();
            let parts = parts_mut(&mut items, count);
            assert_eq!(parts.concat(), joined);
        }
    }

    #[test]
    fn all_threads_see_the_same_rounds() {
        let threads = Threads { threads: Some(3), pin: true };
        let allowed = system::allowed_cpus().unwrap();
        let team = Team::new(&threads, Placement::default(), &pace(5, None)).unwrap();
        let count = |member: &mut Member<'_>, weight: u64| {
            let mut rounds = 0;
            member.start();
            loop {
                rounds += weight;
                if !member.next_round() {
                    return rounds;
                }
            }
        };
        assert_eq!(team.run(vec![1, 10, 100], count).unwrap(), [5, 50, 500]);
        assert_eq!(team.rounds(), 5);
        assert_eq!(team.round_ends().len(), 5);
        assert!(team.seconds() > 0.0);
        system::run_on(&allowed).unwrap();
    }

    #[test]
    fn many_rounds_are_told_in_steps_of_several() {
        let mut ends = RoundEnds::default();
        (1..=3000).for_each(|round| ends.push(round, Duration::from_secs(round)));
        assert_eq!(ends.every, 4);
        assert_eq!(ends.seconds.len(), 750);
        assert_eq!(ends.seconds[..2], [4.0, 8.0]);
    }

    #[test]
    fn a_time_ends_with_a_round() {
        let threads = Threads { threads: Some(2), pin: false };
        let team = Team::new(&threads, Placement { place: None }, &pace(1, Some(0.01))).unwrap();
        team.run(vec![(); 2], |member, ()| {
            member.start();
            while member.next_round() {}
        })
        .unwrap();
        assert!(team.seconds() >= 0.01);
        assert!(team.rounds() > 1);
    }
}
