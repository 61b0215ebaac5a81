//! Actions, reasons and refusals in words. Nodes and CPUs have the topology's indices, or, with a
//! topology, the kernel's numbers, by which users know them.

use super::{Action, PageMove, Reason, Refusal, Sampling};
use crate::index_set::{CpuSet, IndexSet};
use crate::topology::Topology;
use alloc::collections::BTreeMap;
use core::fmt::{self, Display as _};

/// Something of a plan in words, with the kernel's numbers of nodes and CPUs.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a, T> {
    what: &'a T,
    topology: &'a Topology,
}

impl Action {
    /// The action in words, with the kernel's numbers of nodes and CPUs.
    #[must_use]
    pub fn on<'a>(&'a self, topology: &'a Topology) -> Shown<'a, Self> {
        Shown { what: self, topology }
    }
}

impl Reason {
    /// The reason in words, with the kernel's numbers of nodes.
    #[must_use]
    pub fn on<'a>(&'a self, topology: &'a Topology) -> Shown<'a, Self> {
        Shown { what: self, topology }
    }
}

impl Refusal {
    /// The refusal in words, with the kernel's numbers of nodes.
    #[must_use]
    pub fn on<'a>(&'a self, topology: &'a Topology) -> Shown<'a, Self> {
        Shown { what: self, topology }
    }
}

impl fmt::Display for Shown<'_, Action> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_action(f, self.what, Numbers(Some(self.topology)))
    }
}

impl fmt::Display for Shown<'_, Reason> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node| Numbers(Some(self.topology)).node(node);
        match self.what.clone() {
            Reason::AsymSched(reason) => reason.renamed(name).fmt(f),
            Reason::Sam(reason) => reason.renamed(name).fmt(f),
            Reason::Sharing(reason) => reason.renamed(name).fmt(f),
            Reason::Home(reason) => reason.renamed(name).fmt(f),
            Reason::Gather(reason) => reason.renamed(name).fmt(f),
            without_nodes @ (Reason::Carrefour(_)
            | Reason::NMass(_)
            | Reason::Undo(_)
            | Reason::Other(_)) => without_nodes.fmt(f),
        }
    }
}

impl fmt::Display for Shown<'_, Refusal> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_refusal(f, self.what, Numbers(Some(self.topology)))
    }
}

/// Nodes and CPUs by the topology's indices.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_action(f, self, Numbers(None))
    }
}

/// Nodes by the topology's indices.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        put_refusal(f, self, Numbers(None))
    }
}

/// The numbers of nodes and CPUs: of the topology's kernel, else the indices themselves.
#[derive(Clone, Copy)]
struct Numbers<'a>(Option<&'a Topology>);

impl Numbers<'_> {
    fn node(self, node: usize) -> usize {
        let known = self.0.filter(|topology| node < topology.node_count());
        known.map_or(node, |topology| topology.kernel_node(node) as usize)
    }

    fn cpu(self, cpu: usize) -> usize {
        let known = self.0.filter(|topology| cpu < topology.cpu_count());
        known.map_or(cpu, |topology| topology.kernel_cpu(cpu) as usize)
    }

    fn cpus(self, cpus: &CpuSet) -> IndexSet {
        cpus.iter().map(|cpu| self.cpu(cpu)).collect()
    }
}

fn put_action(f: &mut fmt::Formatter<'_>, action: &Action, numbers: Numbers<'_>) -> fmt::Result {
    match action {
        Action::MovePages { pid, mechanism, pages } => {
            write!(f, "move {} of {pid} ({mechanism}):", Many(pages.len()))?;
            put_routes(f, pages, numbers)
        }
        Action::Replicate { pid, pages } => write!(f, "replicate {} of {pid}", Many(pages.len())),
        Action::Unreplicate { pid, pages } => {
            write!(f, "unreplicate {} of {pid}", Many(pages.len()))
        }
        Action::SetAffinity { pid, tid, cpus, via } => {
            write!(f, "thread {tid} of {pid} to ")?;
            if let Some(cpu) = via {
                write!(f, "CPU {}, then ", numbers.cpu(*cpu))?;
            }
            write!(f, "CPUs {}", numbers.cpus(cpus))
        }
        Action::MoveProcessMemory { pid, nodes, freeze, memory } => {
            write!(f, "move {memory} of {pid}{}:", if *freeze { " frozen" } else { "" })?;
            nodes.iter().try_for_each(|route| {
                write!(f, " {}→{}", numbers.node(route.from), numbers.node(route.to))
            })
        }
        Action::SetSampling { pid, sampling } => {
            match pid {
                Some(pid) => write!(f, "sample {pid}: ")?,
                None => write!(f, "sample: ")?,
            }
            match sampling {
                Sampling::Off => write!(f, "off"),
                Sampling::Every { cycles, tracked_pages } => {
                    write!(f, "every {cycles} cycles, {tracked_pages} pages tracked")
                }
            }
        }
    }
}

/// Numbers of pages by source and target: ` 12 × 0→1, 3 × 0→2`.
fn put_routes(f: &mut fmt::Formatter<'_>, pages: &[PageMove], numbers: Numbers<'_>) -> fmt::Result {
    let mut routes = BTreeMap::new();
    for page in pages {
        *routes.entry((page.from, page.to)).or_insert(0_u32) += 1;
    }
    let mut separator = "";
    routes.into_iter().try_for_each(|((from, to), count)| {
        let [from, to] = [from, to].map(|node| numbers.node(usize::from(node)));
        write!(f, "{separator} {count} × {from}→{to}")?;
        separator = ",";
        Ok(())
    })
}

fn put_refusal(f: &mut fmt::Formatter<'_>, refusal: &Refusal, numbers: Numbers<'_>) -> fmt::Result {
    match refusal {
        Refusal::ObserveOnly => write!(f, "only observing"),
        Refusal::LowConfidence { confidence, needed } => {
            write!(f, "confidence {confidence:.2}, {needed:.2} needed")
        }
        Refusal::Exempt { exemption } => write!(f, "not to be touched: {exemption}"),
        Refusal::Unknown => write!(f, "no such process or thread"),
        Refusal::NoAllowedCpu => write!(f, "no CPU of the mask is allowed to the thread"),
        Refusal::NodeNotAllowed { node } => {
            write!(f, "node {} is not allowed to the process", numbers.node(*node))
        }
        Refusal::PolicyUnread => write!(f, "it may have a memory policy of its own there"),
        Refusal::NoMemory { node, free } => {
            write!(f, "node {} has {free} free", numbers.node(*node))
        }
        Refusal::ByteBudget { node, left } => {
            write!(f, "budget of node {}: {left} left", numbers.node(*node))
        }
        Refusal::CallBudget => write!(f, "calls per second used up"),
        Refusal::AlreadyThere => write!(f, "it is so already"),
        Refusal::Residence { left } => write!(f, "moved recently: stays {left} more"),
        Refusal::PingPong { moves } => write!(f, "moved {moves} times in the window"),
        Refusal::Undone { left } => write!(f, "was undone, refused for {left}"),
        Refusal::InVain { left } => write!(f, "tried in vain, left for {left}"),
        Refusal::TooEarly => write!(f, "not watched for long enough yet"),
        Refusal::TrialRunning => write!(f, "a trial is running"),
        Refusal::Locked => write!(f, "another action has the process"),
        Refusal::TimeBudget { spent, allowed } => {
            write!(f, "movers spent {spent}, {allowed} allowed")
        }
        Refusal::PartnerRefused => write!(f, "a thread that should move with it stays"),
        Refusal::Vetoed { veto } => veto.fmt(f),
        Refusal::Worth { worth: Some(worth) } => worth.fmt(f),
        Refusal::Worth { worth: None } => write!(f, "too little is known to price it"),
        Refusal::Conflict => write!(f, "a policy of higher priority moved it"),
        Refusal::Malformed => write!(f, "no such CPU or node, or nothing to do"),
    }
}

/// `1 page`, `2 pages`.
struct Many(usize);

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} page{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::gather::GatherReason;
    use crate::topology::synthetic;
    use crate::units::{Bytes, Nanos, Pid, Tid};
    use alloc::string::ToString as _;

    /// Nodes 0 and 8 with CPUs 0, 4 and 64, 68, as firmware of POWER numbers them.
    fn sparse() -> Topology {
        let mut described = synthetic::describe("node:2 core:2").expect("a machine");
        described.nodes[1].kernel_id = 8;
        for (cpu, kernel_id) in described.cpus.iter_mut().zip([0, 4, 64, 68]) {
            cpu.kernel_id = kernel_id;
        }
        Topology::new(described).expect("a machine")
    }

    #[test]
    fn nodes_and_cpus_have_the_numbers_by_which_a_user_knows_them() {
        let topology = sparse();
        let action = Action::SetAffinity {
            pid: Pid(7),
            tid: Tid(8),
            cpus: [2, 3].into_iter().collect(),
            via: Some(1),
        };
        assert_eq!(action.on(&topology).to_string(), "thread 8 of 7 to CPU 4, then CPUs 64,68");
        let refusal = Refusal::NoMemory { node: 1, free: Bytes(0) };
        assert_eq!(refusal.on(&topology).to_string(), "node 8 has 0 B free");
        let reason = Reason::Gather(GatherReason::Follows { node: 1, left: Nanos(0) });
        assert!(reason.on(&topology).to_string().contains("to node 8"), "{}", reason.on(&topology));
        let unknown = Refusal::NodeNotAllowed { node: 9 };
        assert_eq!(
            unknown.on(&topology).to_string(),
            unknown.to_string(),
            "a node that is not there"
        );
    }
}
