//! A failure of ours ends neither a program of ours nor its exit status.

use anyhow::{Result, anyhow};

use super::{Program, status};
use crate::replay::caught;
use crate::terminal;

/// Names the place of a panic, in tests.
const SWITCH: &str = "RONDPOINT_PANIC";

/// Does the work; a panic is an error of it.
///
/// # Errors
/// The work's, or its panic.
pub(crate) fn survived<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work)
        .unwrap_or_else(|panic| Err(anyhow!("a fault of rondpoint: {}", panic.replace('\n', " "))))
}

/// Panics in a debug build whose environment names this place, so that tests see what outlives it.
pub(crate) fn panic_if_told(place: &str) {
    if cfg!(debug_assertions) && std::env::var(SWITCH).is_ok_and(|told| told == place) {
        panic!("{SWITCH}={place}");
    }
}

impl Program {
    /// Starts a program of ours and does everything up to its exit status, which is the result.
    ///
    /// If the work fails or panics after the start, that is told. Then `put_back` undoes the
    /// changes, and the program is waited for: no other process would pass on its status.
    ///
    /// # Errors
    /// The work failed before the start, or the program's end cannot be read.
    pub(crate) fn see_out(
        &self,
        work: impl FnOnce() -> Result<u8>,
        put_back: impl FnOnce() -> Result<()>,
    ) -> Result<u8> {
        let error = match survived(work) {
            Err(error) if self.has_begun.get() => error,
            result => return result,
        };
        let rest = if self.end.get().is_some() { "" } else { "; the program goes on" };
        terminal::say(&format!("rondpoint: {}{rest}\n", terminal::told(&error)));
        if let Err(error) = survived(put_back) {
            terminal::say(&format!("rondpoint: {}\n", terminal::told(&error)));
        }
        self.wait_for_end();
        self.end()?.map(status).ok_or(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_while_managing_is_told_and_ends_nothing_else() {
        let told = survived(|| -> Result<()> { panic!("no node {}", 9) }).unwrap_err().to_string();
        assert!(
            told.starts_with("a fault of rondpoint: ") && told.ends_with(" no node 9"),
            "{told}"
        );
        assert!(!told.contains('\n'), "{told}");
        assert_eq!(survived(|| Ok(7)).unwrap(), 7);
    }
}
