//! Keeps the target frozen while its memory moves, within the time limit.

use std::time::Duration;

use super::{Freeze, Frozen, Means, freeze};
use crate::LinuxError;
use crate::act::Identity;
use crate::ledger_file::LedgerFile;
use crate::root::Root;
use crate::syscall::time::{monotonic_ns, since_boot_ns};

/// AsymSched's budget: share of a process's run time that migration may cost (ALGORITHMS 3.5).
const BUDGET: f64 = 0.05;
/// Least budget, for a young process (our choice).
const LEAST: Duration = Duration::from_secs(1);

/// Report on a stop of a target.
#[derive(Debug, Default)]
pub struct Stood {
    /// The means by which it was stopped; `None` if it was not.
    pub means: Option<Means>,
    /// Time for which it was stopped.
    pub frozen: Duration,
    /// Why it was resumed early, or not stopped.
    pub note: Option<String>,
    /// Whether it could not be resumed. Its guardian or a restore may still do that.
    pub is_left: bool,
}

/// A target that is stopped, or was.
#[derive(Debug, Default)]
pub struct Still {
    held: Option<Frozen>,
    limit: Duration,
    /// Report on the stop.
    pub stood: Stood,
}

impl Still {
    /// Stops the target, for `limit` at most.
    ///
    /// # Errors
    /// As [`freeze`].
    pub fn begin(
        root: &Root,
        process: Identity,
        limit: Duration,
        ledger: &mut LedgerFile,
    ) -> Result<Self, LinuxError> {
        let still = Self { limit, ..Self::default() };
        Ok(match freeze(root, process, limit, ledger)? {
            Freeze::Frozen(held) => {
                let stood = Stood { means: Some(held.means()), ..Stood::default() };
                Self { held: Some(held), stood, ..still }
            }
            Freeze::AlreadyStopped => {
                let note = Some("it was stopped already, and stays so".to_string());
                Self { stood: Stood { note, ..Stood::default() }, ..still }
            }
            Freeze::Gone => still,
        })
    }

    /// Resumes the target when its time is over, or when no guardian would resume it.
    pub fn look(&mut self) {
        let Some(held) = &self.held else { return };
        let why = if !held.is_guarded() {
            "its guardian has ended".to_string()
        } else if held.elapsed() >= self.limit {
            format!("the limit of {:.1} s", self.limit.as_secs_f64())
        } else {
            return;
        };
        self.stood.note = Some(format!("it went on before the end: {why}"));
        self.end();
    }

    /// Resumes the target.
    pub fn end(&mut self) {
        let Some(held) = self.held.take() else { return };
        let elapsed = held.elapsed();
        match held.thaw() {
            Ok(elapsed) => self.stood.frozen = elapsed,
            Err(error) => {
                (self.stood.frozen, self.stood.is_left) = (elapsed, true);
                self.stood.note = Some(format!("letting it go on: {error}"));
            }
        }
    }
}

/// Longest time for which a process may be stopped, unless its user sets another.
#[must_use]
pub fn budget(process: Identity) -> Duration {
    budget_at(process, since_boot_ns(), monotonic_ns())
}

/// `awake_ns` is the time since boot without suspension. No process has run for longer.
fn budget_at(process: Identity, boot_ns: u64, awake_ns: u64) -> Duration {
    let age = Duration::from_nanos(boot_ns.saturating_sub(process.started.0).min(awake_ns));
    age.mul_f64(BUDGET).max(LEAST)
}

#[cfg(test)]
mod tests {
    use rondpoint_core::{Nanos, Pid};

    use super::*;
    use crate::sleeper::Sleeper;

    /// With what the ledger says in the end: was the target said to go on?
    fn begin(target: &Sleeper, limit: Duration) -> (Still, impl FnOnce() -> bool) {
        let folder = tempfile::tempdir().unwrap();
        let ledgers = folder.path().join("ledgers");
        let mut ledger = LedgerFile::create(&ledgers, &Root::live()).unwrap();
        let still = Still::begin(&Root::live(), target.identity(), limit, &mut ledger).unwrap();
        let path = ledger.path().to_path_buf();
        let said = move || {
            let lines = std::fs::read_to_string(path).unwrap();
            drop(folder);
            lines.contains("\"entry\":\"freeze\"") && lines.contains("\"entry\":\"thaw\"")
        };
        (still, said)
    }

    #[test]
    fn the_target_goes_on_when_its_time_is_over() {
        let target = Sleeper::start();
        let (mut still, said) = begin(&target, Duration::ZERO);
        assert!(still.held.is_some() && still.stood.means.is_some());
        still.look();
        assert!(still.held.is_none() && still.stood.frozen > Duration::ZERO && said());
        assert_eq!(
            still.stood.note.as_deref(),
            Some("it went on before the end: the limit of 0.0 s")
        );
    }

    #[test]
    fn the_target_goes_on_when_nobody_guards_it_any_more() {
        let target = Sleeper::start();
        let (mut still, said) = begin(&target, LEAST * 3600);
        still.look();
        let guardian = still.held.as_ref().and_then(Frozen::guardian).unwrap();
        crate::syscall::process::kill(guardian, 9).unwrap();
        while still.held.is_some() {
            still.look();
        }
        let note = still.stood.note.unwrap();
        assert_eq!(note, "it went on before the end: its guardian has ended");
        assert!(said());
    }

    #[test]
    fn what_cannot_be_written_down_is_not_stopped() {
        let target = Sleeper::start();
        let mut ledger = LedgerFile::full();
        let error = Still::begin(&Root::live(), target.identity(), LEAST, &mut ledger).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOSPC), "{error}");
        assert!(!target.is_stopped());
    }

    #[test]
    fn an_old_process_may_be_stopped_for_longer() {
        let process = |started_s| Identity { pid: Pid(1), started: Nanos::from_secs(started_s) };
        let hour = Duration::from_secs(3600);
        let at = |boot: Duration, awake: Duration| {
            let (boot, awake) = (boot.as_nanos() as u64, awake.as_nanos() as u64);
            (budget_at(process(3600), boot, awake), budget_at(process(7200), boot, awake))
        };
        assert_eq!(at(2 * hour, 2 * hour), (hour.mul_f64(BUDGET), LEAST));
        assert_eq!(at(100 * hour, 2 * hour).0, (2 * hour).mul_f64(BUDGET), "it was suspended");
        assert_eq!(at(Duration::ZERO, Duration::ZERO), (LEAST, LEAST));
        assert!(budget(process(0)) >= LEAST);
    }
}
