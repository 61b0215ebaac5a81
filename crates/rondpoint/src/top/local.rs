//! Frames without a daemon, from kernel files that every user may read.

use anyhow::Result;

use super::frame::{Frame, NodeRow, ProcessRow};
use crate::observe::machine::{Machine, MachineLine};

/// This machine, looked at once each interval.
pub(super) struct Local {
    machine: Machine,
    last: Option<MachineLine>,
}

impl Local {
    /// Looks for the first time.
    ///
    /// # Errors
    /// `/sys` or `/proc` cannot be read.
    pub(super) fn begin() -> Result<Self> {
        Ok(Self { machine: Machine::begin()?, last: None })
    }

    /// Looks again.
    ///
    /// # Errors
    /// As [`Local::begin`].
    pub(super) fn look(&mut self) -> Result<()> {
        self.last = Some(self.machine.next()?);
        Ok(())
    }

    /// What is on the screen.
    pub(super) fn frame(&self) -> Frame {
        let source = "this machine; no daemon runs".to_string();
        match &self.last {
            None => Frame { source, ..Frame::default() },
            Some(line) => frame(line, source).cleaned(),
        }
    }
}

fn frame(line: &MachineLine, source: String) -> Frame {
    let balancing = format!(
        "kernel statistics; NUMA balancing: {:.0} pages/s moved, {:.0} hint faults/s",
        line.kernel_moved_per_s, line.hint_faults_per_s
    );
    let nodes = line.nodes.iter().map(|node| NodeRow {
        name: node.node.to_string(),
        cpus: node.cpus,
        memory_bytes: node.memory_bytes,
        free_bytes: Some(node.free_bytes),
        cpu_percent: node.cpu_percent,
        served_percent: None,
        full_percent: None,
    });
    let processes = line.processes.iter().map(|process| ProcessRow {
        pid: process.pid,
        name: process.name.clone(),
        cpu_percent: process.cpu_percent,
        resident_bytes: Some(process.resident_bytes),
        threads_by_node: process.threads_by_node.clone(),
        ..ProcessRow::default()
    });
    Frame {
        source,
        at_s: line.at_s,
        sensing: balancing,
        nodes: nodes.collect(),
        processes: processes.collect(),
        ..Frame::default()
    }
}
