//! No thread or page moves out of its cpuset, and exempt processes are never changed.

use rondpoint_core::plan::{Action, PageMove};
use rondpoint_core::{CpuSet, Pid, Tid};

use super::{Broken, Checker, View};

pub(super) struct Permission;

fn broken(what: String) -> Result<(), Broken> {
    Err(Broken::new("permission", what))
}

impl Checker for Permission {
    fn check(&mut self, view: &View<'_>) -> Result<(), Broken> {
        for step in &view.step.plan.steps {
            match &step.action {
                Action::SetAffinity { pid, tid, cpus, .. } => mask(view, *pid, *tid, cpus)?,
                Action::MovePages { pid, pages, .. } => {
                    targets(view, *pid, pages.iter().map(|page: &PageMove| usize::from(page.to)))?;
                }
                Action::Replicate { pid, pages } => {
                    let controllers = view.plant.topology.controllers();
                    let copies = |page: &PageMove| {
                        let home = usize::from(page.from);
                        controllers.iter().filter(move |node| *node != home)
                    };
                    targets(view, *pid, pages.iter().flat_map(copies))?;
                }
                Action::MoveProcessMemory { pid, nodes, .. } => {
                    targets(view, *pid, nodes.iter().map(|node| node.to))?;
                }
                Action::Unreplicate { .. } | Action::SetSampling { .. } => {}
            }
        }
        Ok(())
    }
}

fn mask(view: &View<'_>, pid: Pid, tid: Tid, cpus: &CpuSet) -> Result<(), Broken> {
    exempt(view, pid)?;
    // A thread that has ended meanwhile has no mask.
    let Some(thread) = view.plant.thread_of(pid, tid) else { return Ok(()) };
    let allowed = &view.plant.threads[thread].allowed;
    if cpus.is_empty() || !cpus.is_subset(allowed) {
        return broken(format!("thread {tid} of {pid}: mask {cpus}, allowed {allowed}"));
    }
    Ok(())
}

fn targets(
    view: &View<'_>,
    pid: Pid,
    mut nodes: impl Iterator<Item = usize>,
) -> Result<(), Broken> {
    exempt(view, pid)?;
    let Some(process) = view.plant.process_of(pid) else { return Ok(()) };
    let Some(allowed) = &view.plant.processes[process].allowed_nodes else { return Ok(()) };
    match nodes.find(|node| !allowed.contains(*node)) {
        Some(node) => broken(format!("memory of {pid} to node {node}, allowed {allowed}")),
        None => Ok(()),
    }
}

fn exempt(view: &View<'_>, pid: Pid) -> Result<(), Broken> {
    let process = view.plant.process_of(pid);
    match process.and_then(|process| view.plant.processes[process].exempt) {
        Some(exemption) => broken(format!("{pid} was touched, though it is exempt: {exemption:?}")),
        None => Ok(()),
    }
}
