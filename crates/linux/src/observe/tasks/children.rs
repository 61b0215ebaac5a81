//! Finds the children of a process: from the kernel's lists, or else from the parent of each
//! process of the machine.
//!
//! Kernels without `CONFIG_PROC_CHILDREN` have no lists. Fork records show most births there, but
//! not those before sampling began or while it is off.

use std::collections::BTreeMap;

use rondpoint_core::{Pid, Tid};

use super::read;
use crate::LinuxError;
use crate::parse::{fields, stat};
use crate::root::{self, Root};

/// Children of every process at the last reading, on kernels without lists of children.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// The newest task number at that time. If it has not changed, no task has started.
    newest: Option<Vec<u8>>,
    by_parent: BTreeMap<Pid, Vec<Pid>>,
}

impl Children {
    /// Children of a process with these threads.
    ///
    /// # Errors
    /// A file of `/proc` cannot be read or is malformed.
    pub(super) fn of(
        &mut self,
        root: &Root,
        pid: Pid,
        threads: &[Tid],
    ) -> Result<Vec<Pid>, LinuxError> {
        let mut children = Vec::new();
        let mut has_list = false;
        for tid in threads {
            let path = root.in_proc(format!("{pid}/task/{tid}/children"));
            let Some(bytes) = root::read_optional(&path)? else { continue };
            has_list = true;
            let numbers = fields::words(&bytes).filter_map(fields::decimal);
            children.extend(numbers.filter_map(|pid| u32::try_from(pid).ok().map(Pid)));
        }
        if !has_list {
            self.read_parents(root)?;
            children.extend(self.by_parent.get(&pid).into_iter().flatten());
        }
        Ok(children)
    }

    /// Reads the parent of every process, unless no task has started since the last time.
    fn read_parents(&mut self, root: &Root) -> Result<(), LinuxError> {
        // The newest task number is the fifth word of `/proc/loadavg` (proc_loadavg(5)).
        let load = root::read_optional(&root.in_proc("loadavg"))?.unwrap_or_default();
        let newest = fields::words(&load).nth(4).map(<[u8]>::to_vec);
        if newest.is_some() && newest == self.newest {
            return Ok(());
        }
        self.newest = newest;
        self.by_parent.clear();
        let names = root::list(&root.proc)?;
        for pid in names.iter().filter_map(|name| name.parse().ok().map(Pid)) {
            if let Some(found) = read(&root.in_proc(format!("{pid}/stat")), stat::parse)? {
                self.by_parent.entry(Pid(found.parent)).or_default().push(pid);
            }
        }
        Ok(())
    }
}
