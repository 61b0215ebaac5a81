//! Optional features of the kernel for the placement of memory and threads.
//!
//! Each is recognised by its switch file, not by the kernel's version, because distributions
//! backport features. Only root sees files of debugfs.

use crate::parse::fields;
use crate::root::{self, Root};

/// Whether the kernel has a feature, and its setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The feature is on.
    On,
    /// The kernel has it, and it is off or not set up.
    Off,
    /// The kernel is built without it.
    Absent,
    /// The folder of its settings cannot be read.
    Unknown,
}

/// A feature of the kernel. The comments name the first upstream kernel with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Balancing by hint faults, `kernel.numa_balancing` 1 (3.8).
    Balancing,
    /// Promotion from slow memory, `kernel.numa_balancing` 2 (5.18).
    Promotion,
    /// Reclaim demotes pages to slow memory (5.15; with its switch 5.16).
    Demotion,
    /// The scheduler keeps a process's threads at one last-level cache (7.2).
    CacheAware,
    /// `MPOL_WEIGHTED_INTERLEAVE` (6.9).
    WeightedInterleave,
    /// Weights of interleaving from the firmware's bandwidths (6.16).
    AutomaticWeights,
    /// DAMON, steered from sysfs (5.18).
    Damon,
    /// Hot-page tracking for all sources of accesses (not merged by 7.3).
    HotPages,
    /// Bandwidth of processes by resctrl (4.12).
    Bandwidth,
    /// Assignable counters of resctrl, which are not silently taken away (6.18).
    AssignedBandwidth,
}

impl Feature {
    /// All features in the order of display.
    pub const ALL: [Self; 10] = [
        Self::Balancing,
        Self::Promotion,
        Self::Demotion,
        Self::CacheAware,
        Self::WeightedInterleave,
        Self::AutomaticWeights,
        Self::Damon,
        Self::HotPages,
        Self::Bandwidth,
        Self::AssignedBandwidth,
    ];
}

const WEIGHTS: &str = "kernel/mm/mempolicy/weighted_interleave";
const MONITORING: &str = "fs/resctrl/info/L3_MON";

/// State of a feature in this kernel.
#[must_use]
pub fn offer(root: &Root, feature: Feature) -> Offer {
    let here = |path: &str| root.in_sys(path).exists();
    let is = |there: bool, on: bool| match (there, on) {
        (false, _) => Offer::Absent,
        (true, true) => Offer::On,
        (true, false) => Offer::Off,
    };
    match feature {
        Feature::Balancing => balancing(root, 1, true),
        Feature::Promotion => {
            // Kernels without it refuse the value 2 and do not have the limit of its rate.
            let limit = "sys/kernel/numa_balancing_promote_rate_limit_MBps";
            balancing(root, 2, root.in_proc(limit).exists())
        }
        Feature::Demotion => switch(root, "kernel/mm/numa/demotion_enabled"),
        Feature::CacheAware => in_debugfs(root, "sched", "llc_balancing/enabled"),
        Feature::WeightedInterleave => is(here(WEIGHTS), true),
        Feature::AutomaticWeights => switch(root, &format!("{WEIGHTS}/auto")),
        Feature::Damon => {
            let running = root::list(&root.in_sys("kernel/mm/damon/admin/kdamonds"));
            let mut numbered = running.iter().flatten().filter(|name| name.parse::<u32>().is_ok());
            // Only root may read the state.
            let runs = |name: &String| {
                let state = format!("kernel/mm/damon/admin/kdamonds/{name}/state");
                text(root, &state).is_none_or(|state| state == "on")
            };
            is(here("kernel/mm/damon/admin"), numbered.any(runs))
        }
        Feature::HotPages => in_debugfs(root, "", "pghot"),
        // The mount point exists if kernel and processor have any resctrl function.
        Feature::Bandwidth if !here("fs/resctrl/info") => is(here("fs/resctrl"), false),
        Feature::Bandwidth => is(text(root, &format!("{MONITORING}/mon_features")).is_some(), true),
        Feature::AssignedBandwidth => {
            let mode = text(root, &format!("{MONITORING}/mbm_assign_mode"));
            let is_assigned = mode.as_ref().is_some_and(|mode| mode.contains("[mbm_event]"));
            is(mode.is_some_and(|mode| mode.contains("mbm_event")), is_assigned)
        }
    }
}

/// A bit of `kernel.numa_balancing` (Documentation/admin-guide/sysctl/kernel.rst).
fn balancing(root: &Root, bit: u64, is_there: bool) -> Offer {
    let mode = root::read_optional(&root.in_proc("sys/kernel/numa_balancing")).ok().flatten();
    match mode.and_then(|bytes| fields::single_number(&bytes).ok()) {
        Some(mode) if mode & bit != 0 => Offer::On,
        Some(_) if is_there => Offer::Off,
        _ => Offer::Absent,
    }
}

fn text(root: &Root, path: &str) -> Option<String> {
    let bytes = root::read_optional(&root.in_sys(path)).ok()??;
    Some(String::from_utf8_lossy(&bytes).trim().to_string())
}

fn switch(root: &Root, path: &str) -> Offer {
    match text(root, path).as_deref() {
        Some("true" | "1" | "Y" | "always") => Offer::On,
        Some(_) => Offer::Off,
        None => Offer::Absent,
    }
}

/// A switch beneath `folder` of debugfs.
fn in_debugfs(root: &Root, folder: &str, path: &str) -> Offer {
    let seen = root::list(&root.in_sys("kernel/debug")).unwrap_or_default();
    if seen.is_empty() {
        return Offer::Unknown;
    }
    let path = format!("kernel/debug/{folder}/{path}");
    match root.in_sys(&path).is_dir() {
        true => Offer::On,
        false => switch(root, &path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::kernel::tests::fixture;

    fn check(files: &[(&str, &str)], feature: Feature, expected: Offer) {
        let (_directory, root) = fixture(files);
        assert_eq!(offer(&root, feature), expected, "{feature:?} with {files:?}");
    }

    #[test]
    fn the_bits_of_the_balancing_are_told_apart() {
        let mode = |mode| [("proc/sys/kernel/numa_balancing", mode)];
        check(&mode("3\n"), Feature::Balancing, Offer::On);
        check(&mode("3\n"), Feature::Promotion, Offer::On);
        check(&mode("0\n"), Feature::Balancing, Offer::Off);
        check(&mode("1\n"), Feature::Promotion, Offer::Absent);
        let limit = ("proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", "65536\n");
        check(&[mode("1\n")[0], limit], Feature::Promotion, Offer::Off);
        check(&[], Feature::Balancing, Offer::Absent);
    }

    #[test]
    fn what_only_root_sees_is_unknown_to_others() {
        let knob = ("sys/kernel/debug/sched/llc_balancing/enabled", "1\n");
        check(&[knob], Feature::CacheAware, Offer::On);
        check(&[(knob.0, "0\n")], Feature::CacheAware, Offer::Off);
        check(&[("sys/kernel/debug/sched/debug", "")], Feature::CacheAware, Offer::Absent);
        check(&[("sys/kernel/debug/clk/x", "")], Feature::CacheAware, Offer::Absent);
        check(&[], Feature::CacheAware, Offer::Unknown);
        check(&[("sys/kernel/debug/pghot/stats", "")], Feature::HotPages, Offer::On);
    }

    #[test]
    fn damon_runs_if_one_of_its_threads_does() {
        let state = |state| [("sys/kernel/mm/damon/admin/kdamonds/0/state", state)];
        check(&state("on\n"), Feature::Damon, Offer::On);
        check(&state("off\n"), Feature::Damon, Offer::Off);
        let other = ("sys/kernel/mm/damon/admin/kdamonds/1/state", "on\n");
        check(&[state("off\n")[0], other], Feature::Damon, Offer::On);
        let none = ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n");
        check(&[none], Feature::Damon, Offer::Off);
        check(&[], Feature::Damon, Offer::Absent);
    }

    #[test]
    fn weights_and_bandwidth_are_known_by_their_files() {
        let weights = "sys/kernel/mm/mempolicy/weighted_interleave";
        check(&[(&format!("{weights}/node0"), "1")], Feature::WeightedInterleave, Offer::On);
        check(&[(&format!("{weights}/node0"), "1")], Feature::AutomaticWeights, Offer::Absent);
        check(&[(&format!("{weights}/auto"), "true\n")], Feature::AutomaticWeights, Offer::On);
        check(&[(&format!("{weights}/auto"), "false\n")], Feature::AutomaticWeights, Offer::Off);
        let mode = "sys/fs/resctrl/info/L3_MON/mbm_assign_mode";
        check(&[(mode, "[mbm_event]\ndefault\n")], Feature::AssignedBandwidth, Offer::On);
        check(&[(mode, "mbm_event\n[default]\n")], Feature::AssignedBandwidth, Offer::Off);
        check(&[(mode, "[default]\n")], Feature::AssignedBandwidth, Offer::Absent);
        let features = "sys/fs/resctrl/info/L3_MON/mon_features";
        check(&[(features, "mbm_total_bytes\n")], Feature::Bandwidth, Offer::On);
    }
}
