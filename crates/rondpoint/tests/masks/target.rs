//! A program with threads and children that come when they are told to, seen from outside and from inside.

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

/// A process whose parent has ended.
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
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
            for thread in threads {
                let name = thread.expect("/proc").file_name();
                let tid: u32 = name.to_str().expect("text").parse().expect("a number");
                masks.insert(tid, mask(tid));
                let path = format!("/proc/{pid}/task/{tid}/children");
                let children = std::fs::read_to_string(path).unwrap_or_default();
                waiting.extend(
                    children
                        .split_whitespace()
                        .map(|pid| -> u32 { pid.parse().expect("a process number") }),
                );
            }
        }
        masks
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for orphan in &self.orphans {
            let _ = rondpoint_linux::syscall::process::kill(*orphan as i32, 9);
        }
        for (tid, _) in self.masks().into_iter().filter(|(tid, _)| *tid != self.process.id()) {
            // Its children; a thread of its own is not the number of a process.
            if std::path::Path::new(&format!("/proc/{}/task/{tid}", self.pid())).exists() {
                continue;
            }
            let _ = rondpoint_linux::syscall::process::kill(tid as i32, 9);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn mask(tid: u32) -> CpuSet {
    affinity::get(tid as i32).expect("it runs")
}
