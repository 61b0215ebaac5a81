//! Memory of a process: by node, shared parts, and pages with copies.

use std::time::Instant;

use rondpoint_core::observation::Exemption;
use rondpoint_core::{Pid, Tid, Topology};

use super::Tasks;
use crate::LinuxError;
use crate::observe::copies::Copies;

impl Tasks {
    /// Reads the nodes of a process's memory if that is due. `is_still`: the process has not run
    /// since the last look.
    pub(super) fn look_at_memory(
        &mut self,
        topology: &Topology,
        pid: Pid,
        is_still: bool,
    ) -> Result<(), LinuxError> {
        let maps = self.path(pid, "numa_maps");
        let root = &self.root;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.maps.schedule.settle(is_still);
        let is_due = || process.maps.schedule.is_due(Instant::now(), process.resident);
        if is_still && (topology.node_count() == 1 || !is_due()) {
            return Ok(());
        }
        let sched = |tid: &Tid| root.in_proc(format!("{pid}/task/{tid}/sched"));
        let scheds = process.threads.keys().map(sched);
        let memory = process.maps.read(&maps, pid, topology, process.resident, scheds)?;
        process.last.memory = memory.or(process.last.memory.take());
        process.last.policy_read = process.maps.policy_read().cloned();
        process.last.exempt = match (process.is_kernel_thread, process.maps.has_own_policy()) {
            (true, _) => Some(Exemption::KernelThread),
            (_, true) => Some(Exemption::OwnMemoryPolicy),
            _ => None,
        };
        Ok(())
    }

    /// Reads a process's mappings for copies if that is due, and its pages with copies.
    pub(super) fn look_at_copies(&mut self, pid: Pid) -> Result<(), LinuxError> {
        let folder = self.root.in_proc(pid.0.to_string());
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let last = &mut process.last;
        last.mappings = process.copies.mappings(&folder)?.or(last.mappings.take());
        last.replicas = Copies::replicas(&folder)?;
        Ok(())
    }

    /// Reads a process's shared mappings if that is due.
    pub(super) fn look_at_shared(&mut self, pid: Pid) -> Result<(), LinuxError> {
        let maps = self.path(pid, "maps");
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if let Some(shared) = process.shared.read(&maps)? {
            process.last.shared = shared;
        }
        Ok(())
    }
}
