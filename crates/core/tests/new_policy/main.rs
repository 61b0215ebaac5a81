//! The example of `docs/new-policy.md` compiles, works, and is what the guide prints.

mod promote;

use promote::REGISTERED;
use rondpoint_core::model::{App, Thread, Traffic};
use rondpoint_core::policy::auto::Auto;
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Bytes, Matrix, Model, Nanos, Pid, Policy, Random, Tid, Topology};

#[test]
fn the_guide_prints_the_file_that_is_tested() {
    let guide = include_str!("../../../../docs/new-policy.md");
    assert!(
        guide.contains(include_str!("promote.rs")),
        "docs/new-policy.md must hold promote.rs word for word"
    );
}

#[test]
fn hot_pages_leave_the_memory_only_node_and_cold_ones_stay() {
    let mut description = synthetic::describe("node:3 core:2").expect("a machine");
    description.cpus.retain(|cpu| cpu.node != 2);
    description.distances[(0, 2)] = 30;
    let topology = Topology::new(description).expect("a machine");
    let mut model = Model::empty(3);
    model.apps.push(App::new(Pid(7), 0..1));
    model.threads.push(Thread::new(Tid(7), 0, 0, topology.all_cpus()));
    for (page, samples, home) in [(1, 9, 2), (2, 1, 2), (3, 9, 0)] {
        for _ in 0..samples {
            model.pages.record(0, page << 12, 12, home, 0, false);
        }
    }
    model.check(&topology).expect("a sound model");
    let mut policy = (REGISTERED.make)(None).expect("the default preset");
    let proposals = policy.propose(&model, &topology, &mut Random::new(1));
    let text: Vec<String> =
        proposals.iter().map(|one| format!("{}; {}", one.action, one.reason)).collect();
    assert_eq!(
        text,
        [
            "move 1 page of 7 (co-location): 1 × 2→1; 1 pages of memory-only nodes with 2 samples or more"
        ]
    );
    assert!((REGISTERED.make)(Some("none")).is_none());
}

/// Two nodes with CPUs and one without, far away. A thread waits for memory there most of its time.
fn far_memory() -> (Topology, Model) {
    let mut description = synthetic::describe("node:3 core:2 mhz:2000").expect("a machine");
    description.cpus.retain(|cpu| cpu.node != 2);
    for (a, b) in [(0, 2), (2, 0), (1, 2), (2, 1)] {
        description.distances[(a, b)] = 40;
    }
    let topology = Topology::new(description).expect("a machine");
    let mut model = Model::empty(3);
    model.at = Nanos::from_secs(20);
    let mut thread = Thread::new(Tid(7), 0, 0, topology.all_cpus());
    (thread.cpu_share, thread.rates.stall_share) = (1.0, Some(0.8));
    thread.rates.memory_per_s = Some(5e6);
    model.threads.push(thread);
    let mut app = App::new(Pid(7), 0..1);
    (app.latency_cycles, app.latency_accesses) = (Some(500.0), 1e6);
    let requests = |accessing, holding| if (accessing, holding) == (0, 2) { 5.0 } else { 0.0 };
    app.traffic = Some(Traffic::new(Matrix::from_fn(3, requests)));
    app.memory = Some(vec![Bytes(0), Bytes(0), Bytes(1 << 20)]);
    model.apps.push(app);
    for page in 1..=256 {
        for _ in 0..4 {
            model.pages.record(0, page << 12, 12, 2, 0, false);
        }
    }
    model.check(&topology).expect("a sound model");
    (topology, model)
}

#[test]
fn auto_asks_a_member_and_prices_what_it_wants() {
    let (topology, model) = far_memory();
    let done = |members| {
        let mut auto = Auto::with_members(members);
        let proposals = auto.propose(&model, &topology, &mut Random::new(1));
        proposals.iter().any(|one| one.policy == "promote")
    };
    let member = REGISTERED.in_auto.expect("it is to be asked");
    assert!(done(vec![member()]));
    assert!(!done(Vec::new()));
}
