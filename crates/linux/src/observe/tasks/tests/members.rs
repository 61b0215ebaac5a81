//! Which processes belong to a tree.

use super::*;

#[test]
fn children_that_come_and_go_are_followed_only_once_they_have_stayed() {
    let births_by_records = [false, true];
    births_by_records.into_iter().for_each(come_and_go);
}

fn come_and_go(are_recorded: bool) {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    let (mut looks, mut there) = (0, Vec::new());
    let mut look = |children: &[u32]| {
        let list: String = children.iter().map(|pid| format!("{pid} ")).collect();
        fixture.process(10, &[(10, 0)], &list);
        looks += 1;
        let ran = format!("{} 1 1\n", 5000 + looks);
        fs::write(fixture.root().in_proc("10/task/10/schedstat"), ran).unwrap();
        let mut born = Vec::new();
        for &pid in children {
            fixture.process(pid, &[(pid, 1)], "");
            fs::write(fixture.root().in_proc(format!("{pid}/stat")), child_line(pid, 10, 1))
                .unwrap();
            born.extend((!there.contains(&pid)).then_some((Pid(10), Pid(pid))));
        }
        there = children.to_vec();
        let births = if are_recorded { told(&born) } else { Births::default() };
        let found = shown(&tasks.observe(&machine, births).unwrap());
        children.iter().for_each(|&pid| fixture.ends(pid));
        found
    };
    assert_eq!(look(&[]), "10[10@0]");
    assert_eq!(look(&[21, 22, 23, 24]), "10[10@0] 21[21@1] 22[22@1] 23[23@1] 24[24@1]");
    assert_eq!(look(&[31, 32, 33, 34]), "10[10@0]");
    assert_eq!(look(&[31, 41, 42, 43]), "10[10@0] 31[31@1]");
}

/// As a program that goes to the background does.
#[test]
fn a_young_process_whose_parent_ends_at_once_is_followed_all_the_same() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    fixture.process(10, &[(10, 0)], "");
    tasks.observe(&machine, told(&[])).unwrap();
    let mut born = |pids: std::ops::Range<u32>, parents: &[u32]| {
        pids.clone().for_each(|pid| fixture.process(pid, &[(pid, 1)], ""));
        let pairs: Vec<(Pid, Pid)> =
            pids.zip(parents).map(|(pid, parent)| (Pid(*parent), Pid(pid))).collect();
        tasks.observe(&machine, told(&pairs)).unwrap();
    };
    born(21..25, &[10; 4]);
    (21..25).for_each(|pid| fixture.ends(pid));
    born(31..35, &[10, 31, 10, 10]);
    [31, 33, 34].into_iter().for_each(|pid| fixture.ends(pid));
    // Its parent is now the first process of the machine.
    let found = shown(&tasks.observe(&machine, told(&[])).unwrap());
    assert_eq!(found, "10[10@0] 32[32@1]");
}

#[test]
fn where_there_are_too_many_processes_the_new_ones_are_left_out() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    tasks.most_processes = 2;
    fixture.process(10, &[(10, 0)], "20 ");
    fixture.process(20, &[(20, 0)], "");
    tasks.observe(&machine, Births::default()).unwrap();
    assert_eq!(tasks.seen_in_part(), BTreeSet::new());
    fixture.process(30, &[(30, 0)], "");
    let found = tasks.observe(&machine, told(&[(Pid(10), Pid(30))])).unwrap();
    assert_eq!(shown(&found), "10[10@0] 20[20@0]");
    assert_eq!(tasks.seen_in_part(), [Pid(10)].into());
    tasks.observe(&machine, told(&[])).unwrap();
    assert_eq!(tasks.seen_in_part(), [Pid(10)].into(), "no record tells of it again");
    tasks = tasks.without_limit();
    for at in tasks.crowded.values_mut() {
        *at = at.checked_sub(2 * BETWEEN_LISTS).expect("the machine is up for so long");
    }
    let found = tasks.observe(&machine, told(&[(Pid(10), Pid(30))])).unwrap();
    assert_eq!(shown(&found), "10[10@0] 20[20@0] 30[30@0]");
    assert_eq!(tasks.seen_in_part(), BTreeSet::new());
}

#[test]
fn a_child_that_no_record_told_of_is_found_when_all_lists_are_read_anew() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    fixture.process(10, &[(10, 0)], "");
    for _ in 0..2 {
        tasks.observe(&machine, told(&[])).unwrap();
    }
    fs::write(fixture.root().in_proc("10/task/10/children"), "20 ").unwrap();
    fixture.process(20, &[(20, 0)], "");
    let found = shown(&tasks.observe(&machine, told(&[])).unwrap());
    assert_eq!(found, "10[10@0]");
    tasks.listed_next = Instant::now();
    let found = shown(&tasks.observe(&machine, told(&[])).unwrap());
    assert_eq!(found, "10[10@0] 20[20@0]");
    assert!(tasks.listed_next > Instant::now());
}

/// As the daemon does, which reads the parent of every process now and then.
#[test]
fn a_descendant_that_is_missing_joins_if_its_parent_is_still_the_same() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    let child = |pid: u32, parent: u32| {
        fixture.process(pid, &[(pid, 0)], "");
        let stat = fixture.root().in_proc(format!("{pid}/stat"));
        fs::write(stat, child_line(pid, parent, 0)).unwrap();
    };
    child(10, 1);
    let mut tasks = Tasks::without_processes(fixture.root(), None);
    tasks.follow([(Pid(10), Nanos(0))].into(), [Pid(60)].into());
    tasks.observe(&machine, told(&[])).unwrap();
    child(20, 10);
    child(30, 20);
    // The number of a child that has ended belongs to a process of another user.
    child(40, 1);
    child(50, 1);
    child(60, 10);
    let pair = |parent: u32, pid: u32| (Pid(parent), Pid(pid));
    let told_of =
        [pair(20, 30), pair(10, 20), pair(10, 40), pair(1, 50), pair(10, 60), pair(10, 70)];
    tasks.tell_parents(&told_of);
    let found = shown(&tasks.observe(&machine, told(&[])).unwrap());
    assert_eq!(found, "10[10@0] 20[20@0] 30[30@0]");
    let of_ten = [10, 20, 30].map(|pid| (Pid(pid), Pid(10)));
    assert_eq!(tasks.origins(), &of_ten.into());
}

#[test]
fn no_list_of_children_is_read_of_idle_trees_while_parents_are_told() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(10, &[(10, 0), (11, 0)], "");
    let mut tasks = Tasks::without_processes(fixture.root(), None);
    tasks.follow([(Pid(10), Nanos(0))].into(), BTreeSet::new());
    tasks.observe(&machine, told(&[])).unwrap();
    fs::write(fixture.root().in_proc("10/task/10/children"), "20 ").unwrap();
    fixture.process(20, &[(20, 0)], "");
    tasks.listed_next = Instant::now();
    tasks.tell_parents(&[]);
    assert_eq!(shown(&tasks.observe(&machine, told(&[])).unwrap()), "10[10@0 11@0]");
    // Nobody has told of parents for long.
    tasks.listed_next = Instant::now();
    assert_eq!(shown(&tasks.observe(&machine, told(&[])).unwrap()), "10[10@0 11@0] 20[20@0]");
}

/// On a busy host records are lost at most looks. A process that runs may start one that has its
/// mask, and end before the caller looks for children.
#[test]
fn where_records_are_lost_only_lists_of_what_runs_are_read_for_a_while_after_parents_were_told() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(10, &[(10, 0)], "");
    let mut tasks = Tasks::without_processes(fixture.root(), None);
    tasks.follow([(Pid(10), Nanos(0))].into(), BTreeSet::new());
    tasks.lets_rest = true;
    let mut ran = 5000;
    let mut look_after = |tasks: &mut Tasks, more: u64| {
        ran += more;
        fs::write(fixture.root().in_proc("10/task/10/schedstat"), format!("{ran} 1 1\n")).unwrap();
        shown(&tasks.observe(&machine, Births::default()).unwrap())
    };
    look_after(&mut tasks, 1);
    let mut look = |tasks: &mut Tasks| look_after(tasks, 1);
    tasks.tell_parents(&[]);
    fixture.process(20, &[(20, 0)], "");
    fs::write(fixture.root().in_proc("20/stat"), child_line(20, 10, 0)).unwrap();
    fs::write(fixture.root().in_proc("10/task/10/children"), "20 ").unwrap();
    assert_eq!(look(&mut tasks), "10[10@0]");
    tasks.tell_parents(&[(Pid(10), Pid(20))]);
    assert_eq!(look(&mut tasks), "10[10@0] 20[20@0]", "as the caller told");
    fixture.process(30, &[(30, 0)], "");
    fs::write(fixture.root().in_proc("10/task/10/children"), "20 30 ").unwrap();
    let old = Instant::now().checked_sub(PARENTS_HOLD);
    tasks.parents_told = Some(old.expect("the machine is up for so long"));
    assert_eq!(look(&mut tasks), "10[10@0] 20[20@0] 30[30@0]", "nobody has told for a while");
    fixture.process(40, &[(40, 0)], "");
    fs::write(fixture.root().in_proc("10/task/10/children"), "20 30 40 ").unwrap();
    tasks.tell_parents(&[]);
    let found = look_after(&mut tasks, 1_000_000_000);
    assert_eq!(found, "10[10@0] 20[20@0] 30[30@0] 40[40@0]", "it runs");
}

#[test]
fn a_number_that_goes_to_a_process_of_others_is_followed_no_longer() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:1 core:4").unwrap();
    fixture.process(10, &[(10, 0)], "20 ");
    fixture.process(20, &[(20, 0)], "");
    let mut tasks = Tasks::new(fixture.root(), Pid(10), None);
    tasks.observe(&machine, Births::default()).unwrap();
    let mut looks = |parent: u32, started: u32| {
        fixture.ends(20);
        fixture.process(20, &[(20, 0)], "");
        let line = child_line(20, parent, 0).replace(" 1 0 100 0 ", &format!(" 1 0 {started} 0 "));
        fs::write(fixture.root().in_proc("20/stat"), line).unwrap();
        let ran = format!("{started} 1 1\n");
        fs::write(fixture.root().in_proc("20/task/20/schedstat"), ran).unwrap();
        let mut last = String::new();
        for _ in 0..3 {
            last = shown(&tasks.observe(&machine, told(&[])).unwrap());
        }
        last
    };
    assert_eq!(looks(10, 200), "10[10@0] 20[20@0]", "another child");
    assert_eq!(looks(1, 300), "10[10@0]");
}

#[test]
fn a_process_that_is_no_longer_left_out_or_a_root_joins_its_parents_tree() {
    let fixture = Fixture::new();
    let machine = synthetic::parse("node:2 core:2").unwrap();
    fixture.process(10, &[(10, 0)], "20 ");
    fixture.process(20, &[(20, 1)], "30 ");
    fixture.process(30, &[(30, 2)], "");
    fs::write(fixture.root().in_proc("20/stat"), child_line(20, 10, 1)).unwrap();
    let alone = BTreeMap::from([(Pid(10), Nanos(0))]);
    let mut tasks = Tasks::without_processes(fixture.root(), None);
    let mut look = |roots: &BTreeMap<Pid, Nanos>, left: &[u32]| {
        tasks.follow(roots.clone(), left.iter().copied().map(Pid).collect());
        // Every birth is recorded, and there is none.
        tasks.observe(&machine, told(&[])).unwrap();
        shown(&tasks.observe(&machine, told(&[])).unwrap())
    };
    let all = "10[10@0] 20[20@1] 30[30@2]";
    assert_eq!(look(&alone, &[20]), "10[10@0]");
    assert_eq!(look(&alone, &[]), all);
    let both = BTreeMap::from([(Pid(10), Nanos(0)), (Pid(20), Nanos(0))]);
    assert_eq!(look(&both, &[]), all);
    assert_eq!(look(&alone, &[]), all);
}
