//! Step 2: what happens to each sampled page of an enabled application (ALGORITHMS 1.5).

use super::gates::Mechanisms;
use super::interleave::Interleaving;
use super::preset::{PageRules, Preset, Targets};
use super::state::AppState;
use crate::limits::MAX_NODES;
use crate::model::{App, Page};
use crate::observation::{Mapping, MappingKind, Replica};
use crate::plan::PageMove;
use crate::random::Random;
use crate::topology::Topology;
use crate::units::PAGE_SHIFT;
use alloc::vec::Vec;

/// First address that no user process has on x86-64 with four-level tables and on arm64 with 48 bits; five-level tables give
/// programs higher addresses only on request.
const USER_END: u64 = 1 << 47;

/// What was marked for one application.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Marks {
    /// Sampled pages that were looked at.
    pub sampled: usize,
    /// To their only accessing node.
    pub colocate: Vec<PageMove>,
    /// Away from busy controllers.
    pub interleave: Vec<PageMove>,
    /// One copy per node.
    pub replicate: Vec<PageMove>,
    /// Shared pages for which interleaving was considered.
    pub considered: usize,
    /// Those of them that are only read and could be replicated.
    pub read_shared: usize,
}

/// Everything that decides about the pages of one application.
pub(super) struct Marker<'a> {
    pub(super) preset: &'a Preset,
    pub(super) topology: &'a Topology,
    pub(super) app: &'a App,
    pub(super) state: &'a AppState,
    pub(super) mechanisms: Mechanisms,
    pub(super) interleaving: &'a Interleaving,
}

impl Marker<'_> {
    /// Decides about one page.
    pub(super) fn mark(&self, page: &Page<'_>, random: &mut Random, marks: &mut Marks) {
        marks.sampled += 1;
        let rules = &self.preset.pages;
        let needed = if self.mechanisms.interleaving {
            rules.min_samples_interleaving
        } else {
            rules.min_samples
        };
        let Some(accessors) = page.accessors().filter(|seen| seen.total >= needed) else { return };
        let Some(source) = page.home else { return };
        if accessors.is_shared {
            self.mark_shared(page, source, random, marks);
        } else if self.mechanisms.colocation
            || (rules.colocate_while_interleaving && self.mechanisms.interleaving)
        {
            let target = nearest_memory(self.topology, accessors.first);
            if target != source && self.app.may_use_node(target) && self.may_move(page, rules) {
                marks.colocate.push(page_move(page, source, target));
            }
        }
    }

    fn mark_shared(&self, page: &Page<'_>, source: usize, random: &mut Random, marks: &mut Marks) {
        let read_only = page.stores == 0 && self.eligible(page);
        if self.mechanisms.replication && read_only {
            marks.replicate.push(page_move(page, source, source));
        } else if self.mechanisms.interleaving {
            marks.considered += 1;
            marks.read_shared += usize::from(read_only);
            let only_accessing = self.preset.pages.targets == Targets::AccessingNodes;
            let allowed = |node: usize| {
                let accesses =
                    !only_accessing || page.accesses().any(|(accessing, _)| accessing == node);
                accesses && self.app.may_use_node(node)
            };
            let restricted = only_accessing || self.app.allowed_nodes.is_some();
            let allowed = restricted.then_some(&allowed as &dyn Fn(usize) -> bool);
            let target = self.interleaving.target(source, allowed, random);
            if let Some(target) = target.filter(|_| self.may_move(page, &self.preset.pages)) {
                marks.interleave.push(page_move(page, source, target));
            }
        }
    }

    /// Whether a page may have copies: a base page of private anonymous memory of a user address, not flagged by collapses, not
    /// replicated already. (That its table entry is present and writable is the host's to check.)
    fn eligible(&self, page: &Page<'_>) -> bool {
        let private = self.app.mappings.as_deref().is_some_and(|mappings| {
            mapping_of(mappings, page.address)
                .is_some_and(|mapping| mapping.kind == MappingKind::PrivateAnonymous)
        });
        let replicated = self
            .app
            .replicas
            .as_deref()
            .is_some_and(|replicas| is_replicated(replicas, page.address));
        private
            && page.shift == PAGE_SHIFT
            && page.address < USER_END
            && !replicated
            && !self.state.never_replicate(page.address)
    }

    fn may_move(&self, page: &Page<'_>, rules: &PageRules) -> bool {
        let most = if page.shift > PAGE_SHIFT {
            rules.max_moves_per_huge_page
        } else {
            rules.max_moves_per_page
        };
        let replicated = self
            .app
            .replicas
            .as_deref()
            .is_some_and(|replicas| is_replicated(replicas, page.address));
        !replicated && (most == 0 || self.state.moves(page.address) < most)
    }
}

/// The node itself, or the nearest with memory (the lowest on a tie) if it has none.
fn nearest_memory(topology: &Topology, node: usize) -> usize {
    if topology.has_memory(node) {
        return node;
    }
    let nearest =
        topology.memory_nodes().iter().min_by_key(|&memory| topology.distance(node, memory));
    nearest.unwrap_or(node)
}

fn mapping_of(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings[..after].last().filter(|mapping| address < mapping.end)
}

fn is_replicated(replicas: &[Replica], address: u64) -> bool {
    replicas.binary_search_by_key(&address, |replica| replica.address).is_ok()
}

fn page_move(page: &Page<'_>, from: usize, to: usize) -> PageMove {
    assert!(from < MAX_NODES && to < MAX_NODES, "nodes {from} and {to} are in 16 bits");
    PageMove { address: page.address, shift: page.shift, from: from as u16, to: to as u16 }
}
