//! Runs the tests of a program that is also what it tests: the managed program, or a manager.

use std::panic;
use std::process::ExitCode;

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::affinity;

/// A test and its name; it is given the CPUs that this process may use, at least two.
pub(crate) type Test = (&'static str, fn(&CpuSet));

/// Runs the tests that have one of the words in their names, and says so as other tests do.
pub(crate) fn run(tests: &[Test], words: &[&str]) -> ExitCode {
    let own = affinity::get(0).expect("a mask");
    if own.len() < 2 {
        println!("not tried: {} tests: this process may use one CPU", tests.len());
        return ExitCode::SUCCESS;
    }
    let words: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(**word));
    let chosen: Vec<_> = tests.iter().filter(|(name, _)| wanted(name)).collect();
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
