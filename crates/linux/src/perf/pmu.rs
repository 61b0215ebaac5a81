//! The performance units that `/sys/bus/event_source/devices` describes.
//!
//! Neither a unit's type number nor the places of its fields are fixed: both are read here, never
//! written in the program.

use std::collections::BTreeMap;
use std::path::Path;

use super::attr::{Attr, TYPE_HARDWARE, TYPE_HW_CACHE, TYPE_RAW, TYPE_SOFTWARE, flag};
use super::spec::{EventSpec, Named, Term, terms_of};
use crate::LinuxError;
use crate::parse::{ParseError, cpulist, fields};
use crate::root::{self, Root};

mod home;

/// The bits of one format field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Word of the field: 0 for `config`, 1 for `config1` …
    pub config: usize,
    /// Bit number in the word of each bit of the value, lowest first.
    pub places: Vec<u32>,
}

/// One performance monitoring unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmu {
    /// Name of its directory.
    pub name: String,
    /// Value of `perf_event_attr.type`.
    pub kind: u32,
    /// Format fields by name.
    pub format: BTreeMap<String, Field>,
    /// Terms of the named events, by name.
    pub aliases: BTreeMap<String, String>,
    /// CPUs to open events on; `None` for a unit of each CPU.
    pub cpus: Option<Vec<u32>>,
    /// The first CPU of the node of the unit's device; `None` if the device tells no node, or one
    /// without CPUs.
    pub home: Option<u32>,
    /// Files of `caps/`, by name.
    pub caps: BTreeMap<String, String>,
    /// Files of `links/`, by name: `FROM TO`, the nodes of a link. Only the lab's node unit has
    /// them.
    pub links: BTreeMap<String, String>,
}

/// All units of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pmus {
    units: BTreeMap<String, Pmu>,
}

/// An event, ready to be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Text of the event.
    pub name: String,
    /// Attributes for the kernel.
    pub attr: Attr,
    /// CPUs to open it on; `None` for a unit of each CPU.
    pub cpus: Option<Vec<u32>>,
}

impl Pmus {
    /// Reads all units beneath `root`. Malformed units are left out and their errors returned.
    ///
    /// # Errors
    /// The directory of units cannot be listed.
    pub fn discover(root: &Root) -> Result<(Self, Vec<LinuxError>), LinuxError> {
        let directory = root.in_sys("bus/event_source/devices");
        let mut units = BTreeMap::new();
        let mut problems = Vec::new();
        for name in root::list(&directory)? {
            match read_unit(root, &directory, &name) {
                Ok(Some(unit)) => drop(units.insert(name, unit)),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        Ok((Self { units }, problems))
    }

    /// The unit of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Pmu> {
        self.units.get(name)
    }

    /// All units in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Pmu> {
        self.units.values()
    }

    /// The unit of each core: `cpu`, on hybrid parts `cpu_core`, on Arm the first whose name shows
    /// it.
    #[must_use]
    pub fn core(&self) -> Option<&Pmu> {
        let arm = |unit: &&Pmu| unit.name.starts_with("armv8_") || unit.name.starts_with("armv9_");
        let named = ["cpu", "cpu_core"].into_iter().find_map(|name| self.get(name));
        named.or_else(|| self.iter().find(arm))
    }

    /// The unit of this name. `core` is the cores' unit. `cpu` is too if no unit has that name, as
    /// on hybrid parts and on Arm.
    fn named(&self, name: &str) -> Option<&Pmu> {
        self.get(name).or_else(|| self.core().filter(|_| matches!(name, "core" | "cpu")))
    }

    /// All units of a name: the one with that name, else the numbered ones, `name_0`, `name_3` …,
    /// ascending. The numbers may have gaps and may be hexadecimal addresses.
    #[must_use]
    pub fn units(&self, name: &str) -> Vec<&Pmu> {
        if let Some(unit) = self.named(name) {
            return vec![unit];
        }
        let mut found: Vec<(u64, &Pmu)> = Vec::new();
        for unit in self.iter() {
            let number = number_of(&unit.name).filter(|(base, _)| *base == name);
            found.extend(number.map(|(_, number)| (number, unit)));
        }
        found.sort_by_key(|(number, unit)| (*number, &unit.name));
        found.into_iter().map(|(_, unit)| unit).collect()
    }

    /// The names of all units; numbered ones of one kind as `name (how many)`.
    fn names(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.units.keys() {
            *counts.entry(number_of(name).map_or(name, |(base, _)| base)).or_default() += 1;
        }
        let one = |(name, count): (&str, usize)| match count {
            1 => name.to_string(),
            count => format!("{name} ({count})"),
        };
        counts.into_iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Resolves an event string. A word is an alias of the core's unit, else one of the kernel's
    /// generic events.
    ///
    /// # Errors
    /// An unknown unit, alias, field or value.
    pub fn resolve(&self, spec: &EventSpec) -> Result<Event, LinuxError> {
        let fail = |problem: String| LinuxError::Input { what: format!("event `{spec}`"), problem };
        let mut event = match &spec.named {
            Named::Raw(config) => Event {
                name: spec.to_string(),
                attr: Attr::counting(self.core().map_or(TYPE_RAW, |unit| unit.kind), *config),
                cpus: None,
            },
            Named::Word(word) => match self.core().filter(|core| core.aliases.contains_key(word)) {
                Some(core) => unit_event(core, &[Term { name: word.clone(), value: None }], spec)?,
                None => generic(word, spec)
                    .ok_or_else(|| fail("no such event on this machine".to_string()))?,
            },
            Named::Terms { pmu, terms } => {
                let unit = self.named(pmu).ok_or_else(|| self.no_unit(pmu, spec))?;
                unit_event(unit, terms, spec)?
            }
        };
        apply_modifiers(&mut event.attr, spec);
        Ok(event)
    }

    /// Resolves an event string on all units of its name, or on none. Returns `(unit's name,
    /// event)`.
    ///
    /// # Errors
    /// As [`Pmus::resolve`].
    pub fn resolve_each(&self, spec: &EventSpec) -> Result<Vec<(String, Event)>, LinuxError> {
        let Named::Terms { pmu, terms } = &spec.named else {
            return Ok(vec![("core".to_string(), self.resolve(spec)?)]);
        };
        let units = self.units(pmu);
        if units.is_empty() {
            return Err(self.no_unit(pmu, spec));
        }
        let one = |unit: &Pmu| {
            let mut event = unit_event(unit, terms, spec)?;
            apply_modifiers(&mut event.attr, spec);
            Ok((unit.name.clone(), event))
        };
        units.into_iter().map(one).collect()
    }

    fn no_unit(&self, name: &str, spec: &EventSpec) -> LinuxError {
        LinuxError::Input {
            what: format!("event `{spec}`"),
            problem: format!("no unit `{name}`; this machine has: {}", self.names()),
        }
    }
}

/// Splits a unit's name from its number: `uncore_imc_12` gives `uncore_imc`, 12. The number may be
/// a hexadecimal address, as in `arm_dmc620_10008c000`.
fn number_of(name: &str) -> Option<(&str, u64)> {
    let (base, number) = name.rsplit_once('_')?;
    let is_lower =
        number.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let has_digit = number.bytes().any(|byte| byte.is_ascii_digit());
    Some((base, u64::from_str_radix(number, 16).ok().filter(|_| is_lower && has_digit)?))
}

fn apply_modifiers(attr: &mut Attr, spec: &EventSpec) {
    let modifiers = spec.modifiers;
    if modifiers.user && !modifiers.kernel {
        attr.exclude_kernel_and_hypervisor();
    }
    if modifiers.kernel && !modifiers.user {
        attr.flags |= flag::EXCLUDE_USER | flag::EXCLUDE_HV;
    }
    if modifiers.precise > 0 {
        attr.set_precise(modifiers.precise);
    }
    if modifiers.pinned {
        attr.flags |= flag::PINNED;
    }
}

fn unit_event(unit: &Pmu, terms: &[Term], spec: &EventSpec) -> Result<Event, LinuxError> {
    let mut attr = Attr::counting(unit.kind, 0);
    for term in terms {
        apply_term(unit, term, &mut attr, spec, true)?;
    }
    Ok(Event { name: spec.to_string(), attr, cpus: unit.cpus.clone() })
}

fn apply_term(
    unit: &Pmu,
    term: &Term,
    attr: &mut Attr,
    spec: &EventSpec,
    may_be_alias: bool,
) -> Result<(), LinuxError> {
    let fail = |problem: String| LinuxError::Input { what: format!("event `{spec}`"), problem };
    let value = term.value.unwrap_or(1);
    match (term.name.as_str(), term.value) {
        ("config", _) => attr.config = value,
        ("config1", _) => attr.config1 = value,
        ("config2", _) => attr.config2 = value,
        ("config3", _) => attr.config3 = value,
        ("period", _) => attr.sample_period = value,
        ("name" | "percore" | "metric-id", _) => {}
        (name, given) => {
            if let (None, true, Some(text)) = (given, may_be_alias, unit.aliases.get(name)) {
                for inner in terms_of(text, &spec.to_string())? {
                    apply_term(unit, &inner, attr, spec, false)?;
                }
                return Ok(());
            }
            let field = unit.format.get(name).ok_or_else(|| {
                let known: Vec<&str> = unit.format.keys().map(String::as_str).collect();
                let known = known.join(", ");
                fail(format!("`{}` has no event or field `{name}`; fields: {known}", unit.name))
            })?;
            place(field, value, attr).ok_or_else(|| {
                let bits = field.places.len();
                fail(format!("{value:#x} does not fit the {bits} bits of `{name}`"))
            })?;
        }
    }
    Ok(())
}

fn place(field: &Field, value: u64, attr: &mut Attr) -> Option<()> {
    let bits = field.places.len();
    if bits < 64 && value >> bits != 0 {
        return None;
    }
    let word = match field.config {
        0 => &mut attr.config,
        1 => &mut attr.config1,
        2 => &mut attr.config2,
        3 => &mut attr.config3,
        _ => return None,
    };
    for (bit, &at) in field.places.iter().enumerate() {
        *word = *word & !(1 << at) | (value >> bit & 1) << at;
    }
    Some(())
}

/// The kernel's generic events (perf_event_open(2), `PERF_COUNT_HW_*`, `_SW_*`, `_HW_CACHE_*`).
fn generic(word: &str, spec: &EventSpec) -> Option<Event> {
    // PERF_COUNT_HW_CACHE_NODE = 6, OP_READ = 0, RESULT_ACCESS = 0, RESULT_MISS = 1.
    let (kind, config) = match word {
        "cycles" | "cpu-cycles" => (TYPE_HARDWARE, 0),
        "instructions" => (TYPE_HARDWARE, 1),
        "cache-references" => (TYPE_HARDWARE, 2),
        "cache-misses" => (TYPE_HARDWARE, 3),
        "stalled-cycles-backend" => (TYPE_HARDWARE, 8),
        "ref-cycles" => (TYPE_HARDWARE, 9),
        "node-loads" => (TYPE_HW_CACHE, 6),
        "node-load-misses" => (TYPE_HW_CACHE, 6 | 1 << 16),
        "cpu-clock" => (TYPE_SOFTWARE, 0),
        "task-clock" => (TYPE_SOFTWARE, 1),
        "page-faults" => (TYPE_SOFTWARE, 2),
        "context-switches" => (TYPE_SOFTWARE, 3),
        "cpu-migrations" => (TYPE_SOFTWARE, 4),
        "minor-faults" => (TYPE_SOFTWARE, 5),
        "major-faults" => (TYPE_SOFTWARE, 6),
        "dummy" => (TYPE_SOFTWARE, 9),
        _ => return None,
    };
    Some(Event { name: spec.to_string(), attr: Attr::counting(kind, config), cpus: None })
}

fn read_unit(root: &Root, directory: &Path, name: &str) -> Result<Option<Pmu>, LinuxError> {
    let path = directory.join(name);
    let Some(kind) = parsed(&path.join("type"), type_number)? else { return Ok(None) };
    let mut format = BTreeMap::new();
    for field in root::list(&path.join("format"))? {
        if let Some(places) = parsed(&path.join("format").join(&field), places)? {
            format.insert(field, places);
        }
    }
    let mut aliases = texts(&path.join("events"))?;
    // `NAME.scale`, `NAME.unit` and `NAME.snapshot` are properties of the event.
    aliases.retain(|alias, _| !alias.contains('.'));
    let cpus = parsed(&path.join("cpumask"), cpulist::parse)?;
    let home = home::of_device(root, &path)?;
    let caps = texts(&path.join("caps"))?;
    let links = texts(&path.join("links"))?;
    Ok(Some(Pmu { name: name.to_string(), kind, format, aliases, cpus, home, caps, links }))
}

/// Texts of the files of a directory, by name.
fn texts(directory: &Path) -> Result<BTreeMap<String, String>, LinuxError> {
    let mut texts = BTreeMap::new();
    for name in root::list(directory)? {
        if let Some(bytes) = root::read_optional(&directory.join(&name))? {
            texts.insert(name, String::from_utf8_lossy(&bytes).trim().to_string());
        }
    }
    Ok(texts)
}

fn parsed<T>(
    path: &Path,
    parse: fn(&[u8]) -> Result<T, ParseError>,
) -> Result<Option<T>, LinuxError> {
    let bytes = root::read_optional(path)?;
    let format = |source| LinuxError::Format { path: path.to_path_buf(), source };
    bytes.map(|bytes| parse(&bytes).map_err(format)).transpose()
}

fn type_number(bytes: &[u8]) -> Result<u32, ParseError> {
    let number = fields::single_number(bytes)?;
    u32::try_from(number).map_err(|_| ParseError::new(1, "a type number", bytes))
}

/// Parses a format file: `config:0-7,32-35`, `config1:0-15`, `config:19`.
fn places(bytes: &[u8]) -> Result<Field, ParseError> {
    let fail = || ParseError::new(1, "a field such as config1:0-15", bytes);
    let text = std::str::from_utf8(bytes).map_err(|_| fail())?.trim();
    let (word, bits) = text.split_once(':').ok_or_else(fail)?;
    let config = match word {
        "config" => 0,
        "config1" => 1,
        "config2" => 2,
        "config3" => 3,
        // This program's structure has no `config4`, so such a field cannot be set.
        "config4" => 4,
        _ => return Err(fail()),
    };
    let mut places = Vec::new();
    for range in bits.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bit = |text: &str| text.parse::<u32>().ok().filter(|&bit| bit < 64).ok_or_else(fail);
        places.extend(bit(first)?..=bit(last)?);
    }
    if places.is_empty() || places.len() > 64 {
        return Err(fail());
    }
    Ok(Field { config, places })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A tree with the lab's units, written line by line as `path: content`.
    fn fixture(text: &str) -> (tempfile::TempDir, Pmus, Vec<LinuxError>) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::captured(directory.path());
        for line in text.lines() {
            let (path, content) = line.trim().split_once(": ").unwrap();
            let path = root.in_sys("bus/event_source/devices").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        let (pmus, problems) = Pmus::discover(&root).unwrap();
        (directory, pmus, problems)
    }

    const LAB: &str = "cpu/type: 4
        cpu/format/event: config:0-7
        cpu/format/umask: config:8-15
        cpu/format/ldlat: config1:0-15
        cpu/events/dram_node3: event=0x20,umask=0x03
        cpu/events/mem-loads: event=0x30,ldlat=3
        lab_nb/type: 12
        lab_nb/format/event: config:0-7,32-35
        lab_nb/events/mc_read: event=0x1f0
        lab_nb/events/mc_read.scale: 64
        lab_nb/cpumask: 0,4";

    fn check(pmus: &Pmus, text: &str, expected: &str) {
        let shown = match text.parse().and_then(|spec| pmus.resolve(&spec)) {
            Ok(Event { attr, cpus, .. }) => {
                let cpus =
                    cpus.map_or(String::new(), |cpus| format!(" on {}", cpulist::format(&cpus)));
                format!("{}:{:#x},{:#x}{cpus}", attr.kind, attr.config, attr.config1)
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn aliases_fields_and_generic_events_are_resolved() {
        let (_directory, pmus, problems) = fixture(LAB);
        assert!(problems.is_empty(), "{problems:?}");
        check(&pmus, "dram_node3", "4:0x320,0x0");
        check(&pmus, "cpu/dram_node3/", "4:0x320,0x0");
        check(&pmus, "cpu/mem-loads,ldlat=100/", "4:0x30,0x64");
        check(&pmus, "lab_nb/mc_read/", "12:0x1000000f0,0x0 on 0,4");
        check(&pmus, "cpu/event=0xd3,umask=1/", "4:0x1d3,0x0");
        check(&pmus, "r1d3", "4:0x1d3,0x0");
        check(&pmus, "instructions", "0:0x1,0x0");
        check(&pmus, "node-load-misses", "3:0x10006,0x0");
    }

    #[test]
    fn what_the_machine_lacks_is_named() {
        let (_directory, pmus, _) = fixture(LAB);
        check(
            &pmus,
            "cpu/colour=1/",
            "event `cpu/colour=1/`: `cpu` has no event or field `colour`; fields: event, ldlat, umask",
        );
        check(
            &pmus,
            "cpu/event=0x100/",
            "event `cpu/event=0x100/`: 0x100 does not fit the 8 bits of `event`",
        );
        check(
            &pmus,
            "ibs_op/cnt_ctl/",
            "event `ibs_op/cnt_ctl/`: no unit `ibs_op`; this machine has: cpu, lab_nb",
        );
        check(&pmus, "nonsense", "event `nonsense`: no such event on this machine");
    }

    #[test]
    fn numbered_units_are_found_whatever_their_numbers() {
        let (_directory, pmus, _) = fixture(
            "uncore_imc_10/type: 30
            uncore_imc_2/type: 22
            uncore_imc_0/type: 20
            uncore_imc_free_running_0/type: 40
            arm_dmc620_10008c000/type: 51
            arm_dmc620_8c000/type: 50
            amd_df/type: 60
            uncore_upi/type: 70",
        );
        let kinds = |name: &str| pmus.units(name).iter().map(|unit| unit.kind).collect::<Vec<_>>();
        assert_eq!(kinds("uncore_imc"), [20, 22, 30]);
        assert_eq!(kinds("arm_dmc620"), [50, 51]);
        assert_eq!((kinds("amd_df"), kinds("uncore_upi")), (vec![60], vec![70]));
        assert_eq!(kinds("uncore"), [0; 0]);
        let error = pmus.resolve_each(&"amd_umc/event=1/".parse().unwrap()).unwrap_err();
        let expected =
            "amd_df, arm_dmc620 (2), uncore_imc (3), uncore_imc_free_running, uncore_upi";
        assert!(error.to_string().ends_with(expected), "{error}");
    }

    #[test]
    fn a_unit_that_makes_no_sense_is_left_out_with_its_reason() {
        let (_directory, pmus, problems) =
            fixture("odd/type: x\nold/type: 7\nold/format/event: config9:0-7\ngood/type: 8");
        assert_eq!(pmus.iter().map(|unit| unit.kind).collect::<Vec<_>>(), [8]);
        assert_eq!(problems.len(), 2);
        assert!(problems[1].to_string().ends_with("found `config9:0-7`"), "{}", problems[1]);
    }

    #[test]
    fn a_machine_without_units_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let (pmus, problems) = Pmus::discover(&Root::captured(directory.path())).unwrap();
        assert!(pmus.core().is_none() && problems.is_empty());
    }
}
