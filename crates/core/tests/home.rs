//! Threads that take turns: which are held on the node of their data, which are released, and when
//! none is held.

use expect_test::{Expect, expect};
use rondpoint_core::model::{App, Model, Thread};
use rondpoint_core::observation::Exemption;
use rondpoint_core::plan::{Outcome, Plan, StepResult};
use rondpoint_core::policy::home::Home;
use rondpoint_core::topology::{Topology, synthetic};
use rondpoint_core::{Action, CpuSet, Nanos, Pid, Policy, Proposal, Random, Tid};
use std::fmt::Write;

/// A machine, the policy, and a host that does what it is told. A pinned thread runs on the first
/// CPU of its mask.
struct World {
    topology: Topology,
    home: Home,
    plans: u64,
    masks: Vec<Option<CpuSet>>,
}

/// One thread: the CPU where it runs and the node of its data (`-` = on two nodes, `?` = not
/// sampled), as `cpu>node`.
#[derive(Clone)]
struct Drawn {
    cpu: usize,
    data: char,
}

fn drawn(line: &str) -> Vec<Drawn> {
    let one = |word: &str| {
        let (cpu, data) = word.split_once('>').expect("cpu>node");
        Drawn {
            cpu: cpu.parse().expect("a CPU"),
            data: data.chars().next().expect("a node, - or ?"),
        }
    };
    line.split_whitespace().map(one).collect()
}

impl World {
    /// Two nodes of two CPUs.
    fn new() -> Self {
        let topology = synthetic::parse("node:2 core:2 mhz:2200").expect("a machine");
        Self { topology, home: Home::default(), plans: 0, masks: vec![None; 16] }
    }

    fn model(&self, threads: &[Drawn]) -> Model {
        let mut model = Model::empty(2);
        model.at = Nanos::from_secs(10);
        model.apps.push(App::new(Pid(7), 0..threads.len()));
        for (index, drawn) in threads.iter().enumerate() {
            let tid = Tid(index as u32);
            let mut thread = Thread::new(tid, 0, drawn.cpu, self.topology.all_cpus());
            thread.cpu_share = 0.5;
            thread.accesses_by_node = match drawn.data {
                '?' => Some(vec![0, 0]),
                '-' => Some(vec![50, 50]),
                node => {
                    let home = node.to_digit(10).expect("a node") as usize;
                    Some((0..2).map(|node| if node == home { 100 } else { 2 }).collect())
                }
            };
            model.threads.push(thread);
        }
        model
    }

    /// A round in which the host does all that is proposed.
    fn round(&mut self, model: &Model) -> String {
        model.check(&self.topology).expect("a model without contradictions");
        let steps = self.home.propose(model, &self.topology, &mut Random::new(0));
        let out = text(&steps);
        self.learn(steps, StepResult::Done);
        out
    }

    fn learn(&mut self, steps: Vec<Proposal>, result: StepResult) {
        self.plans += 1;
        let outcome = |step| Outcome {
            plan: self.plans,
            step,
            result: result.clone(),
            spent: Nanos(0),
            frozen: Nanos(0),
        };
        let outcomes: Vec<Outcome> = (0..steps.len()).map(outcome).collect();
        for step in steps.iter().filter(|_| result == StepResult::Done) {
            if let Action::SetAffinity { tid, cpus, .. } = &step.action {
                self.masks[tid.0 as usize] = Some(cpus.clone());
            }
        }
        self.home.learn(&Plan { number: self.plans, steps, ..Plan::default() }, &outcomes);
    }
}

fn text(steps: &[Proposal]) -> String {
    let mut out = String::new();
    for step in steps {
        writeln!(out, "{}: {}", step.action, step.reason).expect("text");
    }
    if out.is_empty() { "nothing\n".to_owned() } else { out }
}

fn check(line: &str, expected: Expect) {
    let mut world = World::new();
    let model = world.model(&drawn(line));
    expected.assert_eq(&world.round(&model));
}

#[test]
fn once_one_is_away_all_are_held_at_home() {
    check(
        "0>0 0>0 1>0 3>0 2>1 2>1 3>1 1>1",
        expect![[r#"
            thread 0 of 7 to CPUs 0-1: stays on node 0, where its data is: 8 threads take turns on 4 CPUs
            thread 1 of 7 to CPUs 0-1: stays on node 0, where its data is: 8 threads take turns on 4 CPUs
            thread 2 of 7 to CPUs 0-1: stays on node 0, where its data is: 8 threads take turns on 4 CPUs
            thread 3 of 7 to CPUs 0-1: goes to its data, 1→0: 8 threads take turns on 4 CPUs
            thread 4 of 7 to CPUs 2-3: stays on node 1, where its data is: 8 threads take turns on 4 CPUs
            thread 5 of 7 to CPUs 2-3: stays on node 1, where its data is: 8 threads take turns on 4 CPUs
            thread 6 of 7 to CPUs 2-3: stays on node 1, where its data is: 8 threads take turns on 4 CPUs
            thread 7 of 7 to CPUs 2-3: goes to its data, 0→1: 8 threads take turns on 4 CPUs
        "#]],
    );
    check("0>0 0>0 1>0 1>0 2>1 2>1 3>1 3>1", expect!["nothing\n"]);
}

#[test]
fn a_thread_on_each_cpu_and_a_helper_are_no_crowd() {
    check("0>1 1>0 2>1 3>0", expect!["nothing\n"]);
    let crowd = World::new().model(&drawn("0>1 1>0 2>1 3>0 3>1"));
    let mut world = World::new();
    assert_eq!(world.round(&crowd).lines().count(), 5);
    let mut helper = crowd;
    helper.threads[4].cpu_share = 0.05;
    assert_eq!(World::new().round(&helper), "nothing\n");
}

#[test]
fn a_node_takes_no_more_than_its_share_and_none_if_its_pages_have_to_go() {
    // Five have their data on node 0, and its share is four: threads that are there go first, and
    // the fifth stays where it is.
    let holds = |line: &str| {
        let mut world = World::new();
        let model = world.model(&drawn(line));
        let text = world.round(&model);
        let of_thread = |line: &str| {
            let (thread, _) = line.split_once(" of ")?;
            thread.strip_prefix("thread ").map(str::to_owned)
        };
        text.lines().filter_map(of_thread).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(holds("2>0 0>0 0>0 1>0 1>0 2>1 3>1 3>1"), "0 1 2 3 4 5 6 7");
    // Six are half as many again; of seven none is held, though one of the others is.
    assert_eq!(holds("2>0 2>0 0>0 0>0 1>0 1>0 2>1 3>1"), "0 1 2 3 4 5 6 7");
    assert_eq!(holds("2>0 2>0 3>0 0>0 0>0 1>0 1>0 3>1"), "7");
}

#[test]
fn a_thread_beyond_the_share_is_held_where_room_is_left_for_as_long_as_there_is() {
    let mut world = World::new();
    let begun = world.model(&drawn("2>0 0>0 0>0 1>0 1>0 2>1 3>1 3>1"));
    let text = world.round(&begun);
    let beside = "thread 0 of 7 to CPUs 2-3: 1→1, for node 0, where its data is, has its share: 8 threads take turns on 4 CPUs";
    assert!(text.lines().any(|line| line == beside), "{text}");
    let as_held = world.model(&drawn("2>0 0>0 0>0 1>0 1>0 2>1 3>1 3>1"));
    assert_eq!(world.round(&as_held), "nothing\n");
    // Its data came.
    let come = world.model(&drawn("2>1 0>0 0>0 1>0 1>0 2>1 3>1 3>1"));
    assert_eq!(world.round(&come), "nothing\n");
    // One of the others ended: it goes to its data.
    let ended = world.model(&drawn("2>0 0>0 0>0 1>0 1>1 2>1 3>1 3>1"));
    let text = world.round(&ended);
    assert!(text.contains("thread 0 of 7 to CPUs 0-1: goes to its data, 1→0"), "{text}");
}

#[test]
fn data_on_two_nodes_and_data_that_was_not_seen_hold_nobody() {
    check("2>- 3>- 0>- 1>- 0>? 1>? 2>? 3>?", expect!["nothing\n"]);
}

#[test]
fn a_thread_that_hardly_uses_memory_runs_anywhere() {
    let mut world = World::new();
    let mut model = world.model(&drawn("0>1 1>1 0>0 1>0 2>1 3>1 2>0 3>0"));
    for thread in &mut model.threads[1..] {
        thread.rates.memory_per_s = Some(1000.0);
    }
    model.threads[0].rates.memory_per_s = Some(1e7);
    let text = world.round(&model);
    assert!(text.lines().count() == 1 && text.starts_with("thread 0 of 7 to CPUs 2-3"), "{text}");
}

#[test]
fn a_thread_stays_held_until_its_data_is_elsewhere_or_too_many_have_theirs_there() {
    let mut world = World::new();
    let apart = world.model(&drawn("2>0 0>0 1>0 1>0 0>1 2>1 3>1 3>1"));
    assert_eq!(world.round(&apart).lines().count(), 8);
    let home = drawn("0>0 0>0 1>0 1>0 2>1 2>1 3>1 3>1");
    let at_home = world.model(&home);
    assert_eq!(world.round(&at_home), "nothing\n");
    // An epoch without samples says nothing, and one in which a thread hardly uses memory neither.
    let mut quiet: Vec<Drawn> = home.clone();
    quiet[0].data = '?';
    let mut quiet = world.model(&quiet);
    quiet.threads[0].rates.memory_per_s = Some(0.0);
    assert_eq!(world.round(&quiet), "nothing\n");
    // The data of one is on two nodes now, that of another on the other node, which has its share.
    let mut moved = home.clone();
    (moved[0].data, moved[1].data) = ('-', '1');
    let moved = world.model(&moved);
    expect![[r#"
        thread 0 of 7 to CPUs 0-3: may leave node 0: 2 threads have their data there, its share is 4
    "#]]
    .assert_eq(&world.round(&moved));
    assert_eq!(world.masks[0], Some(world.topology.all_cpus()));
}

#[test]
fn when_most_have_ended_those_that_are_left_may_use_idle_cpus() {
    let mut world = World::new();
    let apart = world.model(&drawn("2>0 0>0 1>0 1>0 0>1 2>1 3>1 3>1"));
    world.round(&apart);
    // Four are left on two CPUs, and two CPUs are idle: the share of each node is two.
    let left = world.model(&drawn("0>0 0>0 1>0 1>0"));
    expect![[r#"
        thread 0 of 7 to CPUs 0-3: may leave node 0: 4 threads have their data there, its share is 2
        thread 1 of 7 to CPUs 0-3: may leave node 0: 4 threads have their data there, its share is 2
        thread 2 of 7 to CPUs 0-3: may leave node 0: 4 threads have their data there, its share is 2
        thread 3 of 7 to CPUs 0-3: may leave node 0: 4 threads have their data there, its share is 2
    "#]]
    .assert_eq(&world.round(&left));
}

#[test]
fn only_what_was_done_counts_as_held_and_another_policy_that_gives_a_mask_has_the_thread() {
    let mut world = World::new();
    let apart = world.model(&drawn("2>0 0>0 1>0 1>0 0>1 2>1 3>1 3>1"));
    let steps = world.home.propose(&apart, &world.topology, &mut Random::new(0));
    let first = text(&steps);
    world.learn(steps, StepResult::Refused { errno: 1 });
    assert_eq!(world.round(&apart), first, "nothing was done");
    // Another policy moves thread 0 away: it is to be held again.
    let action = Action::SetAffinity {
        pid: Pid(7),
        tid: Tid(0),
        cpus: world.topology.cpus_of_node(1).clone(),
        via: None,
    };
    let reason = rondpoint_core::Reason::Other("a test".into());
    world.learn(vec![Proposal { policy: "test", action, reason }], StepResult::Done);
    let again = world.round(&apart);
    assert!(
        again.lines().count() == 1 && again.starts_with("thread 0 of 7 to CPUs 0-1"),
        "{again}"
    );
}

#[test]
fn a_process_that_has_just_begun_is_no_crowd() {
    let mut world = World::new();
    let mut model = world.model(&drawn("2>0 0>0 1>0 1>0 0>1 2>1 3>1 3>1"));
    model.apps[0].started = Nanos::from_millis(9_600);
    assert_eq!(world.round(&model), "nothing\n");
}

#[test]
fn exempt_threads_count_as_company_and_are_not_touched() {
    let mut world = World::new();
    let mut model = world.model(&drawn("2>0 0>0 1>0 1>0 0>1 2>1 3>1 3>1"));
    model.threads[0].exempt = Some(Exemption::OwnAffinity);
    let text = world.round(&model);
    assert!(text.lines().count() == 7 && !text.contains("thread 0 "), "{text}");
}

#[test]
fn a_crowd_is_one_of_the_cpus_that_a_process_may_use() {
    // Four threads may use CPUs 0 and 2 only: two for each, while CPUs 1 and 3 are idle.
    let mut world = World::new();
    let mut model = world.model(&drawn("0>1 0>0 2>0 2>1"));
    for thread in &mut model.threads {
        thread.allowed = [0, 2].into_iter().collect();
    }
    expect![[r#"
        thread 0 of 7 to CPUs 2: goes to its data, 0→1: 4 threads take turns on 2 CPUs
        thread 1 of 7 to CPUs 0: stays on node 0, where its data is: 4 threads take turns on 2 CPUs
        thread 2 of 7 to CPUs 0: goes to its data, 1→0: 4 threads take turns on 2 CPUs
        thread 3 of 7 to CPUs 2: stays on node 1, where its data is: 4 threads take turns on 2 CPUs
    "#]]
    .assert_eq(&world.round(&model));
}
