//! Decides whether a process is managed, as a pure function of its properties.

mod patterns;

use anyhow::{Context as _, Result};
use glob::Pattern;
use serde::Deserialize;

use super::accounts::{self, Accounts};

/// Lists of the configuration. Patterns are those of a shell: `*` also stands for slashes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Match {
    /// Paths of cgroups; those below are meant too.
    pub(crate) cgroups: Vec<String>,
    /// systemd's units.
    pub(crate) units: Vec<String>,
    pub(crate) users: Vec<UserName>,
    /// Names of commands as `/proc/PID/comm` has them: 15 bytes at most.
    pub(crate) commands: Vec<String>,
    /// Identifiers of containers, or their beginning.
    pub(crate) containers: Vec<String>,
}

/// A user as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "expected the name or the number of a user, such as \"www\" or 33")]
pub(crate) enum UserName {
    Number(u32),
    Name(String),
}

/// The same, ready to be asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Matcher {
    cgroups: Vec<Pattern>,
    units: Vec<Pattern>,
    users: Vec<u32>,
    commands: Vec<Pattern>,
    containers: Vec<Pattern>,
}

/// Which processes are managed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) manage: Matcher,
    pub(crate) exclude: Matcher,
    /// Bytes.
    pub(crate) min_memory: u64,
    pub(crate) min_cpus: f64,
}

/// What is known of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    /// Name of its command.
    pub(crate) command: String,
    pub(crate) user: u32,
    /// Path of its cgroup from the top of the tree; `None` if it is not known.
    pub(crate) cgroup: Option<String>,
    pub(crate) resident_bytes: u64,
    /// CPUs that it used lately; `None` before the second look.
    pub(crate) cpus: Option<f64>,
    /// CPUs that it would have used without waiting for one: as many or more.
    pub(crate) wanted_cpus: Option<f64>,
}

/// What a client asked for the process over the control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Manage,
    Leave,
}

/// What is to become of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It is managed, for this reason.
    Take(String),
    /// It is left alone, for this reason, whatever its parent is.
    Leave(String),
    /// It is too small, or no list names it; a managed parent takes it along.
    Pass,
}

impl Match {
    /// # Errors
    /// A pattern is malformed, no process can match it, or there is no such user.
    pub(crate) fn compile(&self) -> Result<Matcher> {
        Ok(Matcher {
            cgroups: compiled("cgroups", &self.cgroups, patterns::cgroup)?,
            units: compiled("units", &self.units, patterns::unit)?,
            users: self.users.iter().map(UserName::number).collect::<Result<_>>()?,
            commands: compiled("commands", &self.commands, patterns::command)?,
            containers: compiled("containers", &self.containers, patterns::container)?,
        })
    }
}

fn compiled(
    list: &'static str,
    entries: &[String],
    read: fn(&str) -> Result<Pattern>,
) -> Result<Vec<Pattern>> {
    let one = |text: &String| read(text).with_context(|| format!("{list}: {text}"));
    entries.iter().map(one).collect()
}

impl Match {
    /// Whether it names nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for UserName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl UserName {
    fn number(&self) -> Result<u32> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => {
                let found = accounts::number(Accounts::Users, name);
                found.with_context(|| format!("users: {name}: no such user in /etc/passwd"))
            }
        }
    }
}

impl Matcher {
    fn is_empty(&self) -> bool {
        let Self { cgroups, units, users, commands, containers } = self;
        let patterns = [cgroups, units, commands, containers];
        users.is_empty() && patterns.iter().all(|list| list.is_empty())
    }

    /// What of it names the process.
    fn of(&self, facts: &Facts) -> Option<String> {
        if self.users.contains(&facts.user) {
            return Some(format!("user {}", facts.user));
        }
        if let Some(found) = self.commands.iter().find(|one| one.matches(&facts.command)) {
            return Some(format!("command {found}"));
        }
        let path = facts.cgroup.as_deref()?;
        let is_below = |pattern: &Pattern| ancestors(path).any(|one| pattern.matches(one));
        if let Some(found) = self.cgroups.iter().find(|one| is_below(one)) {
            return Some(format!("cgroup {found}"));
        }
        let is_unit = |pattern: &Pattern| units(path).any(|unit| pattern.matches(unit));
        if let Some(found) = self.units.iter().find(|one| is_unit(one)) {
            return Some(format!("unit {found}"));
        }
        let is_inside = |pattern: &Pattern| containers(path).any(|id| pattern.matches(id));
        let found = self.containers.iter().find(|one| is_inside(one))?;
        Some(format!("container {found}"))
    }

    /// Whether a list needs the path of a process's cgroup.
    fn asks_for_cgroups(&self) -> bool {
        [&self.cgroups, &self.units, &self.containers].iter().any(|list| !list.is_empty())
    }
}

/// Why a process is left that could be an excluded one.
const UNKNOWN_CGROUP: &str = "[exclude] lists cgroups, units or containers, and its cgroup is not \
                              known here; expected the machine's cgroups at /sys/fs/cgroup";

impl Rules {
    /// Exclusions win over requests, requests over lists, lists over sizes.
    pub(crate) fn choose(&self, facts: &Facts, request: Option<Request>) -> Choice {
        if let Some(what) = self.exclude.of(facts) {
            return Choice::Leave(format!("excluded: {what}"));
        }
        if facts.cgroup.is_none() && self.exclude.asks_for_cgroups() {
            return Choice::Leave(UNKNOWN_CGROUP.to_string());
        }
        match request {
            Some(Request::Leave) => return Choice::Leave("by request".to_string()),
            Some(Request::Manage) => return Choice::Take("by request".to_string()),
            None => {}
        }
        match self.is_large(facts).then(|| self.reason(facts)).flatten() {
            Some(why) => Choice::Take(why),
            None => Choice::Pass,
        }
    }

    /// Why a process with enough memory and use is managed without a request; `None` if no list
    /// names it.
    pub(crate) fn reason(&self, facts: &Facts) -> Option<String> {
        let by_size = || self.manage.is_empty().then(|| "by its size".to_string());
        self.manage.of(facts).or_else(by_size)
    }

    /// Whether a process that is managed already may stay so under new rules. How much CPU time it
    /// uses changes too often to end that.
    pub(crate) fn keeps(&self, facts: &Facts) -> bool {
        self.reason(facts).is_some() && facts.resident_bytes >= self.min_memory
    }

    /// Whether it is worth a closer look.
    pub(crate) fn is_large(&self, facts: &Facts) -> bool {
        let wanted = facts.wanted_cpus.is_some_and(|cpus| cpus >= self.min_cpus);
        let busy = wanted || self.min_cpus == 0.0;
        busy && facts.resident_bytes >= self.min_memory
    }
}

/// `/a/b/c`, `/a/b`, `/a`, `/`.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/')? {
        0 if *path == "/" => None,
        0 => Some("/"),
        end => Some(&path[..end]),
    })
}

/// Components of a path that are units of systemd.
fn units(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

/// The identifiers of the containers that a cgroup belongs to, the outermost first. Each is at
/// least 32 hexadecimal digits, alone or as in `docker-ID.scope` and `cri-containerd-ID.scope`. A
/// container may name cgroups below its own as it likes, and stays in itself.
fn containers(path: &str) -> impl Iterator<Item = &str> {
    const SHORTEST: usize = 32;
    path.split('/').filter_map(|part| {
        let id = part.strip_suffix(".scope").unwrap_or(part);
        let id = id.rsplit(['-', ':']).next().unwrap_or(id);
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (id.len() >= SHORTEST && is_hex(id)).then_some(id)
    })
}

/// The path of the cgroup in `/proc/PID/cgroup`: of the unified hierarchy, else of systemd's own.
pub(crate) fn cgroup(text: &str) -> Option<&str> {
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    let unified = unified.filter(|path| *path != "/" || path_of_systemd(text).is_none());
    unified.or_else(|| path_of_systemd(text))
}

fn path_of_systemd(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.split_once(":name=systemd:").map(|(_, path)| path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(command: &str, cgroup: &str) -> Facts {
        Facts {
            command: command.to_string(),
            user: 1000,
            cgroup: Some(cgroup.to_string()),
            resident_bytes: 1 << 30,
            cpus: Some(2.0),
            wanted_cpus: Some(2.0),
        }
    }

    fn rules(manage: Match, exclude: Match) -> Rules {
        let (manage, exclude) = (manage.compile().unwrap(), exclude.compile().unwrap());
        Rules { manage, exclude, min_memory: 300 << 20, min_cpus: 0.5 }
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn without_lists_size_and_use_decide() {
        let rules = rules(Match::default(), Match::default());
        let large = facts("java", "/");
        assert_eq!(rules.choose(&large, None), Choice::Take("by its size".into()));
        let small = Facts { resident_bytes: 299 << 20, ..large.clone() };
        let idle = Facts { wanted_cpus: Some(0.4), ..large.clone() };
        let unknown = Facts { wanted_cpus: None, ..large };
        for one in [small, idle, unknown] {
            assert_eq!(rules.choose(&one, None), Choice::Pass);
            assert_eq!(
                rules.choose(&one, Some(Request::Manage)),
                Choice::Take("by request".into())
            );
        }
    }

    #[test]
    fn new_rules_keep_what_they_name_and_what_has_enough_memory() {
        let list = |names: &[&str]| Match { commands: words(names), ..Match::default() };
        let keeps = |manage: Match, facts: &Facts| rules(manage, Match::default()).keeps(facts);
        let idle = Facts { wanted_cpus: Some(0.0), ..facts("java", "/") };
        assert!(keeps(Match::default(), &idle) && keeps(list(&["java"]), &idle));
        assert!(!keeps(list(&["postgres"]), &idle), "the list names others");
        let small = Facts { resident_bytes: 299 << 20, ..idle };
        assert!(!keeps(Match::default(), &small) && !keeps(list(&["java"]), &small));
    }

    #[test]
    fn an_exclusion_wins_over_everything() {
        let exclude = Match { users: vec![UserName::Number(1000)], ..Match::default() };
        let manage = Match { commands: words(&["java"]), ..Match::default() };
        let rules = rules(manage, exclude);
        let choice = rules.choose(&facts("java", "/"), Some(Request::Manage));
        assert_eq!(choice, Choice::Leave("excluded: user 1000".into()));
        let other = Facts { user: 0, ..facts("java", "/") };
        assert_eq!(rules.choose(&other, None), Choice::Take("command java".into()));
        let left = rules.choose(&other, Some(Request::Leave));
        assert_eq!(left, Choice::Leave("by request".into()));
    }

    #[test]
    fn a_list_names_by_command_unit_cgroup_and_container() {
        let id = "0123456789abcdef0123456789abcdef";
        let docker = format!("/system.slice/docker-{id}.scope");
        let pod = format!("/kubepods.slice/kubepods-burstable.slice/cri-containerd-{id}.scope");
        for (list, path, expected) in [
            (Match { cgroups: words(&["/a"]), ..Match::default() }, "/a/b/c", true),
            (Match { cgroups: words(&["/a"]), ..Match::default() }, "/ab", false),
            (Match { cgroups: words(&["/*/b"]), ..Match::default() }, "/a/b", true),
            (
                Match { units: words(&["pg*.service"]), ..Match::default() },
                "/x/pg@1.service/y",
                true,
            ),
            (Match { units: words(&["pg.service"]), ..Match::default() }, "/x/pg.service.d", false),
            (Match { containers: words(&["0123"]), ..Match::default() }, &docker, true),
            (Match { containers: words(&["*"]), ..Match::default() }, &pod, true),
            (Match { containers: words(&["1234"]), ..Match::default() }, &docker, false),
            (Match { containers: words(&["*"]), ..Match::default() }, "/user.slice", false),
            (Match { commands: words(&["post*"]), ..Match::default() }, "/", false),
        ] {
            let choice = rules(list.clone(), Match::default()).choose(&facts("java", path), None);
            assert_eq!(matches!(choice, Choice::Take(_)), expected, "{list:?} {path}: {choice:?}");
        }
    }

    #[test]
    fn an_exclusion_matches_as_it_is_usually_written_or_is_refused_by_its_list() {
        let excluded = |exclude: Match, facts: &Facts| {
            let choice = rules(Match::default(), exclude).choose(facts, None);
            matches!(choice, Choice::Leave(_))
        };
        let unit = Match { units: words(&["postgresql"]), ..Match::default() };
        assert!(excluded(unit, &facts("postgres", "/system.slice/postgresql.service")));
        let cgroup = Match { cgroups: words(&["/system.slice/"]), ..Match::default() };
        assert!(excluded(cgroup, &facts("agent", "/system.slice/agent.service")));
        let refused = |list: Match| format!("{:#}", list.compile().unwrap_err());
        let cgroup = Match { cgroups: words(&["machine.slice"]), ..Match::default() };
        assert!(refused(cgroup).starts_with("cgroups: machine.slice: expected a path"));
        let command = Match { commands: words(&["prometheus-node-exporter"]), ..Match::default() };
        let said = refused(command);
        assert!(said.starts_with("commands: prometheus-node-exporter: the kernel keeps"), "{said}");
    }

    #[test]
    fn a_process_whose_cgroup_is_not_known_may_be_an_excluded_one_and_is_left() {
        let unknown = Facts { cgroup: None, ..facts("java", "/") };
        let left = |exclude: Match| match rules(Match::default(), exclude).choose(&unknown, None) {
            Choice::Leave(why) => why == UNKNOWN_CGROUP,
            _ => false,
        };
        assert!(left(Match { cgroups: words(&["/a"]), ..Match::default() }));
        assert!(left(Match { units: words(&["nginx"]), ..Match::default() }));
        assert!(left(Match { containers: words(&["0123"]), ..Match::default() }));
        assert!(!left(Match { commands: words(&["nginx"]), ..Match::default() }), "its name is");
        assert!(!left(Match::default()));
        let manage = Match { cgroups: words(&["*"]), ..Match::default() };
        assert_eq!(rules(manage, Match::default()).choose(&unknown, None), Choice::Pass);
    }

    #[test]
    fn a_container_that_names_its_own_cgroups_stays_excluded() {
        let exclude = Match { containers: words(&["0123"]), ..Match::default() };
        let (outer, inner) = ("0123456789abcdef".repeat(2), "f".repeat(64));
        let inside = facts("java", &format!("/system.slice/docker-{outer}.scope/{inner}"));
        let choice = rules(Match::default(), exclude).choose(&inside, None);
        assert_eq!(choice, Choice::Leave("excluded: container 0123*".into()));
    }

    #[test]
    fn the_cgroup_is_read_in_either_version() {
        assert_eq!(cgroup("0::/a/b\n"), Some("/a/b"));
        let hybrid = "12:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/\n";
        assert_eq!(cgroup(hybrid), Some("/system.slice/a.service"));
        assert_eq!(cgroup("1:memory:/x\n"), None);
    }
}
