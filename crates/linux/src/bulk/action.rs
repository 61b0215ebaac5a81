//! The step of a plan that moves a whole process's memory.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use rondpoint_core::Nanos;
use rondpoint_core::plan::{PageCounts, StepResult};

use super::tally::nanos;
use super::{Control, End, MAX_PASSES, Moved, Order, relocate};
use crate::LinuxError;
use crate::act::Identity;
use crate::freeze::{Still, budget};
use crate::ledger_file::LedgerFile;
use crate::root::Root;
use crate::syscall::pages::Reach;

/// Most workers. More wait for each other in the kernel.
const WORKERS: usize = 4;

/// The number of workers for this machine: its CPUs, at most [`WORKERS`].
#[must_use]
pub fn workers() -> NonZeroUsize {
    let cpus = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    cpus.min(NonZeroUsize::new(WORKERS).expect("it is not zero"))
}

/// Moves a process's memory along `ways`, the kernel's numbers of nodes. A process that must be
/// stopped for it is written into `ledger` before and stopped within its budget. `is_called` is
/// asked about twenty times a second whether the move is to end. Returns also the time for which
/// the process was stopped.
#[must_use]
pub fn step(
    root: &Root,
    process: Identity,
    ways: BTreeMap<u32, u32>,
    freeze: Option<&mut LedgerFile>,
    is_called: &mut dyn FnMut() -> bool,
) -> (StepResult, Nanos) {
    if !process.is_there(root) {
        return (StepResult::Gone, Nanos(0));
    }
    let begun = match freeze {
        Some(ledger) => Still::begin(root, process, budget(process), ledger),
        None => Ok(Still::default()),
    };
    let mut still = match begun {
        Ok(still) => still,
        Err(error) => return (refused(&error), Nanos(0)),
    };
    let stands = still.stood.means.is_some();
    let passes = if stands { 1 } else { MAX_PASSES };
    let order = Order { process, ways, reach: Reach::Own, workers: workers(), limit: None, passes };
    let control = Control::default();
    let moved = relocate(root, &order, &control, &mut || {
        still.look();
        if is_called() {
            control.stop();
        }
    });
    still.end();
    let result = moved.map_or_else(|error| refused(&error), |moved| result(&moved));
    (result, nanos(still.stood.frozen))
}

/// Moves a process's memory back along `ways`, for a restore. Pages that other processes have
/// mapped too stay and do not count as failed: a move of ours leaves them where they are.
#[must_use]
pub fn move_back(root: &Root, process: Identity, ways: BTreeMap<u32, u32>) -> StepResult {
    let order = Order {
        process,
        ways,
        reach: Reach::Own,
        workers: workers(),
        limit: None,
        passes: MAX_PASSES,
    };
    match relocate(root, &order, &Control::default(), &mut || {}) {
        Ok(moved) => without_shared(moved),
        Err(error) => refused(&error),
    }
}

fn without_shared(mut moved: Moved) -> StepResult {
    let failed = &mut moved.tally.counts.failed;
    *failed = failed.saturating_sub(moved.tally.shared);
    result(&moved)
}

fn refused(error: &LinuxError) -> StepResult {
    StepResult::Refused { errno: error.errno().unwrap_or(libc::EIO) }
}

/// The result of the plan's step.
fn result(moved: &Moved) -> StepResult {
    let mut counts: PageCounts = moved.tally.counts;
    match moved.end {
        End::Gone => StepResult::Gone,
        End::Refused { errno } if counts.moved == 0 => StepResult::Refused { errno },
        _ => {
            counts.failed += moved.tally.untried;
            StepResult::Pages(counts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::Tally;
    use crate::sleeper::Sleeper;

    /// A node that no machine has: the kernel refuses, and what stood still for it goes on.
    #[test]
    fn a_refusal_leaves_nothing_frozen() {
        let (target, root) = (Sleeper::start(), Root::live());
        let process = target.identity();
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = LedgerFile::create(&folder.path().join("ledgers"), &root).unwrap();
        let mut never = || false;
        let (result, frozen) =
            step(&root, process, [(0, 1000)].into(), Some(&mut ledger), &mut never);
        assert_eq!(result, StepResult::Refused { errno: libc::ENODEV });
        assert!(frozen > Nanos(0));
        assert!(!target.is_stopped());
        let earlier = Identity { started: Nanos(1), ..process };
        let gone = step(&root, earlier, [(0, 1000)].into(), Some(&mut ledger), &mut never);
        assert_eq!(gone, (StepResult::Gone, Nanos(0)), "another process of that number");
    }

    #[test]
    fn what_was_not_tried_has_failed_and_a_part_is_told_as_counts() {
        let counts = |moved, failed| PageCounts { moved, failed, ..PageCounts::default() };
        let told = |moved, end| {
            let tally = Tally { counts: counts(moved, 1), untried: 5, ..Tally::default() };
            result(&Moved { tally, end, ..Moved::default() })
        };
        assert_eq!(told(3, End::Complete), StepResult::Pages(counts(3, 6)));
        assert_eq!(told(3, End::Refused { errno: 1 }), StepResult::Pages(counts(3, 6)));
        assert_eq!(told(0, End::Refused { errno: 1 }), StepResult::Refused { errno: 1 });
        assert_eq!(told(3, End::Gone), StepResult::Gone);
    }

    #[test]
    fn on_the_way_back_pages_that_others_have_too_are_no_failure() {
        let counts = |failed| PageCounts { moved: 3, failed, ..PageCounts::default() };
        let tally = Tally { counts: counts(7), shared: 5, ..Tally::default() };
        let moved = Moved { tally, ..Moved::default() };
        assert_eq!(without_shared(moved), StepResult::Pages(counts(2)));
    }
}
