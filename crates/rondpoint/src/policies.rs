//! Policies by their names on the command line: `NAME` or `NAME:PRESET`.

use anyhow::{Result, bail};
use rondpoint_core::policy::Policy;
use rondpoint_trace::{PolicyChoice, TraceError};

/// A chosen policy.
pub(crate) struct Chosen {
    /// As it was written.
    pub(crate) name: String,
    pub(crate) policy: Box<dyn Policy>,
}

/// The policy of one word; `preset` is for a word without one.
pub(crate) fn choose(word: &str, preset: Option<&str>) -> Result<Chosen> {
    let mut choice = PolicyChoice::parse(word);
    choice.preset = choice.preset.or(preset.map(str::to_string));
    match choice.make() {
        Ok(policy) => Ok(Chosen { name: word.to_string(), policy }),
        Err(TraceError::Policy { name, expected }) => bail!("--policy {name}: {expected}"),
        Err(error) => Err(error.into()),
    }
}
