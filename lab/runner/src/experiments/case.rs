//! Runs an experiment: under the kernel alone, under each manager, and in every fixed placement.

use rondpoint_machine::Machine;

use super::catalogue::{Experiment, Mappings, Program, Programs};
use crate::configuration::Configuration;

/// The kernel alone, with its NUMA balancing off: what everything is compared with.
pub(super) const LINUX: &str = "Linux";

/// `numactl --interleave=all`: the rival that users know.
pub(super) const INTERLEAVED: &str = "interleaved";

/// Only watched, without and with decisions.
pub(super) const OBSERVE: &str = "observe";
pub(super) const DRY_RUN: &str = "--dry-run";

/// Guest seconds of a fixed placement, which has nothing to find out.
const FIXED_SECONDS: u32 = 1;

/// How a run is placed and managed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) configuration: Configuration,
    /// Where every thread stays; `None` = begun as the experiment says, and free.
    pub(super) fixed: Option<Vec<usize>>,
}

/// The kernel alone, watching, and watching with decisions that are not carried out.
pub(super) fn watched_cases() -> Vec<Case> {
    let case = |name: &str, configuration| Case { name: name.into(), configuration, fixed: None };
    vec![
        case(LINUX, Configuration::FirstTouch),
        case(OBSERVE, Configuration::Observe),
        case(DRY_RUN, Configuration::DryRun),
    ]
}

impl Case {
    /// Whether one seed is enough: fixed placements, among which the best is looked for. A rival is
    /// compared with, so it has all seeds.
    pub(super) fn is_search(&self) -> bool {
        self.fixed.is_some()
    }
}

impl Experiment {
    /// The kernel alone, with and without its balancing, and the managers. Programs that begin
    /// where the kernel puts them are interleaved too.
    pub(super) fn free_cases(&self) -> Vec<Case> {
        let case =
            |name: &str, configuration| Case { name: name.into(), configuration, fixed: None };
        let kernel = [
            case(LINUX, Configuration::FirstTouch),
            case("NUMA balancing", Configuration::AutoNuma),
        ];
        let spread = matches!(self.programs, Programs::Free(_))
            .then(|| case(INTERLEAVED, Configuration::Interleave));
        let managed = self.managers.iter().map(|policy| {
            let word = format!("rondpoint={policy}");
            case(&word, word.parse().expect("the table names policies that there are"))
        });
        kernel.into_iter().chain(spread).chain(managed).collect()
    }

    /// Every fixed placement: the nodes of all threads, program by program. Threads of a program
    /// that do the same on the same memory have no names: of placements that only exchange them one
    /// is enough.
    pub(super) fn fixed_cases(&self, machine: &Machine) -> Vec<Case> {
        let Programs::Placed(programs) = self.programs else { return Vec::new() };
        let (nodes, threads) = (machine.nodes.len(), start(programs).len());
        let all = || {
            let place = |number: usize, thread: usize| number / nodes.pow(thread as u32) % nodes;
            (0..nodes.pow(threads as u32))
                .map(move |number| (0..threads).map(|thread| place(number, thread)).collect())
        };
        let placements: Vec<Vec<usize>> = match self.mappings {
            Mappings::All => {
                all().filter(|fixed: &Vec<usize>| is_first_of_its_kind(programs, fixed)).collect()
            }
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

    /// What the programs are called, in their order.
    pub(super) fn titles(&self) -> Vec<&'static str> {
        match self.programs {
            Programs::Placed(programs) => programs.iter().map(|program| program.title).collect(),
            Programs::Free(programs) => programs.iter().map(|(title, _)| *title).collect(),
        }
    }

    /// The arguments of `rondpoint-workloads` for a case.
    pub(super) fn arguments(&self, case: &Case, machine: &Machine) -> Vec<String> {
        let seconds = self.seconds_of(case);
        let programs = match self.programs {
            Programs::Placed(programs) => placed(programs, case, machine),
            Programs::Free(programs) => programs.iter().map(|(_, line)| (*line).into()).collect(),
        };
        let lines =
            programs.iter().map(|line| format!("{line} --no-huge-pages --seconds {seconds}"));
        ["mix".to_owned()].into_iter().chain(lines).collect()
    }
}

/// Whether no placement before this one, in order of the first thread's node, only exchanges
/// threads of a program with it.
fn is_first_of_its_kind(programs: &[Program], fixed: &[usize]) -> bool {
    let mut rest = fixed;
    programs.iter().all(|program| {
        let (own, others) = rest.split_at(program.start.len());
        rest = others;
        matches!(program.need, "own" | "stream") || own.is_sorted()
    })
}

/// The workload of each program as a case has it.
fn placed(programs: &[Program], case: &Case, machine: &Machine) -> Vec<String> {
    let nodes = case.fixed.clone().unwrap_or_else(|| start(programs));
    let cpus = cpus(&nodes, machine).expect("placements without room were left out");
    let mut taken = 0;
    let line = |program: &Program| {
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
        let Program { need, work, size, .. } = program;
        format!(
            "crew --need {need} --work {work} --start {start} --touch {home}{stay} --size {size}"
        )
    };
    programs.iter().map(line).collect()
}

/// The nodes on which all threads begin.
fn start(programs: &[Program]) -> Vec<usize> {
    programs.iter().flat_map(|program| program.start).copied().collect()
}

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
    use super::super::catalogue::EXPERIMENTS;
    use super::*;
    use crate::lab::lab_machine;

    fn named(name: &str) -> (&'static Experiment, Machine) {
        let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
        let experiment = found.expect("an experiment");
        (experiment, lab_machine(experiment.machine).expect("the lab brings it"))
    }

    #[test]
    fn every_mapping_with_room_is_tried_and_each_program_says_where_it_lies() {
        let count = |name: &str| {
            let (experiment, machine) = named(name);
            experiment.fixed_cases(&machine).len()
        };
        assert_eq!(count("sam"), 12, "no case is named after the sharers");
        assert_eq!(count("nmass"), 16);
        assert_eq!(count("asymsched"), 3);
        let (pairs, machine) = named("asymsched");
        let case = &pairs.fixed_cases(&machine)[2];
        let arguments = pairs.arguments(case, &machine).join(" ");
        assert!(arguments.contains("--start 0,2 --touch 0,2 --stay"), "{arguments}");
    }

    #[test]
    fn every_rival_of_a_free_program_has_all_seeds() {
        let cases = named("swap").0.free_cases();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["Linux", "NUMA balancing", "interleaved", "rondpoint=auto"]);
        assert!(cases.iter().all(|case| !case.is_search()));
    }

    #[test]
    fn what_is_watched_differs_from_the_kernel_alone_in_the_manager_only() {
        let cases = watched_cases();
        assert_eq!(cases[0].configuration, Configuration::FirstTouch, "the first is the base");
        assert!(cases[1..].iter().all(|case| case.configuration.only_watches()));
        assert!(cases.iter().all(|case| !case.is_search()), "each seed counts");
    }

    #[test]
    fn memory_stays_where_the_experiment_has_it() {
        let (experiment, machine) = named("sam");
        let cases = experiment.free_cases();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["Linux", "NUMA balancing", "rondpoint=sam", "rondpoint=auto"]);
        let arguments = experiment.arguments(&cases[0], &machine);
        assert_eq!(arguments.len(), 4);
        assert!(arguments[1].contains("--start 0,4 --touch 0,4 --size"), "{arguments:?}");
        assert!(arguments[2].contains("--start 1 --touch 4 --size"), "{arguments:?}");
        let fixed = &experiment.fixed_cases(&machine)[11];
        let arguments = experiment.arguments(fixed, &machine);
        assert!(arguments[2].contains("--start 6 --touch 4 --stay"), "{arguments:?}");
    }
}
