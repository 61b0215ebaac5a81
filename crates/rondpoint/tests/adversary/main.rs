//! An adversary of the safety contract. System calls of the real manager fail, are interrupted,
//! do a part or come late by chance. Its clock jumps, and it is killed at any call. The program
//! goes on unharmed, its status is passed on, its threads have their masks again, and no ledger is
//! left.
//!
//! `RONDPOINT_RUNS=N` makes N runs of each kind, and `RONDPOINT_SEED=N` begins with another seed.
//! `RONDPOINT_SECONDS=N` begins none later. A failure prints its seed first; that seed
//! with one run makes it again. Runs side by side need a PID namespace and a `/run` each. In the
//! lab (`./x lab adversary`) the settings are words, and the program is one whose pages are moved.

#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod x86_64;

#[cfg(target_arch = "x86_64")]
use x86_64::*;

#[cfg(target_arch = "x86_64")]
fn main() -> std::process::ExitCode {
    x86_64::main()
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("not tried: the tracer of system calls knows the registers of x86-64 only");
}
