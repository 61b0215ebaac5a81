//! `rondpoint advise`: advises nodes for a new program. Also answers `numad -w`, which libvirt
//! calls for `placement='auto'`.
//!
//! The answer depends only on the present idle CPUs and free memory. So two requests at the same
//! time get the same nodes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser as _;
use rondpoint_core::advice::{self, Amount, Fit, Supply};
use rondpoint_core::{Bytes, CpuSet, NodeSet, Topology};
use rondpoint_linux::observe::machine::idle;
use rondpoint_linux::parse::{cpulist, meminfo};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::{LinuxError, Root, root};
use serde::Serialize;

use crate::number_sets::Allowance;
use crate::{machine, terminal};

const FAILURE: u8 = 1;
/// Version of the JSON.
const SCHEMA: u32 = 1;
/// How long CPUs are watched (numad takes 2 s).
const WATCHED: Duration = Duration::from_millis(500);
/// CPUs at most in a request: more than any kernel is built for.
const MOST_CPUS: u64 = 65_536;

const EXAMPLES: &str = "\
Examples:
  rondpoint advise -w 16:64000                # nodes for 16 CPUs and 64000 MB, such as 0-1
  nodes=$(rondpoint advise -w 4) && rondpoint run --cpunodebind $nodes -- ./app
  ln -s $(command -v rondpoint) /usr/local/bin/numad   # for libvirt's placement='auto'";

const DETAILS: &str = "

Prints the fewest nodes with enough idle CPUs and free memory for the program. Of these it
chooses the nearest to each other, by measured bandwidth if the machine is calibrated, and of
these the emptiest. Page cache counts as free. If idle CPUs do not suffice, all CPUs count. If
free memory does not suffice, the answer is every node, and stderr says so. Only CPUs and nodes
count that this process may use. A node without such CPUs is named only if the memory of the
other nodes does not suffice; --membind takes it, --cpunodebind does not.

Called as numad it takes -w and nothing else.

Exit status: 0 there is an answer, 1 the machine cannot be read, 2 bad usage.";

/// Say on which nodes a program should begin
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = [EXAMPLES, DETAILS].concat())]
pub(crate) struct Arguments {
    /// CPUs and megabytes that the program wants, as for numad
    #[arg(short, long, value_name = "NCPUS[:MB]", value_parser = amount)]
    want: Amount,

    /// Print one JSON object instead of a list
    #[arg(long)]
    json: bool,
}

/// Names the nodes on which a program should begin; rondpoint advise under numad's name
#[derive(Debug, clap::Parser)]
#[command(name = "numad", version = env!("RONDPOINT_VERSION"))]
struct Numad {
    /// CPUs and megabytes that the program wants
    #[arg(short = 'w', value_name = "NCPUS[:MB]", value_parser = amount)]
    want: Amount,
}

/// Runs the command.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    answer("rondpoint advise", arguments.want, arguments.json)
}

/// Whether this program was called as numad.
pub(crate) fn is_numad(name: Option<&std::ffi::OsStr>) -> bool {
    name.is_some_and(|name| std::path::Path::new(name).file_name() == Some("numad".as_ref()))
}

/// Answers as numad. The error is for options other than `-w`.
pub(crate) fn numad() -> Result<ExitCode, clap::Error> {
    Ok(answer("numad", Numad::try_parse()?.want, false))
}

fn answer(who: &str, wanted: Amount, json: bool) -> ExitCode {
    let shown = advice(wanted).and_then(|found| {
        if let Some(warning) = found.warning() {
            terminal::say(&format!("{who}: {warning}\n"));
        }
        match json {
            true => terminal::print_json(&found),
            false => terminal::print(&format!("{}\n", found.list)),
        }
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::say(&format!("{who}: {}\n", terminal::told(&error)));
            ExitCode::from(FAILURE)
        }
    }
}

/// The answer.
#[derive(Debug, Serialize)]
struct Answer {
    schema: u32,
    /// The kernel's numbers.
    nodes: Vec<u32>,
    /// The same, as numactl and libvirt read it.
    list: String,
    fit: &'static str,
    /// What no process used on these nodes.
    free_cpus: f64,
    free_bytes: u64,
}

impl Answer {
    fn warning(&self) -> Option<&'static str> {
        match self.fit {
            "short" => Some("not all nodes together have so many CPUs and so much free memory"),
            _ => None,
        }
    }
}

fn advice(wanted: Amount) -> Result<Answer> {
    let _ = privileges::keep_only(&Needs::to_read(None));
    let root = Root::live();
    let topology = machine::discover(&root, None)?.machine.topology;
    let allowed = Allowance::own(&root)?;
    let supplies = supplies(&root, &topology, &allowed)?;
    let usable = needed(&usable(&topology, &allowed), &supplies, wanted);
    let found = advice::advise(&topology, &usable, &supplies, wanted);
    let mut nodes: Vec<u32> = found.nodes.iter().map(|node| topology.kernel_node(node)).collect();
    nodes.sort_unstable();
    let free = |part: fn(&Amount) -> u64| -> u64 {
        found.nodes.iter().map(|node| part(&supplies[node].free)).sum()
    };
    Ok(Answer {
        schema: SCHEMA,
        list: cpulist::format(&nodes),
        nodes,
        fit: match found.fit {
            Fit::Free => "free",
            Fit::SharedCpus => "shared-cpus",
            Fit::Short => "short",
        },
        free_cpus: free(|one| one.milli_cpus) as f64 / 1e3,
        free_bytes: free(|one| one.bytes.0),
    })
}

/// The nodes with memory that a cpuset leaves to this process; all where it leaves none.
fn usable(topology: &Topology, allowed: &Allowance) -> NodeSet {
    let all = topology.memory_nodes();
    let is_allowed = |node: &usize| allowed.has_node(topology.kernel_node(*node));
    let left: NodeSet = all.iter().filter(is_allowed).collect();
    if left.is_empty() { all } else { left }
}

/// Those of `usable` that have CPUs for the program; all where the program needs more memory.
fn needed(usable: &NodeSet, supplies: &[Supply], wanted: Amount) -> NodeSet {
    let has_cpus = |node: &usize| supplies[*node].all_milli_cpus > 0;
    let with_cpus: NodeSet = usable.iter().filter(has_cpus).collect();
    let bytes: u64 = with_cpus.iter().map(|node| supplies[node].free.bytes.0).sum();
    let suffice = !with_cpus.is_empty() && bytes >= wanted.bytes.0;
    if suffice { with_cpus } else { usable.clone() }
}

/// CPUs of a node on which the program may run. Isolated CPUs do not count.
fn cpus(topology: &Topology, allowed: &Allowance, node: usize) -> CpuSet {
    let cpus = topology.usable(topology.cpus_of_node(node));
    cpus.iter().filter(|cpu| allowed.has_cpu(topology.kernel_cpu(*cpu))).collect()
}

/// What each node has for this process: its CPUs are watched for a moment.
fn supplies(root: &Root, topology: &Topology, allowed: &Allowance) -> Result<Vec<Supply>> {
    let before = idle(root, topology)?;
    // Nothing is waited for but time.
    let until = Instant::now() + WATCHED;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        std::thread::sleep(left);
    }
    let after = idle(root, topology)?;
    let mut supplies = Vec::new();
    for node in 0..topology.node_count() {
        let cpus = cpus(topology, allowed, node);
        let path =
            root.in_sys(format!("devices/system/node/node{}/meminfo", topology.kernel_node(node)));
        let bytes = match root::read_optional(&path)? {
            Some(bytes) => meminfo::parse(&bytes)
                .map_err(|source| LinuxError::Format { path, source })?
                .room_bytes(),
            // A kernel without NUMA has no such file.
            None => topology.memory(node).0,
        };
        let milli_cpus = idle_milli_cpus(&cpus, &before, &after);
        supplies.push(Supply {
            free: Amount { milli_cpus, bytes: Bytes(bytes) },
            all_milli_cpus: 1000 * cpus.len() as u64,
        });
    }
    Ok(supplies)
}

/// Thousandths of a CPU that were idle between two looks, of each CPU its share.
fn idle_milli_cpus(cpus: &CpuSet, before: &[(f64, f64)], after: &[(f64, f64)]) -> u64 {
    let of = |cpu: usize| {
        let (idle, all) = (after[cpu].0 - before[cpu].0, after[cpu].1 - before[cpu].1);
        // A CPU that slept through it has counted nothing.
        if all > 0.0 { (1000.0 * idle / all).clamp(0.0, 1000.0) as u64 } else { 1000 }
    };
    cpus.iter().map(of).sum()
}

/// Reads `NCPUS[:MB]`.
fn amount(text: &str) -> Result<Amount, String> {
    let expected =
        || format!("expected CPUs and megabytes such as 4 or 4:2000, CPUs up to {MOST_CPUS}");
    let number = |text: &str| -> Option<u64> {
        let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_digits)
    };
    let (cpus, megabytes) = text.split_once(':').unwrap_or((text, "0"));
    let cpus = number(cpus).filter(|cpus| *cpus <= MOST_CPUS);
    let bytes = number(megabytes).and_then(|megabytes| megabytes.checked_mul(1 << 20));
    match (cpus, bytes) {
        (Some(cpus), Some(bytes)) => Ok(Amount { milli_cpus: 1000 * cpus, bytes: Bytes(bytes) }),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;
    use crate::number_sets::Range;

    #[test]
    fn requests_are_written_as_for_numad() {
        let read = |text: &str| amount(text).map(|one| (one.milli_cpus, one.bytes.0));
        assert_eq!(read("4"), Ok((4000, 0)));
        assert_eq!(read("16:2"), Ok((16_000, 2 << 20)));
        assert_eq!(read("0:0"), Ok((0, 0)));
        for bad in
            ["", ":", "4:", ":4", "-1", "+1", "4:2:1", "1.5", "x", "65537", "1:99999999999999"]
                .into_iter()
                .chain(["4 ", "4\n", "1:18446744073709551615"])
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn idle_time_is_a_share_of_each_cpu() {
        let before = [(10.0, 20.0), (5.0, 5.0), (7.0, 9.0)];
        let after = [(10.25, 20.5), (5.0, 5.0), (7.0, 9.5)];
        let both =
            |cpus: &[usize]| idle_milli_cpus(&cpus.iter().copied().collect(), &before, &after);
        assert_eq!(both(&[0]), 500);
        assert_eq!(both(&[1]), 1000, "nothing was counted");
        assert_eq!(both(&[0, 2]), 500);
    }

    /// Three nodes of two CPUs and 100 bytes, without CPUs of node 1 for this process.
    fn named(cpus_wanted: u64, bytes: u64) -> (String, Fit) {
        let topology = synthetic::parse("node:3 core:2").expect("a machine");
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::captured(folder.path());
        let status = root.in_proc("self/status");
        std::fs::create_dir_all(status.parent().expect("a folder")).expect("made");
        std::fs::write(status, "Cpus_allowed_list:\t0-1,4\nMems_allowed_list:\t0-2\n")
            .expect("written");
        let allowed = Allowance::own(&root).expect("a status");
        let supply = |node| {
            let milli_cpus = 1000 * cpus(&topology, &allowed, node).len() as u64;
            let free = Amount { milli_cpus, bytes: Bytes(100) };
            Supply { free, all_milli_cpus: milli_cpus }
        };
        let supplies = [0, 1, 2].map(supply);
        let wanted = Amount { milli_cpus: 1000 * cpus_wanted, bytes: Bytes(bytes) };
        let usable = needed(&usable(&topology, &allowed), &supplies, wanted);
        let found = advice::advise(&topology, &usable, &supplies, wanted);
        let list = cpulist::format(&found.nodes.iter().map(|node| node as u32).collect::<Vec<_>>());
        let taken = Range::allowed_cpu_nodes(&topology, &allowed).parse(&list);
        assert_eq!(taken.is_ok(), bytes <= 200, "run --cpunodebind {list}: {taken:?}");
        (list, found.fit)
    }

    #[test]
    fn only_nodes_with_cpus_for_the_program_are_named_unless_their_memory_is_short() {
        assert_eq!(named(2, 0), ("0".to_string(), Fit::Free));
        assert_eq!(named(3, 200), ("0,2".to_string(), Fit::Free));
        assert_eq!(named(4, 0), ("0,2".to_string(), Fit::Short), "node 1 adds no CPU");
        assert_eq!(named(1, 201), ("0-2".to_string(), Fit::Free), "node 1 adds memory");
    }

    #[test]
    fn a_name_is_numads_wherever_it_lies() {
        assert!(is_numad(Some("/usr/bin/numad".as_ref())) && is_numad(Some("numad".as_ref())));
        assert!(!is_numad(Some("/usr/numad/rondpoint".as_ref())) && !is_numad(None));
    }
}
