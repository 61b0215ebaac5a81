//! A manager that stops before each of its steps until it is told to go on; between two words it
//! may be killed.
//!
//! It does what the loop's host does, in the same order and with the same parts; only its plans are
//! given.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rondpoint_core::plan::{Action, Outcome, Plan, Proposal, Reason, StepResult};
use rondpoint_core::{Nanos, Observation, Pid, Tid, Topology};
use rondpoint_linux::act::Actor;
use rondpoint_linux::ledger_file::{self, LedgerFile};
use rondpoint_linux::observe::tasks::{Births, Tasks};
use rondpoint_linux::syscall::affinity;
use rondpoint_linux::syscall::time::since_boot_ns;
use rondpoint_linux::{Root, topology};

/// What a manager has.
pub(crate) struct Parts {
    pub(crate) actor: Actor,
    tasks: Tasks,
    pub(crate) topology: Topology,
    ledger: LedgerFile,
    plans: u64,
}

impl Parts {
    /// With a ledger that no manager reads.
    pub(crate) fn of(pid: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::with_ledger(pid, &folder.path().join("ledgers"))
    }

    fn with_ledger(pid: u32, folder: &Path) -> Self {
        let topology = topology::discover(&Root::live()).expect("a machine").topology;
        Self {
            actor: Actor::new(Root::live(), topology.clone(), Pid(pid)),
            tasks: Tasks::new(Root::live(), Pid(pid), None),
            topology,
            ledger: LedgerFile::create(folder, &Root::live()).expect("a ledger"),
            plans: 0,
        }
    }

    /// Looks at the program, and what is found there.
    pub(crate) fn look(&mut self) -> (Observation, rondpoint_linux::act::Followed) {
        let processes =
            self.tasks.observe(&self.topology, Births::default()).expect("it can be read");
        let at = Nanos(since_boot_ns());
        let mut observation = Observation { at, processes, ..Observation::default() };
        let followed = self.actor.follow(&mut observation, &BTreeSet::new());
        (observation, followed)
    }

    /// Does one step of it.
    pub(crate) fn step(&mut self, plan: &Plan, step: usize) -> Outcome {
        self.actor.step(plan, step, &mut self.ledger)
    }

    /// A plan that gives each of these threads one CPU of its own, and that CPU alone or with the
    /// others of `wide`.
    pub(crate) fn plan(&mut self, pid: u32, moves: &[(u32, usize, bool)]) -> Plan {
        let index = |cpu| self.topology.cpu_of_kernel_id(cpu as u32).expect("a CPU");
        let all = self.topology.all_cpus();
        let step = |&(tid, cpu, wide): &(u32, usize, bool)| Proposal {
            policy: "test",
            action: Action::SetAffinity {
                pid: Pid(pid),
                tid: Tid(tid),
                cpus: if wide { all.clone() } else { [index(cpu)].into_iter().collect() },
                via: Some(index(cpu)),
            },
            reason: Reason::Other("a test".to_string()),
        };
        self.plans += 1;
        Plan { number: self.plans, steps: moves.iter().map(step).collect(), ..Plan::default() }
    }
}

/// One plan after the other, for the threads that are there at the time.
pub(crate) fn main(pid: u32) {
    let mut parts = Parts::with_ledger(pid, &ledger_file::own_folder().expect("a place"));
    let cpus: Vec<usize> = affinity::get(0).expect("a mask").iter().collect();
    for round in 0..3 {
        let (observation, followed) = parts.look();
        pause("looked");
        parts.ledger.write(&followed.entries).expect("room");
        pause("wrote the new tasks");
        let moves: Vec<(u32, usize, bool)> = observation
            .processes
            .iter()
            .filter(|process| process.pid == Pid(pid))
            .flat_map(|process| &process.threads)
            .filter(|thread| thread.exempt.is_none())
            .enumerate()
            .map(|(place, thread)| (thread.tid.0, cpus[(place + round) % 2], round == 2))
            .collect();
        let plan = parts.plan(pid, &moves);
        let entries = parts.actor.prepare(&plan);
        pause("prepared");
        parts.ledger.write(&entries).expect("room");
        pause("wrote the plan");
        for (step, (tid, cpu, _)) in moves.iter().enumerate() {
            // The first half of the step, as if it were killed after that.
            affinity::set(*tid as i32, &[*cpu].into_iter().collect()).expect("it runs");
            pause("came to the one CPU");
            let outcome = parts.step(&plan, step);
            assert_eq!(outcome.result, StepResult::Done);
            pause("gave a mask");
        }
    }
    pause("done");
}

/// Says where it is and waits for the word.
fn pause(place: &str) {
    println!("{place}");
    let mut word = String::new();
    std::io::stdin().read_line(&mut word).expect("a word");
}

/// That manager, from outside.
pub(crate) struct Manager {
    process: Child,
    words: ChildStdin,
    places: BufReader<ChildStdout>,
}

impl Manager {
    pub(crate) fn start(pid: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["as-manager", &pid.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let words = process.stdin.take().expect("was piped");
        let places = BufReader::new(process.stdout.take().expect("was piped"));
        Self { process, words, places }
    }

    /// Where it is now.
    pub(crate) fn place(&mut self) -> String {
        let mut line = String::new();
        self.places.read_line(&mut line).expect("it says so");
        line.trim().to_string()
    }

    pub(crate) fn go_on(&mut self) {
        writeln!(self.words).expect("it waits");
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it has ended");
    }
}
