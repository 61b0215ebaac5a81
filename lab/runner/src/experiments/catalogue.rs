//! The experiments of the papers whose policies move threads and whole processes, as data: programs
//! that are begun in a bad place, every static mapping of their threads to nodes, and who manages them.
//!
//! Nothing in here was chosen by its result: needs, sizes and starting places follow the papers'
//! descriptions, and so do the fixed placements.

use rondpoint_machine::Machine;

use crate::configuration::Configuration;

/// One experiment.
pub(super) struct Experiment {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// A machine that the lab brings.
    pub(super) machine: &'static str,
    /// Whom the managers are compared with: the policy alone that is for this, and the rest.
    pub(super) managers: &'static [&'static str],
    pub(super) programs: &'static [Program],
    /// Which placements of the threads are tried as fixed ones.
    pub(super) mappings: Mappings,
    /// Guest seconds that every program runs: twenty decisions of a policy that decides ten times a second,
    /// four or five of one that decides once, which acts after two and has its verdict after three. (A guest second
    /// takes a minute of the host's.)
    pub(super) seconds: u32,
}

/// One process.
pub(super) struct Program {
    pub(super) title: &'static str,
    pub(super) need: &'static str,
    /// Arithmetic between two accesses: the less, the more it asks of memory.
    pub(super) work: u32,
    /// The node on which each thread begins.
    pub(super) start: &'static [usize],
    /// The node on which each thread's part of the memory lies; empty: where the thread begins.
    pub(super) home: &'static [usize],
}

/// A set of fixed placements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mappings {
    /// Every thread on every node, as far as each has a CPU of its own; memory stays.
    All,
    /// Of two nodes: equally many threads on both, in every way, and all threads on the first; memory stays.
    Balanced,
    /// These, each with the memory of its threads.
    These(&'static [&'static [usize]]),
}

/// Guest seconds of a fixed placement, which has nothing to find out.
const FIXED_SECONDS: u32 = 1;

/// Memory of a program: several times what the scaled last-level caches hold, 0.5 to 1 MB a node.
const SIZE: &str = "4M";

const ALONE: &[usize] = &[];

pub(super) const EXPERIMENTS: [Experiment; 6] = [
    Experiment {
        name: "sam",
        about: "the slides' worked example: T1 and T3 share data, T2 and T4 use memory on the other \
                socket; begun with the sharers apart and both others remote",
        machine: "sam-2",
        managers: &["sam", "auto"],
        programs: &[
            // A shared access every microsecond or so: several times the threshold, and cheap to emulate.
            Program { title: "T1+T3", need: "share", work: 50, start: &[0, 1], home: ALONE },
            Program { title: "T2", need: "own", work: 0, start: &[0], home: &[1] },
            Program { title: "T4", need: "own", work: 0, start: &[1], home: &[0] },
        ],
        mappings: Mappings::All,
        seconds: 2,
    },
    Experiment {
        name: "sam-hogs",
        about: "two threads that share data, begun apart, beside two that use the memory of the first \
                socket as fast as they can",
        machine: "sam-2",
        managers: &["sam", "auto"],
        programs: &[
            Program { title: "S1+S2", need: "share", work: 50, start: &[0, 1], home: ALONE },
            Program { title: "H1", need: "own", work: 0, start: &[0], home: ALONE },
            Program { title: "H2", need: "own", work: 0, start: &[0], home: ALONE },
        ],
        mappings: Mappings::All,
        seconds: 2,
    },
    Experiment {
        name: "nmass",
        about: "four single-threaded programs with all their memory on node 0, the two that use it \
                most begun on node 1",
        machine: "nmass-2",
        managers: &["nmass", "nmass:maximum-local", "auto"],
        programs: &[
            Program { title: "P1", need: "own", work: 0, start: &[1], home: &[0] },
            Program { title: "P2", need: "own", work: 8, start: &[1], home: &[0] },
            Program { title: "P3", need: "own", work: 32, start: &[0], home: &[0] },
            Program { title: "P4", need: "own", work: 128, start: &[0], home: &[0] },
        ],
        mappings: Mappings::Balanced,
        seconds: 5,
    },
    Experiment {
        name: "asymsched",
        about: "a program of four threads on two nodes, each thread using memory on the other node, \
                begun on the pair with the least bandwidth",
        machine: "asymsched-8",
        managers: &["asymsched", "auto"],
        programs: &[pair("pair", WORST_PAIR)],
        mappings: Mappings::These(&[WORST_PAIR, MEAN_PAIR, BEST_PAIR]),
        seconds: 4,
    },
    Experiment {
        name: "asymsched-mean",
        about: "the same program begun on a pair with the mean bandwidth",
        machine: "asymsched-8",
        managers: &["asymsched", "auto"],
        programs: &[pair("pair", MEAN_PAIR)],
        mappings: Mappings::These(&[WORST_PAIR, MEAN_PAIR, BEST_PAIR]),
        seconds: 4,
    },
    Experiment {
        name: "asymsched-two",
        about: "two such programs at once, on the pair with the least bandwidth and on that with the least \
                of the other nodes",
        machine: "asymsched-8",
        managers: &["asymsched", "auto"],
        programs: &[pair("first", WORST_PAIR), pair("second", &[2, 6, 2, 6])],
        mappings: Mappings::These(&[&[0, 5, 0, 5, 2, 6, 2, 6], &[0, 1, 0, 1, 2, 3, 2, 3]]),
        seconds: 4,
    },
];

/// Of the 28 pairs of nodes the one with the least bandwidth, both ways together (ALGORITHMS 3.10, the matrix of 6.3).
const WORST_PAIR: &[usize] = &[0, 5, 0, 5];
/// The one next to the mean of all.
const MEAN_PAIR: &[usize] = &[1, 6, 1, 6];
/// One of the four with the most.
const BEST_PAIR: &[usize] = &[0, 1, 0, 1];

/// Four threads on two nodes, each using memory on the other.
const fn pair(title: &'static str, start: &'static [usize]) -> Program {
    Program { title, need: "next", work: 0, start, home: ALONE }
}

/// How a run is placed and managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) configuration: Configuration,
    /// Where every thread stays; `None` = begun as the experiment says, and free.
    pub(super) fixed: Option<Vec<usize>>,
}

impl Experiment {
    /// The kernel alone, with and without its balancing, and the managers.
    pub(super) fn free_cases(&self) -> Vec<Case> {
        let case =
            |name: &str, configuration| Case { name: name.into(), configuration, fixed: None };
        let kernel = [
            case(LINUX, Configuration::FirstTouch),
            case("NUMA balancing", Configuration::AutoNuma),
        ];
        let managed = self.managers.iter().map(|policy| {
            let word = format!("rondpoint={policy}");
            case(&word, word.parse().expect("the table names policies that there are"))
        });
        kernel.into_iter().chain(managed).collect()
    }

    /// Every fixed placement: the nodes of all threads, program by program.
    pub(super) fn fixed_cases(&self, machine: &Machine) -> Vec<Case> {
        let start = self.start();
        let (nodes, threads) = (machine.nodes.len(), start.len());
        let all = || {
            let place = |number: usize, thread: usize| number / nodes.pow(thread as u32) % nodes;
            (0..nodes.pow(threads as u32))
                .map(move |number| (0..threads).map(|thread| place(number, thread)).collect())
        };
        let placements: Vec<Vec<usize>> = match self.mappings {
            Mappings::All => all().collect(),
            Mappings::Balanced => all()
                .filter(|fixed: &Vec<usize>| {
                    let away = fixed.iter().filter(|node| **node == 1).count();
                    away == 0 || 2 * away == fixed.len()
                })
                .collect(),
            Mappings::These(placements) => placements.iter().map(|fixed| fixed.to_vec()).collect(),
        };
        let case = |fixed: Vec<usize>| {
            let list: Vec<String> = fixed.iter().map(ToString::to_string).collect();
            let name = format!("fixed {}", list.join(" "));
            Case { name, configuration: Configuration::FirstTouch, fixed: Some(fixed) }
        };
        placements.into_iter().filter(|fixed| cpus(fixed, machine).is_some()).map(case).collect()
    }

    /// Guest seconds that the programs of a case run.
    pub(super) fn seconds_of(&self, case: &Case) -> u32 {
        if case.fixed.is_some() { FIXED_SECONDS } else { self.seconds }
    }

    fn start(&self) -> Vec<usize> {
        self.programs.iter().flat_map(|program| program.start).copied().collect()
    }

    /// The arguments of `rondpoint-workloads` for a case.
    pub(super) fn arguments(&self, case: &Case, machine: &Machine) -> Vec<String> {
        let nodes = case.fixed.clone().unwrap_or_else(|| self.start());
        let cpus = cpus(&nodes, machine).expect("placements without room were left out");
        let mut taken = 0;
        let program = |program: &Program| {
            let own = taken..taken + program.start.len();
            taken = own.end;
            // The memory of a pair goes with it; else it stays where the program has it.
            let home: Vec<usize> = match program.home {
                [] => cpus[own.clone()].to_vec(),
                home => home.iter().map(|&node| first_cpu(node, machine)).collect(),
            };
            let list =
                |cpus: &[usize]| cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let stay = if case.fixed.is_some() { " --stay" } else { "" };
            let (start, home) = (list(&cpus[own]), list(&home));
            let Program { need, work, .. } = program;
            format!(
                "crew --need {need} --work {work} --start {start} --touch {home}{stay} --size {SIZE} \
                 --no-huge-pages --seconds {}",
                self.seconds_of(case)
            )
        };
        let programs: Vec<String> = self.programs.iter().map(program).collect();
        ["mix".to_owned()].into_iter().chain(programs).collect()
    }
}

/// The kernel alone, with its NUMA balancing off: what everything is compared with.
pub(super) const LINUX: &str = "Linux";

fn first_cpu(node: usize, machine: &Machine) -> usize {
    machine.nodes[..node].iter().map(|node| node.cpus as usize).sum()
}

/// A CPU of its own for each thread on its node, in order; `None` where a node has too few.
fn cpus(nodes: &[usize], machine: &Machine) -> Option<Vec<usize>> {
    let mut used = vec![0; machine.nodes.len()];
    let mut next = |&node: &usize| {
        let place = used[node];
        used[node] += 1;
        (place < machine.nodes[node].cpus as usize).then(|| first_cpu(node, machine) + place)
    };
    nodes.iter().map(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::lab_machine;

    #[test]
    fn every_mapping_with_room_is_tried_and_each_program_says_where_it_lies() {
        let count = |index: usize| {
            let experiment = &EXPERIMENTS[index];
            let machine = lab_machine(experiment.machine).expect("the lab brings it");
            (experiment.fixed_cases(&machine).len(), machine)
        };
        assert_eq!(count(0).0, 16);
        assert_eq!(count(2).0, 7);
        let (pairs, machine) = count(3);
        assert_eq!(pairs, 3);
        let case = &EXPERIMENTS[3].fixed_cases(&machine)[2];
        let arguments = EXPERIMENTS[3].arguments(case, &machine).join(" ");
        assert!(arguments.contains("--start 0,2,1,3 --touch 0,2,1,3 --stay"), "{arguments}");
    }

    #[test]
    fn memory_stays_where_the_experiment_has_it() {
        let experiment = &EXPERIMENTS[0];
        let machine = lab_machine(experiment.machine).expect("the lab brings it");
        let cases = experiment.free_cases();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["Linux", "NUMA balancing", "rondpoint=sam", "rondpoint=auto"]);
        let arguments = experiment.arguments(&cases[0], &machine);
        assert_eq!(arguments.len(), 4);
        assert!(arguments[1].contains("--start 0,4 --touch 0,4 --size"), "{arguments:?}");
        assert!(arguments[2].contains("--start 1 --touch 4 --size"), "{arguments:?}");
        let fixed = &experiment.fixed_cases(&machine)[15];
        let arguments = experiment.arguments(fixed, &machine);
        assert!(arguments[2].contains("--start 6 --touch 4 --stay"), "{arguments:?}");
    }
}
