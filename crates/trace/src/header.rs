//! What a trace says about itself, and the controller that it was made with.

use rondpoint_core::Topology;
use rondpoint_core::controller::{Controller, Settings};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::limits::MAX_POLICIES;
use rondpoint_core::policy::{POLICIES, Policy, by_name};

use crate::TraceError;

/// The first line of a trace: the settings of its controller, and the origin of the trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Program that wrote the trace and its version, such as `rondpoint 0.1.0`.
    pub written_by: String,
    /// Time of the header, in seconds of Unix time.
    pub unix_s: Option<u64>,
    /// Name of the host.
    pub host: Option<String>,
    /// The managed program and its arguments; empty for a process that already ran.
    pub command: Vec<String>,
    /// Policies in order of priority.
    pub policies: Vec<PolicyChoice>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Budgets and rules of the guard.
    pub guard: GuardSettings,
    /// Topology of the machine.
    pub topology: Topology,
    /// Sentences about available and missing sensors.
    pub notes: Vec<String>,
}

/// A policy and its preset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChoice {
    /// Name in [`rondpoint_core::policy::POLICIES`].
    pub name: String,
    /// Name of its preset; `None` for the default.
    pub preset: Option<String>,
}

impl PolicyChoice {
    /// Parses `NAME` or `NAME:PRESET`.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        let (name, preset) = match word.split_once(':') {
            Some((name, preset)) => (name, Some(preset.to_string())),
            None => (word, None),
        };
        Self { name: name.to_string(), preset }
    }

    /// A new policy of this choice.
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
    /// A new controller with the settings of this header. Recorders make their controllers here
    /// too, so that a replay has the same one.
    ///
    /// # Errors
    /// This program does not have a policy or preset of the header, or there are too many policies.
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
