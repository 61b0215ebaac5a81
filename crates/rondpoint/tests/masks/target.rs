//! A program with threads and children that come when they are told to, seen from outside and from
//! inside.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::affinity;

/// Does one line after the other: `thread`, `child`, `orphan`, `pin CPU`.
pub(crate) fn main() {
    let mut threads = Vec::new();
    let mut children = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let number = match line.split_once(' ') {
            None if line == "thread" => {
                let (keep, told) = (channel::<()>(), channel());
                threads.push(keep.0);
                std::thread::spawn(move || idle(&keep.1, &told.0));
                told.1.recv().expect("the thread runs")
            }
            None if line == "child" => {
                let child = Command::new("sleep").arg("1000").spawn().expect("sleep runs");
                let number = child.id();
                children.push(child);
                number
            }
            None if line == "orphan" => orphan(),
            Some(("pin", cpu)) => {
                let cpu: usize = cpu.parse().expect("a CPU");
                affinity::set(0, &[cpu].into_iter().collect()).expect("a CPU of ours");
                std::process::id()
            }
            _ => panic!("{line}: no such order"),
        };
        println!("{number}");
    }
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A thread of the program that waits for its end.
fn idle(end: &Receiver<()>, told: &std::sync::mpsc::Sender<u32>) {
    let name = std::fs::read_link("/proc/thread-self").expect("/proc");
    let number = name.file_name().and_then(|name| name.to_str()?.parse().ok());
    told.send(number.expect("a thread number")).expect("somebody asks");
    let _ = end.recv();
}

/// A process without its parent, which has ended.
fn orphan() -> u32 {
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let output = Command::new("sh").args(["-c", script]).output().expect("sh runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a process number")
}

/// That program, from outside.
pub(crate) struct Target {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    orphans: Vec<u32>,
}

impl Target {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg("as-target").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let orders = process.stdin.take().expect("was piped");
        let answers = BufReader::new(process.stdout.take().expect("was piped"));
        Self { process, orders, answers, orphans: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Gives an order; the number of what came of it.
    pub(crate) fn order(&mut self, order: &str) -> u32 {
        writeln!(self.orders, "{order}").expect("it reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        let number = line.trim().parse().expect("a number");
        if order == "orphan" {
            self.orphans.push(number);
        }
        number
    }

    /// The masks of all its threads, its children and its orphans.
    pub(crate) fn masks(&self) -> BTreeMap<u32, CpuSet> {
        let mut masks = BTreeMap::new();
        let mut waiting = self.orphans.clone();
        waiting.push(self.pid());
        while let Some(pid) = waiting.pop() {
            let threads = threads(pid);
            assert!(!threads.is_empty(), "{pid} runs");
            waiting.extend(children(pid, &threads));
            masks.extend(threads.into_iter().map(|tid| (tid, mask(tid))));
        }
        masks
    }
}

/// The threads of a process, none where it has ended.
fn threads(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.map(|name| name.parse().expect("a number")).collect()
}

/// The processes that these threads started.
fn children(pid: u32, threads: &[u32]) -> Vec<u32> {
    let of = |tid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default()
    };
    let lists: Vec<String> = threads.iter().map(of).collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.map(|pid| pid.parse().expect("a process number")).collect()
}

impl Drop for Target {
    fn drop(&mut self) {
        // Some may have been killed by their test.
        let mut waiting = self.orphans.clone();
        waiting.extend(children(self.pid(), &threads(self.pid())));
        while let Some(pid) = waiting.pop() {
            waiting.extend(children(pid, &threads(pid)));
            let _ = rondpoint_linux::syscall::process::kill(pid as i32, 9);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn mask(tid: u32) -> CpuSet {
    affinity::get(tid as i32).expect("it runs")
}
