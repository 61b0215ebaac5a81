//! A placement that the user chooses, with the options of numactl(8) or by a device that the
//! program uses.

use anyhow::{Context as _, Result, anyhow};
use rondpoint_core::{CpuSet, Topology};
use rondpoint_linux::Root;
use rondpoint_linux::devices::Device;
use rondpoint_linux::syscall::memory::MemoryPolicy;

use crate::number_sets::{Allowance, Range};
use crate::placement::Placement;

const HEADING: &str = "Placement by hand, as with numactl. Nodes and CPUs: 0-1,3; all; !0 (all but 0); \
                       +0 (the first allowed)";

/// Options that place the program when it begins. They change it, and a dry run changes nothing.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ByHand {
    /// Take memory from these nodes in turn
    #[arg(long, short, value_name = "NODES", group = "memory", conflicts_with = "dry_run", help_heading = HEADING)]
    interleave: Option<String>,

    /// The same, with each node's weight in the kernel (see rondpoint weights)
    #[arg(long, short, value_name = "NODES", group = "memory", conflicts_with = "dry_run", help_heading = HEADING)]
    weighted_interleave: Option<String>,

    /// Take memory from these nodes, or fail
    #[arg(long, short, value_name = "NODES", group = "memory", conflicts_with = "dry_run", help_heading = HEADING)]
    membind: Option<String>,

    /// Take memory from this node first
    #[arg(long, short, value_name = "NODE", group = "memory", conflicts_with = "dry_run", help_heading = HEADING)]
    preferred: Option<String>,

    /// Take memory from these nodes first
    #[arg(long, short = 'P', value_name = "NODES", group = "memory", conflicts_with = "dry_run", help_heading = HEADING)]
    preferred_many: Option<String>,

    /// Take memory from the node of the thread that asks
    #[arg(long, short, group = "memory", conflicts_with = "dry_run", help_heading = HEADING)]
    localalloc: bool,

    /// Run on the CPUs of these nodes
    #[arg(long, short = 'N', value_name = "NODES", group = "cpus", conflicts_with = "dry_run", help_heading = HEADING)]
    cpunodebind: Option<String>,

    /// Run on these CPUs
    #[arg(long, short = 'C', value_name = "CPUS", group = "cpus", conflicts_with = "dry_run", help_heading = HEADING)]
    physcpubind: Option<String>,

    /// Run on the CPUs nearest to a device: gpu:0, nic:eth0, nvme:0, pci:0000:3b:00.0; policies
    /// act within them
    #[arg(long, value_name = "DEVICE", group = "cpus", conflicts_with = "dry_run", value_parser = Device::parse)]
    near: Option<Device>,
}

impl ByHand {
    /// The option that leaves nothing to a policy, if one is given.
    pub(super) fn policy(&self) -> Option<&'static str> {
        let given = |option: &Option<String>, name| option.as_ref().map(|_| name);
        given(&self.interleave, "--interleave")
            .or(given(&self.weighted_interleave, "--weighted-interleave"))
            .or(given(&self.membind, "--membind"))
            .or(given(&self.preferred, "--preferred"))
            .or(given(&self.preferred_many, "--preferred-many"))
            .or(self.localalloc.then_some("--localalloc"))
            .or(given(&self.cpunodebind, "--cpunodebind"))
            .or(given(&self.physcpubind, "--physcpubind"))
    }

    /// The placement on this machine, within what this process may use.
    ///
    /// # Errors
    /// A set names what is not there or not allowed, or the device's node is not known.
    pub(super) fn placement(&self, root: &Root, topology: &Topology) -> Result<Placement> {
        let allowed = Allowance::own(root)?;
        let memory = self.memory(&Range::allowed_memory_nodes(topology, &allowed))?;
        let cpus = self.cpus(root, topology, &allowed)?;
        Ok(Placement { cpus, memory })
    }

    fn memory(&self, nodes: &Range) -> Result<Option<MemoryPolicy>> {
        if self.localalloc {
            return Ok(Some(MemoryPolicy::Local));
        }
        let many = |option, text: &Option<String>| -> Result<Option<Vec<u32>>> {
            text.as_ref().map(|text| set(nodes, option, text)).transpose()
        };
        if let Some(nodes) = many("--interleave", &self.interleave)? {
            return Ok(Some(MemoryPolicy::Interleave(nodes)));
        }
        if let Some(nodes) = many("--weighted-interleave", &self.weighted_interleave)? {
            return Ok(Some(MemoryPolicy::WeightedInterleave(nodes)));
        }
        if let Some(nodes) = many("--membind", &self.membind)? {
            return Ok(Some(MemoryPolicy::Bind(nodes)));
        }
        if let Some(nodes) = many("--preferred-many", &self.preferred_many)? {
            return Ok(Some(MemoryPolicy::PreferredMany(nodes)));
        }
        let Some(text) = &self.preferred else { return Ok(None) };
        match set(nodes, "--preferred", text)?[..] {
            [node] => Ok(Some(MemoryPolicy::Preferred(node))),
            _ => Err(anyhow!(
                "--preferred: `{text}`: expected one node (--preferred-many takes more)"
            )),
        }
    }

    fn cpus(
        &self,
        root: &Root,
        topology: &Topology,
        allowed: &Allowance,
    ) -> Result<Option<CpuSet>> {
        let of_node = |node: &u32| allowed.cpus_of(topology, *node);
        if let Some(text) = &self.cpunodebind {
            let nodes = set(&Range::allowed_cpu_nodes(topology, allowed), "--cpunodebind", text)?;
            return Ok(Some(
                nodes.iter().map(of_node).fold(CpuSet::new(), |all, cpus| all.union(&cpus)),
            ));
        }
        if let Some(text) = &self.physcpubind {
            let cpus = set(&Range::allowed_cpus(topology, allowed), "--physcpubind", text)?;
            return Ok(Some(cpus.into_iter().map(|cpu| cpu as usize).collect()));
        }
        let Some(device) = &self.near else { return Ok(None) };
        let node = node_near(device, root, topology).context("--near")?;
        let cpus = of_node(&node);
        match cpus.is_empty() {
            true => Err(anyhow!("--near {device}: this process may use no CPU of node {node}")),
            false => Ok(Some(cpus)),
        }
    }
}

fn set(range: &Range, option: &str, text: &str) -> Result<Vec<u32>> {
    range.parse(text).map_err(|problem| anyhow!("{option}: {problem}"))
}

/// The kernel's number of the node with the CPUs nearest to a device. This is the device's own
/// node, or the nearest node with CPUs where that has memory only.
fn node_near(device: &Device, root: &Root, topology: &Topology) -> Result<u32> {
    let node = device.node(root)?.with_context(|| {
        format!(
            "{device}: the firmware does not say which node it is near (its numa_node is -1); to \
             choose one: --cpunodebind NODE"
        )
    })?;
    let found = topology.node_of_kernel_id(node);
    let found =
        found.with_context(|| format!("{device}: node {node} has neither CPUs nor memory"))?;
    let nodes = topology.compute_nodes();
    let nearest = nodes.iter().min_by_key(|from| topology.distance(*from, found));
    nearest.map(|node| topology.kernel_node(node)).context("no node has CPUs")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rondpoint_core::topology::synthetic;

    use super::super::arguments::RunArguments;
    use super::*;

    /// Four nodes of two CPUs, the last node not allowed; a network card near node 1, another one
    /// near nothing.
    fn place(line: &str) -> Result<Placement, String> {
        let topology = synthetic::parse("node:4 core:2").expect("a machine");
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::captured(folder.path());
        let status = "Cpus_allowed_list:\t0-5\nMems_allowed_list:\t0-2\n";
        let put = |path: std::path::PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        put(root.in_proc("self/status"), status);
        for (name, node) in [("eth0", "1"), ("eth1", "-1"), ("eth2", "3"), ("eth3", "9")] {
            put(root.in_sys(format!("class/net/{name}/device/numa_node")), node);
        }
        let run = RunArguments::typed(line).map_err(|error| error.to_string())?;
        run.by_hand.placement(&root, &topology).map_err(|error| format!("{error:#}"))
    }

    fn cpus(line: &str) -> String {
        place(line).map_or_else(|error| error, |one| one.cpus.expect("chosen").to_string())
    }

    #[test]
    fn each_word_of_numactl_is_its_policy() {
        let memory = |line: &str| place(line).expect(line).memory.expect("chosen");
        assert_eq!(memory("--interleave=all"), MemoryPolicy::Interleave(vec![0, 1, 2]));
        assert_eq!(memory("-i !1"), MemoryPolicy::Interleave(vec![0, 2]));
        assert_eq!(memory("-w 0,2"), MemoryPolicy::WeightedInterleave(vec![0, 2]));
        assert_eq!(memory("--membind=+1-2"), MemoryPolicy::Bind(vec![1, 2]));
        assert_eq!(memory("-p +2"), MemoryPolicy::Preferred(2));
        assert_eq!(memory("--preferred-many 0-1"), MemoryPolicy::PreferredMany(vec![0, 1]));
        assert_eq!(memory("-l"), MemoryPolicy::Local);
        assert_eq!(cpus("-N 1-2"), "2-5");
        assert_eq!(cpus("--cpunodebind=!0"), "2-5");
        assert_eq!(cpus("-C +0,2"), "0,2");
        let both = place("--cpunodebind=0 --membind=1").expect("both");
        assert_eq!(both.memory, Some(MemoryPolicy::Bind(vec![1])));
        assert_eq!(both.cpus.expect("chosen").to_string(), "0-1");
        assert_eq!(place(""), Ok(Placement::default()));
    }

    #[test]
    fn what_numactl_refuses_is_refused_with_what_was_expected() {
        let check = |line: &str, expected: &str| {
            let error = place(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        };
        check("--membind=3", "--membind: node 3: no such node with memory for this process");
        check("--interleave=0-", "--interleave: `0-`: expected nodes such as 0-1,3 or all");
        check("--preferred=0-1", "--preferred: `0-1`: expected one node");
        check("--physcpubind=6", "--physcpubind: CPU 6: no such CPU for this process");
        check("--cpunodebind=3", "--cpunodebind: node 3: no such node with CPUs");
        check("--cpunodebind=", "--cpunodebind: ``: expected nodes");
        check("-i 0 -m 0", "cannot be used with");
        check("-N 0 -C 0", "cannot be used with");
        check("-N 0 --near nic:eth0", "cannot be used with");
        check("-n -m 0", "'--dry-run' cannot be used with '--membind <NODES>'");
    }

    #[test]
    fn a_program_near_a_device_runs_on_the_cpus_of_its_node() {
        assert_eq!(cpus("--near nic:eth0"), "2-3");
        assert_eq!(
            cpus("--near nic:eth1"),
            "--near: nic:eth1: the firmware does not say which node it is near (its numa_node is \
             -1); to choose one: --cpunodebind NODE"
        );
        assert_eq!(
            cpus("--near nic:eth2"),
            "--near nic:eth2: this process may use no CPU of node 3"
        );
        assert_eq!(cpus("--near nic:eth3"), "--near: nic:eth3: node 9 has neither CPUs nor memory");
        assert!(cpus("--near usb:1").contains("expected a device such as gpu:0"));
    }

    #[test]
    fn only_words_that_place_everything_leave_nothing_to_a_policy() {
        let policy = |line: &str| RunArguments::typed(line).expect(line).by_hand.policy();
        assert_eq!(policy("--near nic:eth0"), None);
        assert_eq!(policy("-l"), Some("--localalloc"));
        assert_eq!(policy("-C 0 -m 0"), Some("--membind"));
    }
}
