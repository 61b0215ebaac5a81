//! Masks of real threads come back, whatever happens to the manager: it is killed at every step of
//! its plans.
//!
//! This program is also the managed one ([`target`]) and the manager that is killed ([`stepping`]).
//! So it has a `main` of its own. What puts the masks back is the `rondpoint` that users have.

mod cpusets;
#[path = "../harness/mod.rs"]
mod harness;
mod judged;
mod killed;
mod living;
#[path = "../harness/patience.rs"]
mod patience;
#[path = "../harness/restore.rs"]
mod restore;
mod stepping;
mod target;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["as-target"] => target::main(),
        ["as-manager", pid] => stepping::main(pid.parse().expect("a process number")),
        words => {
            let tests = [killed::TESTS, living::TESTS, judged::TESTS, cpusets::TESTS].concat();
            return harness::run(&tests, words);
        }
    }
    ExitCode::SUCCESS
}
