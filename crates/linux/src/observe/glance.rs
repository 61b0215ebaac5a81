//! A glance: a quick reading of CPU clocks and traffic between two observations.

use std::collections::BTreeMap;

use rondpoint_core::counting_pause::Glance;
use rondpoint_core::observation::Counter;
use rondpoint_core::{Matrix, Nanos, Pid};

use super::sensors::Sensors;
use super::{Observer, counters};
use crate::LinuxError;
use crate::parse::uptime;
use crate::syscall::time::{cpu_time_ns, since_boot_ns};

impl Observer {
    /// A glance with the CPU times of the last look, and requests that were read just before them.
    pub(super) fn glance_of_look(
        &self,
        traffic: Option<&Matrix<Counter>>,
        lines: Option<&[Counter]>,
    ) -> Glance {
        let (at, cpu_time) = self.sensors.tasks.cpu_times_of_look();
        Glance { at, cpu_time, requests: all_requests(traffic, lines) }
    }

    /// Adds the CPU clocks of all other processes to a glance. Returns whether one of them dozed
    /// at the last look, and has begun to run.
    pub fn glance_at_more(&self, glance: &mut Glance) -> bool {
        let tasks = &self.sensors.tasks;
        let left_out = |pid: &Pid| !glance.cpu_time.contains_key(pid);
        let more: Vec<Pid> = tasks.processes().filter(left_out).collect();
        let times = cpu_times(&more);
        let has_begun = times.iter().any(|(pid, time)| tasks.is_awakened(*pid, *time));
        glance.cpu_time.extend(times);
        has_begun
    }

    /// Time for which the machine's CPUs were idle since boot, added up; `None` if the kernel does
    /// not tell.
    pub fn idle_time(&mut self) -> Option<Nanos> {
        self.uptime.read(uptime::idle_ns).ok().flatten().map(Nanos)
    }

    /// Reads only cheap values: the CPU clocks of the processes in `of` and, with `requests`,
    /// counters that are not the program's. The rings are not emptied.
    ///
    /// # Errors
    /// An open counter cannot be read.
    pub fn glance(&self, of: &[Pid], requests: bool) -> Result<Glance, LinuxError> {
        let Sensors { uncore, .. } = &self.sensors;
        let traffic = requests.then(|| uncore.traffic(&self.machine.topology)).transpose()?;
        let lines = requests.then(|| uncore.controller_lines()).transpose()?;
        let requests = all_requests(traffic.flatten().as_ref(), lines.flatten().as_deref());
        Ok(Glance { at: Nanos(since_boot_ns()), cpu_time: cpu_times(of), requests })
    }
}

/// CPU time of each living process of these: of all its threads, ended ones included.
fn cpu_times(of: &[Pid]) -> BTreeMap<Pid, Nanos> {
    of.iter().filter_map(|pid| Some((*pid, Nanos(cpu_time_ns(pid.0)?)))).collect()
}

/// The machine's requests as just read: by pair of nodes, else by node.
fn all_requests(traffic: Option<&Matrix<Counter>>, lines: Option<&[Counter]>) -> Option<Counter> {
    let sum = |counters: &mut dyn Iterator<Item = &Counter>| {
        counters.copied().fold(Counter::default(), counters::added)
    };
    let requests = traffic.map(|traffic| sum(&mut traffic.rows().flatten()));
    requests.or_else(|| lines.map(|lines| sum(&mut lines.iter())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Settings;
    use crate::observe::subject::Start;
    use crate::topology;
    use crate::{Root, sleeper::Sleeper};

    /// Of real processes, since their clocks are not files.
    #[test]
    fn a_glance_tells_the_time_of_each_process_and_forgets_those_that_ended() {
        let sleeper = Sleeper::start();
        let pid = sleeper.identity().pid;
        let machine = topology::discover(&Root::live()).unwrap();
        let settings = Settings { managing: true, ..Settings::default() };
        let mut observer =
            Observer::open(Root::live(), machine, pid, Start::Now, &settings).unwrap();
        let quick = |observer: &Observer, of: &[Pid]| observer.glance(of, false).unwrap();
        let mut glance = quick(&observer, &[]);
        observer.glance_at_more(&mut glance);
        assert_eq!(glance.cpu_time, BTreeMap::new(), "no task is known yet");
        let look = observer.observe().unwrap();
        observer.glance_at_more(&mut glance);
        assert_eq!(glance.cpu_time.keys().collect::<Vec<_>>(), [&pid]);
        assert!(glance.cpu_time[&pid] >= look.glance.cpu_time[&pid]);
        assert!(quick(&observer, &[pid]).cpu_time[&pid] >= glance.cpu_time[&pid]);
        drop(sleeper);
        assert_eq!(observer.glance(&[pid], false).unwrap().cpu_time, BTreeMap::new());
        let before = observer.idle_time();
        assert!(before.is_some() && observer.idle_time() >= before);
    }
}
