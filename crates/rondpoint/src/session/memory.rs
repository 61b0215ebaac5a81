//! Whether this process may have the memory that managing needs. A manager without memory would end
//! while its program runs. So it raises its limits, or refuses to begin.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::syscall::limits::{Limit, raise};

/// Stack as most systems allow it. A release build of `run` overflows 64 KiB and fits into 128 KiB.
const STACK: u64 = 8 << 20;
const LEAST_STACK: u64 = 1 << 20;
/// Address space for a manager of thousands of threads, with its rings of samples.
const HEAP: u64 = 1 << 30;
/// A release build needs 16 MB of address space to manage one process.
const LEAST_HEAP: u64 = 64 << 20;

/// # Errors
/// The stack is too small and may not be larger.
pub(crate) fn has_stack() -> Result<()> {
    insist(Limit::Stack, "stack", "ulimit -s", STACK, LEAST_STACK)
}

/// # Errors
/// There is too little memory, and there may not be more.
pub(crate) fn has_heap() -> Result<()> {
    insist(Limit::AddressSpace, "address space", "ulimit -v", HEAP, LEAST_HEAP)?;
    insist(Limit::Data, "private memory", "ulimit -d", HEAP, LEAST_HEAP)
}

/// Runs a command that needs more stack than this thread may have, in a thread that has it.
///
/// Only for commands without signals and children of their own: both belong to the first thread.
///
/// # Errors
/// There is no memory for such a thread.
pub(crate) fn with_stack(command: fn() -> ExitCode) -> Result<ExitCode> {
    let thread = std::thread::Builder::new().stack_size(LEAST_STACK as usize);
    let thread = thread.spawn(command).context("a thread with more stack")?;
    // A panic has been told already.
    Ok(thread.join().unwrap_or(ExitCode::FAILURE))
}

fn insist(limit: Limit, what: &str, command: &str, wanted: u64, least: u64) -> Result<()> {
    let allowed = raise(limit, wanted).with_context(|| format!("{command}: reading the limit"))?;
    if allowed < least {
        bail!(
            "the limit of {what} is {} KiB ({command}); expected at least {} KiB. Nothing was started",
            allowed >> 10,
            least >> 10
        );
    }
    Ok(())
}
