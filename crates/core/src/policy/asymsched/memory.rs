//! Step 4: after its threads moved, an application's memory follows (ALGORITHMS 3.6), also what had
//! been away from them before.
//!
//! For a while pages go as they are seen accessed. Then, if most accesses still go to the nodes it
//! left, everything goes at once.

use super::preset::{Follow, Preset};
use crate::limits::MAX_TRACKED_PAGES;
use crate::model::{App, Model, Page};
use crate::plan::{NodeMove, PageMove, Sampling};
use crate::units::{Bytes, Nanos, PAGE_BYTES};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The phase of an application's move.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Phase {
    /// No move.
    #[default]
    Stable,
    /// A move of the threads was proposed.
    Proposed(Vec<NodeMove>),
    /// The threads moved, or stayed and lack memory. Pages follow from the next epoch on.
    Moved(Vec<NodeMove>),
    /// Accessed pages follow the threads.
    Following {
        /// Nodes that pages leave, and the nodes that they go to.
        moves: Vec<NodeMove>,
        /// End of this phase.
        until: Nanos,
        /// Addresses of pages already sent. In an exchange of nodes a page must not be sent back.
        sent: BTreeSet<u64>,
    },
    /// The move of all memory on the old nodes was proposed.
    Bulk,
}

/// State kept for an application.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct State {
    /// Start time of the process. It tells a reused pid.
    pub(super) started: Nanos,
    pub(super) phase: Phase,
    /// Whether the memory that moves follows threads. Otherwise it comes to threads that stay.
    pub(super) after_threads: bool,
    /// Time spent so far on moving its memory, frozen time included (`A_tm`).
    pub(super) migration_time: Nanos,
    /// The moves of the last full migration or of the last memory brought to staying threads, and
    /// their time.
    pub(super) last_sent: Option<(Vec<NodeMove>, Nanos)>,
    /// The sampling rate proposed last.
    pub(super) sampling: Option<Sampling>,
}

/// A move of memory that the application's phase requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Request {
    /// Move these pages.
    Pages(Vec<PageMove>),
    /// Move all memory on some nodes.
    All {
        /// Source and target nodes.
        moves: Vec<NodeMove>,
        /// Memory on the sources.
        memory: Bytes,
        /// Percent of accesses that still went to the old nodes.
        old_percent: f64,
    },
}

/// Time in which memory on the same source nodes is not brought to staying threads again, whatever
/// the target and the outcome. Our choice: as long as the guard counts moves of a page.
const GATHER_AGAIN: Nanos = Nanos::from_secs(30);

impl State {
    /// Starts to bring memory to threads that stay, unless that was done within [`GATHER_AGAIN`].
    pub(super) fn gather(&mut self, moves: Vec<NodeMove>, now: Nanos) {
        let again = self.last_sent.as_ref().is_some_and(|(sent, at)| {
            moves.iter().all(|step| sent.iter().any(|one| one.from == step.from))
                && now.since(*at) < GATHER_AGAIN
        });
        if !moves.is_empty() && !again {
            self.last_sent = Some((moves.clone(), now));
            self.phase = Phase::Moved(moves);
            self.after_threads = false;
        }
    }

    /// Whether samples are to find the pages that follow. A full migration moves all pages, so it
    /// needs none.
    pub(super) fn wants_samples(&self) -> bool {
        !matches!(self.phase, Phase::Stable | Phase::Bulk)
    }

    /// Advances the phase of the application with this model index. Returns its request, if any.
    pub(super) fn step(&mut self, model: &Model, index: usize, preset: &Preset) -> Option<Request> {
        let phase = core::mem::take(&mut self.phase);
        let (moves, until, mut sent) = match phase {
            Phase::Moved(moves) => (moves, model.at + preset.following, BTreeSet::new()),
            Phase::Following { moves, until, sent } => (moves, until, sent),
            // A proposal that was not carried out, or the end of a move.
            Phase::Stable | Phase::Proposed(_) | Phase::Bulk => return None,
        };
        // The epoch nearest to `until` is the last one, because the host may wake late.
        if until.since(model.at).0 > preset.period.0 / 2 {
            let pages = pages_that_follow(model, index, &moves, preset.follow, &mut sent);
            self.phase = Phase::Following { moves, until, sent };
            return (!pages.is_empty()).then_some(Request::Pages(pages));
        }
        let app = &model.apps[index];
        let old_percent =
            old_percent(app, &moves).filter(|percent| *percent > preset.full_above_percent)?;
        let moves = bulk_moves(moves, old_percent);
        let resident = |node: usize| {
            app.memory.as_ref().and_then(|memory| memory.get(node)).copied().unwrap_or(Bytes(0))
        };
        let memory = moves.iter().fold(Bytes(0), |all, step| all + resident(step.from));
        if memory == Bytes(0) {
            return None;
        }
        self.phase = Phase::Bulk;
        self.last_sent = Some((moves.clone(), model.at));
        Some(Request::All { moves, memory, old_percent })
    }
}

/// Moves of the sampled pages on source nodes that are not in `sent`, to which they are added.
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

/// The node that made all sampled accesses to a page, if it is only one.
fn only_accessor(page: &Page<'_>) -> Option<usize> {
    let mut nodes = page.accesses();
    let (node, _) = nodes.next()?;
    nodes.next().is_none().then_some(node)
}

/// Percent of an application's accesses that still go to nodes that it left for good (`A_oldA`). If
/// it only exchanged nodes, percent of the accesses from its new nodes to the nodes that their
/// threads left. `None` if the traffic is unknown or zero.
pub(super) fn old_percent(app: &App, moves: &[NodeMove]) -> Option<f64> {
    let rates = &app.traffic.as_ref()?.requests_per_us;
    let left = left_for_good(moves);
    let (old, all) = if left.is_empty() {
        let old: f64 = moves.iter().map(|step| rates[(step.to, step.from)]).sum();
        (old, moves.iter().map(|step| rates.row(step.to).iter().sum::<f64>()).sum::<f64>())
    } else {
        (
            left.iter().map(|&node| rates.column(node).sum::<f64>()).sum(),
            rates.rows().flatten().sum::<f64>(),
        )
    };
    (all > 0.0).then(|| 100.0 * old / all)
}

/// The source nodes that are no target.
fn left_for_good(moves: &[NodeMove]) -> Vec<usize> {
    let is_taken = |node: usize| moves.iter().any(|step| step.to == node);
    moves.iter().map(|step| step.from).filter(|from| !is_taken(*from)).collect()
}

/// The moves of a full migration. A node that is both source and target holds memory that has just
/// followed, which the migration would send on. If most memory has followed, only nodes that are
/// left for good are migrated.
fn bulk_moves(mut moves: Vec<NodeMove>, old_percent: f64) -> Vec<NodeMove> {
    if old_percent <= MOST_PERCENT {
        let left = left_for_good(&moves);
        moves.retain(|step| left.contains(&step.from));
    }
    moves
}

/// Percent of accesses to the old nodes above which most memory has not followed (our choice).
const MOST_PERCENT: f64 = 50.0;

/// Measured cost of this host's own full migrations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Measured {
    bytes: f64,
    seconds: f64,
}

/// Bytes below which the time of a migration is mostly that of the calls (our choice).
const ENOUGH_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

impl Measured {
    /// Adds a migration of `pages` base pages.
    pub(super) fn add(&mut self, pages: u64, spent: Nanos) {
        self.bytes += (pages * PAGE_BYTES) as f64;
        self.seconds += spent.seconds();
    }

    /// Seconds for 10⁹ bytes, once enough was moved.
    pub(super) fn seconds_per_gb(&self) -> Option<f64> {
        (self.bytes >= ENOUGH_BYTES).then(|| self.seconds / (self.bytes / 1e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;
    use crate::model::Traffic;
    use crate::units::Pid;

    /// Checks the percentage of accesses to nodes that the process left. `moves` are (from, to),
    /// `rates` are (accessing, holding, requests/µs).
    fn check_old(moves: &[(usize, usize)], rates: &[(usize, usize, f64)], expected: Option<f64>) {
        let moves: Vec<NodeMove> = moves.iter().map(|&(from, to)| NodeMove { from, to }).collect();
        let mut app = App::new(Pid(1), 0..0);
        let mut matrix = Matrix::filled(4, 0.0);
        rates.iter().for_each(|&(i, j, rate)| matrix[(i, j)] = rate);
        app.traffic = Some(Traffic::new(matrix));
        assert_eq!(old_percent(&app, &moves), expected, "{moves:?} {rates:?}");
    }

    #[test]
    fn accesses_to_nodes_left_for_good_count_from_any_node() {
        check_old(&[(1, 2)], &[(2, 1, 60.0), (0, 1, 30.0), (0, 0, 10.0)], Some(90.0));
        // Threads left node 1 and others came to it, so only node 0 counts as left.
        check_old(&[(0, 1), (1, 2)], &[(1, 0, 20.0), (2, 1, 80.0)], Some(20.0));
        check_old(&[(1, 2)], &[], None);
    }

    #[test]
    fn where_groups_changed_places_each_is_judged_by_the_node_it_came_from() {
        check_old(
            &[(0, 1), (1, 0)],
            &[(1, 0, 70.0), (1, 1, 10.0), (0, 1, 20.0), (3, 3, 900.0)],
            Some(90.0),
        );
    }

    #[test]
    fn what_has_followed_is_not_sent_on_with_the_rest() {
        let sweep = |moves: &[(usize, usize)], old_percent| -> Vec<(usize, usize)> {
            let moves = moves.iter().map(|&(from, to)| NodeMove { from, to }).collect();
            let in_bulk = bulk_moves(moves, old_percent);
            in_bulk.iter().map(|step| (step.from, step.to)).collect()
        };
        assert_eq!(sweep(&[(5, 0), (0, 1)], 8.0), [(5, 0)]);
        assert_eq!(sweep(&[(0, 1), (1, 0)], 8.0), []);
        assert_eq!(sweep(&[(0, 1), (1, 0)], 95.0), [(0, 1), (1, 0)]);
    }

    fn following(
        follow: Follow,
        moves: &[NodeMove],
        sent: &mut BTreeSet<u64>,
        pages: &[(u64, u16, &[u16])],
    ) -> Vec<(u64, u16)> {
        let mut model = Model::empty(4);
        for &(address, home, accessors) in pages {
            for &node in accessors {
                model.pages.record(0, address, 12, home, node, false).expect("the table has room");
            }
        }
        let moved = pages_that_follow(&model, 0, moves, follow, sent);
        moved.iter().map(|page| (page.address, page.to)).collect()
    }

    #[test]
    fn a_page_goes_to_the_image_of_its_node_or_to_its_only_accessor() {
        let moves = [NodeMove { from: 1, to: 2 }];
        let pages: &[(u64, u16, &[u16])] =
            &[(0x1000, 1, &[3, 3]), (0x2000, 1, &[2, 3]), (0x3000, 0, &[2]), (0x4000, 1, &[1])];
        let run = |follow| following(follow, &moves, &mut BTreeSet::new(), pages);
        assert_eq!(run(Follow::Image), [(0x1000, 2), (0x2000, 2), (0x4000, 2)]);
        assert_eq!(run(Follow::OnlyAccessor), [(0x1000, 3), (0x2000, 2)]);
    }

    #[test]
    fn in_an_exchange_a_page_is_sent_once_and_not_back() {
        let moves = [NodeMove { from: 0, to: 1 }, NodeMove { from: 1, to: 0 }];
        let mut sent = BTreeSet::new();
        assert_eq!(
            following(Follow::Image, &moves, &mut sent, &[(0x1000, 0, &[1])]),
            [(0x1000, 1)]
        );
        assert_eq!(following(Follow::Image, &moves, &mut sent, &[(0x1000, 1, &[1])]), []);
    }
}
