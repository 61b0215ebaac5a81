//! Compares readings of counters with the known accesses of a load, and returns the wrong ones. It
//! measures nothing itself.

use serde::Serialize;

/// One metric during one known load.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// The metric.
    pub(super) metric: String,
    /// The load, as a sentence's subject: `node 0 reading memory of node 1`.
    pub(super) load: String,
    /// The node of the memory that is read, by the kernel's number.
    pub(super) holding: u32,
    /// The reader is on another node.
    pub(super) remote: bool,
    /// Where the count should be, and what the others are that should stay quiet.
    pub(super) places: Vec<Place>,
    /// Index of the place that should count.
    pub(super) expected: usize,
    /// What it should count.
    pub(super) amount: f64,
    /// Lowest and highest count that is believed, as parts of `amount`.
    pub(super) band: (f64, f64),
    /// Part of the time in which the event was on a counter.
    pub(super) running_share: f64,
    /// The units behind the expected place, by name, where there are several.
    pub(super) units: Vec<Place>,
    /// Only the program that loads is counted: no other makes this loud.
    pub(super) is_own: bool,
}

/// Something that counts by itself: a node, a link, a unit.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) name: String,
    /// Counted during the load.
    pub(super) count: f64,
    /// Counted in as much time before it, when nothing of ours ran.
    pub(super) idle: f64,
    /// It stood at less after one of the two than before.
    pub(super) fell: bool,
}

impl Place {
    /// What the load added.
    fn added(&self) -> f64 {
        (self.count - self.idle).max(0.0)
    }
}

/// How a counter lies.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lie {
    /// It counts backwards: what overflowed was not carried on.
    Backwards,
    /// It was hardly ever on a counter.
    NeverOnACounter,
    /// It counts nothing.
    Silent,
    /// It counts as much without the load.
    CountsWithoutLoad,
    /// Another place counts what this one should.
    Elsewhere(String),
    /// Another place counts it as well.
    Also(String),
    /// It counts this many times the truth.
    Scale(f64),
    /// One unit of several counts nothing.
    UnitSilent(String),
    /// It counts less than the same metric of the other nodes does under the same load, by this
    /// part.
    LessThanOthers(f64),
}

/// A metric that is not to be believed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    /// The metric.
    pub(super) metric: String,
    /// How it lies.
    pub(super) lie: Lie,
    /// The whole of it as a sentence.
    pub(super) sentence: String,
}

/// Below this part of the time a count is too thin to scale.
const LEAST_RUNNING: f64 = 0.02;
/// A place that counts less than this part of the truth counts nothing.
const NOTHING: f64 = 0.1;
/// A place that should be quiet counts at most this part of what the right one does.
const QUIET: f64 = 0.5;
/// What other programs do may be this part of the load; more, and nothing can be told.
const BUSY: f64 = 0.5;
/// Nodes under the same load differ by less than this: one of eight channels is 0.125.
const DIFFERENCE: f64 = 0.1;
/// Standard deviations of a count that are chance: a few hundred samples differ by this much.
const CHANCE: f64 = 4.0;

/// The lies, each once for its metric, in the order of the readings.
pub(super) fn judge(readings: &[Reading]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for reading in readings.iter().filter(|reading| !is_busy(reading)) {
        let Some(lie) = lie_of(reading) else { continue };
        let is_said = |finding: &Finding| {
            finding.metric == reading.metric
                && std::mem::discriminant(&finding.lie) == std::mem::discriminant(&lie)
        };
        if !findings.iter().any(is_said) {
            let sentence = sentence(reading, &lie);
            findings.push(Finding { metric: reading.metric.clone(), lie, sentence });
        }
    }
    let lying = |reading: &Reading| findings.iter().any(|found| found.metric == reading.metric);
    let sound: Vec<&Reading> =
        readings.iter().filter(|reading| !is_busy(reading) && !lying(reading)).collect();
    let less = sound.iter().filter_map(|reading| less_than_others(reading, &sound));
    let mut less: Vec<Finding> = less.collect();
    less.dedup_by(|one, other| one.metric == other.metric);
    findings.extend(less);
    findings
}

/// Whether other programs were too loud for this reading to tell anything. A counter that runs by
/// itself looks the same, but does not follow the load at all.
pub(super) fn is_busy(reading: &Reading) -> bool {
    let place = &reading.places[reading.expected];
    !reading.is_own
        && place.idle > BUSY * reading.amount
        && place.count > place.idle + BUSY * reading.amount
}

fn lie_of(reading: &Reading) -> Option<Lie> {
    let right = &reading.places[reading.expected];
    let (added, amount) = (right.added(), reading.amount);
    let loudest = reading.places.iter().enumerate().filter(|(at, _)| *at != reading.expected);
    let loudest = loudest.map(|(_, place)| place).max_by(|a, b| a.added().total_cmp(&b.added()));
    if right.fell || reading.units.iter().any(|unit| unit.fell) {
        return Some(Lie::Backwards);
    }
    if reading.running_share < LEAST_RUNNING {
        return Some(Lie::NeverOnACounter);
    }
    if added < NOTHING * amount {
        return Some(match loudest {
            Some(other) if other.added() > reading.band.0 * amount => {
                Lie::Elsewhere(other.name.clone())
            }
            _ if right.count > BUSY * amount => Lie::CountsWithoutLoad,
            _ => Lie::Silent,
        });
    }
    let scale = added / amount;
    // A channel without memory is silent too, but then the others count all of it.
    let short = scale < 1.0 - 0.5 / reading.units.len().max(1) as f64;
    let silent = reading.units.iter().find(|unit| unit.count <= 0.0).filter(|_| short);
    if let Some(unit) = silent {
        return Some(Lie::UnitSilent(unit.name.clone()));
    }
    if scale < reading.band.0 || scale > reading.band.1 {
        return Some(Lie::Scale(scale));
    }
    let also = loudest.filter(|other| other.added() > QUIET * added);
    also.map(|other| Lie::Also(other.name.clone()))
}

/// The same metric under the same kind of load, another node's memory: where that counts more.
fn less_than_others(reading: &Reading, all: &[&Reading]) -> Option<Finding> {
    let part = |reading: &Reading| reading.places[reading.expected].added() / reading.amount;
    let same = all.iter().filter(|other| {
        other.metric == reading.metric
            && other.remote == reading.remote
            && other.holding != reading.holding
    });
    let most = same.map(|other| part(other)).max_by(f64::total_cmp)?;
    let less = 1.0 - part(reading) / most;
    let chance = CHANCE / reading.amount.sqrt();
    (less > DIFFERENCE + chance).then(|| {
        let lie = Lie::LessThanOthers(less);
        Finding { metric: reading.metric.clone(), sentence: sentence(reading, &lie), lie }
    })
}

fn sentence(reading: &Reading, lie: &Lie) -> String {
    let (metric, load) = (&reading.metric, &reading.load);
    let right = &reading.places[reading.expected];
    let (name, amount) = (&right.name, reading.amount);
    match lie {
        Lie::Backwards => {
            format!("{metric} stands at less for {name} after {load} than before: it overflows")
        }
        Lie::NeverOnACounter => format!(
            "{metric} was on a counter for {:.1} % of the time: another profiler holds the counters",
            100.0 * reading.running_share
        ),
        Lie::Silent => {
            format!("{metric} counts nothing for {name} with {load}, where {amount:.0} are due")
        }
        Lie::CountsWithoutLoad => format!(
            "{metric} counts {:.0} for {name} with {load}, and as much without it",
            right.count
        ),
        Lie::Elsewhere(other) => {
            format!("{metric} counts for {other} what {load} does at {name}: they are exchanged")
        }
        Lie::Also(other) => format!("{metric} counts {load} at {name}, and at {other} as well"),
        Lie::Scale(scale) => format!(
            "{metric} counts {:.0} for {name} with {load}, where {amount:.0} are due: {scale:.2} times the truth",
            right.added()
        ),
        Lie::UnitSilent(unit) => {
            format!("{metric}: unit {unit} counts nothing with {load}, its neighbours do")
        }
        Lie::LessThanOthers(less) => format!(
            "{metric} counts {:.0} % less for {name} than for other nodes under the same load: a unit is missing",
            100.0 * less
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: f64 = 1e6;

    fn place(name: impl Into<String>, count: f64) -> Place {
        // A little goes on all the time, on every real machine.
        Place { name: name.into(), count: count + 2e3, idle: 2e3, fell: false }
    }

    /// What an honest machine of two nodes with four controllers each says of every metric under
    /// every load, some percent off as hardware is.
    fn honest() -> Vec<Reading> {
        let mut readings = Vec::new();
        for (accessing, holding) in [(0u32, 0u32), (1, 0), (0, 1), (1, 1)] {
            let remote = accessing != holding;
            let load = format!("node {accessing} reading memory of node {holding}");
            let mut add = |metric: &str, names: [&str; 2], expected: usize, part: f64| {
                let counts = |at| if at == expected { part * LINES } else { 0.03 * LINES };
                readings.push(Reading {
                    metric: metric.to_string(),
                    load: load.clone(),
                    holding,
                    remote,
                    places: vec![place(names[0], counts(0)), place(names[1], counts(1))],
                    expected,
                    amount: LINES,
                    band: (0.6, 1.7),
                    running_share: 0.5,
                    units: Vec::new(),
                    is_own: metric == "llc_misses" || metric == "dram by distance",
                });
            };
            let nodes = ["node 0", "node 1"];
            add("llc_misses", ["the thread", "no thread"], 0, 1.06);
            add("dram by distance", ["local", "remote"], usize::from(remote), 0.91);
            add("machine traffic", nodes, holding as usize, 1.02);
            add("controllers", nodes, holding as usize, 1.04 - 0.03 * f64::from(holding));
            add("sample homes", nodes, holding as usize, 0.97);
            if remote {
                add("links", ["from node 0", "from node 1"], holding as usize, 1.1);
            }
            let controllers = readings.iter_mut().rfind(|one| one.metric == "controllers");
            controllers.expect("was added").units =
                (0..4).map(|unit| place(format!("imc_{unit}"), LINES / 4.0)).collect();
        }
        readings
    }

    /// The lies that are found when `alter` provokes one in each reading of a metric.
    fn found(metric: &str, alter: impl Fn(&mut Reading)) -> Vec<(String, Lie)> {
        let mut readings = honest();
        readings.iter_mut().filter(|reading| reading.metric == metric).for_each(alter);
        judge(&readings).into_iter().map(|finding| (finding.metric, finding.lie)).collect()
    }

    fn only(metric: &str, lie: Lie) -> Vec<(String, Lie)> {
        vec![(metric.to_string(), lie)]
    }

    #[test]
    fn an_honest_machine_is_believed() {
        assert_eq!(judge(&honest()), []);
    }

    #[test]
    fn a_zeroed_counter_is_silent() {
        let zero = |reading: &mut Reading| {
            reading.places.iter_mut().for_each(|place| (place.count, place.idle) = (0.0, 0.0));
        };
        assert_eq!(found("llc_misses", zero), only("llc_misses", Lie::Silent));
    }

    #[test]
    fn exchanged_nodes_links_and_distances_are_found() {
        let exchange = |reading: &mut Reading| {
            let counts = [reading.places[1].count, reading.places[0].count];
            (reading.places[0].count, reading.places[1].count) = (counts[0], counts[1]);
        };
        for metric in ["machine traffic", "links", "dram by distance", "sample homes"] {
            let lies = found(metric, exchange);
            assert_eq!(lies.len(), 1, "{metric}: {lies:?}");
            assert!(matches!(&lies[0], (name, Lie::Elsewhere(_)) if name == metric), "{lies:?}");
        }
    }

    #[test]
    fn remote_accesses_that_count_as_local_are_found() {
        let lies = found("dram by distance", |reading| {
            if reading.remote {
                let remote = std::mem::replace(&mut reading.places[1].count, 2e3);
                reading.places[0].count += remote;
            }
        });
        assert_eq!(lies, only("dram by distance", Lie::Elsewhere("local".to_string())));
    }

    #[test]
    fn units_of_one_node_alone_leave_the_other_silent() {
        let lies = found("controllers", |reading| {
            let place = &mut reading.places[1];
            (place.count, place.idle) = (0.0, 0.0);
            if reading.holding == 1 {
                reading.units.clear();
            }
        });
        assert_eq!(lies, only("controllers", Lie::Silent));
    }

    #[test]
    fn a_counter_that_overflows_is_not_taken_for_another_profilers() {
        // What `Counter::since` makes of a reading below the one before.
        let overflow = |reading: &mut Reading| {
            reading.places[reading.expected] = Place { fell: true, ..place("node", 0.0) };
            reading.running_share = 0.0;
        };
        assert_eq!(found("llc_misses", overflow), only("llc_misses", Lie::Backwards));
        let unit = |reading: &mut Reading| reading.units[1].fell = true;
        assert_eq!(found("controllers", unit), only("controllers", Lie::Backwards));
    }

    #[test]
    fn a_unit_that_counts_nothing_is_named() {
        let mute = |reading: &mut Reading| {
            reading.units[2].count = 0.0;
            reading.places[reading.expected].count -= LINES / 4.0;
        };
        let expected = only("controllers", Lie::UnitSilent("imc_2".to_string()));
        assert_eq!(found("controllers", mute), expected);
    }

    #[test]
    fn a_channel_without_memory_is_no_lie() {
        let empty = |reading: &mut Reading| reading.units[2].count = 0.0;
        assert_eq!(found("controllers", empty), []);
    }

    #[test]
    fn a_unit_that_is_not_there_shows_against_the_other_node() {
        let mut lies = found("controllers", |reading| {
            if reading.holding == 1 {
                reading.places[1].count -= LINES / 8.0;
            }
        });
        let (metric, lie) = lies.pop().expect("is found");
        assert!(lies.is_empty() && metric == "controllers", "{lies:?}");
        assert!(matches!(lie, Lie::LessThanOthers(less) if (0.1..0.2).contains(&less)), "{lie:?}");
    }

    #[test]
    fn few_samples_differ_by_chance() {
        let few = |reading: &mut Reading| {
            let right = if reading.holding == 0 { 132.0 } else { 150.0 };
            reading.amount = 150.0;
            for (at, place) in reading.places.iter_mut().enumerate() {
                (place.count, place.idle) = (if at == reading.expected { right } else { 0.0 }, 0.0);
            }
        };
        assert_eq!(found("sample homes", few), []);
    }

    #[test]
    fn a_wrong_scale_is_found_both_ways() {
        let scaled = |factor: f64| {
            found("controllers", move |reading: &mut Reading| {
                reading.places.iter_mut().for_each(|place| place.count *= factor);
                reading.units.iter_mut().for_each(|place| place.count *= factor);
            })
        };
        for factor in [64.0, 2.0, 0.5] {
            let lies = scaled(factor);
            let is_scale = |(metric, lie): &(String, Lie)| {
                metric == "controllers"
                    && matches!(lie, Lie::Scale(found) if (found / factor - 1.0).abs() < 0.1)
            };
            assert!(lies.len() == 1 && lies.iter().all(is_scale), "{factor}: {lies:?}");
        }
    }

    #[test]
    fn a_counter_that_runs_by_itself_is_no_measure() {
        let constant = |reading: &mut Reading| {
            let place = &mut reading.places[reading.expected];
            (place.count, place.idle) = (LINES, LINES);
        };
        assert_eq!(found("llc_misses", constant), only("llc_misses", Lie::CountsWithoutLoad));
    }

    /// Other programs are no excuse: they are not counted.
    #[test]
    fn a_counter_of_one_program_is_never_busy() {
        let by_itself = |reading: &mut Reading| {
            let place = &mut reading.places[reading.expected];
            (place.count, place.idle) = (8.0 * LINES, 3.0 * LINES);
        };
        assert_eq!(found("llc_misses", by_itself), only("llc_misses", Lie::Scale(5.0)));
        assert_eq!(found("machine traffic", by_itself), []);
    }

    #[test]
    fn an_event_that_is_never_on_a_counter_is_not_scaled() {
        let starved = |reading: &mut Reading| reading.running_share = 0.001;
        assert_eq!(found("llc_misses", starved), only("llc_misses", Lie::NeverOnACounter));
    }

    #[test]
    fn what_both_nodes_count_tells_them_not_apart() {
        let both = |reading: &mut Reading| {
            let count = reading.places[reading.expected].count;
            reading.places.iter_mut().for_each(|place| place.count = count);
        };
        let lies = found("machine traffic", both);
        assert!(matches!(&lies[..], [(_, Lie::Also(_))]), "{lies:?}");
    }

    #[test]
    fn a_busy_machine_accuses_nobody() {
        let busy = |reading: &mut Reading| {
            for place in &mut reading.places {
                (place.count, place.idle) = (place.count + 5.0 * LINES, 3.0 * LINES);
            }
        };
        assert_eq!(found("machine traffic", busy), []);
    }

    #[test]
    fn each_lie_is_a_sentence_with_its_numbers() {
        let mut readings = honest();
        readings[1].places[0].count = 0.0;
        let findings = judge(&readings);
        let expected = "dram by distance counts nothing for local with node 0 reading memory of \
            node 0, where 1000000 are due";
        assert_eq!(findings[0].sentence, expected);
    }
}
