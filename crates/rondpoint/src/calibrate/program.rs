//! Runs the user's own program unmodified under four placements, and computes thresholds from its
//! run times.
//!
//! Local against remote, on the CPUs of one node, is N-MASS's NUMA penalty. First touch against
//! interleaved, on the whole machine, shows whether its run time depends on placement. If so, its
//! traffic is an upper bound of Carrefour's MAPTU.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::{CpuSet, Topology};
use rondpoint_linux::launch;
use rondpoint_linux::observe::counters::TreeCounters;
use rondpoint_linux::observe::subject::{Start as Begin, Subject};
use rondpoint_linux::syscall::memory::MemoryPolicy;
use rondpoint_linux::syscall::process::{self, End, Memory, User};
use rondpoint_linux::syscall::signal::{Signals, block};

use super::counts::{self, Events};
use super::file::{Calibration, Origin, Program, Traffic};
use crate::placement::Placement;

/// A placement and its name in messages.
#[derive(Debug, Clone, PartialEq)]
struct Trial {
    name: &'static str,
    placement: Placement,
}

/// Runs the program under every placement.
///
/// # Errors
/// It cannot be run, ends with anything but status 0, or cannot be counted.
pub(super) fn measure(
    command: &[OsString],
    user: Option<&User>,
    found: &Calibration,
    topology: &Topology,
    events: &Events,
) -> Result<Program> {
    let start = Start { command, user };
    let [local, remote, first_touch, interleaved] = &placements(found, topology)?;
    let open_work = |subject: &Subject| events.open_work(subject, topology);
    let open_requests = |subject: &Subject| events.open_requests(subject, topology);
    let work = |counters: &mut TreeCounters| counts::work(counters);
    let requests = |counters: &mut TreeCounters| counts::requests(counters, topology);
    // Once before anything is measured: its file and libraries come into memory.
    start.under(first_touch, open_work, work)?;
    let (local_s, at_home) = start.under(local, open_work, work)?;
    let (remote_s, away) = start.under(remote, open_work, work)?;
    let (first_touch_s, requested) = start.under(first_touch, open_requests, requests)?;
    let (interleaved_s, _) = start.under(interleaved, open_requests, requests)?;
    let name: Vec<String> = command.iter().map(|word| word.to_string_lossy().into()).collect();
    Ok(Program {
        name: name.join(" "),
        origin: Origin::Program,
        mpki: at_home.mpki(),
        penalty: away.cycles_per_instruction() / at_home.cycles_per_instruction(),
        traffic: Some(Traffic {
            local_s,
            remote_s,
            first_touch_s,
            interleaved_s,
            requests_per_us: requested.map(|all| all / first_touch_s / 1e6),
        }),
    })
}

/// Local and remote on the CPUs of a node, first touch and interleaved on all.
fn placements(found: &Calibration, topology: &Topology) -> Result<[Trial; 4]> {
    let Some([home, away]) = found.nearest(topology) else {
        bail!("this machine has one node with CPUs and memory: every placement is the same");
    };
    let numbers =
        |cpus: &CpuSet| cpus.iter().map(|cpu| topology.kernel_cpu(cpu) as usize).collect();
    let own: CpuSet = numbers(topology.cpus_of_node(home));
    let all: CpuSet = numbers(&topology.all_cpus());
    let nodes = topology.memory_nodes().iter().map(|node| topology.kernel_node(node)).collect();
    let bound = |node| MemoryPolicy::Bind(vec![topology.kernel_node(node)]);
    let trial = |name, cpus: &CpuSet, memory| Trial {
        name,
        placement: Placement { cpus: Some(cpus.clone()), memory: Some(memory) },
    };
    Ok([
        trial("local", &own, bound(home)),
        trial("remote", &own, bound(away)),
        trial("first touch", &all, MemoryPolicy::Local),
        trial("interleaved", &all, MemoryPolicy::Interleave(nodes)),
    ])
}

/// The command and its user.
struct Start<'a> {
    command: &'a [OsString],
    user: Option<&'a User>,
}

impl Start<'_> {
    /// Runs it once; the seconds that it took and what was counted.
    fn under<T: Send>(
        &self,
        trial: &Trial,
        open: impl Fn(&Subject) -> Result<TreeCounters> + Send,
        read: impl Fn(&mut TreeCounters) -> Result<T> + Send,
    ) -> Result<(f64, T)> {
        let context = || format!("{} ({})", self.command[0].display(), trial.name);
        trial.placement.around(|| self.run(open, read)).with_context(context)
    }

    fn run<T>(
        &self,
        open: impl Fn(&Subject) -> Result<TreeCounters>,
        read: impl Fn(&mut TreeCounters) -> Result<T>,
    ) -> Result<(f64, T)> {
        let mask = block(&Signals::of(&[])).context("reading the mask of signals")?;
        let waiting = launch::prepare(self.command, std::env::vars_os(), &mask, self.user)?;
        let pid = waiting.process;
        let mut counters = match open(&Subject::tasks(&[pid as u32], Begin::OnExec)) {
            Ok(counters) => counters,
            Err(error) => {
                let _ = waiting.cancel();
                return Err(error);
            }
        };
        let begin = Instant::now();
        waiting.start(Memory::Inherited).context("cannot be run")?;
        let end = process::wait(pid)?;
        let seconds = begin.elapsed().as_secs_f64();
        match end {
            End::Exited(0) => Ok((seconds, read(&mut counters)?)),
            End::Exited(status) => bail!("ended with status {status}, expected 0"),
            End::Killed(signal) => bail!("was killed by signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;
    use rondpoint_linux::syscall::affinity;

    use super::*;

    #[test]
    fn local_and_remote_share_cpus_and_the_others_have_all() {
        let topology = synthetic::parse("node:3 core:2").expect("a machine");
        let mut found = Calibration::of(&topology, None);
        found.latency_ns =
            vec![vec![50.0, 99.0, 98.0], vec![99.0, 50.0, 90.0], vec![98.0, 90.0, 50.0]];
        let placed = placements(&found, &topology).expect("three nodes");
        let cpus: Vec<String> = placed
            .iter()
            .map(|one| one.placement.cpus.as_ref().expect("chosen").to_string())
            .collect();
        assert_eq!(cpus, ["2-3", "2-3", "0-5", "0-5"], "of the nearest two");
        let memory = placed.map(|one| one.placement.memory.expect("chosen"));
        let bound = |node| MemoryPolicy::Bind(vec![node]);
        let interleaved = MemoryPolicy::Interleave(vec![0, 1, 2]);
        assert_eq!(memory, [bound(1), bound(2), MemoryPolicy::Local, interleaved]);
        let one = synthetic::parse("node:1 core:2").expect("a machine");
        let error = placements(&Calibration::of(&one, None), &one).expect_err("one node");
        assert!(error.to_string().contains("every placement is the same"), "{error}");
    }

    #[test]
    fn a_program_that_fails_is_one_error_that_says_where() {
        let placement = Placement {
            cpus: Some(affinity::get(0).expect("a mask")),
            memory: Some(MemoryPolicy::Local),
        };
        let trial = Trial { name: "local", placement };
        let topology = synthetic::parse("node:1 core:1").expect("a machine");
        let run = |words: &[&str]| {
            let command: Vec<OsString> = words.iter().map(OsString::from).collect();
            let open = |subject: &Subject| Ok(TreeCounters::open(subject, &topology, &[], 1)?.0);
            let start = Start { command: &command, user: None };
            let ran = start.under(&trial, open, |_| Ok(()));
            ran.map(|(seconds, ())| seconds).map_err(|error| format!("{error:#}"))
        };
        let before = affinity::get(0).expect("a mask");
        match run(&["true"]) {
            // A kernel without NUMA places nothing.
            Err(error) if error.contains("choosing its memory") => return,
            ran => assert!(ran.expect("it ran") > 0.0),
        }
        let failed = run(&["sh", "-c", "exit 3"]);
        assert_eq!(failed, Err("sh (local): ended with status 3, expected 0".into()));
        let killed = run(&["sh", "-c", "kill -9 $$"]);
        assert_eq!(killed, Err("sh (local): was killed by signal 9".into()));
        let missing = run(&["/no/such/program"]).expect_err("it is not there");
        assert!(missing.starts_with("/no/such/program (local): cannot be run: "), "{missing}");
        assert_eq!(affinity::get(0).expect("a mask"), before, "the caller's own is as it was");
    }
}
