//! The NUMA part of `/proc/PID/task/TID/sched` (kernel/sched/debug.c, `proc_sched_show_task`).
//!
//! The kernel writes it when NUMA balancing is compiled in; the fault counts are zero until hint
//! faults have been taken. They decay by half with each scan, so they are weights, not counts.

use super::ParseError;
use super::fields::{decimal, lines, trim, words};

/// Fault weights of one thread on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeFaults {
    /// Node of the pages.
    pub node: u32,
    /// Weight of faults on pages that only this thread uses.
    pub private: u64,
    /// Weight of faults on pages that other threads use too.
    pub shared: u64,
}

/// State of NUMA balancing for a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SchedNuma {
    /// Value of `numa_preferred_nid`; `None` for -1 or without this line.
    pub preferred_node: Option<u32>,
    /// Value of `total_numa_faults`.
    pub total_faults: u64,
    /// Value of `numa_pages_migrated`.
    pub pages_migrated: u64,
    /// Fault weights by node, in the order of the file.
    pub faults: Vec<NodeFaults>,
}

/// Parses the file.
///
/// # Errors
/// A `numa_faults` line with values that are no numbers.
pub fn parse(bytes: &[u8]) -> Result<SchedNuma, ParseError> {
    let mut numa = SchedNuma::default();
    for (number, line) in lines(bytes) {
        if let Some(rest) = line.strip_prefix(b"numa_faults ") {
            numa.faults.push(node_faults(number, line, rest)?);
            continue;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let value = decimal(trim(&line[colon + 1..]));
        match trim(&line[..colon]) {
            b"numa_preferred_nid" => {
                numa.preferred_node = value.and_then(|node| node.try_into().ok());
            }
            b"total_numa_faults" => numa.total_faults = value.unwrap_or(0),
            b"numa_pages_migrated" => numa.pages_migrated = value.unwrap_or(0),
            _ => {}
        }
    }
    Ok(numa)
}

fn node_faults(number: usize, line: &[u8], rest: &[u8]) -> Result<NodeFaults, ParseError> {
    let mut faults = NodeFaults::default();
    for word in words(rest) {
        let fail = || ParseError::new(number, "numa_faults NAME=NUMBER …", line);
        let at = word.iter().position(|&byte| byte == b'=').ok_or_else(fail)?;
        let value = decimal(&word[at + 1..]).ok_or_else(fail)?;
        match &word[..at] {
            b"node" => faults.node = value.try_into().map_err(|_| fail())?,
            b"task_private" => faults.private = value,
            b"task_shared" => faults.shared = value,
            _ => {}
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_per_node_are_read() {
        let text = b"cat (1, #threads: 1)\n---\nnuma_preferred_nid   :  1\n\
            total_numa_faults : 40\ncurrent_node=0, numa_group_id=0\n\
            numa_faults node=0 task_private=1 task_shared=2 group_private=0 group_shared=0\n\
            numa_faults node=1 task_private=30 task_shared=7 group_private=0 group_shared=0\n";
        let numa = parse(text).unwrap();
        assert_eq!((numa.preferred_node, numa.total_faults), (Some(1), 40));
        assert_eq!(numa.faults[1], NodeFaults { node: 1, private: 30, shared: 7 });
    }

    #[test]
    fn no_preference_is_none_and_a_bad_count_is_named() {
        assert_eq!(parse(b"numa_preferred_nid : -1\n").unwrap().preferred_node, None);
        assert!(parse(b"x\nnuma_faults node=a\n").unwrap_err().to_string().starts_with("line 2"));
    }
}
