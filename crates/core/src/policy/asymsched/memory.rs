//! Step 4: after its threads moved, an application's memory follows (ALGORITHMS 3.6).
//!
//! For a while pages go as they are seen accessed. Then, if most accesses still go to the nodes it left, everything goes at once.

use super::preset::{Follow, Preset};
use crate::limits::MAX_TRACKED_PAGES;
use crate::matrix::Matrix;
use crate::model::{App, Model, Page};
use crate::plan::{NodeMove, PageMove};
use crate::units::{Bytes, Nanos, PAGE_BYTES};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Where an application is on its way.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Phase {
    /// Nothing is going on.
    #[default]
    Stable,
    /// A move of its threads was proposed.
    Proposed(Vec<NodeMove>),
    /// Threads moved: pages follow from the next epoch on.
    Moved(Vec<NodeMove>),
    /// Pages follow.
    Following {
        /// Which nodes its threads left, and for which.
        moves: Vec<NodeMove>,
        /// When that ends.
        until: Nanos,
        /// Pages that were sent already: in an exchange of nodes a page must not be sent back.
        sent: BTreeSet<u64>,
    },
    /// The move of all its memory was proposed.
    Bulk,
}

/// What is remembered of an application.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct State {
    pub(super) started: Nanos,
    pub(super) phase: Phase,
    /// `A_tm`: time spent on moving its memory, frozen time included.
    pub(super) migration_time: Nanos,
}

/// What the phase of an application asks for now.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Wish {
    /// These pages should follow.
    Pages(Vec<PageMove>),
    /// All its memory on the nodes that it left should go.
    All {
        /// Sources and targets.
        moves: Vec<NodeMove>,
        /// Memory on the sources.
        memory: Bytes,
        /// Percent of accesses that still went to the old nodes.
        old_percent: f64,
    },
}

impl State {
    /// Takes the next step of its phase.
    pub(super) fn step(&mut self, model: &Model, index: usize, preset: &Preset) -> Option<Wish> {
        let phase = core::mem::take(&mut self.phase);
        let (moves, until, mut sent) = match phase {
            Phase::Moved(moves) => (moves, model.at + preset.following, BTreeSet::new()),
            Phase::Following { moves, until, sent } => (moves, until, sent),
            // A proposal that was not carried out, or the end of the way.
            Phase::Stable | Phase::Proposed(_) | Phase::Bulk => return None,
        };
        if model.at < until {
            let pages = pages_that_follow(model, index, &moves, preset.follow, &mut sent);
            self.phase = Phase::Following { moves, until, sent };
            return (!pages.is_empty()).then_some(Wish::Pages(pages));
        }
        let app = &model.apps[index];
        let old_percent =
            old_percent(app, &moves).filter(|percent| *percent > preset.full_above_percent)?;
        let resident = |node: usize| {
            app.memory.as_ref().and_then(|memory| memory.get(node)).copied().unwrap_or(Bytes(0))
        };
        let memory = moves.iter().fold(Bytes(0), |all, step| all + resident(step.from));
        self.phase = Phase::Bulk;
        (memory > Bytes(0)).then_some(Wish::All { moves, memory, old_percent })
    }
}

/// Sampled pages on nodes that threads left, each once.
fn pages_that_follow(
    model: &Model,
    index: usize,
    moves: &[NodeMove],
    follow: Follow,
    sent: &mut BTreeSet<u64>,
) -> Vec<PageMove> {
    let mut pages = Vec::new();
    for page in model.pages.iter().filter(|page| page.app == index) {
        let Some(step) = moves.iter().find(|step| page.home == Some(step.from)) else { continue };
        let to = match follow {
            Follow::OnlyAccessor => only_accessor(&page).unwrap_or(step.to),
            Follow::Image => step.to,
        };
        if to != step.from && sent.len() < MAX_TRACKED_PAGES && sent.insert(page.address) {
            pages.push(PageMove {
                address: page.address,
                shift: page.shift,
                from: step.from as u16,
                to: to as u16,
            });
        }
    }
    pages
}

fn only_accessor(page: &Page<'_>) -> Option<usize> {
    let mut nodes = page.accesses();
    let (node, _) = nodes.next()?;
    nodes.next().is_none().then_some(node)
}

/// Percent of its accesses that still go to the nodes it left (`A_oldA`). If it left no node for good, because groups of its threads
/// changed places, the accesses of moved threads to the node they came from, among all of theirs. `None` if nothing is known.
pub(super) fn old_percent(app: &App, moves: &[NodeMove]) -> Option<f64> {
    let rates = &app.traffic.as_ref()?.requests_per_us;
    let left: Vec<usize> = moves
        .iter()
        .map(|step| step.from)
        .filter(|from| moves.iter().all(|step| step.to != *from))
        .collect();
    let (old, all) = if left.is_empty() {
        let old: f64 = moves.iter().map(|step| rates[(step.to, step.from)]).sum();
        (old, moves.iter().map(|step| rates.row(step.to).iter().sum::<f64>()).sum::<f64>())
    } else {
        (
            left.iter().map(|&node| column_sum(rates, node)).sum(),
            rates.rows().flatten().sum::<f64>(),
        )
    };
    (all > 0.0).then(|| 100.0 * old / all)
}

fn column_sum(rates: &Matrix<f64>, node: usize) -> f64 {
    rates.column(node).sum()
}

/// What this host's own migrations took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Measured {
    bytes: f64,
    seconds: f64,
}

/// Bytes below which a measurement says more about the call than about the memory.
const ENOUGH_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

impl Measured {
    /// Adds a migration of so many base pages.
    pub(super) fn add(&mut self, pages: u64, spent: Nanos) {
        self.bytes += (pages * PAGE_BYTES) as f64;
        self.seconds += spent.seconds();
    }

    /// Seconds for 10⁹ bytes, once enough was moved.
    pub(super) fn seconds_per_gb(&self) -> Option<f64> {
        (self.bytes >= ENOUGH_BYTES).then(|| self.seconds / (self.bytes / 1e9))
    }
}
