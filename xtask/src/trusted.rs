//! What this `./x test` has built from the present sources. Cargo would look at it again, and build
//! it again where another selection of packages gives a dependency other features.

use std::sync::atomic::{AtomicU8, Ordering};

use clap::ValueEnum;

/// What was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trusted {
    /// The lab's parts, in `target/lab`.
    Parts,
    /// The programs that tests start, in `target/debug`, among them `rondpoint` with the command
    /// that writes its manual.
    Tests,
}

static TRUSTED: AtomicU8 = AtomicU8::new(0);

impl Trusted {
    fn bit(self) -> u8 {
        1 << self as u8
    }

    /// From now on this process takes them as they are.
    pub(crate) fn trust(self) {
        TRUSTED.fetch_or(self.bit(), Ordering::Relaxed);
    }

    /// Whether [`Self::trust`] was called.
    pub(crate) fn is_trusted(self) -> bool {
        TRUSTED.load(Ordering::Relaxed) & self.bit() != 0
    }

    /// Words of the command line that make another `./x test` trust the same.
    pub(crate) fn words() -> Vec<String> {
        let trusted = Self::value_variants().iter().filter(|what| what.is_trusted());
        let values = trusted.filter_map(Self::to_possible_value);
        values.map(|value| format!("--trusted={}", value.get_name())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_reads_the_words() {
        assert!(Trusted::words().is_empty());
        Trusted::Tests.trust();
        assert!(Trusted::Tests.is_trusted() && !Trusted::Parts.is_trusted());
        let words = Trusted::words();
        let [word] = &words[..] else { panic!("{words:?}") };
        let value = word.strip_prefix("--trusted=").expect("the option");
        assert_eq!(Trusted::from_str(value, false), Ok(Trusted::Tests));
    }
}
