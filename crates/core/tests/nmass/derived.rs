//! Figures that the paper prints and that follow from its own definitions.

use crate::notation::Case;
use rondpoint_core::policy::nmass::{Place, Preset, map};
use rondpoint_machine::Machine;
use std::path::Path;

/// What a remote soplex issues relative to a local one: both printed localities (80 and 57 %) give
/// this rate [N-MASS s4; computed].
const REMOTE_RATE: f64 = 0.75;
/// Four clones of soplex as in the first conformance vector.
const FOUR_SOPLEX: &str =
    "processors 4 4\n a 22 1.38 @0\n b 22 1.38 @0\n c 22 1.38 @0\n d 22 1.38 @0";

/// Share of the memory references that are local, percent.
fn local_references(preset: &Preset) -> f64 {
    let case = Case::parse(FOUR_SOPLEX);
    let mapping = map(&case.processes, &case.processors, preset);
    let is_local = |place: &&Place| case.processors[place.processor].node == 0;
    let local = mapping.places.iter().filter(is_local).count() as f64;
    100.0 * local / (local + REMOTE_RATE * (mapping.places.len() as f64 - local))
}

#[test]
fn four_soplex_run_at_the_locality_where_the_paper_found_its_best_average() {
    // Best average slowdown at 80 % of references local [N-MASS s4].
    assert_eq!(local_references(&Preset::PUBLISHED), 80.0);
    assert_eq!(local_references(&Preset::MAXIMUM_LOCAL), 100.0);
}

#[test]
fn without_the_links_limit_two_soplex_would_go_away() {
    // 66 / 30.4 becomes 44 / 60.7: the 2+2 split that the paper measured at 57 % has the least
    // misses and is not its best.
    let wide = Preset { threshold_mpki: 1000.0, ..Preset::PUBLISHED };
    assert_eq!(local_references(&wide).round(), 57.0);
}

#[test]
fn mcf_goes_away_and_lbm_stays_home() {
    // Both home on processor 0: with mcf remote, lbm's slowdown falls from 11 to 1 % and the
    // average from 17 to 11 % [N-MASS s2].
    let case = Case::parse("processors 4 4\n mcf 30 1.10 @0\n lbm 25 1.45 @0");
    let mapping = map(&case.processes, &case.processors, &Preset::PUBLISHED);
    let processor_of = |process| {
        mapping.places.iter().find(|place| place.process == process).map(|place| place.processor)
    };
    assert_eq!((processor_of(0), processor_of(1)), (Some(1), Some(0)));
}

#[test]
fn the_papers_machine_has_the_papers_threshold_and_others_follow_link_and_clock() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/nmass-2.toml");
    let machine = Machine::load(&file).expect("a machine file").topology();
    assert_eq!(Preset::PUBLISHED.for_topology(&machine).threshold_mpki, 60.0);
    assert_eq!(Preset::PUBLISHED.for_machine(23_440.0, 2_267.0).threshold_mpki, 120.0);
    assert_eq!(Preset::PUBLISHED.for_machine(11_720.0, 4_534.0).threshold_mpki, 30.0);
}
