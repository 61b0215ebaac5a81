//! Pages between sampled ones, which our own preset moves with their neighbours.

use rondpoint_core::observation::Replica;
use rondpoint_core::plan::{Action, Mechanism, PageMove};
use rondpoint_core::{Nanos, Policy, Proposal, Random, policy::carrefour::preset};

use super::notation::{carrefour, model, proposals};
use super::rounds::learn;

/// All memory on node 0, used by all: interleaving and co-location are on.
const JAM: &str = "node:4 core:4
     matrix 40 0 0 0 / 40 0 0 0 / 40 0 0 0 / 40 0 0 0
     app 1";

fn round(preset: &str, pages: &str) -> Vec<Proposal> {
    proposals(&mut carrefour(preset), &format!("{JAM}\n{pages}"), 1)
}

/// Numbers of the pages that a mechanism moves; the first page of a model has number 16.
fn moved(proposals: &[Proposal], wanted: Mechanism) -> Vec<PageMove> {
    let pages = proposals.iter().filter_map(|proposal| match &proposal.action {
        Action::MovePages { mechanism, pages, .. } if *mechanism == wanted => Some(pages.clone()),
        _ => None,
    });
    let mut pages: Vec<PageMove> = pages.flatten().collect();
    pages.sort_unstable();
    pages
}

fn numbers(pages: &[PageMove]) -> Vec<u64> {
    pages.iter().map(|page| page.address >> 12).collect()
}

#[test]
fn a_gap_in_one_nodes_pages_is_that_nodes() {
    let pages = "pages 2 home 0: 3x2\n gap 10\n pages 2 home 0: 3x2";
    let ours = moved(&round("steady", pages), Mechanism::CoLocation);
    assert_eq!(numbers(&ours), (16..30).collect::<Vec<_>>());
    assert!(ours.iter().all(|page| (page.from, page.to) == (0, 3)), "{ours:?}");
    let published = moved(&round("final", pages), Mechanism::CoLocation);
    assert_eq!(numbers(&published), [16, 17, 28, 29]);
}

#[test]
fn a_gap_in_shared_pages_is_spread_with_them() {
    let pages = "pages 200 home 0: 1x1 2x1\n gap 400\n pages 200 home 0: 1x1 2x1";
    let ours = round("steady", pages);
    let moves = moved(&ours, Mechanism::Interleaving);
    let between = moves.iter().filter(|page| (216..616).contains(&(page.address >> 12)));
    // Three quarters leave the only busy controller: 300 of 400, standard deviation 9.
    let between = between.count();
    assert!((260..=340).contains(&between), "{between}");
    let reason = &ours.iter().find(|one| matches!(one.action, Action::MovePages { .. })).unwrap();
    let told = format!("{between} of those that move lie between them");
    assert!(reason.reason.to_string().contains(&told), "{}", reason.reason);
    assert!(moved(&round("final", pages), Mechanism::Interleaving).len() <= 400);
}

#[test]
fn nothing_is_known_of_a_gap_on_the_border_of_two_nodes_pages() {
    let pages = "pages 4 home 0: 1x2\n gap 10\n pages 4 home 0: 2x2";
    let moves = moved(&round("steady", pages), Mechanism::CoLocation);
    assert_eq!(numbers(&moves), [16, 17, 18, 19, 30, 31, 32, 33]);
    assert!(moved(&round("steady", pages), Mechanism::Interleaving).is_empty());
}

#[test]
fn single_samples_of_different_nodes_do_not_make_a_page_shared() {
    let pages = "pages 1 home 0: 1x1\n pages 1 home 0: 2x1\n gap 3\n pages 1 home 0: 3x1\n pages 1 home 0: 1x1";
    let ours = round("steady", pages);
    assert!(moved(&ours, Mechanism::Interleaving).is_empty());
    assert!(moved(&ours, Mechanism::CoLocation).is_empty());
}

#[test]
fn a_gap_wider_than_a_huge_page_is_not_filled() {
    let around = |gap: u64| format!("pages 4 home 0: 3x2\n gap {gap}\n pages 4 home 0: 3x2");
    let filled = |gap| moved(&round("steady", &around(gap)), Mechanism::CoLocation).len();
    assert_eq!(filled(512), 520);
    assert_eq!(filled(513), 8);
}

#[test]
fn a_page_that_was_sampled_once_goes_from_where_it_was_seen() {
    let pages = "pages 3 home 0: 3x2\n pages 1 home 1: 3x1\n pages 3 home 0: 3x2";
    let moves = moved(&round("steady", pages), Mechanism::CoLocation);
    assert_eq!(numbers(&moves), (16..23).collect::<Vec<_>>());
    assert_eq!(moves[3].from, 1);
}

#[test]
fn a_page_is_filled_in_once() {
    let mut policy = carrefour("steady");
    let text = format!("{JAM}\n pages 2 home 0: 3x2\n gap 10\n pages 2 home 0: 3x2");
    let first = proposals(&mut policy, &text, 1);
    assert_eq!(moved(&first, Mechanism::CoLocation).len(), 14);
    learn(&mut policy, first, 14);
    let second = proposals(&mut policy, &text, 2);
    assert_eq!(numbers(&moved(&second, Mechanism::CoLocation)), [16, 17, 28, 29]);
}

#[test]
fn no_published_preset_moves_what_was_not_sampled() {
    let published = preset::PRESETS.iter().filter(|preset| !preset.name.starts_with("steady"));
    assert!(published.clone().count() > 5);
    assert!(published.clone().all(|preset| preset.pages.between.is_none()));
}

#[test]
fn where_most_pages_are_shared_two_accesses_make_none_one_nodes() {
    let round = |accesses: u32| {
        let pages = format!("pages 20 home 0: 1x1 2x1\n gap 600\n pages 4 home 0: 3x{accesses}");
        numbers(&moved(&round("steady", &pages), Mechanism::CoLocation))
    };
    assert_eq!(round(3), []);
    assert_eq!(round(4), (636..640).collect::<Vec<_>>());
}

#[test]
fn one_page_of_a_hundred_is_not_worth_a_trial() {
    let misplaced = |pages: u64| {
        let text = format!("pages 100 home 3: 3x2\n gap 600\n pages {pages} home 0: 3x2");
        moved(&round("steady", &text), Mechanism::CoLocation).len()
    };
    assert_eq!((misplaced(2), misplaced(3)), (0, 3));
}

/// The same with an application that may have copies.
const READS: &str = "node:4 core:4
     matrix 40 0 0 0 / 40 0 0 0 / 40 0 0 0 / 40 0 0 0
     free 90
     app 1 reads 99";

/// Numbers of the pages that get copies.
fn copied(proposals: &[Proposal]) -> Vec<u64> {
    let pages = proposals.iter().filter_map(|proposal| match &proposal.action {
        Action::Replicate { pages, .. } => Some(pages.clone()),
        _ => None,
    });
    let mut pages = numbers(&pages.flatten().collect::<Vec<_>>());
    pages.sort_unstable();
    pages
}

#[test]
fn a_gap_in_pages_that_are_only_read_gets_copies_with_them() {
    let pages = "pages 200 home 0: 1x1 2x1\n gap 400\n pages 200 home 0: 1x1 2x1";
    let round = |preset| proposals(&mut carrefour(preset), &format!("{READS}\n{pages}"), 1);
    assert_eq!(copied(&round("steady")), (16..816).collect::<Vec<_>>());
    assert_eq!(copied(&round("final")), [], "400 sampled pages are no batch");
    assert_eq!(copied(&round("steady-without-copies")), []);
}

#[test]
fn a_gap_beside_a_written_page_gets_no_copies() {
    let pages = "pages 600 home 0: 1x1 2x1\n pages 1 home 0: 1x2 2x1 w1\n gap 300\n\
                 pages 3 home 0: 1x1 2x1";
    let round = proposals(&mut carrefour("steady"), &format!("{READS}\n{pages}"), 1);
    let expected = (16..616).chain(917..920).collect::<Vec<_>>();
    assert_eq!(copied(&round), expected);
}

#[test]
fn pages_that_are_too_few_for_copies_are_spread() {
    let text = format!("{READS}\npages 200 home 0: 1x1 2x1");
    let spread = |preset| {
        let round = proposals(&mut carrefour(preset), &text, 1);
        assert_eq!(copied(&round), [], "{preset}");
        moved(&round, Mechanism::Interleaving).len()
    };
    // Three quarters leave the only busy controller: 150 of 200, standard deviation 6.
    assert!((120..=180).contains(&spread("steady")));
    assert_eq!(spread("final"), 0, "as published");
}

/// Numbers of the pages that spread in the round after copies were offered, of which these held.
fn spread_after(held: impl Fn(u64) -> bool) -> Vec<u64> {
    let text = format!("{READS}\npages 200 home 0: 1x1 2x1\n gap 400\n pages 200 home 0: 1x1 2x1");
    let mut policy = carrefour("steady");
    let (topology, mut model) = model(&text);
    let offered = policy.propose(&model, &topology, &mut Random::new(1));
    let pages = copied(&offered);
    let have: Vec<u64> = pages.into_iter().filter(|page| held(*page)).collect();
    learn(&mut policy, offered, have.len() as u64);
    let replica = |page: &u64| Replica { address: page << 12, collapses: 0 };
    model.apps[0].replicas = Some(have.iter().map(replica).collect());
    model.at = Nanos::from_secs(1);
    let mut spread = Vec::new();
    // Copying waits longer and longer, and three pages of four leave the busy node each time.
    for round in 1..30 {
        model.at = Nanos::from_secs(round);
        let steps = policy.propose(&model, &topology, &mut Random::new(round));
        let moves = numbers(&moved(&steps, Mechanism::Interleaving));
        learn(&mut policy, steps, moves.len() as u64);
        spread.extend(moves);
    }
    spread.sort_unstable();
    spread.dedup();
    spread
}

#[test]
fn a_page_that_the_kernel_refused_copies_spreads_and_one_that_has_them_stays() {
    let all: Vec<u64> = (16..816).collect();
    let none_held = spread_after(|_| false);
    // The page with the last rank may be left when nothing more is sampled.
    assert!(none_held.len() + 1 >= all.len(), "sampled pages and the gap alike: {none_held:?}");
    let odd = spread_after(|page| page % 2 == 0 && page < 500);
    assert!(odd.iter().all(|page| page % 2 == 1 || *page >= 500), "copies are left alone");
    let left = (216..616).filter(|page| page % 2 == 1 && !odd.contains(page)).count();
    assert!(left <= 1, "{odd:?}");
    assert_eq!(spread_after(|_| true), [], "all held");
}
