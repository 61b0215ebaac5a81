//! Text in, text out: a machine with its threads as a few words, moves as a few lines.
//!
//! The first line is the machine, `2 sockets 2 cores 1 thread`. Then comes one line a socket with
//! its CPUs between bars: `0: T1 coh | T2 mem | - | busy`. The first hardware threads of all cores
//! come first.
//!
//! A cell is a thread, or `-` for idle, or `busy` for a thread that is not ours. Words after the
//! thread's name:
//! - its problems `coh`, `snp`, `mem`, `rdr`: twice the threshold of a thread, or with `mem=0.9`
//!   that share of it;
//! - its process `p7`;
//! - the socket of its data `home1`;
//! - the CPUs `cpus0,1` that it may use.

use rondpoint_core::policy::sam::{
    Consolidated, DataHome, Destination, Layout, Marks, Move, Phase, Preset, Running, Situation,
    Thresholds, Use, consolidate, decide,
};
use rondpoint_core::{Pid, Tid};
use std::fmt::Write;

/// SAM with its memory of earlier intervals.
pub(crate) struct Session {
    pub(crate) preset: Preset,
    pub(crate) thresholds: Thresholds,
    marks: Marks,
}

impl Session {
    pub(crate) fn new(preset: Preset) -> Self {
        // A socket of 2 logical CPUs: the sum is short as soon as two threads are above their own
        // threshold.
        let thresholds = Thresholds { memory_socket: 10_000_000.0, ..Thresholds::TWO_SOCKET };
        Self { preset, thresholds, marks: Marks::default() }
    }

    /// One interval.
    pub(crate) fn moves(&mut self, layout: &Layout, uses: &[Use]) -> Vec<Move> {
        let mut state = Consolidated::default();
        consolidate(layout, uses, &self.thresholds, &self.preset, &mut self.marks, &mut state);
        decide(Situation {
            layout,
            uses,
            state: &state,
            marks: &self.marks,
            thresholds: &self.thresholds,
            preset: &self.preset,
        })
    }

    /// One interval as text.
    pub(crate) fn step(&mut self, text: &str) -> String {
        let (layout, uses) = parse(text, &self.thresholds);
        let moves = self.moves(&layout, &uses);
        print(&layout, &uses, &moves)
    }
}

/// The machine and what its CPUs do.
pub(crate) fn parse(text: &str, thresholds: &Thresholds) -> (Layout, Vec<Use>) {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let machine: Vec<usize> = lines
        .next()
        .expect("the machine")
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let &[sockets, cores, threads] = machine.as_slice() else {
        panic!("expected three numbers in: {text}")
    };
    let layout = Layout::regular(sockets, cores, threads);
    let mut uses = vec![Use::Idle; layout.cpu_count()];
    for line in lines {
        let (socket, cells) = line.split_once(':').expect("a socket's number and a colon");
        let socket: usize = socket.parse().expect("a socket's number");
        let cells: Vec<&str> = cells.split('|').collect();
        assert!(cells.len() <= layout.sockets[socket].cpus.len(), "too many CPUs in: {line}");
        for (place, cell) in cells.into_iter().enumerate() {
            uses[layout.sockets[socket].cpus[place]] = parse_cell(cell.trim(), thresholds);
        }
    }
    (layout, uses)
}

fn parse_cell(cell: &str, thresholds: &Thresholds) -> Use {
    match cell {
        "-" => return Use::Idle,
        "busy" => return Use::Reserved,
        _ => {}
    }
    let mut words = cell.split_whitespace();
    let name =
        words.next().and_then(|name| name.strip_prefix('T')).expect("a thread T1, `-` or `busy`");
    let mut running =
        Running { tid: Tid(name.parse().expect("a thread's number")), ..Running::default() };
    for word in words {
        let (key, share) = word
            .split_once('=')
            .map_or((word, 2.0), |(key, share)| (key, share.parse().expect("a share")));
        let number = |prefix: &str| key[prefix.len()..].parse().expect("a number");
        match key {
            "coh" => running.coherence = share * thresholds.coherence,
            "snp" => running.sharing = share * thresholds.coherence,
            "mem" => running.memory = share * thresholds.memory_thread,
            "rdr" => running.remote = share * thresholds.remote,
            "uncounted" => running.is_uncounted = true,
            "scattered" => running.home = DataHome::Scattered,
            _ if key.starts_with("home") => running.home = DataHome::Socket(number("home")),
            _ if key.starts_with("cpus") => {
                running.allowed =
                    Some(key[4..].split(',').map(|cpu| cpu.parse().expect("a CPU")).collect());
            }
            _ if key.starts_with('p') => running.pid = Some(Pid(number("p") as u32)),
            _ => panic!("unknown word {word} in: {cell}"),
        }
    }
    Use::Thread(running)
}

/// One line a move: `coherence: T3 2→0`, with the partner of an exchange.
pub(crate) fn print(layout: &Layout, uses: &[Use], moves: &[Move]) -> String {
    let name = |cpu: usize| {
        uses[cpu].thread().map_or("-".to_string(), |running| format!("T{}", running.tid))
    };
    let place = |cpu: usize| {
        format!("{}.{cpu}", layout.socket_of_cpu[cpu].expect("every CPU has a socket"))
    };
    let mut out = String::new();
    for chosen in moves {
        let phase = match chosen.phase {
            Phase::Coherence => "C",
            Phase::Remote => "R",
            Phase::Bandwidth => "B",
        };
        write!(out, "{phase}: {} {}→{}", name(chosen.from), place(chosen.from), place(chosen.to))
            .expect("text");
        match chosen.destination {
            Destination::Idle => {}
            kind => write!(out, " for {} ({kind:?})", name(chosen.to)).expect("text"),
        }
        out.push('\n');
    }
    if out.is_empty() { "nothing\n".to_string() } else { out }
}

/// The machine after the moves.
pub(crate) fn apply(uses: &mut [Use], moves: &[Move]) {
    for chosen in moves {
        uses.swap(chosen.from, chosen.to);
    }
}
