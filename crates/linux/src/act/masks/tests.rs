//! Tests which threads count as heirs, by given masks and times.

use super::*;

const SECOND: u64 = 1_000_000_000;

fn cpus(list: &str) -> CpuSet {
    set(list).unwrap()
}

fn task(pid: u32, tid: u32, started_s: u64) -> Task {
    let process = Identity { pid: Pid(pid), started: Nanos(SECOND) };
    Task { process, tid: Tid(tid), started: Nanos(started_s * SECOND) }
}

fn change(task: Task, at_s: u64, via: Option<usize>, before: &str, given: &str) -> Change {
    let original = Original { cpus: cpus(before), whole: false };
    let at = Nanos(at_s * SECOND);
    Change { plan: 1, task, session: 1, at, original, via, cpus: cpus(given) }
}

/// What a thread that was born at some second and has some mask is taken for, and what it gets
/// back.
fn told(masks: &Masks, task: Task, now: &str) -> String {
    match masks.standing(&task, &cpus(now), None) {
        Standing::Ours(original) => format!("ours, had {}", original.cpus),
        Standing::Heir(original) => format!("heir of {}", original.cpus),
        Standing::Changed(_) => "changed".to_string(),
        Standing::Untouched => "untouched".to_string(),
    }
}

#[test]
fn heirs_are_threads_born_with_a_mask_while_it_was_in_force() {
    let mut masks = Masks::default();
    let creator = task(1, 1, 1);
    masks.enter(&change(creator, 10, Some(2), "0-7", "0-3"));
    masks.enter(&change(creator, 20, None, "0-7", "4-7"));
    for (born, mask, expected) in [
        (5, "0-3", "untouched"), // there before, so it chose this mask
        (10, "0-3", "heir of 0-7"),
        (15, "0-3", "heir of 0-7"),
        (15, "2", "untouched"), // the one CPU was there for a moment, five seconds ago
        (10, "2", "heir of 0-7"),
        (15, "4-7", "untouched"),
        (25, "4-7", "heir of 0-7"),
        (25, "0-3", "untouched"),
        (25, "0-7", "untouched"),
    ] {
        assert_eq!(told(&masks, task(1, 9, born), mask), expected, "{born} s, {mask}");
    }
    assert_eq!(told(&masks, creator, "4-7"), "ours, had 0-7");
    assert_eq!(told(&masks, creator, "0-3"), "changed");
    masks.let_go(&creator, Nanos(30 * SECOND));
    assert_eq!(told(&masks, creator, "4-7"), "untouched");
    assert_eq!(told(&masks, task(1, 9, 29), "4-7"), "heir of 0-7");
    assert_eq!(told(&masks, task(1, 9, 35), "4-7"), "untouched");
}

#[test]
fn a_thread_born_after_an_undo_is_no_heir() {
    let mut masks = Masks::default();
    let creator = task(1, 1, 1);
    masks.enter(&change(creator, 10, None, "0-7", "0-3"));
    masks.enter(&change(creator, 20, None, "0-7", "0-7"));
    assert_eq!(told(&masks, creator, "0-7"), "ours, had 0-7");
    assert_eq!(told(&masks, task(1, 9, 25), "0-7"), "untouched");
}

#[test]
fn orphans_are_reckoned_with_only_where_the_manager_was_killed() {
    let mut masks = Masks::default();
    let first = change(task(1, 1, 1), 10, None, "0-7", "0-3");
    masks.enter(&first);
    let orphan = Identity { pid: Pid(9), started: Nanos(15 * SECOND) };
    assert!(!masks.may_have_borne(&orphan, 1));
    let left = Masks::of_ledger(&[first.entry()]);
    assert!(left.may_have_borne(&orphan, 1));
    assert!(!left.may_have_borne(&orphan, 2), "another session");
    let elder = Identity { pid: Pid(8), started: Nanos(5 * SECOND) };
    assert!(!left.may_have_borne(&elder, 1));
    // In a container, under a shell that was started from outside of it.
    let outside = Change { session: 0, ..first };
    assert!(Masks::of_ledger(&[outside.entry()]).may_have_borne(&orphan, 0));
    assert!(!left.may_have_borne(&orphan, 0));
}

#[test]
fn an_heir_gets_what_its_own_process_had_else_what_every_creator_had() {
    let mut masks = Masks::default();
    masks.enter(&change(task(1, 1, 1), 10, None, "0-7", "0"));
    masks.enter(&change(task(2, 2, 1), 10, None, "0-3", "0"));
    assert_eq!(told(&masks, task(1, 9, 11), "0"), "heir of 0-7");
    assert_eq!(told(&masks, task(2, 9, 11), "0"), "heir of 0-3");
    assert_eq!(told(&masks, task(3, 9, 11), "0"), "heir of 0-3");
}

#[test]
fn a_mask_that_the_cpuset_cut_down_is_still_ours() {
    let mut masks = Masks::default();
    let one = task(1, 1, 1);
    masks.enter(&change(one, 10, None, "0-7", "0-3"));
    let is_ours = |now, cpuset: Option<&str>| {
        let standing = masks.standing(&one, &cpus(now), cpuset.map(cpus).as_ref());
        matches!(standing, Standing::Ours(_))
    };
    assert!(is_ours("0-3", None) && is_ours("0-3", Some("0-5")));
    assert!(!is_ours("0-1", None) && !is_ours("0-1", Some("0-7")));
    assert!(is_ours("0-1", Some("0-1,6")));
    assert!(is_ours("6-7", Some("6-7")), "nothing of ours was left");
}

/// What is left of the mask now is what its creator has, and the rest comes back with the cpuset.
#[test]
fn an_heir_whose_mask_the_cpuset_has_cut_is_one_still() {
    let mut masks = Masks::default();
    masks.enter(&change(task(1, 1, 1), 10, None, "0-7", "0-3"));
    for (now, cpuset, is_heir) in [
        ("2-3", "2-5", true),
        ("6-7", "6-7", true),
        ("2-4", "2-5", false),
        ("2-3", "0-7", false),
        ("6", "6-7", false),
    ] {
        let (now, cpuset) = (cpus(now), cpus(cpuset));
        let standing = masks.standing(&task(1, 9, 15), &now, Some(&cpuset));
        assert_eq!(matches!(standing, Standing::Heir(_)), is_heir, "{now} of {cpuset}");
        assert_eq!(masks.was_given(&now, Some(&cpuset)), is_heir, "{now} of {cpuset}");
        assert!(!masks.was_given(&now, None));
    }
}

#[test]
fn a_mask_within_a_cpuset_is_what_the_kernel_makes_of_it() {
    let original = |list, whole| Original { cpus: cpus(list), whole };
    for (original, cpuset, expected) in [
        (original("0-3", false), Some("2-5"), "2-3"),
        (original("0-3", false), Some("4-7"), "4-7"),
        (original("0-3", true), Some("2-5"), "2-5"),
        (original("0-3", true), None, "0-3"),
    ] {
        let within = original.within(cpuset.map(cpus).as_ref());
        assert_eq!(within, cpus(expected), "{original:?} in {cpuset:?}");
    }
}

#[test]
fn a_change_that_was_not_made_leaves_what_was_there() {
    let mut masks = Masks::default();
    let one = task(1, 1, 1);
    masks.enter(&change(one, 10, None, "0-7", "0-3"));
    masks.enter(&change(one, 20, None, "0-7", "4-7"));
    masks.withdraw(&one);
    assert_eq!(told(&masks, one, "0-3"), "ours, had 0-7");
    masks.withdraw(&one);
    assert!(masks.is_empty());
}

#[test]
fn a_ledger_tells_the_same_and_reckons_with_a_last_plan_half_done() {
    let (one, other, third) = (task(1, 1, 1), task(1, 2, 1), task(1, 3, 1));
    let mut changes = [
        change(one, 10, Some(1), "0-7", "0-3"),
        change(other, 10, Some(2), "0-7", "0-3"),
        change(one, 20, Some(5), "0-7", "4-7"),
        change(third, 20, Some(6), "0-7", "4-7"),
    ];
    changes[2..].iter_mut().for_each(|change| change.plan = 2);
    let mut entries: Vec<Entry> = changes.iter().map(Change::entry).collect();
    let masks = Masks::of_ledger(&entries);
    for (now, expected) in [
        ("4-7", "ours, had 0-7"),
        ("5", "ours, had 0-7"),
        ("0-3", "ours, had 0-7"),
        ("1", "changed"),
    ] {
        assert_eq!(told(&masks, one, now), expected, "{now}");
    }
    assert_eq!(told(&masks, other, "2"), "changed", "its change had been made");
    for now in ["0-7", "6", "4-7"] {
        assert_eq!(told(&masks, third, now), "ours, had 0-7", "{now}");
    }
    assert_eq!(told(&masks, task(1, 9, 30), "0-3"), "heir of 0-7", "the old mask may hold");
    assert_eq!(told(&masks, task(1, 9, 30), "5"), "heir of 0-7");
    entries.push(one.entry());
    assert_eq!(told(&Masks::of_ledger(&entries), one, "4-7"), "untouched");
}

#[test]
fn a_thread_that_had_chosen_the_same_mask_in_the_same_moment_is_no_heir() {
    let bystander = task(1, 9, 10);
    let entries = [bystander.entry(), change(task(1, 1, 1), 10, None, "0-7", "0-3").entry()];
    let masks = Masks::of_ledger(&entries);
    assert_eq!(told(&masks, bystander, "0-3"), "untouched");
    assert_eq!(told(&masks, task(1, 8, 10), "0-3"), "heir of 0-7");
}

#[test]
fn a_process_after_the_first_change_is_to_be_written_down_once() {
    let mut masks = Masks::default();
    let process = |pid, started_s| Identity { pid: Pid(pid), started: Nanos(started_s * SECOND) };
    assert!(!masks.see(process(5, 30)), "nothing was changed yet");
    masks.enter(&change(task(1, 1, 1), 10, None, "0-7", "0-3"));
    assert!(!masks.see(process(2, 5)));
    assert!(masks.see(process(3, 15)) && !masks.see(process(3, 15)));
    assert_eq!(masks.processes().len(), 2);
}

#[test]
fn threads_that_have_ended_are_forgotten_but_for_their_heirs() {
    let mut masks = Masks::default();
    let (one, other, third) = (task(1, 1, 1), task(1, 2, 1), task(1, 3, 1));
    masks.enter(&change(one, 10, None, "0-7", "0-3"));
    masks.enter(&change(other, 10, None, "0-7", "4-7"));
    masks.let_choose(third);
    let is_known = |masks: &Masks, task: Task| masks.task(task.process, task.tid).is_some();
    masks.forget_gone(Nanos(30 * SECOND), |task| [one, third].contains(task));
    assert!(!is_known(&masks, one) && is_known(&masks, other));
    assert!(!masks.has_chosen(third.process, third.tid));
    assert_eq!(told(&masks, task(1, 9, 29), "0-3"), "heir of 0-7");
    assert_eq!(told(&masks, task(1, 9, 35), "0-3"), "untouched");
    assert_eq!(told(&masks, task(1, 9, 35), "4-7"), "heir of 0-7");
}

#[test]
fn what_threads_were_given_and_chose_is_known() {
    let mut masks = Masks::default();
    let (one, other) = (task(1, 1, 1), task(1, 2, 1));
    let first = change(one, 10, Some(1), "0-7", "0-3");
    assert!(first.gives(&cpus("0-3")) && first.gives(&cpus("1")), "the one CPU for a moment");
    assert!(!first.gives(&cpus("0-1")) && !first.gives(&cpus("2")) && !first.gives(&cpus("4")));
    assert!(masks.is_empty());
    masks.enter(&first);
    assert!(!masks.is_empty());
    assert_eq!((masks.now(&one), masks.now(&other)), (Some(&cpus("0-3")), None));
    let given = ["0-3", "1", "0-1", "4-7"].map(|list| masks.was_given(&cpus(list), None));
    assert_eq!(given, [true, true, false, false]);
    masks.let_choose(other);
    let chosen = [one, other].map(|task| masks.has_chosen(task.process, task.tid));
    assert_eq!(chosen, [false, true]);
    // A new change of it is one of ours again.
    masks.enter(&change(other, 20, None, "0-7", "4-7"));
    assert!(!masks.has_chosen(other.process, other.tid));
    assert_eq!(told(&masks, other, "4-7"), "ours, had 0-7");
}

#[test]
fn a_ledger_names_processes_that_came_after_the_first_change() {
    let child = Identity { pid: Pid(9), started: Nanos(15 * SECOND) };
    let member = Entry::Member { pid: child.pid.0, started: child.started.0 };
    let one = change(task(1, 1, 1), 10, None, "0-7", "0-3");
    let masks = Masks::of_ledger(&[one.entry(), member]);
    assert_eq!(masks.processes(), [one.task.process, child].into_iter().collect());
}

#[test]
fn beyond_the_bound_those_are_forgotten_that_ended_first() {
    let mut masks = Masks::default();
    let all: Vec<Task> = (0..=MAX_HELD as u32).map(|tid| task(1, tid, 1)).collect();
    let enter = |masks: &mut Masks, task| masks.enter(&change(task, 10, None, "0-7", "0-3"));
    all[..MAX_HELD].iter().for_each(|task| enter(&mut masks, *task));
    for (second, task) in (21..=24).zip(&all) {
        masks.let_go(task, Nanos(second * SECOND));
    }
    assert_eq!(masks.held.len(), MAX_HELD, "there is room");
    enter(&mut masks, all[MAX_HELD]);
    masks.let_go(&all[4], Nanos(25 * SECOND));
    let kept: Vec<bool> = all[..6].iter().map(|task| masks.held.contains_key(task)).collect();
    assert_eq!(kept, [false, false, false, true, true, true]);
    assert_eq!(masks.held.len(), MAX_HELD - 2);
}

fn change_at(at: u64, via: Option<usize>, given: &str) -> Change {
    Change { at: Nanos(at), ..change(task(1, 1, 1), 0, via, "0-7", given) }
}

#[test]
fn heirs_may_seem_to_be_born_a_tick_early_or_late_and_no_more() {
    let mut masks = Masks::default();
    let (given, taken) = (10 * SECOND, 20 * SECOND);
    masks.enter(&change_at(given, Some(2), "0-3"));
    masks.enter(&change_at(taken, None, "0-7"));
    let at = |born, mask| told(&masks, Task { started: Nanos(born), ..task(1, 9, 0) }, mask);
    assert_eq!(at(given - tick(), "0-3"), "untouched");
    assert_eq!(at(given - tick() + 1, "0-3"), "heir of 0-7");
    assert_eq!(at(taken + tick() - 1, "0-3"), "heir of 0-7");
    assert_eq!(at(taken + tick(), "0-3"), "untouched");
    assert_eq!(at(given + tick() - 1, "2"), "heir of 0-7");
    assert_eq!(at(given + tick(), "2"), "untouched", "the one CPU is there for a moment");
}

#[test]
fn a_process_may_seem_to_start_a_tick_before_the_first_change_and_no_more() {
    let mut masks = Masks::default();
    let first = 10 * SECOND;
    masks.enter(&change_at(first, None, "0-3"));
    let mut is_late = |started| masks.see(Identity { pid: Pid(9), started: Nanos(started) });
    assert!(!is_late(first - tick()));
    assert!(is_late(first - tick() + 1));
}

#[test]
fn as_many_masks_of_a_thread_are_remembered_as_the_bound_says() {
    let mut masks = Masks::default();
    let at = |place: usize| (10 + 10 * place as u64) * SECOND;
    let give = |masks: &mut Masks, place| {
        let original = Original { cpus: cpus("0-127"), whole: false };
        masks.enter(&Change { original, ..change_at(at(place), None, &place.to_string()) });
    };
    (0..MAX_GIVEN).for_each(|place| give(&mut masks, place));
    assert_eq!(told(&masks, task(1, 9, 15), "0"), "heir of 0-127");
    give(&mut masks, MAX_GIVEN);
    assert_eq!(told(&masks, task(1, 9, 15), "0"), "untouched", "forgotten");
    assert_eq!(told(&masks, task(1, 9, 25), "1"), "heir of 0-127");
}

#[test]
fn observed_processes_that_have_ended_are_dropped_now_and_then() {
    let mut masks = Masks::default();
    masks.enter(&change(task(1, 1, 1), 10, None, "0-7", "0-3"));
    let born = |pid: u32| Identity { pid: Pid(pid), started: Nanos(20 * SECOND) };
    let count = |masks: &Masks| masks.processes().len();
    let lives = |process: &Identity| process.pid.0.is_multiple_of(4);
    for pid in 100..100 + MAX_HELD as u32 {
        assert!(masks.see(born(pid)));
        masks.drop_ended_members(lives);
    }
    assert_eq!(count(&masks), 1 + MAX_HELD / 4);
    assert!(!masks.see(born(100)), "it lives and is known");
}

#[test]
fn a_thread_that_chose_a_mask_and_is_given_another_has_a_new_first_one() {
    let mut masks = Masks::default();
    let one = task(1, 1, 1);
    masks.enter(&change(one, 10, None, "0-7", "0-3"));
    masks.let_go(&one, Nanos(20 * SECOND));
    // It is known when it ceased to have ours.
    masks.let_choose(one);
    assert_eq!(told(&masks, task(1, 9, 15), "0-3"), "heir of 0-7");
    assert_eq!(told(&masks, task(1, 9, 25), "0-3"), "untouched");
    masks.enter(&change(one, 30, None, "0-5", "4-5"));
    assert_eq!(told(&masks, one, "4-5"), "ours, had 0-5");
}

#[test]
fn a_mask_counts_as_chosen_at_the_second_look_in_a_row() {
    let mut masks = Masks::default();
    let one = task(1, 1, 1);
    assert_eq!([(); 3].map(|()| masks.is_confirmed(one)), [false, true, false]);
    masks.trust(&one);
    assert!(!masks.is_confirmed(one), "it had ours in between");
}

/// `USER_HZ` is 100 on x86-64 and arm64: start times are in hundredths of a second.
#[test]
fn the_resolution_of_start_times_is_ten_milliseconds() {
    assert_eq!(tick(), 10_000_000);
}
