//! The example of `docs/new-policy.md` compiles, works, and is what the guide prints.

mod promote;

use promote::REGISTERED;
use rondpoint_core::model::{App, Thread};
use rondpoint_core::topology::synthetic;
use rondpoint_core::{Model, Pid, Random, Tid, Topology};

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
