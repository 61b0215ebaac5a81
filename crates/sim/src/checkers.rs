//! Rules that must hold in every step of every simulated world. Checkers only observe.

mod budget;
mod conservation;
mod permission;
mod residence;

use rondpoint_core::controller::Step;
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::plan::{Outcome, Proposal, Reason};
use rondpoint_core::{Nanos, Observation};

use crate::plant::Plant;

pub(crate) use conservation::Conservation;

/// What a checker sees after a step.
pub(crate) struct View<'a> {
    /// What the manager saw, at the time on its clock.
    pub(crate) seen: &'a Observation,
    pub(crate) step: &'a Step,
    pub(crate) outcomes: &'a [Outcome],
    pub(crate) plant: &'a Plant,
}

impl View<'_> {
    fn at(&self) -> Nanos {
        self.seen.at
    }

    /// Steps of the plan that do not undo: budgets and bounds are for these.
    fn done(&self) -> impl Iterator<Item = &Proposal> {
        self.step.plan.steps.iter().filter(|one| !matches!(one.reason, Reason::Undo(_)))
    }
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Broken {
    /// The checker's name.
    pub(crate) rule: String,
    /// What was seen, and what should have been.
    pub(crate) what: String,
}

impl Broken {
    pub(crate) fn new(rule: &str, what: String) -> Self {
        Self { rule: rule.to_string(), what }
    }
}

/// One rule.
pub(crate) trait Checker {
    /// Looks at a step.
    fn check(&mut self, view: &View<'_>) -> Result<(), Broken>;
}

/// All rules that a single step can break.
pub(crate) fn all(plant: &Plant, settings: &GuardSettings) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(Conservation::new(plant)),
        Box::new(permission::Permission),
        Box::new(budget::Budgets::new(plant, settings)),
        Box::new(residence::Residence::new(settings)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::plant::FirstPlace;
    use crate::rivals::Rival;
    use crate::sensors::Pmu;
    use crate::world::{Scene, World};
    use rondpoint_core::Plan;
    use rondpoint_core::plan::{Action, Mechanism, PageMove};
    use rondpoint_core::units::PAGE_SHIFT;

    /// Pages that each node may send, get or copy in a second.
    const PAGES_PER_S: u64 = 10;

    fn plant() -> Plant {
        let scene = Scene {
            pmu: Pmu::Ibs,
            replication: true,
            ..Scene::new(
                catalogue::machine("nodes=4 cpus=2 memory=4G").expect("a machine"),
                catalogue::workload("read-shared").expect("a workload"),
                1,
            )
        };
        let mut world = World::new(&scene, FirstPlace::Touch, Rival::Nothing);
        world.pass();
        world.plant
    }

    fn pages(count: u64, from: u16, to: u16) -> Vec<PageMove> {
        let page = |number| PageMove { address: number << PAGE_SHIFT, shift: PAGE_SHIFT, from, to };
        (0..count).map(page).collect()
    }

    /// The first rule that one of these actions breaks, one in each step, a millisecond apart.
    fn broken(plant: &Plant, actions: Vec<Action>) -> Option<Broken> {
        let bytes_per_s_per_node = PAGES_PER_S << PAGE_SHIFT;
        let settings = GuardSettings { bytes_per_s_per_node, ..GuardSettings::acting() };
        let mut checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(permission::Permission),
            Box::new(budget::Budgets::new(plant, &settings)),
            Box::new(residence::Residence::new(&settings)),
        ];
        (0..).zip(actions).find_map(|(number, action)| {
            let reason = Reason::Other("a test".to_string());
            let steps = vec![Proposal { policy: "test", action, reason }];
            let step = Step { plan: Plan { steps, ..Plan::default() }, ..Step::default() };
            let at = Nanos::from_millis(number);
            let seen = Observation { at, ..Observation::default() };
            let view = View { seen: &seen, step: &step, outcomes: &[], plant };
            checkers.iter_mut().find_map(|checker| checker.check(&view).err())
        })
    }

    #[test]
    fn copies_beyond_the_budget_of_a_node_that_gets_one_break_a_rule() {
        let plant = plant();
        let pid = plant.processes[0].pid;
        let copies = |count| Action::Replicate { pid, pages: pages(count, 0, 0) };
        assert_eq!(broken(&plant, vec![copies(PAGES_PER_S)]), None);
        let much = broken(&plant, vec![copies(PAGES_PER_S + 2)]).expect("more than a second's");
        assert_eq!(much.rule, "budget");
        let mechanism = Mechanism::CoLocation;
        let moves = Action::MovePages { pid, mechanism, pages: pages(PAGES_PER_S, 2, 3) };
        let much = broken(&plant, vec![moves, copies(2)]).expect("nodes 2 and 3 have nothing left");
        assert!(much.what.starts_with("bytes of node 2"), "{much:?}");
    }

    #[test]
    fn copies_on_a_node_that_is_not_allowed_break_a_rule() {
        let mut plant = plant();
        let pid = plant.processes[0].pid;
        let copies = || vec![Action::Replicate { pid, pages: pages(1, 0, 0) }];
        plant.confine(0, &[0, 1, 2, 3].into_iter().collect());
        assert_eq!(broken(&plant, copies()), None);
        plant.confine(0, &[0, 1, 2].into_iter().collect());
        let broken = broken(&plant, copies()).expect("node 3 is not allowed");
        assert_eq!(broken.rule, "permission");
    }

    #[test]
    fn copies_that_come_and_go_too_often_break_a_rule() {
        let plant = plant();
        let pid = plant.processes[0].pid;
        let make = || Action::Replicate { pid, pages: pages(1, 0, 0) };
        let drop = || Action::Unreplicate { pid, pages: pages(1, 0, 0) };
        assert_eq!(broken(&plant, vec![make(), drop(), make()]), None);
        let broken = broken(&plant, vec![make(), drop(), make(), drop()]).expect("four changes");
        assert_eq!(broken.rule, "no ping-pong");
    }
}
