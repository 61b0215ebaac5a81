//! Rules that must hold in every step of every simulated world. Checkers only observe.

mod budget;
mod conservation;
mod permission;
mod residence;

use rondpoint_core::controller::Step;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::plan::{Outcome, Proposal, Reason};
use rondpoint_core::{Nanos, Observation};

use crate::plant::Plant;

pub(crate) use conservation::Conservation;

/// What a checker sees after a step.
pub(crate) struct View<'a> {
    /// What the manager saw, at the time on its clock.
    pub(crate) seen: &'a Observation,
    pub(crate) step: &'a Step,
    pub(crate) outcomes: &'a [Outcome],
    pub(crate) plant: &'a Plant,
}

impl View<'_> {
    fn at(&self) -> Nanos {
        self.seen.at
    }

    /// Steps of the plan that do not undo: budgets and bounds are for these.
    fn done(&self) -> impl Iterator<Item = &Proposal> {
        self.step.plan.steps.iter().filter(|one| !matches!(one.reason, Reason::Undo(_)))
    }
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Broken {
    /// The checker's name.
    pub(crate) rule: String,
    /// What was seen, and what should have been.
    pub(crate) what: String,
}

impl Broken {
    pub(crate) fn new(rule: &str, what: String) -> Self {
        Self { rule: rule.to_string(), what }
    }
}

/// One rule.
pub(crate) trait Checker {
    /// Looks at a step.
    fn check(&mut self, view: &View<'_>) -> Result<(), Broken>;
}

/// All rules that a single step can break.
pub(crate) fn all(plant: &Plant, settings: &GuardSettings) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(Conservation::new(plant)),
        Box::new(permission::Permission),
        Box::new(budget::Budgets::new(plant, settings)),
        Box::new(residence::Residence::new(settings)),
    ]
}
