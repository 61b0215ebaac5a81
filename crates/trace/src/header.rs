//! What a trace says about itself, and the controller that it was made with.

use rondpoint_core::Topology;
use rondpoint_core::controller::{Controller, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::limits::MAX_POLICIES;
use rondpoint_core::policy::{POLICIES, Policy, by_name};

use crate::TraceError;

/// The first line of a trace: all that a controller is made with, and where the trace is from.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The program and its version, as `rondpoint 0.1.0`.
    pub written_by: String,
    /// When, in seconds of Unix time.
    pub unix_s: Option<u64>,
    /// Name of the host.
    pub host: Option<String>,
    /// The managed program and its arguments; empty if it ran already.
    pub command: Vec<String>,
    /// Policies in order of priority.
    pub policies: Vec<PolicyChoice>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Budgets and rules.
    pub guard: GuardSettings,
    /// The machine.
    pub topology: Topology,
    /// Sentences on what could and could not be sensed.
    pub notes: Vec<String>,
}

/// A policy and its preset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChoice {
    /// Name in [`rondpoint_core::policy::POLICIES`].
    pub name: String,
    /// Its preset; `None` = the default.
    pub preset: Option<String>,
}

impl PolicyChoice {
    /// From `NAME` or `NAME:PRESET`.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        let (name, preset) = match word.split_once(':') {
            Some((name, preset)) => (name, Some(preset.to_string())),
            None => (word, None),
        };
        Self { name: name.to_string(), preset }
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// There is no such policy or preset.
    pub fn make(&self) -> Result<Box<dyn Policy>, TraceError> {
        let refuse = |expected| TraceError::Policy { name: self.to_string(), expected };
        let Some(registered) = by_name(&self.name) else {
            let known: Vec<&str> = POLICIES.iter().map(|policy| policy.name).collect();
            return Err(refuse(format!("no such policy, expected one of {}", known.join(", "))));
        };
        (registered.make)(self.preset.as_deref()).ok_or_else(|| match registered.presets {
            [] => refuse("has no presets".to_string()),
            [one] => refuse(format!("no such preset, the only one is {one}")),
            presets => refuse(format!("no such preset, expected one of {}", presets.join(", "))),
        })
    }
}

/// `NAME` or `NAME:PRESET`.
impl std::fmt::Display for PolicyChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.preset {
            Some(preset) => write!(f, "{}:{preset}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Header {
    /// The controller that decides as this header says. A recorder makes its controller here too:
    /// the two are then the same.
    ///
    /// # Errors
    /// A policy or preset that this program does not have; too many policies.
    pub fn controller(&self) -> Result<Controller, TraceError> {
        if self.policies.len() > MAX_POLICIES {
            return Err(TraceError::Policy {
                name: self.policies[0].name.clone(),
                expected: format!(
                    "{} policies, expected at most {MAX_POLICIES}",
                    self.policies.len()
                ),
            });
        }
        let policies =
            self.policies.iter().map(PolicyChoice::make).collect::<Result<Vec<_>, _>>()?;
        let settings = Settings { seed: self.seed, guard: self.guard.clone() };
        Ok(Controller::new(self.topology.clone(), policies, settings))
    }
}
