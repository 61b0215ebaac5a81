//! Step 2 of Carrefour: what happens to a page, and in which batches (ALGORITHMS 1.5).

use super::notation::check;
use expect_test::expect;

#[test]
fn a_page_with_one_accessing_node_goes_there_if_seen_twice() {
    check(
        "final",
        "node:4 core:4
         matrix 0 20 20 20 / 20 0 0 0 / 0 20 0 0 / 20 0 20 20
         app 1
         pages 3 home 0: 2x2
         pages 4 home 0: 2x1
         pages 5 home 2: 2x9",
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 160.0 DRAM requests/µs above 50.0
            move 3 pages of 1 (co-location): 3 × 0→2
              because local access ratio 12.5 % below 80 %; these of 12 sampled pages have one accessing node
        "#]],
    );
}

#[test]
fn the_author_code_takes_one_sample_and_colocates_while_interleaving() {
    // LAR 85 %: co-location is off, interleaving on.
    let text = "node:4 core:4
         matrix 85 0 0 0 / 5 0 0 0 / 5 0 0 0 / 5 0 0 0
         app 1
         pages 4 home 0: 2x1";
    check(
        "final",
        text,
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 100.0 DRAM requests/µs above 50.0
        "#]],
    );
    check(
        "code",
        text,
        expect![[r#"
            sample 1: every 65528 cycles, 30000 pages tracked
              because 100.0 DRAM requests/µs above 50.0
            move 4 pages of 1 (co-location): 4 × 0→2
              because interleaving is on; these of 4 sampled pages have one accessing node
        "#]],
    );
}

#[test]
fn shared_pages_of_the_only_busy_controller_all_leave() {
    check(
        "final",
        "node:4 core:4
         load 100 0 0 0
         app 1
         pages 30 home 0: 1x2 2x3 w1",
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 100.0 DRAM requests/µs above 50.0
            move 30 pages of 1 (interleaving): 8 × 0→1, 8 × 0→2, 14 × 0→3
              because controller imbalance 173.2 % above 35 %, shares 100 0 0 0 %; 30 shared pages considered
        "#]],
    );
}

const READ_SHARED: &str = "node:4 core:4
     load 40 20 20 20
     free 90
     app 1 reads 99";

#[test]
fn five_hundred_read_shared_pages_are_replicated() {
    check(
        "final",
        &format!("{READ_SHARED}\npages 500 home 0: 1x2 2x3\npages 7 home 0: 1x2 2x3 w1"),
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 100.0 DRAM requests/µs above 50.0
            replicate 500 pages of 1
              because 99.0 % of DRAM accesses read (limit 95 %), 90.0 % of memory free (75.0 % needed), batch of at least 500
        "#]],
    );
}

#[test]
fn fewer_read_shared_pages_do_not_pay_and_stay() {
    check(
        "final",
        &format!("{READ_SHARED}\npages 499 home 0: 1x2 2x3"),
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 100.0 DRAM requests/µs above 50.0
        "#]],
    );
}

#[test]
fn shared_mappings_and_huge_pages_are_never_replicated_but_interleaved() {
    let shared =
        "node:4 core:4\nload 100 0 0 0\nfree 90\napp 1 reads 99 shared\npages 600 home 0: 1x2 2x3";
    let huge =
        "node:4 core:4\nload 100 0 0 0\nfree 90\napp 1 reads 99\npages 600 home 0 huge: 1x2 2x3";
    for text in [shared, huge] {
        check(
            "final",
            text,
            expect![[r#"
                sample 1: every 65000 cycles, 30000 pages tracked
                  because 100.0 DRAM requests/µs above 50.0
                move 600 pages of 1 (interleaving): 222 × 0→1, 193 × 0→2, 185 × 0→3
                  because controller imbalance 173.2 % above 35 %, shares 100 0 0 0 %; 600 shared pages considered
            "#]],
        );
    }
}

#[test]
fn with_replication_off_read_shared_pages_fall_through_to_interleaving() {
    check(
        "final",
        "node:4 core:4\nload 100 0 0 0\nfree 10\napp 1 reads 99\npages 600 home 0: 1x2 2x3",
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 100.0 DRAM requests/µs above 50.0
            move 600 pages of 1 (interleaving): 222 × 0→1, 193 × 0→2, 185 × 0→3
              because controller imbalance 173.2 % above 35 %, shares 100 0 0 0 %; 600 shared pages considered, 600 of them only read: replication would take them
        "#]],
    );
}

#[test]
fn the_per_pid_branch_interleaves_over_accessing_nodes_only() {
    check(
        "per-pid",
        "node:4 core:4\nload 100 0 0 0\napp 1\npages 40 home 0: 1x2 2x3 w1",
        expect![[r#"
            sample 1: every 65528 cycles, 30000 pages tracked
              because 100.0 DRAM requests/µs above 50.0
            move 40 pages of 1 (interleaving): 16 × 0→1, 24 × 0→2
              because controller imbalance 200.0 % (divided by n - 1) above 35 %, shares 100 0 0 0 %; 40 shared pages considered
        "#]],
    );
}

#[test]
fn two_applications_with_opposite_needs_are_judged_apart() {
    check(
        "final",
        "node:4 core:4
         load 210 70 70 70
         app 1
         own 200 0 0 0
         pages 20 home 0: 1x2 2x3 w1
         app 2
         own 70 70 70 70
         pages 20 home 0: 1x2 2x3 w1
         pages 20 home 0: 3x4",
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 200.0 DRAM requests/µs above 50.0
            sample 2: every 65000 cycles, 30000 pages tracked
              because 280.0 DRAM requests/µs above 50.0
            move 5 pages of 1 (interleaving): 2 × 0→1, 2 × 0→2, 1 × 0→3
              because controller imbalance 57.7 % above 35 %, shares 50 17 17 17 %; 20 shared pages considered
            move 20 pages of 2 (co-location): 20 × 0→3
              because local access ratio 25.0 % below 80 %; these of 40 sampled pages have one accessing node
        "#]],
    );
}

#[test]
fn nothing_wrong_nothing_moves() {
    // Even controllers, 90 % local: pages that look misplaced stay where they are.
    check(
        "final",
        "node:2 core:4\nmatrix 90 10 / 10 90\nfree 90\napp 1 reads 99\npages 900 home 0: 1x9\npages 900 home 0: 0x3 1x3",
        expect![[r#"
            sample 1: every 65000 cycles, 30000 pages tracked
              because 200.0 DRAM requests/µs above 25.0
            replicate 900 pages of 1
              because 99.0 % of DRAM accesses read (limit 95 %), 90.0 % of memory free (50.0 % needed), batch of at least 500
        "#]],
    );
    check(
        "final",
        "node:2 core:4\nmatrix 90 10 / 10 90\nfree 90\napp 1 reads 50\npages 900 home 0: 1x9\npages 900 home 0: 0x3 1x3",
        expect![[r#"
            sample 1: off
              because no mechanism applies: local access ratio 90.0 %, controller imbalance 0.0 %
        "#]],
    );
}
