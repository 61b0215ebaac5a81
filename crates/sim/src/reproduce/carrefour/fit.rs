//! Parameters of a program other than its pages: fitted to baselines, or bounded.

use super::super::bisect;
use super::{Baselines, Fitted, Inputs, Row, Technique, gain, plain, technique};
use crate::contender::Contender;
use crate::parallel;
use crate::plant::Truth;

/// MPKI between those of the two programs of table 1, for a program without a fit.
pub(super) const MPKI: [f64; 2] = [7.0, 17.0];
/// Bursts at links that are tried, of those at controllers: none to as many bytes.
const LINK_BURSTS: [f64; 9] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 1.0];

/// The inputs of programs on a machine, as TOML.
pub(super) fn fit(machine: &str, programs: &[Baselines]) -> String {
    let link_bursts = fit_link_bursts(machine, programs);
    let truth = Truth { link_bursts: link_bursts[0].midpoint(link_bursts[1]), ..Truth::middle() };
    let inputs = |of: &Baselines| match (&of.first_touch, &of.interleaved) {
        (Some(first_touch), Some(interleaved)) => {
            fit_table_1(of, machine, (first_touch, interleaved), &truth)
        }
        _ => bounds(of),
    };
    let mut fitted: Vec<Inputs> = programs.iter().map(inputs).collect();
    fit_face_recognition(machine, programs, &mut fitted, &truth);
    let text = toml::to_string(&Fitted { link_bursts, programs: fitted });
    format!("{HEAD}{}", text.expect("plain numbers make TOML"))
}

/// The two face recognitions are one program: its demand is fitted on the long run, its length on
/// the short one.
fn fit_face_recognition(
    machine: &str,
    programs: &[Baselines],
    fitted: &mut [Inputs],
    truth: &Truth,
) {
    let find = |name: &str| programs.iter().position(|of| of.name == name);
    let (Some(long), Some(short)) = (find("FaceRecLong"), find("FaceRec")) else { return };
    let of = &programs[long];
    let mpki = bisect([3.0, 25.0], of.interleaving, |mpki| {
        let inputs = Inputs { accesses_per_kilo: [mpki; 2], ..middle(&fitted[long]) };
        interleaving_gain(of, machine, &inputs, truth)
    });
    fitted[long] = Inputs { accesses_per_kilo: [mpki; 2], ..middle(&fitted[long]) };
    let of = &programs[short];
    let seconds = bisect([0.5, 20.0], of.interleaving, |seconds| {
        let inputs = Inputs { seconds: [seconds; 2], ..fitted[long].clone() };
        interleaving_gain(of, machine, &inputs, truth)
    });
    let name = of.name.clone();
    fitted[short] = Inputs { name, seconds: [seconds; 2], ..fitted[long].clone() };
}

const HEAD: &str = "\
# Made by `rondpoint simulate --fit carrefour` from the baselines in
# crates/sim/published/carrefour.toml; fitting/README.md says how. Two equal bounds are a fit, two
# different ones a range that no source narrows.
";

/// Bursts at links with which each program of table 1 has its latencies best: the least and the
/// greatest.
fn fit_link_bursts(machine: &str, programs: &[Baselines]) -> [f64; 2] {
    let error = |of: &Baselines, rows: (&Row, &Row), link_bursts: f64| -> f64 {
        let truth = Truth { link_bursts, ..Truth::middle() };
        let inputs = fit_table_1(of, machine, rows, &truth);
        let mut scene = of.scene(machine, &inputs, Some(truth), 1);
        scene.workload.programs[0].seconds = 2.0;
        let of = |contender, row: &Row| {
            (plain(&scene, &contender).tally.latency_cycles / row.latency).ln().powi(2)
        };
        of(Contender::FirstTouch, rows.0) + of(Contender::Interleave, rows.1)
    };
    let mut jobs = Vec::new();
    for of in programs {
        if let (Some(first_touch), Some(interleaved)) = (&of.first_touch, &of.interleaved) {
            jobs.extend(LINK_BURSTS.map(|value| (of, (first_touch, interleaved), value)));
        }
    }
    let errors = parallel::map(&jobs, |(of, rows, value)| error(of, *rows, *value), |_| {});
    let best = errors.chunks(LINK_BURSTS.len()).filter_map(|errors| {
        let tried = errors.iter().zip(LINK_BURSTS);
        tried.min_by(|a, b| a.0.total_cmp(b.0)).map(|(_, value)| value)
    });
    best.fold([f64::INFINITY, 0.0], |[low, high], value| [low.min(value), high.max(value)])
}

/// The middle of each range.
fn middle(inputs: &Inputs) -> Inputs {
    let middle = |[low, high]: [f64; 2]| [low.midpoint(high); 2];
    Inputs {
        name: inputs.name.clone(),
        cycles_per_instruction: middle(inputs.cycles_per_instruction),
        accesses_per_kilo: middle(inputs.accesses_per_kilo),
        outstanding: middle(inputs.outstanding),
        local: middle(inputs.local),
        seconds: middle(inputs.seconds),
    }
}

/// What the two programs of table 1 leave open for another.
fn bounds(of: &Baselines) -> Inputs {
    // A program with pages that stay has its accesses at home: MG's are 97 % local [Carrefour,
    // 4.2].
    let treated = of.pages.replicated + of.pages.interleaved + of.pages.migrated;
    let local = if treated <= 1.0 {
        [0.97; 2]
    } else if of.pages.migrated < 2_000.0 && of.pages.replicated == 0.0 {
        // Few pages are treated, yet it is below the threshold of co-location.
        [0.4, 0.75]
    } else {
        [0.0, 0.2]
    };
    Inputs {
        name: of.name.clone(),
        cycles_per_instruction: [0.5, 1.3],
        accesses_per_kilo: MPKI,
        outstanding: [1.7, 3.8],
        local,
        seconds: [15.0; 2],
    }
}

/// Cycles and outstanding misses that give both columns' instructions per cycle.
fn fit_table_1(
    of: &Baselines,
    machine: &str,
    (first_touch, interleaved): (&Row, &Row),
    truth: &Truth,
) -> Inputs {
    let at = |cpi: f64, outstanding: f64| Inputs {
        name: of.name.clone(),
        cycles_per_instruction: [cpi; 2],
        accesses_per_kilo: [first_touch.mpki; 2],
        outstanding: [outstanding; 2],
        local: [of.local().unwrap_or(0.0); 2],
        seconds: [15.0; 2],
    };
    let error = |inputs: &Inputs| {
        let mut scene = of.scene(machine, inputs, Some(truth.clone()), 1);
        scene.workload.programs[0].seconds = 2.0;
        let ipc = |contender| plain(&scene, &contender).tally.ipc;
        let ratio = |simulated: f64, published: f64| (simulated / published).ln();
        let first = ratio(ipc(Contender::FirstTouch), first_touch.ipc);
        let spread = ratio(ipc(Contender::Interleave), interleaved.ipc);
        first * first + spread * spread
    };
    let grid =
        (1..=6).flat_map(|cpi| (2..=8).map(move |m| (f64::from(cpi) / 4.0, f64::from(m) / 2.0)));
    let starts = grid.map(|point| (error(&at(point.0, point.1)), point));
    let start = starts.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, (0.8, 2.5)));
    let ((mut least, mut best), mut step) = (start, (0.125, 0.25));
    while step.1 > 0.01 {
        let near = [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)];
        let tried = near.map(|(cpi, outstanding)| {
            let cpi: f64 = best.0 + cpi * step.0;
            let outstanding: f64 = best.1 + outstanding * step.1;
            let point = (cpi.clamp(0.05, 3.0), outstanding.clamp(0.5, 4.0));
            (error(&at(point.0, point.1)), point)
        });
        let found = tried.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        match found.filter(|(error, _)| *error < least) {
            Some((error, point)) => (least, best) = (error, point),
            None => step = (step.0 / 2.0, step.1 / 2.0),
        }
    }
    at(best.0, best.1)
}

fn interleaving_gain(of: &Baselines, machine: &str, inputs: &Inputs, truth: &Truth) -> f64 {
    let scene = of.scene(machine, inputs, Some(truth.clone()), 1);
    let base = plain(&scene, &Contender::FirstTouch);
    gain(&technique(&scene, Technique::Interleaving), &base)
}
