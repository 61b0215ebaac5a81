//! What a process has mapped that others may have mapped too: by its `maps`, read rarely.

use std::path::Path;
use std::time::{Duration, Instant};

use rondpoint_core::observation::SharedMapping;

use super::tasks::read;
use crate::LinuxError;
use crate::parse::maps;

/// The next reading waits so many times as long as the last one took: two thousandths of the time.
/// One takes 0.1 ms for some hundred mappings (inferred from `numa_maps`, which also walks the
/// pages).
const REST: u32 = 500;
/// Programs map what they share when they start, but one after the other.
const INTERVAL: Duration = Duration::from_millis(250);
/// The readings of a process become rarer, each interval twice the one before, up to this.
const LONGEST: Duration = Duration::from_secs(16);

/// When to read again.
#[derive(Debug, Default)]
pub(super) struct Shared {
    next: Option<Instant>,
    interval: Option<Duration>,
}

impl Shared {
    /// The mappings; `None` where the last answer still has to do. What may not be read is taken to
    /// be nobody else's.
    pub(super) fn read(&mut self, path: &Path) -> Result<Option<Vec<SharedMapping>>, LinuxError> {
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return Ok(None);
        }
        let found = match read(path, maps::parse_shared) {
            Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)) => None,
            other => other?,
        };
        let interval = self.interval.map_or(INTERVAL, |last| (2 * last).min(LONGEST));
        self.interval = Some(interval);
        self.next = Some(begin + (begin.elapsed() * REST).max(interval));
        Ok(Some(found.unwrap_or_default()))
    }
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
}
