//! `--dry-run`: estimates whether copies would pay, from the files that the program opened and the
//! cost of copies.

use std::collections::BTreeMap;

use rondpoint_core::cost::Interval;

use super::Opened;
use crate::run::files_read::{CopiesWorth, Fullest};

/// Gain of speed below which copies are said to change little (our choice, as for other advice).
const TOLD_GAIN: f64 = 0.05;

/// What is known before the program runs.
#[derive(Debug)]
pub(super) struct Outlook {
    /// Speed of filling all copies together.
    pub(super) fill_bytes_per_s: f64,
    /// Last-level cache, bytes; 0 where unknown.
    pub(super) cache_bytes: u64,
    /// Why the copies do not fit.
    pub(super) refusal: Option<String>,
}

impl Outlook {
    /// One line about a file of `length` bytes.
    pub(super) fn say(
        &self,
        length: u64,
        nodes: &[u32],
        by_node: &BTreeMap<u32, u64>,
        opened: &Opened,
        worth: Option<CopiesWorth>,
    ) -> String {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let count = nodes.len();
        let price = format!(
            "{count} copies would take {} MiB and {:.1} s to make",
            mib(length) * count as u64,
            length as f64 * count as f64 / self.fill_bytes_per_s
        );
        let verdict = match by_node.iter().next() {
            None => "no process opened it by a function that can be replaced".to_owned(),
            _ if self.refusal.is_some() => {
                format!("copies do not fit: {}", self.refusal.as_deref().unwrap_or_default())
            }
            _ if worth.is_none() && length <= self.cache_bytes => format!(
                "it fits the last-level cache ({} MiB), so copies would change little",
                mib(self.cache_bytes)
            ),
            Some((node, _)) if by_node.len() == 1 && opened.roaming.is_empty() => format!(
                "only processes on node {node} opened it: one copy there is enough \
                 (numactl --membind={node})"
            ),
            _ if by_node.len() == 1 => "processes that may run on several nodes opened it: bind \
                 them to one node, or give each thread its copy with the library rondpoint-replica"
                .to_owned(),
            _ => {
                let nodes = by_node.len();
                let local = worth.map_or_else(
                    || "copies would make their reads of it local".to_owned(),
                    |worth| in_words(&worth),
                );
                format!(
                    "processes on {nodes} nodes opened it: {local}. Not computed: what binding all \
                     of them to one node would give instead"
                )
            }
        };
        format!("{price}; {verdict}. {}", in_use(worth))
    }
}

/// The memory that was used most, and what was not measured.
fn in_use(worth: Option<CopiesWorth>) -> String {
    const BANDWIDTH: &str = "how much of its bandwidth the node that holds the file gives";
    match worth {
        None => format!(
            "Not measured: how long the program waits for this file's memory, and {BANDWIDTH}"
        ),
        Some(CopiesWorth { fullest: None, .. }) => format!("Not measured: {BANDWIDTH}"),
        Some(CopiesWorth { fullest: Some(fullest), .. }) => {
            let Fullest { node, bytes_per_s, used } = fullest;
            let used = match used {
                Some(used) => format!("{:.0} % of its bandwidth", 100.0 * used),
                None => "of an unknown bandwidth".to_owned(),
            };
            let rate = bytes_per_s / 1e9;
            format!("The memory of node {node} was used most: {rate:.1} GB/s, {used}")
        }
    }
}

/// What copies of all files that were named are worth.
fn in_words(worth: &CopiesWorth) -> String {
    let CopiesWorth { share, gain: Interval { least, likely, .. }, .. } = worth;
    let seen = format!("{:.0} % of the accesses to memory were to such files", 100.0 * share);
    if *least < TOLD_GAIN {
        return format!(
            "{seen}, and copies would change little: {:+.0} % of speed by the cost model, at least \
             {:+.0} %",
            100.0 * likely,
            100.0 * least
        );
    }
    format!(
        "{seen}. By the cost model the run would have been {:.0} % faster with copies, at least \
         {:.0} %",
        100.0 * likely,
        100.0 * least
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn check(length: u64, by_node: &[(u32, u64)], roaming: &[u32], refusal: bool, words: &str) {
        let refusal = refusal.then(|| "node 1 has 1 MiB".to_owned());
        let outlook =
            Outlook { fill_bytes_per_s: 100.0 * MIB as f64, cache_bytes: 32 * MIB, refusal };
        let opened = Opened { roaming: roaming.to_vec(), ..Opened::default() };
        let by_node = by_node.iter().copied().collect();
        let line = outlook.say(length, &[0, 1], &by_node, &opened, None);
        assert!(line.contains(words), "{line}");
    }

    #[test]
    fn the_price_is_memory_and_time() {
        check(500 * MIB, &[(0, 1)], &[], false, "2 copies would take 1000 MiB and 10.0 s");
    }

    #[test]
    fn each_case_has_its_advice() {
        let big = 500 * MIB;
        check(big, &[], &[], false, "no process opened it");
        check(big, &[(0, 1), (1, 1)], &[], true, "do not fit: node 1 has 1 MiB");
        check(20 * MIB, &[(0, 1), (1, 1)], &[], false, "fits the last-level cache (32 MiB)");
        check(big, &[(1, 3)], &[], false, "numactl --membind=1");
        check(big, &[(1, 3)], &[7], false, "the library rondpoint-replica");
        check(big, &[(0, 1), (1, 1)], &[], false, "processes on 2 nodes");
    }

    #[test]
    fn what_is_not_known_is_said() {
        let big = 500 * MIB;
        let both = &[(0, 1), (1, 1)];
        check(
            big,
            both,
            &[],
            false,
            "how much of its bandwidth the node that holds the file gives",
        );
        check(big, both, &[], false, "Not computed: what binding all of them to one node");
        let gain = Interval { least: 0.1, likely: 0.2, most: 0.3 };
        let told = |fullest| in_use(Some(CopiesWorth { share: 0.9, gain, fullest }));
        assert!(told(None).starts_with("Not measured: how much of its bandwidth"));
        let fullest = Fullest { node: 2, bytes_per_s: 1e9, used: None };
        assert!(told(Some(fullest)).contains("1.0 GB/s, of an unknown bandwidth"));
    }

    #[test]
    fn what_samples_tell_goes_before_what_the_caches_size_lets_expect() {
        let say = |share, least| {
            let outlook = Outlook { fill_bytes_per_s: 1e9, cache_bytes: 32 * MIB, refusal: None };
            let gain = Interval { least, likely: least + 0.1, most: least + 0.2 };
            let fullest = Some(Fullest { node: 0, bytes_per_s: 12.5e9, used: Some(0.8) });
            let worth = Some(CopiesWorth { share, gain, fullest });
            let by_node = [(0, 1), (1, 1)].into();
            outlook.say(16 * MIB, &[0, 1], &by_node, &Opened::default(), worth)
        };
        let won = say(0.9, 0.3);
        assert!(won.contains("90 % of the accesses") && won.contains("at least 30 %"), "{won}");
        assert!(!won.contains("last-level cache") && !won.contains("Not measured"), "{won}");
        assert!(won.contains("node 0 was used most: 12.5 GB/s, 80 % of its bandwidth"), "{won}");
        let little = say(0.02, -0.05);
        assert!(little.contains("would change little: +5 % of speed"), "{little}");
    }
}
