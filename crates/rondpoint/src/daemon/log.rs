//! The daemon's log. It goes to journald if systemd started the daemon, otherwise to stderr.

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
    // systemd sets this where stderr is the journal; a failure leaves stderr.
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
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
