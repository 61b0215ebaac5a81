//! Pages: budgets, residence, room, and other processes that have mapped them.

use super::check;
use super::scene::{Stage, bulk, move_pages, replicate};
use expect_test::expect;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::model::SharedMemory;
use rondpoint_core::observation::{
    AddressRange, Exemption, ProcessObservation, Replica, SharedMapping, SharedObject,
};
use rondpoint_core::{Nanos, NodeSet};

#[test]
fn pages_beyond_the_budget_of_a_node_wait() {
    let mut stage =
        Stage::with(GuardSettings { bytes_per_s_per_node: 10 * 4096, ..GuardSettings::acting() });
    let pages: Vec<(u64, u16, u16)> = (0..20)
        .map(|page| (page << 12, if page < 12 { 0 } else { 3 }, if page < 12 { 1 } else { 2 }))
        .collect();
    check(
        &mut stage,
        vec![move_pages(1, &pages)],
        expect![[r#"
            admit move 18 pages of 1 (co-location): 10 × 0→1, 8 × 3→2
            refuse move 2 pages of 1 (co-location): 2 × 0→1: budget of node 0: 0 B left
        "#]],
    );
    stage.model.at += Nanos::from_millis(200);
    check(
        &mut stage,
        vec![move_pages(2, &pages)],
        expect![[r#"
            admit move 6 pages of 2 (co-location): 2 × 0→1, 4 × 3→2
            refuse move 14 pages of 2 (co-location): 10 × 0→1, 4 × 3→2: budget of node 0: 0 B left
        "#]],
    );
}

#[test]
fn a_page_moves_once_in_five_seconds() {
    let mut stage = Stage::new();
    let mut at = |seconds: u64, from, to| {
        stage.model.at = Nanos::from_secs(100 + seconds);
        stage.admit(vec![move_pages(1, &[(0x1000, from, to)])])
    };
    assert!(at(0, 0, 1).starts_with("admit"));
    assert!(at(4, 1, 0).ends_with("stays 1.0 s more\n"));
    assert!(at(5, 1, 0).starts_with("admit"));
    assert!(at(10, 0, 1).starts_with("admit"));
    assert!(at(15, 1, 0).ends_with("moved 3 times in the window\n"));
}

#[test]
fn a_page_gets_copies_where_it_was_just_moved_to_and_stays_while_it_has_them() {
    let mut stage = Stage::new();
    let mut at = |seconds: u64, has_copies: bool, proposal| {
        let replica = Replica { address: 0x1000, collapses: 0 };
        stage.model.apps[0].replicas = Some(has_copies.then_some(replica).into_iter().collect());
        stage.model.at = Nanos::from_secs(100 + seconds);
        stage.admit(vec![proposal])
    };
    let copies = || replicate(1, &[(0x1000, 1)]);
    let moved = |from, to| move_pages(1, &[(0x1000, from, to)]);
    assert!(at(0, false, moved(0, 1)).starts_with("admit"));
    assert!(at(1, false, copies()).starts_with("admit"), "a part of a table alone gains nothing");
    assert!(at(5, true, moved(1, 0)).ends_with("stays 1.0 s more\n"), "its copies are new");
    assert!(at(6, false, copies()).starts_with("admit"), "a write took them back");
    assert!(at(7, false, copies()).starts_with("admit"));
    assert!(at(8, false, copies()).ends_with("moved 3 times in the window\n"));
}

#[test]
fn a_page_whose_copies_were_refused_or_taken_back_may_move_at_once() {
    let mut stage = Stage::new();
    stage.model.apps[0].replicas = Some(Vec::new());
    let mut at = |seconds: u64, proposals| {
        stage.model.at = Nanos::from_secs(100 + seconds);
        stage.admit(proposals)
    };
    let copies = || replicate(1, &[(0x1000, 0)]);
    let moved = |from, to| move_pages(1, &[(0x1000, from, to)]);
    let both = at(0, vec![copies(), moved(0, 1)]);
    assert!(both.contains("admit replicate") && both.contains("refuse move"), "{both}");
    assert!(at(1, vec![moved(0, 1)]).starts_with("admit"));
    let both = at(10, vec![moved(1, 0), copies()]);
    assert!(both.contains("admit move") && both.contains("refuse replicate"), "{both}");
}

#[test]
fn pages_go_only_where_the_process_may_have_memory_and_there_is_room() {
    let mut stage = Stage::new();
    stage.model.apps[0].allowed_nodes = Some([0, 1].into_iter().collect::<NodeSet>());
    stage.set_free(&[1 << 30, (16 << 30) / 50 + 8192, 0, 1 << 30]);
    check(
        &mut stage,
        vec![move_pages(
            1,
            &[
                (0x1000, 0, 3),
                (0x2000, 0, 1),
                (0x3000, 0, 1),
                (0x4000, 0, 1),
                (0x5000, 0, 9),
                (0x6000, 1, 1),
            ],
        )],
        expect![[r#"
            admit move 2 pages of 1 (co-location): 2 × 0→1
            refuse move 1 page of 1 (co-location): 1 × 0→3: node 3 is not allowed to the process
            refuse move 1 page of 1 (co-location): 1 × 0→1: node 1 has 0 B free
            refuse move 2 pages of 1 (co-location): 1 × 0→9, 1 × 1→1: no such CPU or node, or nothing to do
        "#]],
    );
}

#[test]
fn what_others_have_mapped_too_moves_only_if_each_of_them_may_be_touched() {
    let mut stage = Stage::new();
    let object = SharedObject { device: 1, inode: 7 };
    let shared = vec![SharedMapping { start: 0x1000, end: 0x9000, object, offset: 0 }];
    let map = |app: usize| ProcessObservation {
        shared: if app < 2 { shared.clone() } else { Vec::new() },
        ..ProcessObservation::default()
    };
    let processes: Vec<_> = (0..3).map(map).collect();
    stage.model.shared = SharedMemory::of(&stage.model.apps, &processes);
    check(
        &mut stage,
        vec![move_pages(1, &[(0x1000, 0, 1)])],
        expect![[r#"
            admit move 1 page of 1 (co-location): 1 × 0→1
        "#]],
    );
    stage.model.apps[1].allowed_nodes = Some(NodeSet::first(2));
    check(
        &mut stage,
        vec![move_pages(1, &[(0x2000, 0, 2)])],
        expect![[r#"
        refuse move 1 page of 1 (co-location): 1 × 0→2: node 2 is not allowed to the process
    "#]],
    );
    stage.model.apps[1].exempt = Some(Exemption::OwnMemoryPolicy);
    let pages = move_pages(1, &[(0x3000, 0, 1), (0x9000, 0, 1)]);
    check(
        &mut stage,
        vec![pages],
        expect![[r#"
            admit move 1 page of 1 (co-location): 1 × 0→1
            refuse move 1 page of 1 (co-location): 1 × 0→1: not to be touched: it has a memory policy of its own
        "#]],
    );
}

#[test]
fn a_sharer_is_asked_wherever_it_has_mapped_the_page() {
    let mut stage = Stage::new();
    let object = SharedObject { device: 1, inode: 7 };
    let at = |start: u64| SharedMapping { start, end: start + 0x8000, object, offset: 0 };
    let map = |start| ProcessObservation { shared: vec![at(start)], ..Default::default() };
    let processes: Vec<_> = [0x1000, 0x11000, 0x21000].into_iter().map(map).collect();
    stage.model.shared = SharedMemory::of(&stage.model.apps, &processes);
    stage.model.apps[2].exempt = Some(Exemption::OwnMemoryPolicy);
    for (pid, address) in [(1, 0x2000), (2, 0x12000)] {
        let told = stage.admit(vec![move_pages(pid, &[(address, 0, 1)])]);
        assert!(
            told.ends_with("0→1: not to be touched: it has a memory policy of its own\n"),
            "{told}"
        );
    }
}

#[test]
fn replication_charges_every_node() {
    let mut stage =
        Stage::with(GuardSettings { bytes_per_s_per_node: 2 * 4096, ..GuardSettings::acting() });
    check(
        &mut stage,
        vec![
            replicate(1, &[(0x1000, 0), (0x2000, 0), (0x3000, 0)]),
            move_pages(1, &[(0x9000, 1, 2)]),
        ],
        expect![[r#"
            admit replicate 2 pages of 1
            refuse replicate 1 page of 1: budget of node 0: 0 B left
            refuse move 1 page of 1 (co-location): 1 × 1→2: budget of node 1: 0 B left
        "#]],
    );
}

#[test]
fn no_page_moves_where_a_memory_policy_may_be_that_was_not_read() {
    let mut stage = Stage::new();
    let range = |start, end| AddressRange { start, end };
    stage.model.apps[0].policy_read = Some(vec![range(0x1000, 0x3000), range(0x8000, 0x9000)]);
    let pages = [0x0000, 0x1000, 0x2000, 0x3000, 0x8000, 0x9000].map(|address| (address, 0, 1));
    check(
        &mut stage,
        vec![move_pages(1, &pages), move_pages(2, &[(0x3000, 0, 1)])],
        expect![[r#"
            admit move 3 pages of 1 (co-location): 3 × 0→1
            admit move 1 page of 2 (co-location): 1 × 0→1
            refuse move 3 pages of 1 (co-location): 3 × 0→1: it may have a memory policy of its own there
        "#]],
    );
    check(
        &mut stage,
        vec![replicate(1, &[(0x9000, 0)]), bulk(3, &[(0, 1)], false)],
        expect![[r#"
            admit move 5.0 GiB of 3: 0→1
            refuse replicate 1 page of 1: it may have a memory policy of its own there
        "#]],
    );
    let mut stage = Stage::new();
    stage.model.apps[0].policy_read = Some(vec![range(0, u64::MAX)]);
    let told = stage.admit(vec![bulk(1, &[(0, 1)], false)]);
    assert!(told.ends_with("0→1: it may have a memory policy of its own there\n"), "{told}");
}

#[test]
fn a_shared_page_stays_while_a_sharer_may_have_a_policy_for_it() {
    let mut stage = Stage::new();
    let object = SharedObject { device: 1, inode: 7 };
    let shared = vec![SharedMapping { start: 0x1000, end: 0x9000, object, offset: 0 }];
    let map = |_| ProcessObservation { shared: shared.clone(), ..Default::default() };
    stage.model.shared = SharedMemory::of(&stage.model.apps, &[1, 2, 3].map(map));
    stage.model.apps[1].policy_read = Some(Vec::new());
    let told = stage.admit(vec![move_pages(1, &[(0x1000, 0, 1), (0x9000, 0, 1)])]);
    assert_eq!(
        told,
        "admit move 1 page of 1 (co-location): 1 × 0→1\n\
         refuse move 1 page of 1 (co-location): 1 × 0→1: it may have a memory policy of its own there\n"
    );
    stage.model.apps[1].policy_read = Some(vec![AddressRange { start: 0x4000, end: 0x9000 }]);
    let told = stage.admit(vec![move_pages(1, &[(0x2000, 0, 1), (0x4000, 0, 1)])]);
    assert_eq!(
        told,
        "admit move 1 page of 1 (co-location): 1 × 0→1\n\
         refuse move 1 page of 1 (co-location): 1 × 0→1: it may have a memory policy of its own there\n",
        "the sharer's policy was read for one of the pages"
    );
}
