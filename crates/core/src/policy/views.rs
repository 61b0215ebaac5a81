//! The intervals that a policy is shown in one step, one for each of its lanes.

use crate::model::Model;
use crate::plan::{Permits, Permitted};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::OnceCell;

/// An interval of the host. Its model is computed when a policy first asks for it.
pub struct Interval<'a> {
    model: OnceCell<Model>,
    measure: Box<dyn Fn() -> Model + 'a>,
}

impl<'a> Interval<'a> {
    /// An interval that `measure` turns into a model.
    pub fn new(measure: impl Fn() -> Model + 'a) -> Self {
        Self { model: OnceCell::new(), measure: Box::new(measure) }
    }

    /// The model of the interval.
    #[must_use]
    pub fn model(&self) -> &Model {
        self.model.get_or_init(&self.measure)
    }

    /// Whether a policy asked for it.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.model.get().is_some()
    }

    /// The model, if a policy asked for it.
    #[must_use]
    pub fn into_model(self) -> Option<Model> {
        self.model.into_inner()
    }
}

/// The intervals of a policy's lanes up to now.
pub struct Views<'a> {
    lanes: Vec<View<'a>>,
    permits: Permits<'a>,
}

/// The interval of one lane.
pub struct View<'a> {
    /// The lane decides in this step.
    pub is_due: bool,
    /// The interval of the lane until now.
    pub interval: Rc<Interval<'a>>,
}

impl<'a> Views<'a> {
    /// One view for each lane.
    #[must_use]
    pub fn new(lanes: Vec<View<'a>>) -> Self {
        Self { lanes, permits: &Permitted::all }
    }

    /// The same views, with the steps that are permitted now.
    #[must_use]
    pub fn with_permits(self, permits: Permits<'a>) -> Self {
        Self { permits, ..self }
    }

    /// The function that divides a step into its permitted and refused parts.
    pub fn permits(&self) -> Permits<'_> {
        self.permits
    }

    /// Every one of `lanes` lanes decides, on the same interval.
    #[must_use]
    pub fn all_due(lanes: usize, model: &'a Model) -> Self {
        let interval = Rc::new(Interval::new(|| model.clone()));
        let view = |_| View { is_due: true, interval: Rc::clone(&interval) };
        Self::new((0..lanes).map(view).collect())
    }

    /// The interval of a lane that decides in this step; `None` for the others.
    #[must_use]
    pub fn due(&self, lane: usize) -> Option<&Model> {
        self.lanes.get(lane).filter(|view| view.is_due).map(|view| view.interval.model())
    }

    /// The intervals of all lanes that decide in this step.
    pub fn each_due(&self) -> impl Iterator<Item = &Model> {
        self.lanes.iter().filter(|view| view.is_due).map(|view| view.interval.model())
    }

    /// What was measured for a lane so far, whether it decides or not; `None` if there is no such
    /// lane.
    #[must_use]
    pub fn so_far(&self, lane: usize) -> Option<&Model> {
        self.lanes.get(lane).map(|view| view.interval.model())
    }
}
