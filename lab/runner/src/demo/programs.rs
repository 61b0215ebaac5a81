//! The demonstration's programs and placements, and the quick choice among them.

use crate::configuration::Configuration;

/// A program of the demonstration.
pub(super) struct Program {
    /// As in the table.
    pub(super) title: &'static str,
    /// What the program is there for.
    pub(super) about: &'static str,
    /// Subcommand of our workloads and its arguments.
    pub(super) arguments: &'static str,
}

/// Programs and placements of one demonstration. First touch comes first: the others are compared
/// with it.
#[derive(Clone, Copy)]
pub(super) struct Selection {
    pub(super) programs: &'static [Program],
    pub(super) configurations: &'static [Configuration],
}

/// Small pages, so that a policy moves single pages and not half a megabyte at once. The data is
/// several times the caches (0.9 MB a node). A run lasts several times as long as Rondpoint takes
/// to act. Threads are pinned, as Carrefour takes their placement as given: one thread that the
/// kernel moves would decide more than any policy.
const PROGRAMS: [Program; 4] = [
    Program {
        title: "k-means",
        about: "all threads share one array that the main thread has touched first",
        arguments: "kmeans --rotate --pin --no-huge-pages --size 8M --iterations 96",
    },
    Program {
        title: "stencil",
        about: "each thread has a part of its own, but one thread has initialised them all",
        arguments: "stencil --pin --no-huge-pages --size 8M --iterations 110",
    },
    Program {
        title: "well placed",
        about: "each thread has initialised its own part: there is nothing to improve",
        arguments: "wellplaced --pin --no-huge-pages --size 8M --iterations 150",
    },
    Program {
        title: "bucket sort",
        about: "local work, and between its phases bursts of traffic from all to all",
        arguments: "bucketsort --pin --no-huge-pages --size 8M --iterations 17",
    },
];

/// Four programs under five placements.
pub(super) const FULL: Selection = Selection {
    programs: &PROGRAMS,
    configurations: &[
        Configuration::FirstTouch,
        Configuration::Interleave,
        Configuration::AutoNuma,
        Configuration::Numad,
        Configuration::Rondpoint,
    ],
};

/// One program that jams, under Linux alone, the simplest remedy, and Rondpoint.
pub(super) const QUICK: Selection = Selection {
    programs: PROGRAMS.split_at(1).0,
    configurations: &[
        Configuration::FirstTouch,
        Configuration::Interleave,
        Configuration::Rondpoint,
    ],
};

impl Selection {
    /// Programs times placements.
    pub(super) fn runs(&self) -> u64 {
        (self.programs.len() * self.configurations.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_demonstrations_compare_rondpoint_with_first_touch() {
        for selection in [FULL, QUICK] {
            assert_eq!(selection.configurations.first(), Some(&Configuration::FirstTouch));
            assert_eq!(selection.configurations.last(), Some(&Configuration::Rondpoint));
            for program in selection.programs {
                assert!(program.arguments.contains("--no-huge-pages"), "{}", program.arguments);
            }
        }
        assert_eq!((FULL.runs(), QUICK.runs()), (20, 3));
        assert_eq!(QUICK.programs[0].title, "k-means");
    }
}
