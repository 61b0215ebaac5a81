//! The CPUs and the memory policy with which a program begins.

use std::thread;

use anyhow::{Context as _, Result};
use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::affinity;
use rondpoint_linux::syscall::memory::{MemoryPolicy, set_memory_policy};

/// A placement; `None` is what this process has.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Placement {
    /// The kernel's numbers.
    pub(crate) cpus: Option<CpuSet>,
    /// The memory policy.
    pub(crate) memory: Option<MemoryPolicy>,
}

impl Placement {
    /// Does something under this placement. A process that is forked meanwhile keeps it, and this
    /// process stays as it was. Masks and memory policies are a thread's, so a thread of its own
    /// does the work.
    ///
    /// # Errors
    /// The kernel refuses the placement, or what `work` fails with.
    pub(crate) fn around<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        if *self == Self::default() {
            return work();
        }
        thread::scope(|scope| {
            let taken = thread::Builder::new().spawn_scoped(scope, || {
                self.take()?;
                work()
            });
            let thread = taken.context("a thread with its placement")?;
            thread.join().expect("no thread panics")
        })
    }

    /// The calling thread's from now on.
    fn take(&self) -> Result<()> {
        if let Some(cpus) = &self.cpus {
            affinity::set(0, cpus).context("choosing its CPUs")?;
        }
        let policy = self.memory.as_ref();
        policy.map_or(Ok(()), set_memory_policy).context("choosing its memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_there_for_the_work_and_gone_after_it() {
        let before = affinity::get(0).expect("a mask");
        let one: CpuSet = before.iter().take(1).collect();
        let placement = Placement { cpus: Some(one.clone()), memory: None };
        let during = placement.around(|| Ok(affinity::get(0)?)).expect("its mask");
        assert_eq!(during, one);
        assert_eq!(affinity::get(0).expect("a mask"), before);
        let absent = Placement { cpus: Some([60_000].into_iter().collect()), memory: None };
        let error = absent.around(|| Ok(())).expect_err("no such CPU");
        assert!(format!("{error:#}").starts_with("choosing its CPUs: "), "{error:#}");
    }
}
