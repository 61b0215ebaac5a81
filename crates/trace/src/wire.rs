//! Version 1 of the format: what the lines hold, field by field, and the way from and to the core's
//! types.
//!
//! Names, units and order are those of the file and stay when the core's types change. Unknown
//! fields are refused: a misspelt one would be a wrong replay. What is checked here is the form;
//! [`crate::check`] compares it with the topology.

mod costs;
mod counters;
mod header;
mod number;
mod observation;
mod plan;
mod samples;
mod table;
mod trial;

pub(crate) use header::Header;
pub(crate) use observation::Observation;
pub(crate) use plan::{Outcome, Plan, Proposal};
pub(crate) use trial::Judged;

use serde::{Deserialize, Serialize};

/// A line after the header.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// Input of the controller.
    #[serde(rename = "input")]
    Input(InputLine),
    /// Decision of the controller.
    #[serde(rename = "decision")]
    Decision(DecisionLine),
}

/// Input of the controller in one step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputLine {
    /// Number of the step, from 1.
    pub(crate) step: u64,
    /// Outcomes of the previous plan.
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) observation: Observation,
}

/// Decision of the controller in one step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionLine {
    /// Number of the step, as in its input.
    pub(crate) step: u64,
    pub(crate) plan: Plan,
    pub(crate) judged: Vec<Judged>,
}

/// Defines an enum of names in the file, with conversions to and from the core's variants.
macro_rules! names {
    ($(#[$attribute:meta])* $name:ident for $core:ty { $($variant:ident = $text:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(crate) enum $name {
            $(#[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Name in the file.
            #[allow(dead_code, reason = "not every enum is printed")]
            pub(crate) fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl From<$core> for $name {
            fn from(value: $core) -> Self {
                match value { $(<$core>::$variant => Self::$variant,)* }
            }
        }

        impl From<$name> for $core {
            fn from(value: $name) -> Self {
                match value { $($name::$variant => Self::$variant,)* }
            }
        }
    };
}
pub(crate) use names;
