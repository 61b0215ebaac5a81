//! Reads what `cargo test -- --show-output` prints: counts, failures, and what tests did not try.
//!
//! A test that finds that this machine lacks something writes a line `not tried: REASON`, or
//! `not tried further: REASON` after its first part, and passes.

use super::Tally;

/// Beginning of the line of a test about something that it did not try.
const NOT_TRIED: &str = "not tried";

/// The reader, line by line.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) tally: Tally,
    /// Whether the lines are those that tests that passed have written.
    of_passed: bool,
    /// Test whose lines follow.
    test: Option<String>,
    /// Lines of a test without the harness, which comes to its name afterwards.
    nameless: Vec<String>,
}

impl Output {
    /// Takes a line in. Returns whether it is worth showing.
    pub(super) fn take(&mut self, line: &str) -> bool {
        if let Some(tally) = counts(line) {
            self.tally.add(tally);
        }
        match line {
            "successes:" => self.of_passed = true,
            "failures:" => self.of_passed = false,
            _ if line.starts_with("test result: ") => self.of_passed = false,
            _ => {}
        }
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.split(' ').next()) {
            self.test = Some(name.to_string());
        }
        if line.starts_with(NOT_TRIED) {
            self.note(line);
            return false;
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.split(' ').next()) {
            let lines = std::mem::take(&mut self.nameless);
            self.tally.not_tried.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
        }
        !self.of_passed && !is_routine(line)
    }

    fn note(&mut self, line: &str) {
        match self.test.as_ref().filter(|_| self.of_passed) {
            Some(test) => self.tally.not_tried.push(format!("{test}: {line}")),
            None => self.nameless.push(line.to_string()),
        }
    }

    /// All counts.
    pub(super) fn end(mut self) -> Tally {
        self.tally.not_tried.append(&mut self.nameless);
        self.tally
    }
}

/// The counts in `test result: ok. 12 passed; 0 failed; …`.
fn counts(line: &str) -> Option<Tally> {
    let rest = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let mut parts = rest.split("; ");
    let mut number = |name: &str| parts.next()?.strip_suffix(name)?.trim_end().parse().ok();
    let (passed, failed) = (number("passed")?, number("failed")?);
    Some(Tally { passed, failed, ..Tally::default() })
}

/// Whether a line of `cargo test` is the same for every test that passes.
fn is_routine(line: &str) -> bool {
    line.trim().is_empty()
        || (line.starts_with("test ") && line.ends_with(" ... ok"))
        || line.starts_with("running ")
        || line.starts_with("test result: ok. ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_from_cargos_summary() {
        let found = |line| counts(line).map(|tally| (tally.passed, tally.failed));
        let line = "test result: ok. 20 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.04s";
        assert_eq!(found(line), Some((20, 0)));
        let line =
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 20 filtered out";
        assert_eq!(found(line), Some((10, 2)));
        assert_eq!(found("test a::b ... ok"), None);
        assert_eq!(found("test result: ok. many passed"), None);
    }

    #[test]
    fn only_failures_are_worth_a_line() {
        assert!(is_routine("test a::b ... ok"));
        assert!(is_routine("running 3 tests"));
        assert!(!is_routine("test a::b ... FAILED"));
        assert!(!is_routine("assertion `left == right` failed"));
    }

    /// As Rust 1.95 prints it, and as programs without its harness do.
    #[test]
    fn what_passing_tests_did_not_try_is_told_with_their_names() {
        let text = "
running 3 tests
test one ... ok
test two ... FAILED
test three ... ok

successes:

---- one stdout ----
a word of its own
not tried: no tmux here

---- three stdout ----
not tried further: this machine has one CPU


successes:
    one
    three

failures:

---- two stdout ----
thread 'two' panicked at src/lib.rs:1:1

failures:
    two

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
running 1 tests
not tried: only root mounts
test four ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured
not tried: 2 tests: this process may use one CPU
";
        let mut output = Output::default();
        let shown: Vec<&str> = text.lines().filter(|line| output.take(line)).collect();
        assert!(shown.contains(&"thread 'two' panicked at src/lib.rs:1:1"), "{shown:?}");
        assert!(!shown.contains(&"a word of its own"), "{shown:?}");
        let tally = output.end();
        assert_eq!((tally.passed, tally.failed), (3, 1));
        let expected = [
            "one: not tried: no tmux here",
            "three: not tried further: this machine has one CPU",
            "four: not tried: only root mounts",
            "not tried: 2 tests: this process may use one CPU",
        ];
        assert_eq!(tally.not_tried, expected);
    }
}
