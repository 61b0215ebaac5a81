//! Contenders that place a workload: Linux's choices, other daemons, the fastest of six static
//! placements, or Rondpoint's policies.

use std::fmt;
use std::str::FromStr;

use rondpoint_trace::{PolicyChoice, TraceError};

/// One row of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contender {
    /// Linux: pages lie where they were touched first. Every other is compared with it.
    FirstTouch,
    /// `numactl --interleave=all`.
    Interleave,
    /// Memory interleaved after the first second.
    InterleaveLate,
    /// Linux with automatic NUMA balancing.
    AutoNuma,
    /// numad at its shortest interval.
    Numad,
    /// The fastest of six placements that never change.
    Oracle,
    /// The controller with these policies, in order of priority.
    Managed(Vec<PolicyChoice>),
}

const WORDS: [(&str, Contender); 6] = [
    ("first-touch", Contender::FirstTouch),
    ("interleave", Contender::Interleave),
    ("interleave-late", Contender::InterleaveLate),
    ("autonuma", Contender::AutoNuma),
    ("numad", Contender::Numad),
    ("oracle", Contender::Oracle),
];

impl FromStr for Contender {
    type Err = String;

    /// One of the words above, or policies joined by `+`, each `NAME` or `NAME:PRESET`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, contender)) = WORDS.iter().find(|(word, _)| *word == text) {
            return Ok(contender.clone());
        }
        let choices: Vec<PolicyChoice> = text.split('+').map(PolicyChoice::parse).collect();
        for choice in &choices {
            choice.make().map_err(|error| refused(&error, choice, choices.len()))?;
        }
        Ok(Self::Managed(choices))
    }
}

/// Why a policy of a contender was refused. Its name is in the text only where the contender has
/// other policies too.
fn refused(error: &TraceError, choice: &PolicyChoice, policies: usize) -> String {
    let TraceError::Policy { name, expected } = error else { return error.to_string() };
    let name = if policies > 1 { format!("{name}: ") } else { String::new() };
    let words: Vec<&str> = WORDS.iter().map(|(word, _)| *word).collect();
    match choice.preset {
        None => format!("{name}{expected}; or one of {}", words.join(", ")),
        Some(_) => format!("{name}{expected}"),
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = WORDS.iter().find(|(_, contender)| contender == self) {
            return f.write_str(word);
        }
        let Self::Managed(choices) = self else { return Ok(()) };
        let names: Vec<String> = choices.iter().map(ToString::to_string).collect();
        f.write_str(&names.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_policies_are_read_back_as_written() {
        for text in ["first-touch", "numad", "auto", "carrefour:draft", "sam+nmass"] {
            assert_eq!(text.parse::<Contender>().map(|it| it.to_string()), Ok(text.to_string()));
        }
        let refused = |text: &str| text.parse::<Contender>().expect_err("unknown");
        let error = refused("magic");
        assert!(error.starts_with("no such policy") && error.contains("first-touch"), "{error}");
        let error = refused("auto+magic");
        assert!(error.starts_with("magic: no such policy"), "{error}");
        let error = refused("sam:magic");
        assert!(error.starts_with("no such preset") && !error.contains("first-touch"), "{error}");
    }
}
