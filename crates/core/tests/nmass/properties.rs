//! What holds for any machine and any processes.

use proptest::prelude::*;
use rondpoint_core::CpuSet;
use rondpoint_core::policy::nmass::{Cause, Mapping, Preset, Process, Processor, map};

fn process(cpus: usize, nodes: usize) -> impl Strategy<Value = Process> {
    let allowed = prop_oneof![
        3 => Just(None),
        1 => proptest::collection::btree_set(0..cpus, 0..cpus).prop_map(|set| Some(set.into_iter().collect::<CpuSet>())),
    ];
    (0.0..40.0, 1.0..1.5, 0..nodes, proptest::option::of(0..cpus), allowed).prop_map(
        |(mpki, penalty, home, cpu, allowed)| Process { mpki, penalty, home, cpu, allowed },
    )
}

fn case_of(cores: Vec<usize>) -> impl Strategy<Value = (Vec<Process>, Vec<Processor>)> {
    let mut next = 0;
    let mut processor = |(node, count): (usize, &usize)| {
        next += count;
        Processor { node, cpus: (next - count..next).collect() }
    };
    let processors: Vec<Processor> = cores.iter().enumerate().map(&mut processor).collect();
    (proptest::collection::vec(process(next, cores.len()), 0..=next + 1), Just(processors))
}

fn case() -> impl Strategy<Value = (Vec<Process>, Vec<Processor>)> {
    proptest::collection::vec(1_usize..5, 2..5).prop_flat_map(case_of)
}

/// Two processors of one size.
fn pair() -> impl Strategy<Value = (Vec<Process>, Vec<Processor>)> {
    (1_usize..6).prop_flat_map(|cores| case_of(vec![cores, cores]))
}

fn presets() -> impl Strategy<Value = Preset> {
    proptest::sample::select(Preset::ALL.to_vec())
}

/// Sorted pressures: what must not depend on how processors are called.
fn value(mapping: &Mapping) -> Vec<i64> {
    let mut value: Vec<i64> =
        mapping.pressures.iter().map(|pressure| (pressure * 1e6).round() as i64).collect();
    value.sort_unstable();
    value
}

proptest! {
    #[test]
    fn every_place_is_allowed_and_no_core_has_two((processes, processors) in case(), preset in presets()) {
        let mapping = map(&processes, &processors, &preset);
        let mut cpus: Vec<usize> = mapping.places.iter().map(|place| place.cpu).collect();
        for place in &mapping.places {
            prop_assert!(processors[place.processor].cpus.contains(&place.cpu));
            let allowed = &processes[place.process].allowed;
            prop_assert!(allowed.as_ref().is_none_or(|allowed| allowed.contains(place.cpu)));
        }
        cpus.sort_unstable();
        cpus.dedup();
        prop_assert_eq!(cpus.len(), mapping.places.len());
    }

    #[test]
    fn a_shift_never_reaches_the_threshold((processes, processors) in case(), preset in presets()) {
        for place in map(&processes, &processors, &preset).places {
            if let Cause::Shifted { source_before, source_after, target_after, .. } = place.cause {
                prop_assert!(target_after < preset.threshold_mpki);
                prop_assert!(source_after <= source_before);
            }
        }
    }

    #[test]
    fn refinement_never_leaves_a_larger_spread_on_two_processors((processes, processors) in pair()) {
        let spread = |preset: &Preset| {
            let pressures = map(&processes, &processors, preset).pressures;
            (pressures[0] - pressures[1]).abs()
        };
        prop_assert!(spread(&Preset::PUBLISHED) <= spread(&Preset::MAXIMUM_LOCAL) + 1e-9);
        prop_assert!(spread(&Preset::SWAP) <= spread(&Preset::MAXIMUM_LOCAL) + 1e-9);
    }

    #[test]
    fn names_of_equal_processors_do_not_matter((mut processes, mut processors) in pair(), preset in presets()) {
        // The allowed and the present processor of a process would tell the processors apart.
        for process in &mut processes {
            process.allowed = None;
            process.cpu = None;
        }
        let before = value(&map(&processes, &processors, &preset));
        for process in &mut processes {
            process.home = 1 - process.home;
        }
        processors.reverse();
        for (node, processor) in processors.iter_mut().enumerate() {
            processor.node = node;
        }
        prop_assert_eq!(value(&map(&processes, &processors, &preset)), before);
    }

    #[test]
    fn with_more_processors_refinement_never_raises_the_highest_pressure((processes, processors) in case()) {
        prop_assume!(processors.len() > 2);
        let highest = |preset: &Preset| map(&processes, &processors, preset).pressures.into_iter().fold(0.0, f64::max);
        prop_assert!(highest(&Preset::PUBLISHED) <= highest(&Preset::MAXIMUM_LOCAL) + 1e-9);
    }

    #[test]
    fn the_same_input_gives_the_same_mapping((processes, processors) in case(), preset in presets()) {
        prop_assert_eq!(map(&processes, &processors, &preset), map(&processes, &processors, &preset));
    }
}
