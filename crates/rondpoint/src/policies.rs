//! Policies by their names on the command line: `NAME` or `NAME:PRESET`.

use anyhow::{Result, bail};
use rondpoint_core::policy::{POLICIES, Policy, by_name};

/// A chosen policy.
pub(crate) struct Chosen {
    /// As it was written.
    pub(crate) name: String,
    pub(crate) policy: Box<dyn Policy>,
}

/// The policy of one word; `preset` is for a word without one.
pub(crate) fn choose(word: &str, preset: Option<&str>) -> Result<Chosen> {
    let (name, own_preset) = match word.split_once(':') {
        Some((name, preset)) => (name, Some(preset)),
        None => (word, preset),
    };
    let Some(registered) = by_name(name) else {
        let known: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
        bail!("--policy {name}: no such policy, expected one of {}", known.join(", "));
    };
    let Some(policy) = (registered.make)(own_preset) else {
        let preset = own_preset.unwrap_or_default();
        match registered.presets {
            [] => bail!("--preset {preset}: {name} has no presets"),
            presets => bail!("--preset {preset}: {name} has {}", presets.join(", ")),
        }
    };
    Ok(Chosen { name: word.to_string(), policy })
}
