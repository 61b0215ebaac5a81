//! Admission of page moves and replication, page by page.

use super::history::Subject;
use super::{Guard, Scene, Site, Verdicts};
use crate::index_set::NodeSet;
use crate::model::{App, Model};
use crate::plan::{Action, PageMove, Permitted, Proposal, Refusal, Refused};
use crate::topology::Topology;
use crate::units::{Bytes, Nanos, Pid};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Kinds of actions on pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PagesKind {
    Move,
    Replicate,
    Unreplicate,
}

impl PagesKind {
    fn of(action: &Action) -> Self {
        match action {
            Action::Replicate { .. } => Self::Replicate,
            Action::Unreplicate { .. } => Self::Unreplicate,
            _ => Self::Move,
        }
    }
}

/// A kind, and the nodes that take part in it.
struct Way {
    kind: PagesKind,
    /// Nodes that get copies: each with controllers.
    holders: NodeSet,
}

impl Way {
    fn of(action: &Action, topology: &Topology) -> Self {
        let kind = PagesKind::of(action);
        let copies = kind == PagesKind::Replicate;
        Self { kind, holders: if copies { topology.controllers() } else { NodeSet::new() } }
    }

    /// Nodes that get a page or a copy of it. The node of the page itself gets no copy. Dropping
    /// copies frees memory.
    fn targets(&self, page: &PageMove) -> impl Iterator<Item = usize> {
        let (from, to) = (usize::from(page.from), usize::from(page.to));
        let moved = (self.kind == PagesKind::Move).then_some(to);
        moved.into_iter().chain(self.holders.iter().filter(move |node| *node != from))
    }

    /// Nodes that pay for a page with their bytes: the one that it is read from, and its targets.
    fn payers(&self, page: &PageMove) -> impl Iterator<Item = usize> {
        let source = (self.kind != PagesKind::Unreplicate).then_some(usize::from(page.from));
        source.into_iter().chain(self.targets(page))
    }
}

impl Guard {
    /// Admits the pages that may move; the others are refused in groups of one cause.
    pub(super) fn admit_pages(
        &mut self,
        proposal: Proposal,
        scene: &Scene<'_>,
        verdicts: &mut Verdicts,
    ) {
        if self.calls.left() < 1.0 {
            return verdicts.refuse(proposal, Refusal::CallBudget);
        }
        let Some((pid, pages)) = pages_of(&proposal.action) else { return };
        let Some(app) = scene.model.app(pid) else {
            return verdicts.refuse(proposal, Refusal::Unknown);
        };
        if pages.is_empty() {
            return verdicts.refuse(proposal, Refusal::Malformed);
        }
        let way = Way::of(&proposal.action, scene.topology);
        let mut admitted = Vec::with_capacity(pages.len());
        let mut refused: Vec<(Refusal, Vec<PageMove>)> = Vec::new();
        for page in pages {
            let checked = self
                .check_page(app, page, &way, scene, verdicts)
                .and_then(|()| self.check_history(app, page, way.kind, scene.model.at));
            match checked {
                Ok(()) => {
                    self.take_page(page, &way, verdicts);
                    admitted.push(*page);
                }
                Err(refusal) => add_refused(&mut refused, refusal, *page),
            }
        }
        for (refusal, pages) in refused {
            verdicts.refuse(with_pages(&proposal, pages), refusal);
        }
        if !admitted.is_empty() {
            self.calls.take(1.0);
            verdicts.admitted.push(with_pages(&proposal, admitted));
        }
    }

    /// Returns the pages of a step that stayed long enough to move, may be on their target and find
    /// room there. A step without pages is returned whole.
    pub(super) fn permit_pages(&self, step: Proposal, site: Site<'_>, now: Nanos) -> Permitted {
        let Action::MovePages { pid, pages, .. } = &step.action else {
            return Permitted::all(step);
        };
        let Some(app) = site.model.app(*pid) else { return Permitted::all(step) };
        let way = Way::of(&step.action, site.topology);
        let mut planned = BTreeMap::new();
        let mut stays: Vec<(Refusal, Vec<PageMove>)> = Vec::new();
        let mut goes = Vec::with_capacity(pages.len());
        for page in pages {
            let subject = Subject::Page(*pid, page.address);
            let checked = self
                .history
                .may_move(subject, now, &self.settings, false)
                .and_then(|()| self.check_target(app, page, &way, site))
                .and_then(|()| self.check_room(page, page.to.into(), site, &planned));
            match checked {
                Ok(()) => {
                    *planned.entry(page.to.into()).or_default() += page.bytes().0;
                    goes.push(*page);
                }
                Err(refusal) => add_refused(&mut stays, refusal, *page),
            }
        }
        if stays.is_empty() {
            return Permitted::all(step);
        }
        let part = |(refusal, pages)| Refused { proposal: with_pages(&step, pages), refusal };
        Permitted {
            refused: stays.into_iter().map(part).collect(),
            step: (!goes.is_empty()).then(|| with_pages(&step, goes)),
        }
    }

    fn check_page(
        &self,
        app: &App,
        page: &PageMove,
        way: &Way,
        scene: &Scene<'_>,
        verdicts: &Verdicts,
    ) -> Result<(), Refusal> {
        let site = scene.site();
        self.check_target(app, page, way, site)?;
        for node in way.targets(page) {
            self.check_room(page, node, site, &verdicts.planned_bytes)?;
        }
        for node in way.payers(page) {
            let left = self.bytes[node].left();
            if left < page.bytes().0 as f64 {
                return Err(Refusal::ByteBudget { node, left: Bytes(left.max(0.0) as u64) });
            }
        }
        Ok(())
    }

    /// Checks that a page may be on its targets, for all processes that have mapped it.
    fn check_target(
        &self,
        app: &App,
        page: &PageMove,
        way: &Way,
        site: Site<'_>,
    ) -> Result<(), Refusal> {
        let (from, to) = (usize::from(page.from), usize::from(page.to));
        let count = site.topology.node_count();
        if from >= count || to >= count || (way.kind == PagesKind::Move && from == to) {
            return Err(Refusal::Malformed);
        }
        check_nodes(app, way.targets(page))?;
        // Dropping copies undoes a change, so it is always allowed.
        if way.kind != PagesKind::Unreplicate && !app.has_read_policy_of(page) {
            return Err(Refusal::PolicyUnread);
        }
        self.check_sharers(app, page, way, site.model)
    }

    /// Checks that a page finds room on a node, beside the bytes that are planned to go to each.
    fn check_room(
        &self,
        page: &PageMove,
        node: usize,
        site: Site<'_>,
        planned: &BTreeMap<usize, u64>,
    ) -> Result<(), Refusal> {
        let free = self.room(site, planned, node);
        if page.bytes() > free { Err(Refusal::NoMemory { node, free }) } else { Ok(()) }
    }

    /// Checks that a page stayed long enough, and notes that it changes now. Copies have a history
    /// of their own: a page whose copies the kernel refused or dropped has not moved.
    fn check_history(
        &mut self,
        app: &App,
        page: &PageMove,
        kind: PagesKind,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let itself = Subject::Page(app.pid, page.address);
        let copies = Subject::Copies(app.pid, page.address);
        let (subject, other) = match kind {
            PagesKind::Move => (itself, copies),
            PagesKind::Replicate | PagesKind::Unreplicate => (copies, itself),
        };
        if self.history.moves_now(other, now) {
            return Err(Refusal::Conflict);
        }
        if kind == PagesKind::Move && may_have_copies(app, page.address) {
            self.history.may_move(copies, now, &self.settings, false)?;
        }
        // Copies skip residence. Otherwise some pages would get copies seconds later than others.
        // The trial would then judge a mixed state, in which nodes without a copy all read the
        // original pages.
        let urgent = kind == PagesKind::Replicate;
        self.history.admit(subject, now, &self.settings, urgent)
    }

    /// A page moves for all processes that have mapped it. So it stays if one of these processes is
    /// exempt, or may not have memory on a target node.
    fn check_sharers(
        &self,
        app: &App,
        page: &PageMove,
        way: &Way,
        model: &Model,
    ) -> Result<(), Refusal> {
        let index = model.apps.partition_point(|other| other.pid < app.pid);
        let is_policy_usual = |sharer: usize| {
            let other = &model.apps[sharer];
            let there = |address| other.has_read_policy_of(&PageMove { address, ..*page });
            other.policy_read.is_none()
                || model.shared.address_in(sharer, index, page.address).is_some_and(there)
        };
        for &sharer in model.shared.sharers(index, page.address) {
            if !is_policy_usual(sharer) {
                return Err(Refusal::PolicyUnread);
            }
            let sharer = &model.apps[sharer];
            self.check_exempt(sharer)?;
            check_nodes(sharer, way.targets(page))?;
        }
        Ok(())
    }

    /// Charges a page to the nodes that pay for it, and plans it for its targets.
    fn take_page(&mut self, page: &PageMove, way: &Way, verdicts: &mut Verdicts) {
        let bytes = page.bytes().0;
        for node in way.payers(page) {
            self.bytes[node].take(bytes as f64);
        }
        for node in way.targets(page) {
            *verdicts.planned_bytes.entry(node).or_insert(0) += bytes;
        }
    }
}

/// Checks that a process may have memory on nodes.
fn check_nodes(app: &App, mut nodes: impl Iterator<Item = usize>) -> Result<(), Refusal> {
    let refused = nodes.find(|node| !app.may_use_node(*node));
    refused.map_or(Ok(()), |node| Err(Refusal::NodeNotAllowed { node }))
}

impl App {
    /// Whether the memory policy was read for the whole page.
    fn has_read_policy_of(&self, page: &PageMove) -> bool {
        let Some(read) = &self.policy_read else { return true };
        let after = read.partition_point(|range| range.start <= page.address);
        let end = page.address.saturating_add(page.bytes().0);
        read[..after].last().is_some_and(|range| end <= range.end)
    }
}

/// Whether a page may have copies now; true if the host does not know.
fn may_have_copies(app: &App, address: u64) -> bool {
    let Some(replicas) = &app.replicas else { return true };
    replicas.binary_search_by_key(&address, |replica| replica.address).is_ok()
}

fn pages_of(action: &Action) -> Option<(Pid, &[PageMove])> {
    match action {
        Action::MovePages { pid, pages, .. }
        | Action::Replicate { pid, pages }
        | Action::Unreplicate { pid, pages } => Some((*pid, pages)),
        _ => None,
    }
}

/// The same proposal for other pages.
fn with_pages(proposal: &Proposal, list: Vec<PageMove>) -> Proposal {
    let action = match &proposal.action {
        Action::MovePages { pid, mechanism, .. } => {
            Action::MovePages { pid: *pid, mechanism: *mechanism, pages: list }
        }
        Action::Replicate { pid, .. } => Action::Replicate { pid: *pid, pages: list },
        Action::Unreplicate { pid, .. } => Action::Unreplicate { pid: *pid, pages: list },
        other => other.clone(),
    };
    Proposal { policy: proposal.policy, action, reason: proposal.reason.clone() }
}

/// Groups refused pages by cause. A group shows the numbers of its first page.
fn add_refused(groups: &mut Vec<(Refusal, Vec<PageMove>)>, refusal: Refusal, page: PageMove) {
    match groups.iter_mut().find(|(of, _)| of.same_cause(&refusal)) {
        Some((_, pages)) => pages.push(page),
        None => groups.push((refusal, alloc::vec![page])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Accounts;
    use crate::guard::{GuardSettings, Standing};
    use crate::ledger::Ledger;
    use crate::plan::{Mechanism, Reason};
    use crate::topology::synthetic;
    use crate::trial::Trials;
    use crate::units::PAGE_SHIFT;
    use alloc::collections::BTreeSet;
    use alloc::string::ToString as _;

    /// A step that the guard would refuse must not keep another policy from the process.
    #[test]
    fn a_step_is_permitted_as_far_as_its_pages_find_room_where_they_may_be() {
        let topology = synthetic::parse("node:3 core:1").unwrap();
        let mut model = Model::empty(3);
        let mut app = App::new(Pid(1), 0..0);
        app.allowed_nodes = Some([0, 1].into_iter().collect::<NodeSet>());
        model.apps.push(app);
        let settings = GuardSettings::acting();
        let reserve = (topology.memory(1).0 as f64 * settings.reserve_share) as u64;
        let plenty = topology.memory(0);
        model.free_memory = Some(alloc::vec![plenty, Bytes(reserve + (2 << PAGE_SHIFT)), plenty]);
        let page = |number: u64, to| PageMove {
            address: number << PAGE_SHIFT,
            shift: PAGE_SHIFT,
            from: 0,
            to,
        };
        let pages = [1, 1, 1, 2].into_iter().enumerate();
        let pages = pages.map(|(number, to)| page(number as u64, to)).collect();
        let action = Action::MovePages { pid: Pid(1), mechanism: Mechanism::CoLocation, pages };
        let step = Proposal { policy: "test", action, reason: Reason::Other("x".to_string()) };
        let (running, unready, trials) = (BTreeMap::new(), BTreeSet::new(), Trials::default());
        let now = Nanos::from_secs(100);
        let standing = Standing { now, running: &running, unready: &unready, tried: &trials };
        let guard = Guard::new(settings, 3);
        let permitted = guard.permit(step, &standing, Site { model: &model, topology: &topology });
        let (_, goes) = permitted.step.as_ref().and_then(|one| pages_of(&one.action)).unwrap();
        assert_eq!(goes, [page(0, 1), page(1, 1)]);
        let refused: Vec<&Refusal> = permitted.refused.iter().map(|one| &one.refusal).collect();
        assert!(
            matches!(
                refused[..],
                [Refusal::NoMemory { node: 1, .. }, Refusal::NodeNotAllowed { node: 2 }]
            ),
            "{refused:?}"
        );
    }

    /// The refusal of copies of a page of node 0 on four nodes, if any.
    fn refusal_of_copies(allowed: &[usize], is_empty: impl Fn(usize) -> bool) -> Option<Refusal> {
        let topology = synthetic::parse("node:4 core:1").unwrap();
        let mut model = Model::empty(4);
        model.sensing.confidence = 1.0;
        let mut app = App::new(Pid(1), 0..0);
        app.allowed_nodes = Some(allowed.iter().copied().collect::<NodeSet>());
        model.apps.push(app);
        let mut guard = Guard::new(GuardSettings::acting(), 4);
        for node in (0..4).filter(|node| is_empty(*node)) {
            let all = guard.bytes[node].left();
            guard.bytes[node].take(all);
        }
        let pages = alloc::vec![PageMove { address: 0, shift: PAGE_SHIFT, from: 0, to: 0 }];
        let action = Action::Replicate { pid: Pid(1), pages };
        let step = Proposal { policy: "test", action, reason: Reason::Other("x".to_string()) };
        let (running, unready, tried) = (BTreeMap::new(), BTreeSet::new(), Trials::default());
        let standing =
            Standing { now: model.at, running: &running, unready: &unready, tried: &tried };
        let (accounts, ledger) = (Accounts::default(), Ledger::default());
        let scene = Scene {
            model: &model,
            topology: &topology,
            accounts: &accounts,
            standing,
            ledger: &ledger,
        };
        let (admitted, refused) = guard.admit(alloc::vec![step], &scene);
        assert_eq!(admitted.len() + refused.len(), 1);
        refused.into_iter().next().map(|one| one.refusal)
    }

    #[test]
    fn a_page_gets_copies_only_if_every_node_has_budget_for_one() {
        assert_eq!(refusal_of_copies(&[0, 1, 2, 3], |_| false), None);
        for empty in 0..4 {
            let refusal = refusal_of_copies(&[0, 1, 2, 3], |node| node == empty);
            assert_eq!(refusal, Some(Refusal::ByteBudget { node: empty, left: Bytes(0) }));
        }
    }

    #[test]
    fn a_page_gets_no_copies_if_one_would_be_on_a_node_that_is_not_allowed() {
        let refusal = refusal_of_copies(&[0, 1, 2], |_| false);
        assert_eq!(refusal, Some(Refusal::NodeNotAllowed { node: 3 }));
    }
}
