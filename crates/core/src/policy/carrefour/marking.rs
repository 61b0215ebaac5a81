//! Marks the pages of a round: the draws for each set of nodes that applications may use, then the
//! pages of each application.

use super::Carrefour;
use super::between::Witness;
use super::gates::{Mechanisms, usable_nodes};
use super::interleave::{Draws, Ranking};
use super::pages::{Marker, Marks, may_leave};
use super::preset::Draw;
use crate::index_set::NodeSet;
use crate::model::{App, Model, Traffic};
use crate::random::Random;
use crate::topology::Topology;
use alloc::vec;
use alloc::vec::Vec;

/// The draws of a round. Applications that may use the same nodes share theirs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DrawsByNodes {
    sets: Vec<(NodeSet, Draws)>,
    /// The place in `sets` of each enabled application.
    of_app: Vec<Option<usize>>,
}

impl DrawsByNodes {
    /// The draws of an enabled application, by its index.
    pub(super) fn of(&self, app: usize) -> Option<&Draws> {
        let place = self.of_app.get(app).copied().flatten()?;
        Some(&self.sets[place].1)
    }

    /// Adds the next application. `draws` makes those of nodes that no application before may use.
    fn add(&mut self, nodes: Option<NodeSet>, draws: impl Fn(&NodeSet) -> Draws) {
        let place = nodes.map(|nodes| {
            let known = self.sets.iter().position(|(other, _)| *other == nodes);
            known.unwrap_or_else(|| {
                let draws = draws(&nodes);
                self.sets.push((nodes, draws));
                self.sets.len() - 1
            })
        });
        self.of_app.push(place);
    }
}

impl Carrefour {
    /// The probabilities for pages that leave busy controllers in this round.
    pub(super) fn draws(
        &self,
        traffic: &Traffic,
        topology: &Topology,
        model: &Model,
        enabled: &[Option<Mechanisms>],
    ) -> DrawsByNodes {
        let mut draws = DrawsByNodes::default();
        for (app, mechanisms) in model.apps.iter().zip(enabled) {
            let nodes = mechanisms.map(|_| usable_nodes(app, topology));
            draws.add(nodes, |nodes| Draws::new(nodes, traffic, topology, &self.preset));
        }
        if self.preset.pages.draw == Draw::Excess {
            self.choose(&mut draws, topology, model, enabled);
        }
        draws
    }

    /// Lets pages leave by the ranks of the sampled pages of the applications with the same draws.
    fn choose(
        &self,
        draws: &mut DrawsByNodes,
        topology: &Topology,
        model: &Model,
        enabled: &[Option<Mechanisms>],
    ) {
        let rules = &self.preset.pages;
        let DrawsByNodes { sets, of_app } = draws;
        let mut are_even = vec![true; sets.len()];
        for (app, place) in model.apps.iter().zip(of_app.iter()) {
            let (Some(place), Some(state)) = (*place, self.apps.get(&app.pid)) else { continue };
            are_even[place] &= !state.has_moved;
        }
        let ranking = |even: bool| Ranking::new(topology.node_count(), even);
        let mut rankings: Vec<Ranking> = are_even.into_iter().map(ranking).collect();
        for page in model.pages.iter() {
            let app = &model.apps[page.app];
            let placed = of_app[page.app].zip(enabled[page.app]).zip(self.apps.get(&app.pid));
            let Some(((place, mechanisms), state)) = placed else { continue };
            let Some((seen, home)) = page.accessors().zip(page.home) else { continue };
            if let Some(moved) = may_leave(rules, app, state, mechanisms, &page, &seen) {
                rankings[place].note(&page, (&seen, home), moved, topology);
            }
        }
        for ((_, draws), ranking) in sets.iter_mut().zip(&rankings) {
            ranking.choose(draws);
        }
    }

    /// Marks the sampled pages of all enabled applications in one pass over the table, then the
    /// unsampled pages between them.
    pub(super) fn mark<'a>(
        &'a self,
        model: &'a Model,
        topology: &'a Topology,
        enabled: &[Option<Mechanisms>],
        draws: &'a DrawsByNodes,
        random: &mut Random,
    ) -> Vec<Marks> {
        let preset = &self.preset;
        let marker = |(index, app): (usize, &'a App)| {
            let (state, mechanisms) = (self.apps.get(&app.pid)?, enabled[index]?);
            Some(Marker::new(preset, topology, app, state, mechanisms, draws.of(index)?))
        };
        let mut markers: Vec<_> = model.apps.iter().enumerate().map(marker).collect();
        if let Some(between) = &preset.pages.between {
            between.ask_more_where_most_is_shared(&mut markers, model);
        }
        let mut marks = vec![Marks::default(); model.apps.len()];
        let mut witnesses: Vec<Vec<Witness>> = vec![Vec::new(); model.apps.len()];
        for page in model.pages.iter() {
            let Some(marker) = &markers[page.app] else { continue };
            marker.mark(&page, random, &mut marks[page.app]);
            if preset.pages.between.is_some() {
                witnesses[page.app].extend(Witness::of(&page));
            }
        }
        for ((marker, marks), witnesses) in markers.iter().zip(&mut marks).zip(witnesses) {
            if let Some(marker) = marker {
                marker.mark_between(witnesses, random, marks);
                marks.interleave_small_batch(preset, marker.state.activated);
                marks.leave_few(&preset.pages);
            }
        }
        marks
    }
}
