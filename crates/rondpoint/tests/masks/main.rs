//! Masks of real threads come back, whatever happens to the manager: it is killed at every step of
//! its plans.
//!
//! This program is also the one that is managed ([`target`]) and the manager that is killed
//! ([`stepping`]), which is why it has a `main` of its own. What puts the masks back is the
//! `rondpoint` that users have.

mod judged;
mod killed;
mod living;
mod stepping;
mod target;

use std::panic;
use std::process::ExitCode;

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::affinity;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["as-target"] => target::main(),
        ["as-manager", pid] => stepping::main(pid.parse().expect("a process number")),
        words => return tests(words),
    }
    ExitCode::SUCCESS
}

/// Runs the tests whose names have one of the words in them, and says so as other tests do.
fn tests(words: &[&str]) -> ExitCode {
    let own = affinity::get(0).expect("a mask");
    if own.len() < 2 {
        println!("a mask can be narrowed only where there are two CPUs, here there is {own}");
        return ExitCode::SUCCESS;
    }
    let words: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let all = [killed::TESTS, living::TESTS, judged::TESTS].concat();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(**word));
    let chosen: Vec<_> = all.iter().filter(|(name, _)| wanted(name)).collect();
    println!("running {} tests", chosen.len());
    let mut failed = 0;
    for (name, test) in &chosen {
        let passed = panic::catch_unwind(|| test(&own)).is_ok();
        failed += usize::from(!passed);
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
    }
    let (verdict, passed) = (if failed == 0 { "ok" } else { "FAILED" }, chosen.len() - failed);
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured");
    ExitCode::from(u8::from(failed > 0))
}

/// A test and its name; it is given the CPUs that this process may use, at least two.
type Test = (&'static str, fn(&CpuSet));
