//! A fleet: many independent machines drawn from a distribution. The report has the share of
//! machines for each range of gain.
//!
//! Each host is a pair of runs, first touch and a policy. Results go to a file line by line; an
//! interrupted fleet continues from this file.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use rondpoint_core::Random;
use rondpoint_input::{Budget, mistake};
use rondpoint_machine::Machine;
use serde::{Deserialize, Serialize};

use crate::catalogue;
use crate::contender::Contender;
use crate::results::{self, Kept};
use crate::run::run;
use crate::workload::{MOST_ACCESSES, Workload};
use crate::world::Scene;

/// Hosts of a fleet at most.
const MOST_HOSTS: u64 = 1_000_000;
/// Longest file of a fleet, bytes.
const FILE_BYTES: u64 = 1 << 20;
/// Hosts that have no speed.
const UNFINISHED: &str = "did not finish";
const NO_BASE: &str = "first touch did not finish";
/// Speeds at which the classes of the report begin.
const CLASSES: [(f64, &str); 6] = [
    (0.0, "slower by more than 5 %"),
    (0.95, "slower by 2 to 5 %"),
    (0.98, "within 2 %"),
    (1.02, "faster by 2 to 10 %"),
    (1.10, "faster by 10 to 50 %"),
    (1.50, "faster by more than 50 %"),
];

/// A fleet's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fleet {
    name: String,
    hosts: u64,
    policy: String,
    machines: Vec<MachineChoice>,
    workloads: Vec<WorkloadChoice>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineChoice {
    machine: String,
    weight: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadChoice {
    workload: String,
    weight: f64,
    /// Factor on the accesses of all its programs, between two bounds.
    #[serde(default = "as_written")]
    demand: [f64; 2],
}

fn as_written() -> [f64; 2] {
    [1.0, 1.0]
}

/// One host, as in the file of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    host: u64,
    machine: String,
    workload: String,
    demand: f64,
    /// Against first touch; absent if a process was given up or killed in one of the two runs.
    speed: Option<f64>,
    /// Whether all processes ended under the policy.
    finished: bool,
}

/// What the fleet would gain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    kind: &'static str,
    fleet: String,
    policy: String,
    hosts: usize,
    /// Share of all hosts by class, from the slowest.
    classes: Vec<(&'static str, f64)>,
    /// Hosts that have a speed. The next three are of these; they are absent without one.
    compared: usize,
    /// Geometric mean of the speeds.
    mean: Option<f64>,
    worst: Option<f64>,
    best: Option<f64>,
}

/// Simulates a fleet; results that `results` holds already are taken from there.
///
/// # Errors
/// A file cannot be read, written or understood, or the results are of another fleet, version or
/// seed.
pub(crate) fn simulate(
    path: &Path,
    results: Option<&Path>,
    seed: u64,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Report> {
    let text = rondpoint_input::read_text(path, &mut Budget::new(FILE_BYTES, 0))
        .with_context(|| format!("{}", path.display()))?;
    let fleet: Fleet = toml::from_str(&text).map_err(|error| {
        let mistake = mistake(&text, error.span(), error.message());
        anyhow!("{}: no fleet: {mistake}", path.display())
    })?;
    let parts = Parts::of(&fleet).with_context(|| format!("{}", path.display()))?;
    let hosts: Vec<u64> = (0..fleet.hosts).collect();
    let all = hosts.len();
    let (digest, version) = (parts.digest(&text), env!("CARGO_PKG_VERSION"));
    let of = format!("fleet {digest}, version {version}, seed {seed}");
    let one = |host| parts.host(host, seed);
    let found = results::each(&hosts, results, &of, one, |over| progress(over, all))?;
    Ok(Report::of(&fleet, &found.results))
}

impl Kept for Host {
    fn number(&self) -> u64 {
        self.host
    }
}

/// What hosts are drawn from.
struct Parts {
    machines: Vec<Machine>,
    workloads: Vec<(Workload, [f64; 2])>,
    machine_weights: Vec<f64>,
    workload_weights: Vec<f64>,
    contender: Contender,
}

impl Parts {
    fn of(fleet: &Fleet) -> Result<Self> {
        if !(1..=MOST_HOSTS).contains(&fleet.hosts) {
            bail!("hosts: expected 1 to {MOST_HOSTS}, got {}", fleet.hosts);
        }
        let machines: Result<_> =
            fleet.machines.iter().map(|one| catalogue::machine(&one.machine)).collect();
        let workload = |one: &WorkloadChoice| {
            let [low, high] = one.demand;
            if !(0.0..=20.0).contains(&low) || !(low..=20.0).contains(&high) {
                bail!("demand of {}: expected two ascending factors, 0 to 20", one.workload);
            }
            let workload = catalogue::workload(&one.workload)?;
            let each = workload.programs.iter().map(|program| program.accesses_per_kilo);
            let most = each.fold(0.0, f64::max) * high;
            if most > MOST_ACCESSES {
                bail!(
                    "demand of {}: {high} times its accesses_per_kilo is {most}, expected up to \
                     {MOST_ACCESSES}",
                    one.workload
                );
            }
            Ok((workload, one.demand))
        };
        let workloads: Result<_> = fleet.workloads.iter().map(workload).collect();
        let contender = fleet.policy.parse();
        let contender = contender.map_err(|error| anyhow::anyhow!("policy: {error}"))?;
        let parts = Self {
            machines: machines?,
            workloads: workloads?,
            machine_weights: fleet.machines.iter().map(|one| one.weight).collect(),
            workload_weights: fleet.workloads.iter().map(|one| one.weight).collect(),
            contender,
        };
        for machine in &parts.machines {
            let check = |(one, _): &(Workload, _)| one.check_size(machine.cpu_count());
            parts.workloads.iter().try_for_each(check)?;
        }
        for (name, weights) in
            [("machines", &parts.machine_weights), ("workloads", &parts.workload_weights)]
        {
            let valid = weights.iter().all(|weight| (0.0..=1e6).contains(weight));
            if !valid || weights.iter().sum::<f64>() <= 0.0 {
                bail!("{name}: expected weights from 0 on, and one above it");
            }
        }
        Ok(parts)
    }

    /// Digest of the fleet's file, and of the machines and workloads that it names.
    fn digest(&self, text: &str) -> String {
        results::digest(&format!("{text}{:?}{:?}", self.machines, self.workloads))
    }

    fn host(&self, host: u64, seed: u64) -> Result<Host> {
        let mut random = Random::new(Random::new(seed).next_u64() ^ host);
        let machine = random.weighted(&self.machine_weights).context("no machine")?;
        let workload = random.weighted(&self.workload_weights).context("no workload")?;
        let machine = &self.machines[machine];
        let (workload, [low, high]) = &self.workloads[workload];
        let demand = low + (high - low) * random.unit();
        let mut programs = workload.clone();
        programs.programs.iter_mut().for_each(|one| one.accesses_per_kilo *= demand);
        let scene = Scene::new(machine.clone(), programs, random.next_u64());
        let base = run(&scene, &Contender::FirstTouch)?;
        let own = run(&scene, &self.contender)?;
        let (speed, finished) = (own.speed_against(&base), own.seconds().is_some());
        let (machine, workload) = (machine.name.clone(), workload.name.clone());
        Ok(Host { host, machine, workload, demand, speed, finished })
    }
}

impl Report {
    fn of(fleet: &Fleet, hosts: &[Host]) -> Self {
        let speeds: Vec<f64> = hosts.iter().filter_map(|host| host.speed).collect();
        let share = |count: usize| count as f64 / hosts.len().max(1) as f64;
        let no_speed = |finished: bool| {
            let of = |host: &&Host| host.speed.is_none() && host.finished == finished;
            share(hosts.iter().filter(of).count())
        };
        let ends = CLASSES.iter().skip(1).map(|(from, _)| *from).chain([f64::INFINITY]);
        let mut classes = vec![(UNFINISHED, no_speed(false))];
        classes.extend(CLASSES.iter().zip(ends).map(|((from, name), end)| {
            (*name, share(speeds.iter().filter(|speed| (*from..end).contains(*speed)).count()))
        }));
        classes.push((NO_BASE, no_speed(true)));
        let logs: f64 = speeds.iter().map(|speed| speed.ln()).sum();
        Self {
            kind: "simulated",
            fleet: fleet.name.clone(),
            policy: fleet.policy.clone(),
            hosts: hosts.len(),
            classes,
            compared: speeds.len(),
            mean: (!speeds.is_empty()).then(|| (logs / speeds.len() as f64).exp()),
            worst: speeds.iter().copied().min_by(f64::total_cmp),
            best: speeds.iter().copied().max_by(f64::total_cmp),
        }
    }

    /// The report for people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{}: {} hosts under {} against first touch (simulated)\n\n",
            self.fleet, self.hosts, self.policy
        );
        for (name, share) in &self.classes {
            let bar = "#".repeat((share * 40.0).round() as usize);
            text += &format!("{name:<26} {:>6.1} %  {bar}\n", 100.0 * share);
        }
        if let (Some(mean), Some(worst), Some(best)) = (self.mean, self.worst, self.best) {
            text += &format!(
                "\n{} hosts have a speed: mean {mean:.3} (geometric), worst {worst:.3}, best \
                 {best:.2}\n",
                self.compared
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: &str = r#"
        name = "two"
        hosts = 6
        policy = "interleave"
        [[machines]]
        machine = "nodes=2 cpus=2 memory=1G"
        weight = 1
        [[workloads]]
        workload = "producer-consumer"
        weight = 1
        demand = [0.2, 0.4]
    "#;

    #[test]
    fn an_interrupted_fleet_goes_on_and_ends_as_if_it_had_not_been() {
        let folder = tempfile::tempdir().unwrap();
        let (fleet, results) = (folder.path().join("fleet.toml"), folder.path().join("results"));
        std::fs::write(&fleet, FLEET).unwrap();
        let whole = simulate(&fleet, Some(&results), 1, |_, _| {}).unwrap();
        assert_eq!(whole.hosts, 6);
        let lines = std::fs::read_to_string(&results).unwrap();
        let some: String = lines.split_inclusive('\n').take(2).collect();
        std::fs::write(&results, some).unwrap();
        let again = simulate(&fleet, Some(&results), 1, |_, _| {}).unwrap();
        assert_eq!(again, whole);
        assert_eq!(std::fs::read_to_string(&results).unwrap().lines().count(), 6);
    }

    #[test]
    fn results_of_another_policy_or_seed_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (fleet, results) = (folder.path().join("fleet.toml"), folder.path().join("results"));
        let run = |text: &str, seed: u64| {
            std::fs::write(&fleet, text).unwrap();
            let report = simulate(&fleet, Some(&results), seed, |_, _| {});
            report.map_err(|error| format!("{error:#}"))
        };
        let small = FLEET.replace("hosts = 6", "hosts = 1");
        assert!(run(&small, 1).is_ok());
        let before = std::fs::read(&results).unwrap();
        for (text, seed) in [(small.replace("interleave", "auto"), 1), (small.clone(), 2)] {
            let told = run(&text, seed).expect_err("another fleet");
            assert!(told.contains("results: line 1: result of fleet "), "{told}");
            assert!(told.contains(&format!("seed {seed}; name a new file")), "{told}");
        }
        assert_eq!(std::fs::read(&results).unwrap(), before, "nothing ran");
        assert!(run(&small, 1).is_ok());
    }

    fn host(speed: Option<f64>, finished: bool) -> Host {
        let (machine, workload) = (String::new(), String::new());
        Host { host: 0, machine, workload, demand: 1.0, speed, finished }
    }

    #[test]
    fn shares_of_the_classes_are_a_whole() {
        let fleet: Fleet = toml::from_str(FLEET).unwrap();
        let mut hosts: Vec<Host> =
            [0.5, 0.96, 1.0, 1.02, 1.2, 9.0].map(|speed| host(Some(speed), true)).into();
        hosts.extend([host(None, false), host(None, true)]);
        let report = Report::of(&fleet, &hosts);
        assert_eq!((report.hosts, report.compared, report.classes.len()), (8, 6, 8));
        assert!(report.classes.iter().all(|(_, share)| (share - 0.125).abs() < 1e-12));
    }

    #[test]
    fn a_host_that_did_not_finish_is_in_a_class_of_its_own() {
        let fleet: Fleet = toml::from_str(FLEET).unwrap();
        let hosts = [host(Some(2.0), true), host(None, false), host(None, false)];
        let report = Report::of(&fleet, &hosts);
        let (name, share) = report.classes[0];
        assert_eq!((name, report.worst), ("did not finish", Some(2.0)));
        assert!((share - 2.0 / 3.0).abs() < 1e-12, "{share}");
        assert!(report.text().contains("1 hosts have a speed"), "{}", report.text());
        let none = Report::of(&fleet, &hosts[1..]);
        assert_eq!((none.mean, none.worst, none.best), (None, None, None));
    }

    #[test]
    fn a_mistake_in_a_fleet_is_one_short_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.toml");
        std::fs::write(&path, format!("hosts = 1\nx = {}", "[".repeat(100_000))).unwrap();
        let told = format!("{:#}", simulate(&path, None, 1, |_, _| {}).unwrap_err());
        assert!(told.contains("fleet.toml: no fleet: line 2: "), "{told:.300}");
        assert!(told.lines().count() == 1 && told.len() < 400, "{told:.300}");
    }

    #[test]
    fn a_bad_fleet_is_refused_with_its_field() {
        let refused = |text: &str| {
            let fleet: Fleet = toml::from_str(text).unwrap();
            Parts::of(&fleet).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused(&FLEET.replace("hosts = 6", "hosts = 0")).starts_with("hosts: expected"));
        assert!(refused(&FLEET.replace("[0.2, 0.4]", "[0.4, 0.2]")).starts_with("demand of"));
        let much = FLEET.replace("\"producer-consumer\"", "\"private:accesses_per_kilo=400\"");
        let told = refused(&much.replace("[0.2, 0.4]", "[1, 2]"));
        assert!(
            told.ends_with("2 times its accesses_per_kilo is 800, expected up to 500"),
            "{told}"
        );
        assert_eq!(refused(&much), "");
        assert!(refused(&FLEET.replace("weight = 1", "weight = 0")).starts_with("machines: "));
    }
}
