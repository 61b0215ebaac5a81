//! What must hold for Carrefour on any model.

use proptest::prelude::*;
use rondpoint_core::model::{App, Thread, Traffic};
use rondpoint_core::observation::{Exemption, UNKNOWN_NODE};
use rondpoint_core::plan::{Mechanism, PageMove};
use rondpoint_core::policy::carrefour::{Carrefour, preset::PRESETS};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{
    Action, Matrix, Model, NodeSet, Pid, Policy, Proposal, Random, Tid, Topology,
};
use std::collections::BTreeSet;

/// One page: home, (node, accesses), stores.
#[derive(Debug, Clone)]
struct PageSpec {
    home: Option<usize>,
    accesses: Vec<(usize, u32)>,
    store: bool,
}

#[derive(Debug, Clone)]
struct Spec {
    nodes: usize,
    traffic: Vec<f64>,
    pages: Vec<PageSpec>,
    allowed: Option<Vec<usize>>,
    preset: usize,
    seed: u64,
}

fn page(nodes: usize) -> impl Strategy<Value = PageSpec> {
    let accesses = prop::collection::vec((0..nodes, 1..4_u32), 1..4);
    (prop::option::weighted(0.9, 0..nodes), accesses, any::<bool>())
        .prop_map(|(home, accesses, store)| PageSpec { home, accesses, store })
}

fn spec() -> impl Strategy<Value = Spec> {
    (2..7_usize).prop_flat_map(|nodes| {
        let traffic = prop::collection::vec(0.0..40.0_f64, nodes * nodes);
        let pages = prop::collection::vec(page(nodes), 0..80);
        let allowed = prop::option::weighted(0.3, prop::collection::vec(0..nodes, 1..nodes));
        (traffic, pages, allowed, 0..PRESETS.len(), any::<u64>()).prop_map(
            move |(traffic, pages, allowed, preset, seed)| Spec {
                nodes,
                traffic,
                pages,
                allowed,
                preset,
                seed,
            },
        )
    })
}

/// The model with node n renamed to `name[n]`.
fn build(spec: &Spec, name: &[usize]) -> (Topology, Model) {
    let topology = synthetic::parse(&format!("node:{} core:2", spec.nodes)).expect("a machine");
    let mut model = Model::empty(spec.nodes);
    let mut rates = Matrix::filled(spec.nodes, 0.0);
    for n in 0..spec.nodes {
        for m in 0..spec.nodes {
            rates[(name[n], name[m])] = spec.traffic[n * spec.nodes + m];
        }
    }
    model.traffic = Some(Traffic::new(rates));
    let mut app = App::new(Pid(1), 0..1);
    app.traffic.clone_from(&model.traffic);
    app.allowed_nodes = spec
        .allowed
        .as_ref()
        .map(|nodes| nodes.iter().map(|node| name[*node]).collect::<NodeSet>());
    model.apps.push(app);
    model.threads.push(Thread::new(Tid(1), 0, 0, topology.all_cpus()));
    model.threads[0].rates.ipc = Some(0.3);
    for (number, page) in spec.pages.iter().enumerate() {
        let home = page.home.map_or(UNKNOWN_NODE, |home| name[home] as u16);
        for &(node, count) in &page.accesses {
            for access in 0..count {
                let store = page.store && access == 0;
                model.pages.record(
                    0,
                    (number as u64 + 1) << 12,
                    12,
                    home,
                    name[node] as u16,
                    store,
                );
            }
        }
    }
    model.check(&topology).expect("a sound model");
    (topology, model)
}

fn propose(spec: &Spec, name: &[usize]) -> Vec<Proposal> {
    let (topology, model) = build(spec, name);
    Carrefour::new(PRESETS[spec.preset].clone()).propose(
        &model,
        &topology,
        &mut Random::new(spec.seed),
    )
}

fn moves(proposals: &[Proposal], of: Mechanism) -> Vec<PageMove> {
    let pages = |proposal: &Proposal| match &proposal.action {
        Action::MovePages { mechanism, pages, .. } if *mechanism == of => pages.clone(),
        _ => Vec::new(),
    };
    proposals.iter().flat_map(pages).collect()
}

fn only_sampling(proposals: &[Proposal]) -> bool {
    proposals.iter().all(|one| matches!(one.action, Action::SetSampling { .. }))
}

fn same_names(nodes: usize) -> Vec<usize> {
    (0..nodes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn moves_make_sense(spec in spec()) {
        let proposals = propose(&spec, &same_names(spec.nodes));
        let mut seen = BTreeSet::new();
        for mechanism in [Mechanism::CoLocation, Mechanism::Interleaving] {
            for page in moves(&proposals, mechanism) {
                prop_assert!(seen.insert(page.address), "a page is moved once");
                prop_assert_ne!(page.from, page.to);
                let of = &spec.pages[(page.address >> 12) as usize - 1];
                prop_assert!(of.home.is_none_or(|home| home == usize::from(page.from)));
                prop_assert!(spec.allowed.as_ref().is_none_or(|nodes| nodes.contains(&usize::from(page.to))));
                let nodes: BTreeSet<usize> = of.accesses.iter().map(|(node, _)| *node).collect();
                let shared = mechanism == Mechanism::Interleaving;
                let rules = &PRESETS[spec.preset].pages;
                let accesses: u32 = of.accesses.iter().map(|(_, count)| count).sum();
                // A page that was sampled too rarely may go with its neighbours, but never against
                // what was seen of it.
                let with_neighbours = rules.between.is_some() && accesses < rules.min_samples;
                prop_assert!(with_neighbours || (nodes.len() > 1) == shared);
                prop_assert!(shared || nodes.iter().all(|node| *node == usize::from(page.to)));
            }
        }
    }

    #[test]
    fn the_same_input_gives_the_same_proposals(spec in spec()) {
        prop_assert_eq!(propose(&spec, &same_names(spec.nodes)), propose(&spec, &same_names(spec.nodes)));
    }

    #[test]
    fn renaming_equal_nodes_renames_the_colocated_pages(spec in spec(), turn in 1..6_usize) {
        let name: Vec<usize> = (0..spec.nodes).map(|node| (node + turn) % spec.nodes).collect();
        let plain = moves(&propose(&spec, &same_names(spec.nodes)), Mechanism::CoLocation);
        let renamed = moves(&propose(&spec, &name), Mechanism::CoLocation);
        let expected: Vec<PageMove> = plain
            .into_iter()
            .map(|page| PageMove { from: name[usize::from(page.from)] as u16, to: name[usize::from(page.to)] as u16, ..page })
            .collect();
        prop_assert_eq!(renamed, expected);
    }

    #[test]
    fn even_and_local_traffic_moves_nothing(spec in spec(), rate in 20.0..500.0_f64) {
        let nodes = spec.nodes;
        let local = |cell: usize| if cell / nodes == cell % nodes { rate } else { 0.01 * rate / nodes as f64 };
        // Memory where the process may not be goes to its nodes.
        let traffic = (0..nodes * nodes).map(local).collect();
        let spec = Spec { traffic, allowed: None, ..spec };
        let proposals = propose(&spec, &same_names(nodes));
        prop_assert!(only_sampling(&proposals), "{proposals:?}");
    }

    #[test]
    fn an_exempt_process_is_never_touched(spec in spec()) {
        let (topology, mut model) = build(&spec, &same_names(spec.nodes));
        model.apps[0].exempt = Some(Exemption::OptedOut);
        let mut policy = Carrefour::new(PRESETS[spec.preset].clone());
        let proposals = policy.propose(&model, &topology, &mut Random::new(spec.seed));
        prop_assert!(only_sampling(&proposals));
    }
}

/// Interleaving draws: the pages go elsewhere under another naming, but the evenness that they
/// bring is the same within chance.
#[test]
fn renaming_equal_nodes_does_not_change_what_interleaving_brings() {
    let pages =
        vec![PageSpec { home: Some(0), accesses: vec![(0, 2), (1, 2)], store: true }; 4_000];
    let traffic = (0..16).map(|cell| if cell % 4 == 0 { 40.0 } else { 2.0 }).collect();
    let spec = Spec { nodes: 4, traffic, pages, allowed: None, preset: 0, seed: 11 };
    let shares = |name: &[usize]| {
        let mut pages_on = [0_i32; 4];
        pages_on[name[0]] = 4_000;
        for page in moves(&propose(&spec, name), Mechanism::Interleaving) {
            pages_on[usize::from(page.from)] -= 1;
            pages_on[usize::from(page.to)] += 1;
        }
        pages_on.sort_unstable();
        pages_on
    };
    let (plain, renamed) = (shares(&[0, 1, 2, 3]), shares(&[2, 0, 3, 1]));
    let far = plain.iter().zip(&renamed).map(|(a, b)| (a - b).abs()).max();
    // Four standard deviations of a share of a third of 3,500 pages are 112.
    assert!(far.is_some_and(|far| far < 112), "{plain:?} {renamed:?}");
}
