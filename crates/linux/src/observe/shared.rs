//! Mappings of a process that other processes may share, from its `maps`, which is read rarely.

use std::path::Path;
use std::time::{Duration, Instant};

use rondpoint_core::observation::SharedMapping;

use super::{REST, unless_denied};
use crate::LinuxError;
use crate::lines::Lines;
use crate::parse::maps;

/// First time between two readings of a process (our choice). Programs map shared memory in their
/// first moments, piece by piece. A reading takes 0.1 ms for some hundred mappings (inferred from
/// `numa_maps`, which also walks the pages).
const INTERVAL: Duration = Duration::from_millis(250);
/// Longest time between two readings (our choice). Each interval is twice the one before.
const LONGEST: Duration = Duration::from_secs(16);

/// Most shared mappings of a process that are followed: 2.5 MB.
const MAX_MAPPINGS: usize = 1 << 16;

/// Schedule of the readings of a process's shared mappings.
#[derive(Debug, Default)]
pub(super) struct Shared {
    next: Option<Instant>,
    interval: Option<Duration>,
}

impl Shared {
    /// The shared mappings; `None` if no reading is due. A file that may not be read gives none.
    pub(super) fn read(&mut self, path: &Path) -> Result<Option<Vec<SharedMapping>>, LinuxError> {
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return Ok(None);
        }
        let found = unless_denied(mappings(path))?.flatten();
        let interval = self.interval.map_or(INTERVAL, |last| (2 * last).min(LONGEST));
        self.interval = Some(interval);
        self.next = Some(begin + (begin.elapsed() * REST).max(interval));
        Ok(Some(found.unwrap_or_default()))
    }
}

/// The shared mappings in `maps`, adjacent parts of one object merged; `None` if the process has
/// ended. Beyond [`MAX_MAPPINGS`] the rest is left out, so that its shared pages are not moved.
fn mappings(path: &Path) -> Result<Option<Vec<SharedMapping>>, LinuxError> {
    let Some(mut lines) = Lines::open(path)? else { return Ok(None) };
    let mut found: Vec<SharedMapping> = Vec::new();
    while let Some((number, line)) = lines.next_line()? {
        let parsed = maps::shared_of(number, line).map_err(|source| lines.format(source))?;
        let Some(mapping) = parsed else { continue };
        let is_full = found.len() == MAX_MAPPINGS;
        match found.last_mut() {
            Some(last) if continues(last, &mapping) => last.end = mapping.end,
            _ if is_full => break,
            _ => found.push(mapping),
        }
    }
    Ok(Some(found))
}

/// Whether `next` maps the part of the same object after `last`, at the address after it.
fn continues(last: &SharedMapping, next: &SharedMapping) -> bool {
    last.object == next.object
        && last.end == next.start
        && last.offset.checked_add(last.end - last.start) == Some(next.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_look_at_once_reads_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maps");
        std::fs::write(&path, "1000-2000 rw-s 00000000 00:19 42 /dev/shm/a\n").unwrap();
        let mut shared = Shared::default();
        assert_eq!(shared.read(&path).unwrap().unwrap().len(), 1);
        assert_eq!(shared.read(&path).unwrap(), None);
        assert_eq!(Shared::default().read(&folder.path().join("gone")).unwrap(), Some(vec![]));
    }

    #[test]
    fn adjacent_parts_of_one_object_are_one_mapping_and_the_list_is_bounded() {
        use std::fmt::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maps");
        let text = "1000-2000 rw-s 00000000 00:19 42 /dev/shm/a\n2000-3000 r--s 00001000 00:19 42 /dev/shm/a\n\
            3000-4000 rw-s 00009000 00:19 42 /dev/shm/a\n4000-5000 rw-s 0000a000 00:19 43 /dev/shm/b\n";
        std::fs::write(&path, text).unwrap();
        let ends: Vec<u64> = mappings(&path).unwrap().unwrap().iter().map(|one| one.end).collect();
        assert_eq!(ends, [0x3000, 0x4000, 0x5000]);
        let mut text = String::new();
        for index in 1..=MAX_MAPPINGS as u64 + 9 {
            let start = index * 8192;
            let _ = writeln!(
                text,
                "{start:x}-{:x} rw-s 00000000 fd:00 {index} /data/{index}",
                start + 4096
            );
        }
        std::fs::write(&path, text).unwrap();
        assert_eq!(mappings(&path).unwrap().unwrap().len(), MAX_MAPPINGS);
    }
}
