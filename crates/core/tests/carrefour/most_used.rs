//! Pages of several nodes, of which one makes most accesses.

use super::notation::{carrefour, proposals};
use rondpoint_core::plan::{Action, Mechanism, Reason};
use rondpoint_core::policy::carrefour::{CarrefourReason, preset};

/// Node 0 serves most; half of the accesses are remote.
const JAMMED: &str = "node:4 core:4
    matrix 40 2 2 2 / 20 2 2 2 / 20 2 2 2 / 20 2 2 2
    app 1";

/// Targets of the pages that go where they are used most, in one round.
fn most_used(preset: &str, pages: &str) -> Vec<u16> {
    let round = proposals(&mut carrefour(preset), &format!("{JAMMED}\n{pages}"), 1);
    let of =
        |reason: &Reason| matches!(reason, Reason::Carrefour(CarrefourReason::MostUsed { .. }));
    let moves = round.iter().filter(|proposal| of(&proposal.reason));
    moves.flat_map(|proposal| targets(&proposal.action, Mechanism::CoLocation)).collect()
}

fn targets(action: &Action, wanted: Mechanism) -> Vec<u16> {
    match action {
        Action::MovePages { mechanism, pages, .. } if *mechanism == wanted => {
            pages.iter().map(|page| page.to).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn a_page_goes_to_the_node_that_surely_makes_most_of_its_accesses() {
    assert_eq!(most_used("steady", "pages 3 home 0 huge: 1x3 2x20"), [2, 2, 2]);
    assert_eq!(most_used("steady", "pages 3 home 0: 1x3 2x20"), [2, 2, 2]);
    let by_chance = "pages 3 home 0: 1x3 2x5";
    assert_eq!(most_used("steady", by_chance), [], "two evenly drawn nodes differ so much");
    assert_eq!(most_used("steady", "pages 3 home 0: 1x20 2x20"), []);
    assert_eq!(most_used("steady", "pages 3 home 2: 1x3 2x20"), [], "they are there");
    assert_eq!(most_used("steady", "pages 3 home 2: 1x3 0x20"), [], "node 0 has no room");
}

#[test]
fn the_published_rules_leave_that_to_chance() {
    for preset in preset::PRESETS.iter().filter(|preset| !preset.name.starts_with("steady")) {
        assert_eq!(most_used(preset.name, "pages 30 home 0: 1x3 2x20"), [], "{}", preset.name);
    }
}

#[test]
fn a_page_that_is_spread_goes_rather_to_a_node_that_uses_it() {
    let spread = |preset: &str| {
        let pages = format!("{JAMMED}\npages 400 home 0: 1x6 2x6");
        let round = proposals(&mut carrefour(preset), &pages, 1);
        let all = round.iter().flat_map(|one| targets(&one.action, Mechanism::Interleaving));
        let all: Vec<u16> = all.collect();
        let unused = all.iter().filter(|node| **node == 3).count();
        (all.len(), unused)
    };
    let (all, unused) = spread("steady");
    assert!(all > 200 && unused < all / 8, "{unused} of {all}");
    let (all, unused) = spread("final");
    assert!(unused > all / 4, "{unused} of {all}");
}
