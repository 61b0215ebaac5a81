//! Pages that only the node which holds them uses, on a busy controller.

use super::notation::{carrefour, model, proposals};
use rondpoint_core::model::TrafficSource;
use rondpoint_core::plan::{Action, Mechanism, PageMove};
use rondpoint_core::policy::carrefour::preset;
use rondpoint_core::{Policy, Proposal, Random};

/// One node runs everything, with its own memory.
const ALONE: &str = "node:4 core:4\nmatrix 60 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0\napp 1";
/// Every node asks as much of node 0.
const JAMMED: &str = "node:4 core:4\nmatrix 20 0 0 0 / 20 0 0 0 / 20 0 0 0 / 20 0 0 0\napp 1";

/// Pages that leave their only user in one round.
fn offloaded(preset: &str, machine: &str, pages: &str) -> Vec<PageMove> {
    moves(&proposals(&mut carrefour(preset), &format!("{machine}\n{pages}"), 1))
}

fn moves(round: &[Proposal]) -> Vec<PageMove> {
    let of = |action: &Action| match action {
        Action::MovePages { mechanism: Mechanism::Offloading, pages, .. } => pages.clone(),
        _ => Vec::new(),
    };
    round.iter().flat_map(|one| of(&one.action)).collect()
}

#[test]
fn where_one_node_asks_for_everything_its_pages_leave_until_all_controllers_serve_alike() {
    let pages = offloaded("steady", ALONE, "pages 400 home 0: 0x3");
    let to = |node: u16| pages.iter().filter(|page| page.to == node).count();
    assert!(pages.len() > 270 && pages.len() < 330, "three of four: {}", pages.len());
    assert!((1..4).all(|node| to(node) > 70), "{} {} {}", to(1), to(2), to(3));
}

#[test]
fn nothing_leaves_its_user_where_page_faults_alone_tell_of_memory() {
    let (topology, mut model) = model(&format!("{ALONE}\npages 400 home 0: 0x3"));
    model.apps[0].cpu_percent = 90.0;
    let mut leaves = |source| {
        model.apps[0].traffic_source = source;
        moves(&carrefour("steady").propose(&model, &topology, &mut Random::new(1))).len()
    };
    assert!(leaves(TrafficSource::Samples) > 270);
    assert_eq!(leaves(TrafficSource::HintFaults), 0);
}

#[test]
fn pages_between_them_leave_too() {
    let sampled = "pages 1 home 0: 0x3\ngap 9\n".repeat(40);
    assert!(offloaded("steady", ALONE, &sampled).len() > 200);
}

#[test]
fn pages_stay_with_their_user_where_others_leave_that_node_anyway() {
    let pages = "pages 100 home 0: 0x3\npages 100 home 0: 1x3\npages 100 home 0: 2x3";
    assert_eq!(offloaded("steady", JAMMED, pages), []);
}

#[test]
fn the_published_rules_leave_a_page_with_its_only_user() {
    for preset in preset::PRESETS.iter().filter(|preset| !preset.name.starts_with("steady")) {
        let pages = offloaded(preset.name, ALONE, "pages 30 home 0: 0x9");
        assert_eq!(pages, [], "{}", preset.name);
    }
}
