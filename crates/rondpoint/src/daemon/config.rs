//! The daemon's configuration: a TOML file, every key of which has a default. `docs/daemon.md` is
//! its reference; `packaging/rondpoint.toml` is an example that a test reads.

mod summary;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::guard::GuardSettings;
use rondpoint_core::{Nanos, Topology};
use rondpoint_input::Budget;
use rondpoint_trace::PolicyChoice;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::accounts::{self, Accounts};
use super::rules::{Match, Rules};
use crate::control::SOCKET;
use crate::control::protocol::Mode;
use crate::observe::Sensor;
use crate::toml_text;

/// Read unless another file is named.
pub(crate) const SYSTEM_FILE: &str = "/etc/rondpoint/rondpoint.toml";
/// Longest file.
const LARGEST: u64 = 1 << 20;
const MIB: u64 = 1 << 20;

/// The file as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Whether anything is changed.
    pub(crate) mode: Mode,
    pub(crate) manage: Manage,
    /// Never managed, whatever else says so.
    pub(crate) exclude: Match,
    pub(crate) policy: Policy,
    pub(crate) budget: Budgets,
    pub(crate) control: Control,
    pub(crate) metrics: Metrics,
    pub(crate) log: Log,
}

/// What is managed: a process that one of the lists names, or any where there is no list, if it is
/// large enough.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Manage {
    /// Resident memory below which a process is left to the kernel, in MiB.
    min_memory_mib: u64,
    /// CPUs that it has to use, as a mean between two looks at it; 1 is a whole one.
    min_cpus: f64,
    /// Processes managed at a time at most, each with what it starts.
    most: usize,
    /// How often processes are looked for, in seconds.
    look_every_s: f64,
    cgroups: Vec<String>,
    units: Vec<String>,
    users: Vec<super::rules::UserName>,
    commands: Vec<String>,
    containers: Vec<String>,
}

/// Which policies decide.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Policy {
    /// In order of priority, as `rondpoint run --policy` has them.
    pub(crate) policies: Vec<String>,
    /// Seed of every random choice.
    pub(crate) seed: u64,
    /// The only sensor to use; the best there is without it.
    pub(crate) sensor: Option<Sensor>,
    /// Machine file with links and bandwidths.
    pub(crate) machine: Option<PathBuf>,
    /// What `rondpoint calibrate` measured.
    pub(crate) calibration: Option<PathBuf>,
}

/// The guard's budgets; an absent one is the guard's default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Budgets {
    memory_mib_per_s_per_node: Option<u64>,
    calls_per_s: Option<u32>,
    samples_per_s_per_cpu: Option<u32>,
    /// Movers' time per time of a process, 0 to 1.
    mover_share: Option<f64>,
    /// Share of a node's memory that stays free, 0 to 1.
    reserve_share: Option<f64>,
    /// Whether a process may be stopped while its memory moves.
    freeze: Option<bool>,
    back_off_s: Option<f64>,
    max_failures: Option<u32>,
    /// Longest time for which a look may hold the map lock of a process; 26 without it.
    map_lock_ms: Option<u64>,
}

/// The control socket.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Control {
    pub(crate) socket: PathBuf,
    /// Its members may do what root may; none where it is absent or does not exist.
    pub(crate) group: Option<String>,
}

/// Metrics over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Metrics {
    /// A loopback address with a port; nowhere without it.
    #[serde(deserialize_with = "address")]
    pub(crate) listen: Option<SocketAddr>,
}

/// An address, with a message that has an example.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    let expected = || format!("`{text}`: expected an address and a port such as 127.0.0.1:9842");
    text.parse().map(Some).map_err(|_| D::Error::custom(expected()))
}

/// The log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub(crate) level: Level,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl Default for Manage {
    fn default() -> Self {
        Self {
            // numad's floors: MEMORY_THRESHOLD and CPU_THRESHOLD of numad.c.
            min_memory_mib: 300,
            min_cpus: 0.5,
            most: 64,
            look_every_s: 5.0,
            cgroups: Vec::new(),
            units: Vec::new(),
            users: Vec::new(),
            commands: Vec::new(),
            containers: Vec::new(),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        let policies = vec!["auto".to_string()];
        Self { policies, seed: 1, sensor: None, machine: None, calibration: None }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self { socket: SOCKET.into(), group: Some(OPERATORS.to_string()) }
    }
}

impl Control {
    /// Number of the group, which may be written as a number. `None` where none is configured or
    /// `/etc/group` has none of that name: only root may act then.
    pub(crate) fn group_number(&self) -> Option<u32> {
        let name = self.group.as_deref()?;
        let number = accounts::number(Accounts::Groups, name);
        if number.is_none() {
            tracing::warn!("[control] group {name}: not in /etc/group, so only root may act");
        }
        number
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: Level::Info }
    }
}

impl Config {
    /// Reads and checks a file; of a file that is not there and was not named, the defaults.
    ///
    /// # Errors
    /// The file cannot be read, or says something that has no meaning; with line and column.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self> {
        let path = named.unwrap_or(Path::new(SYSTEM_FILE));
        let mut budget = Budget::new(LARGEST, 0);
        let text = match rondpoint_input::read_text(path, &mut budget) {
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                String::new()
            }
            other => other.with_context(|| path.display().to_string())?,
        };
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let found: Self = toml_text::parse(text)?;
        found.check()?;
        Ok(found)
    }

    fn check(&self) -> Result<()> {
        let share = |name: &str, value: Option<f64>| match value {
            Some(value) if !(0.0..=1.0).contains(&value) => {
                bail!("[budget] {name} = {value}: expected a share from 0 to 1")
            }
            _ => Ok(()),
        };
        share("mover_share", self.budget.mover_share)?;
        share("reserve_share", self.budget.reserve_share)?;
        if self.budget.back_off_s.is_some_and(|seconds| !(0.0..=86_400.0).contains(&seconds)) {
            bail!("[budget] back_off_s: expected seconds, a day at most");
        }
        if self.budget.map_lock_ms.is_some_and(|ms| !(1..=MOST_MAP_LOCK_MS).contains(&ms)) {
            bail!("[budget] map_lock_ms: expected 1 to {MOST_MAP_LOCK_MS}");
        }
        if !(0.0..=4096.0).contains(&self.manage.min_cpus) {
            bail!("[manage] min_cpus = {}: expected a number of CPUs", self.manage.min_cpus);
        }
        if !(0.1..=3600.0).contains(&self.manage.look_every_s) {
            let found = self.manage.look_every_s;
            bail!("[manage] look_every_s = {found}: expected seconds from 0.1 to 3600");
        }
        if !(1..=MOST_TREES).contains(&self.manage.most) {
            bail!("[manage] most = {}: expected 1 to {MOST_TREES}", self.manage.most);
        }
        // sun_path of unix(7) has 108 bytes, of which the last is 0.
        let socket = &self.control.socket;
        if !socket.is_absolute() || socket.as_os_str().len() > 107 {
            let found = socket.display();
            bail!("[control] socket = \"{found}\": expected an absolute path of at most 107 bytes");
        }
        let is_wrong = |address: &SocketAddr| !address.ip().is_loopback() || address.port() == 0;
        if let Some(address) = self.metrics.listen.filter(is_wrong) {
            bail!("[metrics] listen = \"{address}\": expected a loopback address and a port");
        }
        if self.policy.policies.is_empty() {
            bail!("[policy] policies: expected at least one");
        }
        for choice in self.policies() {
            choice.make().context("[policy] policies")?;
        }
        self.rules().map(drop)
    }

    /// The chosen policies.
    pub(crate) fn policies(&self) -> Vec<PolicyChoice> {
        self.policy.policies.iter().map(|word| PolicyChoice::parse(word)).collect()
    }

    /// Whether anything may be changed.
    pub(crate) fn acts(&self) -> bool {
        self.mode == Mode::Act && self.policy.policies.iter().any(|word| word != "observe")
    }

    /// Whether a process may be stopped while its memory moves.
    pub(crate) fn freezes(&self) -> bool {
        self.acts() && self.budget.freeze.unwrap_or(GuardSettings::default().freeze)
    }

    /// What the guard allows on a machine.
    pub(crate) fn guard(&self, act: bool, topology: &Topology) -> GuardSettings {
        let usual = GuardSettings { act, ..GuardSettings::default() }.for_machine(topology);
        let Budgets { memory_mib_per_s_per_node: memory, back_off_s, .. } = self.budget;
        let back_off = back_off_s.map(|seconds| Nanos((seconds * 1e9) as u64));
        let memory = memory.map(|mib| mib.saturating_mul(MIB));
        GuardSettings {
            bytes_per_s_per_node: memory.unwrap_or(usual.bytes_per_s_per_node),
            calls_per_s: self.budget.calls_per_s.unwrap_or(usual.calls_per_s),
            samples_per_s_per_cpu: self
                .budget
                .samples_per_s_per_cpu
                .unwrap_or(usual.samples_per_s_per_cpu),
            mover_share: self.budget.mover_share.unwrap_or(usual.mover_share),
            reserve_share: self.budget.reserve_share.unwrap_or(usual.reserve_share),
            freeze: self.budget.freeze.unwrap_or(usual.freeze),
            back_off: back_off.unwrap_or(usual.back_off),
            max_failures: self.budget.max_failures.unwrap_or(usual.max_failures),
            ..usual
        }
    }

    /// Longest time for which a look may hold the map lock of a process; `None`: the usual time.
    pub(crate) fn map_lock(&self) -> Option<Duration> {
        self.budget.map_lock_ms.map(Duration::from_millis)
    }

    /// Which processes are managed.
    ///
    /// # Errors
    /// A pattern or a user's name has no meaning.
    pub(crate) fn rules(&self) -> Result<Rules> {
        let Manage { cgroups, units, users, commands, containers, .. } = self.manage.clone();
        let manage = Match { cgroups, units, users, commands, containers };
        Ok(Rules {
            manage: manage.compile().context("[manage]")?,
            exclude: self.exclude.compile().context("[exclude]")?,
            min_memory: self.manage.min_memory_mib.saturating_mul(MIB),
            min_cpus: self.manage.min_cpus,
        })
    }

    /// Trees managed at a time at most.
    pub(crate) fn most_trees(&self) -> usize {
        self.manage.most
    }

    /// How often processes are looked for.
    pub(crate) fn look_every(&self) -> Duration {
        Duration::from_secs_f64(self.manage.look_every_s)
    }
}

/// The group that the package makes. Without it only root may act, as where no package is.
pub(crate) const OPERATORS: &str = "rondpoint";
/// Longest time for which a process may wait for its map lock (our choice). One look reads several
/// processes, and the watchdog of the unit waits 60 s.
const MOST_MAP_LOCK_MS: u64 = 10_000;
/// Each tree has a socket, a file and some open files of `/proc`.
const MOST_TREES: usize = 1024;

#[cfg(test)]
mod tests {
    use rondpoint_core::topology::synthetic;

    use super::*;

    #[test]
    fn without_a_word_it_observes_with_the_floors_of_numad() {
        let usual = Config::parse("").unwrap();
        assert!(!usual.acts() && usual == Config::default());
        assert_eq!((usual.manage.min_memory_mib, usual.manage.min_cpus), (300, 0.5));
        assert!(Config::parse("mode = \"act\"").unwrap().acts());
        assert!(!Config::parse("mode = \"act\"\npolicy.policies = [\"observe\"]").unwrap().acts());
    }

    fn refused(text: &str) -> String {
        format!("{:#}", Config::parse(text).unwrap_err())
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_what_was_expected() {
        let unknown = refused("mode = \"act\"\n\n[manage]\nmin_memory = 3\n");
        assert!(unknown.contains("line 4") && unknown.contains("min_memory"), "{unknown}");
        let mode = refused("mode = \"on\"");
        assert!(mode.contains("line 1") && mode.contains("`observe` or `act`"), "{mode}");
        for (text, expected) in [
            ("[metrics]\nlisten = \"0.0.0.0:1\"", "expected a loopback address"),
            ("[metrics]\nlisten = \"127.0.0.1:0\"", "expected a loopback address and a port"),
            ("[metrics]\nlisten = \"localhost:1\"", "line 2: `localhost:1`: expected an"),
            ("[manage]\nusers = [1.5]", "line 2: expected the name or the number of a user"),
            ("[manage]\nusers = [-1]", "line 2: expected the name or the number of a user"),
            ("[manage]\ncommands = \"java\"", "line 2"),
            ("[policy]\npolicies = []", "expected at least one"),
            ("[policy]\npolicies = [\"swap\"]", "no such policy"),
            ("[budget]\nmover_share = 2.0", "expected a share from 0 to 1"),
            ("[budget]\nmap_lock_ms = 0", "expected 1 to 10000"),
            ("[manage]\nmin_cpus = -1.0", "expected a number of CPUs"),
            ("[manage]\nmost = 0", "expected 1 to"),
            ("[control]\nsocket = \"\"", "expected an absolute path"),
            ("[control]\nsocket = \"control\"", "expected an absolute path"),
            (format!("[control]\nsocket = \"/{}\"", "a".repeat(107)).as_str(), "at most 107 bytes"),
            ("[manage]\nlook_every_s = 0.0", "expected seconds"),
            ("[exclude]\nusers = [\"no such user\"]", "no such user"),
            ("[exclude]\ncommands = [\"a[\"]", "[exclude]: commands: a["),
        ] {
            let found = refused(text);
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    /// For editors; `UPDATE_EXPECT=1` writes it.
    #[test]
    fn the_published_schema_is_that_of_the_file_which_is_read() {
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Config)).unwrap() + "\n";
        expect_test::expect_file!["../../../../docs/rondpoint.schema.json"].assert_eq(&schema);
    }

    /// The example of the packages, as it is and with each commented key in force.
    #[test]
    fn the_example_is_what_happens_without_it_and_each_of_its_keys_is_known() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/rondpoint.toml");
        let text = std::fs::read_to_string(path).expect("packaging/rondpoint.toml");
        assert_eq!(Config::parse(&text).unwrap(), Config::default());
        let is_key = |line: &&str| line.starts_with('#') && line.contains(" = ");
        let lists = ["cgroups", "units", "users", "commands", "containers"];
        let is_default = |line: &&str| !lists.iter().any(|name| line[1..].starts_with(name));
        assert!(text.lines().filter(is_key).count() > 25, "it shows every key");
        let mut said = String::new();
        for line in text.lines() {
            let shows = is_key(&line) && is_default(&line);
            let own =
                !line.contains("sensor") && !line.contains("/etc/") && !line.contains("listen");
            said += if shows && own { &line[1..] } else { line };
            said.push('\n');
            if is_key(&line) && !line.contains("postgres") {
                let table = text[..text.find(line).unwrap()].rfind("\n[").unwrap();
                let table = text[table + 1..].lines().next().unwrap();
                Config::parse(&format!("{table}\n{}", &line[1..])).expect(line);
            }
        }
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let said = Config::parse(&said).unwrap();
        let (said, usual) = (said.guard(true, &machine), Config::default().guard(true, &machine));
        assert_eq!(said, usual, "what is commented out is the default");
    }

    #[test]
    fn budgets_of_the_file_replace_the_usual_ones() {
        let found =
            Config::parse("[budget]\nmemory_mib_per_s_per_node = 3\nfreeze = true").unwrap();
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let guard = found.guard(true, &machine);
        assert_eq!((guard.bytes_per_s_per_node, guard.freeze, guard.act), (3 << 20, true, true));
        assert_eq!(guard.calls_per_s, GuardSettings::default().calls_per_s);
    }

    #[test]
    fn a_budget_of_more_bytes_than_can_be_counted_is_no_limit() {
        let text = "[budget]\nmemory_mib_per_s_per_node = 99999999999999\n[manage]\n\
                    min_memory_mib = 99999999999999";
        let found = Config::parse(text).unwrap();
        let machine = synthetic::parse("node:2 core:2").unwrap();
        assert_eq!(found.guard(true, &machine).bytes_per_s_per_node, u64::MAX);
        assert_eq!(found.rules().unwrap().min_memory, u64::MAX);
    }

    #[test]
    fn a_mutated_file_that_is_accepted_makes_rules_and_budgets() {
        let seed = "mode = \"act\"\n[manage]\nmin_memory_mib = 300\nmin_cpus = 0.5\nmost = 64\n\
                    look_every_s = 5.0\nusers = [0, \"root\"]\ncommands = [\"java\", \"a*\"]\n\
                    [policy]\npolicies = [\"auto\"]\nseed = 1\n[budget]\nmover_share = 0.05\n\
                    memory_mib_per_s_per_node = 256\nback_off_s = 5.0\nmap_lock_ms = 26\n\
                    [metrics]\nlisten = \"127.0.0.1:9188\"\n";
        let machine = synthetic::parse("node:2 core:2").unwrap();
        crate::seeded::check(
            &[seed, include_str!("../../../../packaging/rondpoint.toml")],
            |bytes| {
                let Ok(text) = std::str::from_utf8(bytes) else { return false };
                let Ok(found) = Config::parse(text) else { return false };
                let guard = found.guard(true, &machine);
                assert!((0.0..=1.0).contains(&guard.mover_share));
                assert!(found.rules().is_ok() && !found.look_every().is_zero());
                true
            },
        );
    }
}
