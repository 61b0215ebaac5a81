//! Handles failed observations. A failure at one process or counter must not end the daemon.

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The next look may be right: a process ended meanwhile, or memory was short.
    LookAgain,
    /// A counter is what fails: processes are seen without any.
    CountNothing,
    /// `/proc` itself cannot be read.
    End,
}

/// Looks that failed one after the other.
#[derive(Debug, Default)]
pub(super) struct Failures {
    in_a_row: u32,
}

impl Failures {
    /// One more.
    pub(super) fn next(&mut self) -> Remedy {
        self.in_a_row += 1;
        match self.in_a_row {
            1 | 2 => Remedy::LookAgain,
            3 | 4 => Remedy::CountNothing,
            _ => Remedy::End,
        }
    }

    /// A look was right.
    pub(super) fn end(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_fail_now_and_then_end_nothing_and_such_as_fail_always_do() {
        let mut failures = Failures::default();
        for _ in 0..100 {
            assert_eq!(failures.next(), Remedy::LookAgain);
            failures.end();
        }
        let remedies: Vec<Remedy> = (0..5).map(|_| failures.next()).collect();
        assert_eq!(remedies[..2], [Remedy::LookAgain; 2]);
        assert_eq!(remedies[2..4], [Remedy::CountNothing; 2]);
        assert_eq!(remedies[4], Remedy::End);
    }
}
