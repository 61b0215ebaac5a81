//! The meaning of each key of the calibration file, its source and the policy that uses it. The
//! file has this text above each key. docs/calibration.md has it in a table, and a test compares
//! both.

use std::collections::BTreeSet;

/// What the file begins with.
const HEAD: &str = "\
# Measured by `rondpoint calibrate` on this machine; run it again after a change of hardware or firmware. Rows are nodes that
# access, columns nodes that hold; 0, or a key that is missing, is not measured.
";

/// Section and key, and the sentence.
pub(super) const KEYS: [(&str, &str); 32] = [
    ("format", "version of this file"),
    ("host", "name of the machine"),
    ("cpus", "CPUs that it had when it was measured"),
    (
        "clock_mhz",
        "clock of a busy core in MHz, by its cycle counter; for N-MASS's threshold and SAM's published ones",
    ),
    ("nodes", "memory nodes by the kernel's numbers"),
    (
        "controller_mb_s",
        "MB/s that all CPUs together read from a node; Carrefour's MAPTU is a share of it",
    ),
    (
        "bandwidth_mb_s",
        "MB/s that a node's CPUs read from a node; AsymSched's matrix, and N-MASS's threshold",
    ),
    ("latency_ns", "ns of one load in a chain of loads, with nothing else going on"),
    (
        "requests_per_us",
        "lowest MAPTU (DRAM requests in a µs) of programs behind `--` whose run time depended on placement; Carrefour goes by it where it is below the published share of capacity",
    ),
    ("sharing.same_domain_ns", "ns in which a line goes from a CPU to another of its cache domain"),
    ("sharing.remote_ns", "ns in which a line goes to a CPU of another node, the nearest"),
    (
        "sharing.coherence_per_s",
        "SAM's coherence threshold: lines from another node in a second that cost a thread as much time as the published threshold on its machine",
    ),
    (
        "sharing.crossover_per_s",
        "lines in a second at which two sharers that compete for a cache are as fast on one domain as on two: SAM's experiment, an upper bound of the threshold",
    ),
    (
        "contention.memory_per_s",
        "SAM's memory threshold of a socket: loads in a second from which on memory-bound threads get a tenth less each than one alone",
    ),
    (
        "contention.remote_per_s",
        "SAM's remote threshold of a thread: remote loads in a second that cost it as much time as the published threshold on its machine",
    ),
    (
        "contention.outstanding_misses",
        "loads that one CPU keeps under way: its loads in a second times their latency; for the cost model",
    ),
    (
        "contention.burst_ns",
        "ns that full use of a node's memory adds to an access before there is a backlog, by the same experiment as memory_per_s; for the cost model",
    ),
    (
        "sampling.period",
        "events per address sample: the fewest that slow a memory-bound loop by at most 5 %; run, attach, record, observe and daemon sample so",
    ),
    (
        "sampling.cost_ns",
        "ns that the loop lost for each sample: less than the interrupt takes where the loop waits in a queue of its own",
    ),
    ("sampling.slowdown_percent", "what the loop lost at that period"),
    (
        "penalty.intercept",
        "N-MASS's line, fitted to the programs below with at least 1 MPKI: NUMA penalty of a program without misses",
    ),
    ("penalty.slope_per_mpki", "what each last-level cache miss per 1000 instructions adds to it"),
    ("penalty.most", "the highest penalty that was seen; the line says no more than that"),
    ("programs.name", "a loop of Rondpoint's, or the command line behind `--`"),
    ("programs.origin", "`benchmark` or `program`"),
    ("programs.mpki", "last-level cache misses per 1000 instructions, run local"),
    ("programs.penalty", "cycles per instruction remote over local"),
    ("programs.traffic.local_s", "seconds with CPUs and memory of one node"),
    ("programs.traffic.remote_s", "seconds with the same CPUs and the nearest other node's memory"),
    (
        "programs.traffic.first_touch_s",
        "seconds on the whole machine, memory where it is touched first",
    ),
    (
        "programs.traffic.interleaved_s",
        "seconds on the whole machine, memory from all nodes in turn",
    ),
    ("programs.traffic.requests_per_us", "DRAM requests in a µs under first touch"),
];

/// The text of a file with the meaning above each key, the first time that it comes.
pub(super) fn explained(text: &str) -> String {
    let mut out = HEAD.to_string();
    let mut section = String::new();
    let mut said = BTreeSet::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = format!("{}.", name.trim_matches(['[', ']']));
        }
        let key = line.split_once(" = ").map(|(key, _)| format!("{section}{key}"));
        let known = key.and_then(|key| KEYS.iter().find(|(name, _)| *name == key));
        if let Some((name, meaning)) = known.filter(|(name, _)| said.insert(*name)) {
            // Spaced, so that a reader sees which sentence belongs to which key.
            let gap = if name.contains('.') { "" } else { "\n" };
            out += &format!("{gap}# {meaning}\n");
        }
        out += line;
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_key_with_its_meaning() {
        let page = include_str!("../../../../docs/calibration.md");
        for (key, meaning) in KEYS {
            assert!(page.contains(&format!("| `{key}` | {meaning} |")), "{key}: {meaning}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, KEYS.len(), "no more than there are");
    }

    #[test]
    fn a_key_is_explained_once_and_by_its_section() {
        let text = "cpus = 2\n\n[[programs]]\nmpki = 1.0\n\n[[programs]]\nmpki = 2.0\nodd = 1\n";
        let out = explained(text);
        assert!(out.starts_with(HEAD));
        assert_eq!(out.matches("# last-level cache misses").count(), 1, "{out}");
        assert_eq!(out.matches("# CPUs that it had").count(), 1, "{out}");
        assert!(out.ends_with("[[programs]]\nmpki = 2.0\nodd = 1\n"), "{out}");
    }
}
