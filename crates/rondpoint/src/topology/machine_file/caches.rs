//! Converts the caches of sysfs into the form of a machine file.
//!
//! The file's format needs three levels, each at least as large as the level inside it, of whole
//! sets of 64-byte lines. Some firmware reports a reserved way, thousands of ways, or a last level
//! smaller than the second. Such numbers are adjusted and marked.

use rondpoint_linux::topology::Cache;
use rondpoint_machine::LINE_BYTES;
use rondpoint_machine::limits::{CACHE_BYTES_MAX, WAYS_MAX};

/// One level of the machine file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) bytes: u64,
    pub(super) ways: u32,
    /// A comment for the file.
    pub(super) remark: Option<String>,
}

// Assumed if sysfs has none: name, bytes, ways, latency in ns.
const LEVELS: [(&str, u64, u32, f64); 3] =
    [("l1", 32 << 10, 8, 2.0), ("l2", 512 << 10, 8, 6.0), ("llc", 8 << 20, 16, 20.0)];

/// Name, latency in ns and shape of the three levels.
pub(super) fn levels(caches: &[Cache]) -> impl Iterator<Item = (&'static str, f64, Level)> {
    let told = told(caches);
    // No level is smaller than the one inside it, and an assumed one not larger than the one
    // around it.
    let mut least = LINE_BYTES;
    (0..LEVELS.len()).map(move |index| {
        let (name, bytes, ways, latency) = LEVELS[index];
        let around = told[index + 1..].iter().flatten().map(|cache| cache.bytes).min();
        let assumed = bytes.min(around.unwrap_or(bytes));
        let level = level(told[index], assumed, ways, least);
        least = level.bytes;
        (name, latency, level)
    })
}

/// The told caches of the three levels. A second level that CPUs share is the last one where there
/// is no third: its sharing is what makes a cache domain.
fn told(caches: &[Cache]) -> [Option<&Cache>; 3] {
    let data = |level: u32| {
        caches.iter().find(|cache| cache.level == level && cache.kind != "Instruction")
    };
    let last = caches.iter().map(|cache| cache.level).max().filter(|level| *level > 2);
    match (data(2), last.and_then(data)) {
        (Some(second), None) if second.shared_by > 1 => [data(1), None, Some(second)],
        (second, last) => [data(1), second, last],
    }
}

fn level(cache: Option<&Cache>, assumed: u64, assumed_ways: u32, least: u64) -> Level {
    let bytes = cache.map_or(assumed, |cache| cache.bytes).clamp(least, CACHE_BYTES_MAX);
    let lines = bytes / LINE_BYTES;
    let wanted = cache.and_then(|cache| cache.ways).unwrap_or(assumed_ways);
    let ways = nearest_divisor(lines, wanted);
    let bytes = lines * LINE_BYTES;
    let remark = match cache {
        None => Some("assumed".to_string()),
        Some(cache) if cache.ways.is_some_and(|told| told != ways) || cache.bytes != bytes => {
            let ways = cache.ways.map_or(String::new(), |ways| format!(", {ways} ways"));
            Some(format!("adjusted: sysfs reports {} bytes{ways}", cache.bytes))
        }
        Some(Cache { ways: None, .. }) => Some("ways assumed".to_string()),
        Some(_) => None,
    };
    Level { bytes, ways, remark }
}

/// The number of ways nearest to `wanted` that divides the lines; the smaller one on a tie.
fn nearest_divisor(lines: u64, wanted: u32) -> u32 {
    let divides = |ways: &u32| lines.is_multiple_of(u64::from(*ways));
    (1..=WAYS_MAX).filter(divides).min_by_key(|ways| ways.abs_diff(wanted)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(level: u32, bytes: u64, ways: u32) -> Cache {
        let ways = (ways > 0).then_some(ways);
        Cache { level, kind: "Unified".into(), bytes, ways, shared_by: 1 }
    }

    fn check(caches: &[Cache], expected: [&str; 3]) {
        let shown = levels(caches).map(|(name, _, level)| {
            let Level { bytes, ways, remark } = level;
            let remark = remark.map_or(String::new(), |remark| format!(" # {remark}"));
            format!("{name} {bytes} {ways}{remark}")
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn caches_that_fit_are_taken_as_they_are() {
        check(
            &[cache(1, 49152, 12), cache(2, 1280 << 10, 20), cache(3, 24 << 20, 12)],
            ["l1 49152 12", "l2 1310720 20", "llc 25165824 12"],
        );
        check(&[], ["l1 32768 8 # assumed", "l2 524288 8 # assumed", "llc 8388608 16 # assumed"]);
    }

    #[test]
    fn ways_become_the_nearest_number_that_divides_the_lines() {
        check(
            &[cache(1, 64 << 10, 0), cache(2, 1000, 3), cache(3, 32 << 20, 15)],
            [
                "l1 65536 8 # ways assumed",
                "l2 65536 2 # adjusted: sysfs reports 1000 bytes, 3 ways",
                "llc 33554432 16 # adjusted: sysfs reports 33554432 bytes, 15 ways",
            ],
        );
        check(
            &[cache(3, 2 << 20, 32768)],
            [
                "l1 32768 8 # assumed",
                "l2 524288 8 # assumed",
                "llc 2097152 128 # adjusted: sysfs reports 2097152 bytes, 32768 ways",
            ],
        );
    }

    #[test]
    fn levels_never_shrink_outwards() {
        check(
            &[cache(1, 64 << 10, 4), cache(2, 2 << 20, 8), cache(3, 1 << 20, 16)],
            [
                "l1 65536 4",
                "l2 2097152 8",
                "llc 2097152 16 # adjusted: sysfs reports 1048576 bytes, 16 ways",
            ],
        );
        check(
            &[cache(1, 32 << 10, 8), cache(3, 256 << 10, 16)],
            ["l1 32768 8", "l2 262144 8 # assumed", "llc 262144 16"],
        );
        check(
            &[cache(2, 16 << 20, 16)],
            ["l1 32768 8 # assumed", "l2 16777216 16", "llc 16777216 16 # assumed"],
        );
        let shared = Cache { shared_by: 4, ..cache(2, 16 << 20, 16) };
        check(&[shared], ["l1 32768 8 # assumed", "l2 524288 8 # assumed", "llc 16777216 16"]);
        check(
            &[cache(4, u64::MAX, 0)],
            [
                "l1 32768 8 # assumed",
                "l2 524288 8 # assumed",
                "llc 4294967296 16 # adjusted: sysfs reports 18446744073709551615 bytes",
            ],
        );
    }
}
