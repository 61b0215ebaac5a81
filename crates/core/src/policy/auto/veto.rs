//! Vetoes of `auto`: steps that have to wait for another step, whatever their price.

use core::fmt;

/// Reason of a veto.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "rule", rename_all = "kebab-case")
)]
pub enum Veto {
    /// The process exchanges data, and samples will name the pairs of threads within an epoch.
    SamplesFirst,
    /// Moving pages of the process wins more, and Carrefour's turn comes soon.
    PagesFirst,
    /// Its memory follows its threads.
    MemoryMoves,
}

impl fmt::Display for Veto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SamplesFirst => {
                "samples are asked first which threads share data with each other"
            }
            Self::PagesFirst => "moving its pages wins more, in Carrefour's next round",
            Self::MemoryMoves => "its memory is following its threads",
        })
    }
}
