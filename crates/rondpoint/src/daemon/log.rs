//! The daemon's log. It goes to journald if stderr is the journal, otherwise to stderr.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::config::Level;

/// Begins to log. Fields go to journald as fields (`F_PID=`, `F_POLICY=` …).
pub(super) fn begin(level: Level) {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    let registry = tracing_subscriber::registry().with(level);
    let told = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let is_journal = is_stream(&told, std::io::stderr().as_fd());
    // A failure leaves stderr.
    let journal = is_journal.then(tracing_journald::layer).and_then(Result::ok);
    let begun = match journal {
        Some(journal) => registry.with(journal).try_init(),
        None => {
            let stderr = tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                .with_ansi(false)
                .with_target(false);
            registry.with(stderr).try_init()
        }
    };
    // A log exists already: only in tests.
    drop(begun);
}

/// Whether `JOURNAL_STREAM` names this file by its device and inode (systemd.exec(5)). Programs
/// inherit the variable, also where their stderr is another file than the service's.
fn is_stream(told: &str, file: BorrowedFd<'_>) -> bool {
    let Some((Ok(device), Ok(inode))) =
        told.split_once(':').map(|(device, inode)| (device.parse::<u64>(), inode.parse::<u64>()))
    else {
        return false;
    };
    let found = file.try_clone_to_owned().and_then(|copy| File::from(copy).metadata());
    found.is_ok_and(|found| (found.dev(), found.ino()) == (device, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_another_file_is_not_the_journal() {
        let file = tempfile::tempfile().expect("a file");
        let found = file.metadata().expect("it is open");
        let (device, inode) = (found.dev(), found.ino());
        assert!(is_stream(&format!("{device}:{inode}"), file.as_fd()));
        for told in [
            String::new(),
            "9:18446744073709551615".to_string(),
            format!("{device}:{}", inode + 1),
            format!("{}:{inode}", device + 1),
            format!("{device}"),
            format!("{device}:{inode}:"),
            "journal:yes".to_string(),
        ] {
            assert!(!is_stream(&told, file.as_fd()), "{told}");
        }
    }
}
