//! Pages that only the node which holds them uses, on a busy controller.

use super::notation::{FIRST_PAGE, carrefour, proposals};
use super::rounds::learn;
use rondpoint_core::Proposal;
use rondpoint_core::plan::{Action, Mechanism, PageMove};
use rondpoint_core::policy::carrefour::preset;

/// One node runs everything, with its own memory.
const ALONE: &str = "node:4 core:4\nmatrix 60 0 0 0 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0\napp 1";
/// The same with its memory on all nodes.
const SPREAD: &str = "node:4 core:4\nmatrix 20 20 20 20 / 0 0 0 0 / 0 0 0 0 / 0 0 0 0\napp 1";
/// Every node asks as much of node 0.
const JAMMED: &str = "node:4 core:4\nmatrix 20 0 0 0 / 20 0 0 0 / 20 0 0 0 / 20 0 0 0\napp 1";

/// Pages that leave their only user in one round.
fn offloaded(preset: &str, machine: &str, pages: &str) -> Vec<PageMove> {
    let round = proposals(&mut carrefour(preset), &format!("{machine}\n{pages}"), 1);
    moved(&round, Mechanism::Offloading)
}

fn moved(round: &[Proposal], by: Mechanism) -> Vec<PageMove> {
    let of = |action: &Action| match action {
        Action::MovePages { mechanism, pages, .. } if *mechanism == by => pages.clone(),
        _ => Vec::new(),
    };
    round.iter().flat_map(|one| of(&one.action)).collect()
}

/// Pages that node 0 used were offloaded in one round, and `user` uses them in the next, with this
/// traffic. Behind each sampled page, `gap` pages are not sampled. How many pages are brought to
/// the user, and how many left.
fn brought_back(next: &str, user: usize, gap: usize) -> (usize, usize) {
    const PAGES: usize = 400;
    let mut policy = carrefour("steady");
    let pages = format!("\npages 1 home 0: 0x3\ngap {gap}").repeat(PAGES);
    let round = proposals(&mut policy, &format!("{ALONE}{pages}"), 1);
    let left = moved(&round, Mechanism::Offloading);
    learn(&mut policy, round, left.len() as u64);
    let home = |page: usize| {
        let address = (FIRST_PAGE + (page * (1 + gap)) as u64) << 12;
        left.iter().find(|one| one.address == address).map_or(0, |one| one.to)
    };
    let page = |page: usize| format!("\npages 1 home {}: {user}x3\ngap {gap}", home(page));
    let pages: String = (0..PAGES).map(page).collect();
    let round = proposals(&mut policy, &format!("{next}{pages}"), 1);
    (moved(&round, Mechanism::CoLocation).len(), left.len())
}

#[test]
fn where_one_node_asks_for_everything_its_pages_leave_until_all_controllers_serve_alike() {
    let pages = offloaded("steady", ALONE, "pages 400 home 0: 0x3");
    let to = |node: u16| pages.iter().filter(|page| page.to == node).count();
    assert!(pages.len() > 270 && pages.len() < 330, "three of four: {}", pages.len());
    assert!((1..4).all(|node| to(node) > 70), "{} {} {}", to(1), to(2), to(3));
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

#[test]
fn pages_that_left_stay_away_while_their_users_controller_would_be_busy() {
    let (back, left) = brought_back(SPREAD, 0, 0);
    assert!(left > 100);
    assert_eq!(back, 0);
}

#[test]
fn unsampled_pages_between_them_stay_where_they_are_too() {
    let (back, left) = brought_back(SPREAD, 0, 4);
    assert!(left > 1_000, "{left}");
    assert_eq!(back, 0);
}

#[test]
fn they_return_when_other_nodes_ask_for_more() {
    let others = "node:4 core:4\nmatrix 5 5 5 5 / 10 10 10 10 / 10 10 10 10 / 10 10 10 10\napp 1";
    let (back, left) = brought_back(others, 0, 0);
    assert_eq!(back, left);
}

#[test]
fn they_follow_a_thread_that_went_to_another_node() {
    let moved_on = "node:4 core:4\nmatrix 0 0 0 0 / 20 20 20 20 / 0 0 0 0 / 0 0 0 0\napp 1";
    let (back, left) = brought_back(moved_on, 1, 0);
    assert!(back > left / 2, "{back} of {left}");
}
