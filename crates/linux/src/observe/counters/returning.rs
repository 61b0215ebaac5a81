//! Counts of all tasks on a CPU that was off for a while.
//!
//! The kernel takes a CPU's own events off their counters for good when the CPU goes off
//! (`__perf_event_exit_context`, kernel/events/core.c, Linux 6.12). When it is on again they stand
//! still, as if nothing ran there, so they are opened anew.

use rondpoint_core::Topology;

use super::{CpuCounters, TreeGroup, clock};
use crate::LinuxError;
use crate::observe::subject::Subject;
use crate::perf::generation::Metric;
use crate::perf::pmu;

/// What was opened on every CPU.
pub(super) struct Returning {
    subject: Subject,
    /// The kernel's number of each CPU.
    kernel_cpus: Vec<u32>,
    /// The accepted groups.
    pub(super) parts: Vec<Vec<(Metric, pmu::Event)>>,
}

impl Returning {
    pub(super) fn new(subject: &Subject, topology: &Topology) -> Self {
        let kernel_cpus = (0..topology.cpu_count()).map(|cpu| topology.kernel_cpu(cpu)).collect();
        Self { subject: subject.clone(), kernel_cpus, parts: Vec::new() }
    }

    /// Opens everything anew on a CPU whose clock stands still: that of a CPU that is on always
    /// runs. While it is off the kernel refuses, and the old events stay. Returns whether it opened
    /// them.
    pub(super) fn reopen(&self, on: &mut CpuCounters) -> bool {
        let opened = self.opened(on);
        let is_open = opened.is_ok();
        if let Ok(opened) = opened {
            *on = opened;
        }
        is_open
    }

    fn opened(&self, on: &CpuCounters) -> Result<CpuCounters, LinuxError> {
        let cpu = self.kernel_cpus[on.last.cpu];
        let clocks = self.subject.open_groups(&[clock()], cpu)?;
        let group = |part: &Vec<(Metric, pmu::Event)>| {
            let (metrics, events): (Vec<Metric>, Vec<pmu::Event>) = part.iter().cloned().unzip();
            Ok(TreeGroup { metrics, tasks: self.subject.open_groups(&events, cpu)? })
        };
        let groups = self.parts.iter().map(group).collect::<Result<_, LinuxError>>()?;
        Ok(CpuCounters { clocks, groups, last: on.last.clone(), base: on.last.clone() })
    }
}
