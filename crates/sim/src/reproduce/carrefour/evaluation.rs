//! The whole of Carrefour's evaluation: two machines, 22 programs, four configurations. The paper
//! shows it in figures without numbers, so these cells are illustrations.
//!
//! A program outside of table 4 is drawn from its class. If first touch is the faster placement,
//! its accesses are local. If interleaving is faster, one thread touched the memory that all use.
//! If neither is faster, it uses little memory.

use rondpoint_core::Random;

use super::fit::MPKI;
use super::{
    Baselines, Fitted, Inputs, LOCAL_MIB, Published, Technique, WRITES, gain, plain, technique,
};
use crate::catalogue;
use crate::contender::Contender;
use crate::parallel;
use crate::reproduce::{Cell, Use, cell, illustration};
use crate::sensors::Pmu;
use crate::workload::{Program, Region, Touched, Used, Waits, Workload};
use crate::world::Scene;

const MACHINES: [&str; 2] = ["carrefour-a", "carrefour-b"];
/// Configurations beside Linux, which all are compared with.
const CONFIGURATIONS: [&str; 3] = ["manual interleaving", "AutoNUMA", "Carrefour"];
/// The greatest loss against Linux over all programs, percent, in the order of the configurations
/// [Carrefour, section 4].
const GREATEST_LOSS: [f64; 3] = [-38.0, -25.0, -4.0];
/// The one draw of each cell.
const SEED: u64 = 1;

/// The faster placement without a policy.
#[derive(Clone, Copy)]
enum Class {
    FirstTouch,
    Interleaving,
    Neither,
}

/// A program of the evaluation.
enum Entry<'a> {
    Fitted(&'a Baselines, &'a Inputs),
    Drawn(&'a str, Class),
}

impl Entry<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Fitted(of, _) => &of.name,
            Self::Drawn(name, _) => name,
        }
    }

    fn scene(&self, machine: &str) -> Scene {
        match self {
            Self::Fitted(of, inputs) => of.scene(machine, inputs, None, SEED),
            Self::Drawn(name, class) => {
                let machine = catalogue::machine(machine).expect("the paper's machine comes along");
                let workload = drawn(name, *class);
                Scene { pmu: Pmu::Ibs, replication: true, ..Scene::new(machine, workload, SEED) }
            }
        }
    }
}

fn drawn(name: &str, class: Class) -> Workload {
    let seed =
        name.bytes().fold(SEED, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut random = Random::new(seed);
    let mut between = |[low, high]: [f64; 2]| low + (high - low) * random.unit();
    let region = |mib, touched, used, share| Region {
        mib,
        touched,
        used,
        share,
        writes: WRITES,
        reuse: 0.0,
        lives_s: 0.0,
    };
    // Where first touch is the faster placement, MG's share of local accesses or less is drawn.
    let (mpki, local) = match class {
        Class::FirstTouch => (between(MPKI), between([0.9, 0.97])),
        Class::Interleaving => (between(MPKI), between([0.0, 0.2])),
        Class::Neither => (between([0.1, 2.0]), between([0.2, 0.8])),
    };
    // Other accesses are to memory of all threads or of one.
    let shared = (1.0 - local) * between([0.0, 1.0]);
    let regions = vec![
        region(LOCAL_MIB, Touched::Own, Used::Own, local),
        region(4.0 * LOCAL_MIB, Touched::First, Used::All, shared),
        region(LOCAL_MIB, Touched::First, Used::Own, 1.0 - local - shared),
    ];
    let program = Program {
        name: name.to_string(),
        threads: 0,
        instances: 1,
        start_s: 0.0,
        seconds: 15.0,
        pinned: false,
        waits: Waits::Spin,
        cycles_per_instruction: between([0.5, 1.3]),
        accesses_per_kilo: mpki,
        outstanding: between([1.7, 3.8]),
        transfers_per_kilo: 0.0,
        sharers: 0,
        burst: 0.0,
        regions,
        requests: None,
        phases: Vec::new(),
        ..Program::default()
    };
    Workload {
        name: name.to_string(),
        title: name.to_string(),
        stops_s: 0.0,
        programs: vec![program],
    }
}

/// Gains over Linux, percent, in the order of the configurations.
fn gains(entry: &Entry<'_>, machine: &str) -> [f64; 3] {
    let scene = entry.scene(machine);
    let base = plain(&scene, &Contender::FirstTouch);
    [
        gain(&plain(&scene, &Contender::Interleave), &base),
        gain(&plain(&scene, &Contender::AutoNuma), &base),
        gain(&technique(&scene, Technique::All), &base),
    ]
}

/// Gains of every program, and the greatest loss, on each machine.
pub(super) fn cells(published: &Published, fitted: &Fitted) -> Vec<Cell> {
    let inputs = |of: &Baselines| fitted.programs.iter().find(|one| one.name == of.name);
    let baselines = published.programs.iter().map(|of| &of.baselines);
    let scored = baselines.filter_map(|of| Some(Entry::Fitted(of, inputs(of)?)));
    let of = &published.illustrations;
    let classes = [
        (&of.first_touch, Class::FirstTouch),
        (&of.interleaving, Class::Interleaving),
        (&of.neither, Class::Neither),
    ];
    let others = classes.into_iter().flat_map(|(names, class)| {
        names.iter().map(move |name| Entry::Drawn(name.as_str(), class))
    });
    let entries: Vec<Entry<'_>> = scored.chain(others).collect();
    let jobs: Vec<(usize, usize)> = (0..MACHINES.len())
        .flat_map(|machine| (0..entries.len()).map(move |entry| (machine, entry)))
        .collect();
    let all = parallel::map(&jobs, |(m, entry)| gains(&entries[*entry], MACHINES[*m]), |_| {});
    let tables = ["Evaluation on machine A", "Evaluation on machine B"];
    let mut cells = Vec::new();
    for (table, gains) in tables.into_iter().zip(all.chunks(entries.len())) {
        for (entry, gains) in entries.iter().zip(gains) {
            for (column, gain) in CONFIGURATIONS.into_iter().zip(gains) {
                cells.push(illustration((table, entry.name(), column), "%", &[*gain]));
            }
        }
    }
    for (place, (column, published)) in CONFIGURATIONS.into_iter().zip(GREATEST_LOSS).enumerate() {
        let worst = all.iter().map(|gains| gains[place]).fold(f64::INFINITY, f64::min);
        let names = ("Evaluation on both machines", "greatest loss", column);
        cells.push(cell(names, (Use::Illustration, "%"), published, &[worst]));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::super::{fitted, published};
    use super::*;

    /// The classes are what the paper says of them, on a machine that no constant was drawn for.
    #[test]
    fn a_drawn_program_is_served_by_the_placement_of_its_class() {
        let of = |class| {
            let mut scene = Entry::Drawn("any", class).scene("carrefour-a");
            scene.workload.programs[0].seconds = 1.0;
            let base = plain(&scene, &Contender::FirstTouch);
            gain(&plain(&scene, &Contender::Interleave), &base)
        };
        let (first, interleaving) = (of(Class::FirstTouch), of(Class::Interleaving));
        assert!(first < 0.0 && interleaving > 10.0, "{first} {interleaving}");
        assert!(of(Class::Neither).abs() < 10.0, "{}", of(Class::Neither));
    }

    #[test]
    fn the_evaluation_has_22_programs_and_no_name_twice() {
        let (published, fitted) = (published(), fitted());
        let of = &published.illustrations;
        let mut names: Vec<&str> = fitted.programs.iter().map(|one| one.name.as_str()).collect();
        let others = [&of.first_touch, &of.interleaving, &of.neither];
        names.extend(others.into_iter().flatten().map(String::as_str));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 22);
    }
}
