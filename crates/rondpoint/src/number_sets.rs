//! Sets of nodes and CPUs as numactl(8) writes them. Examples: `0-1,3`, `all`, `!0` (all but
//! these), `+0-1` (counted among those in `all`) and `!+1` (all but the second).

use rondpoint_core::{CpuSet, Topology};
use rondpoint_linux::parse::{cpulist, status};
use rondpoint_linux::{LinuxError, Root, root};

/// What a set is taken from: the numbers that `all` stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    /// One of them, such as `node`.
    noun: &'static str,
    /// What is said of each, such as ` with memory`.
    quality: &'static str,
    /// Ascending.
    all: Vec<u32>,
}

impl Range {
    /// Nodes that have memory.
    pub(crate) fn memory_nodes(topology: &Topology) -> Self {
        let nodes = topology.memory_nodes();
        Self::new("node", " with memory", nodes.iter().map(|node| topology.kernel_node(node)))
    }

    /// Nodes with memory that the processes of an [`Allowance`] may use.
    pub(crate) fn allowed_memory_nodes(topology: &Topology, allowed: &Allowance) -> Self {
        let nodes = topology.memory_nodes();
        let nodes = nodes.iter().map(|node| topology.kernel_node(node));
        Self::new(
            "node",
            " with memory for this process",
            nodes.filter(|one| allowed.has_node(*one)),
        )
    }

    /// Nodes that have CPUs for the processes of an [`Allowance`].
    pub(crate) fn allowed_cpu_nodes(topology: &Topology, allowed: &Allowance) -> Self {
        let has_cpu = |node: &usize| {
            let mut cpus = topology.cpus_of_node(*node).iter();
            cpus.any(|cpu| allowed.has_cpu(topology.kernel_cpu(cpu)))
        };
        let nodes = topology.compute_nodes();
        let nodes = nodes.iter().filter(has_cpu).map(|node| topology.kernel_node(node));
        Self::new("node", " with CPUs for this process", nodes)
    }

    /// CPUs that the processes of an [`Allowance`] may use.
    pub(crate) fn allowed_cpus(topology: &Topology, allowed: &Allowance) -> Self {
        let cpus = (0..topology.cpu_count()).map(|cpu| topology.kernel_cpu(cpu));
        Self::new("CPU", " for this process", cpus.filter(|one| allowed.has_cpu(*one)))
    }

    /// Nodes that have CPUs.
    pub(crate) fn cpu_nodes(topology: &Topology) -> Self {
        let nodes = topology.compute_nodes();
        Self::new("node", " with CPUs", nodes.iter().map(|node| topology.kernel_node(node)))
    }

    fn new(noun: &'static str, quality: &'static str, numbers: impl Iterator<Item = u32>) -> Self {
        let mut all: Vec<u32> = numbers.collect();
        all.sort_unstable();
        Self { noun, quality, all }
    }

    /// Reads a set; it is ascending and never empty.
    ///
    /// # Errors
    /// What is wrong, for the user: no set, a number that is not in the range, nothing left.
    pub(crate) fn parse(&self, text: &str) -> Result<Vec<u32>, String> {
        let Self { noun, quality, all } = self;
        if text == "all" {
            let none = || format!("`all`: there is no {noun}{quality}");
            return if all.is_empty() { Err(none()) } else { Ok(all.clone()) };
        }
        let (is_inverted, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let (is_relative, list) = rest.strip_prefix('+').map_or((false, rest), |list| (true, list));
        let numbers = cpulist::parse(list.as_bytes()).ok().filter(|numbers| !numbers.is_empty());
        let numbers = numbers.ok_or_else(|| {
            format!(
                "`{text}`: expected {noun}s such as 0-1,3 or all, !0 (all but), +0 (the first), \
                 !+0 (all but the first); ranges ascend"
            )
        })?;
        let there = |number: u32| match all.contains(&number) {
            true => Ok(number),
            false => Err(format!(
                "{noun} {number}: no such {noun}{quality} ({noun}s{quality}: {})",
                cpulist::format(all)
            )),
        };
        let nth = |index: u32| {
            let found = all.get(index as usize).copied();
            found.ok_or_else(|| {
                let all = cpulist::format(all);
                format!("+{index}: no such place, the first is +0 ({noun}s{quality}: {all})")
            })
        };
        let number_of = |number| if is_relative { nth(number) } else { there(number) };
        let named: Vec<u32> = numbers.into_iter().map(number_of).collect::<Result<_, _>>()?;
        if !is_inverted {
            return Ok(named);
        }
        let left: Vec<u32> = all.iter().copied().filter(|one| !named.contains(one)).collect();
        let none = || format!("`{text}`: no {noun}{quality} is left");
        if left.is_empty() { Err(none()) } else { Ok(left) }
    }
}

/// The CPUs and the nodes that a cpuset leaves to a process; `None` where the kernel has no such
/// line, which allows all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Allowance {
    cpus: Option<Vec<u32>>,
    nodes: Option<Vec<u32>>,
}

impl Allowance {
    /// This process's own.
    ///
    /// # Errors
    /// `/proc/self/status` cannot be read.
    pub(crate) fn own(root: &Root) -> Result<Self, LinuxError> {
        let path = root.in_proc("self/status");
        let bytes = root::read_required(&path)?;
        let found = status::parse(&bytes).map_err(|source| LinuxError::Format { path, source })?;
        Ok(Self { cpus: found.cpus_allowed, nodes: found.nodes_allowed })
    }

    pub(crate) fn has_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    pub(crate) fn has_node(&self, node: u32) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node))
    }

    /// The kernel's numbers of the CPUs of a node, as far as they are allowed.
    pub(crate) fn cpus_of(&self, topology: &Topology, kernel_node: u32) -> CpuSet {
        let node = topology.node_of_kernel_id(kernel_node);
        let cpus = node.into_iter().flat_map(|node| topology.cpus_of_node(node).iter());
        let numbers = cpus.map(|cpu| topology.kernel_cpu(cpu));
        numbers.filter(|cpu| self.has_cpu(*cpu)).map(|cpu| cpu as usize).collect()
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    fn check(text: &str, expected: &str) {
        let range = Range::new("node", " with memory", [8, 0, 2, 3].into_iter());
        let shown = match range.parse(text) {
            Ok(nodes) => cpulist::format(&nodes),
            Err(error) => error,
        };
        assert_eq!(shown, expected, "{text:?}");
    }

    #[test]
    fn sets_are_written_as_for_numactl() {
        check("0", "0");
        check("2-3,0", "0,2-3");
        check("all", "0,2-3,8");
        check("!2-3", "0,8");
        check("+0-1", "0,2");
        check("!+1", "0,3,8");
        check("!+1-2", "0,8");
        check("+0-1,3", "0,2,8");
        let expected = "expected nodes such as 0-1,3 or all, !0 (all but), +0 (the first), !+0 (all \
                        but the first); ranges ascend";
        for bad in
            ["!all", "", "!", "+", "!!1", "++1", "+!1", "!++1", "0,+1", "+0,+1", "1-+2", "0,!1"]
        {
            check(bad, &format!("`{bad}`: {expected}"));
        }
        check("1", "node 1: no such node with memory (nodes with memory: 0,2-3,8)");
        check("!1", "node 1: no such node with memory (nodes with memory: 0,2-3,8)");
        let none = "+4: no such place, the first is +0 (nodes with memory: 0,2-3,8)";
        check("+4", none);
        check("!+4", none);
        check("!0,2-3,8", "`!0,2-3,8`: no node with memory is left");
    }

    #[test]
    fn a_cpuset_is_what_all_and_the_first_are_counted_in() {
        let topology = synthetic::parse("node:4 core:2 pu:1").expect("a machine");
        let allowed = Allowance { cpus: Some(vec![3, 4, 5]), nodes: Some(vec![2, 3]) };
        let sets = |range: &Range, texts: &[&str]| {
            let one =
                |text: &&str| range.parse(text).map_or_else(|e| e, |set| cpulist::format(&set));
            texts.iter().map(one).collect::<Vec<_>>()
        };
        let memory = Range::allowed_memory_nodes(&topology, &allowed);
        assert_eq!(sets(&memory, &["all", "+0", "!3"]), ["2-3", "2", "2"]);
        let refused = "node 0: no such node with memory for this process (nodes with memory for \
                       this process: 2-3)";
        assert_eq!(sets(&memory, &["0"]), [refused]);
        let nodes = Range::allowed_cpu_nodes(&topology, &allowed);
        assert_eq!(sets(&nodes, &["all", "+1"]), ["1-2", "2"]);
        let cpus = Range::allowed_cpus(&topology, &allowed);
        assert_eq!(sets(&cpus, &["all", "+0-1", "!+0"]), ["3-5", "3-4", "4-5"]);
        assert_eq!(allowed.cpus_of(&topology, 1).iter().collect::<Vec<_>>(), [3]);
        let none = Allowance { cpus: None, nodes: Some(vec![7]) };
        let none = Range::allowed_memory_nodes(&topology, &none);
        assert_eq!(sets(&none, &["all"]), ["`all`: there is no node with memory for this process"]);
        assert_eq!(Range::memory_nodes(&topology).parse("all"), Ok(vec![0, 1, 2, 3]));
    }

    #[test]
    fn whatever_is_asked_for_a_mutated_set_is_ascending_and_within_the_range() {
        let range = Range::new("node", " with memory", [8, 0, 2, 3].into_iter());
        let seeds = ["2-3,0", "all", "!2-3", "+0-1", "!+1-2", "+0-1,3"];
        crate::seeded::check(&seeds, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let Ok(found) = range.parse(text) else { return false };
            assert!(!found.is_empty() && found.is_sorted_by(|a, b| a < b), "{found:?}");
            assert!(found.iter().all(|number| range.all.contains(number)), "{found:?}");
            assert_eq!(range.parse(&cpulist::format(&found)).as_ref(), Ok(&found));
            true
        });
    }
}
