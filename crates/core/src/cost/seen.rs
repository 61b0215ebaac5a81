//! Inputs of the cost model: a window, its sampled pages, and the facts of both.

use super::facts::Facts;
use super::ownership::{Ownership, Prior};
use crate::model::Model;
use crate::topology::Topology;
use alloc::vec;
use alloc::vec::Vec;

/// A window with its sampled pages and facts.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The window.
    pub model: &'a Model,
    /// Sampled pages of the window, or of a longer interval that ends with it.
    pub pages: &'a Sampled<'a>,
    /// The machine.
    pub topology: &'a Topology,
    /// The cost model fitted to the window.
    pub facts: &'a Facts,
}

/// Sampled pages, with sums over those of each process.
#[derive(Debug, Clone)]
pub struct Sampled<'a> {
    pub(super) model: &'a Model,
    /// By process.
    pub(super) of: Vec<SampledApp>,
}

/// Samples of one process.
#[derive(Debug, Clone, Default)]
pub(super) struct SampledApp {
    pub(super) all: f64,
    /// Of pages that were sampled once.
    pub(super) once: f64,
    /// By the node that holds the page.
    pub(super) of_node: Vec<f64>,
    /// The prior for a page.
    pub(super) prior: Prior,
}

impl<'a> Sampled<'a> {
    /// Sums up the pages of a model, in one pass.
    #[must_use]
    pub fn of(model: &'a Model, topology: &Topology) -> Self {
        let mut sampled = Self { model, of: vec![SampledApp::default(); model.apps.len()] };
        let mut ownership = vec![Ownership::default(); model.apps.len()];
        for page in model.pages.iter() {
            let Some(of_app) = sampled.of.get_mut(page.app) else { continue };
            let total = page.total();
            ownership[page.app].add(page.accesses());
            of_app.all += f64::from(total);
            of_app.once += f64::from(u8::from(total == 1));
            let Some(home) = page.home else { continue };
            of_app.of_node.resize(topology.node_count(), 0.0);
            of_app.of_node[home] += f64::from(total);
        }
        for (of_app, ownership) in sampled.of.iter_mut().zip(&ownership) {
            of_app.of_node.resize(topology.node_count(), 0.0);
            of_app.prior = ownership.prior();
        }
        sampled
    }
}
