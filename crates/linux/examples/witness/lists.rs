//! The kernel's event lists: JSON files beneath `tools/perf/pmu-events/arch`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// The events of one processor, or of one unit that several processors have.
pub(crate) struct List {
    /// The folder beneath `arch`.
    pub(crate) name: String,
    events: BTreeMap<String, Vec<Known>>,
}

/// An event as the list has it.
pub(crate) struct Known {
    /// The unit in the words of the event tables: `core`, `uncore_imc`, `amd_df`.
    pub(crate) unit: String,
    /// Its fields by the names of the unit's sysfs format. An absent field is zero.
    pub(crate) fields: BTreeMap<&'static str, u64>,
}

/// Keys of the lists and the field that each one sets.
const FIELDS: [(&str, &str); 9] = [
    ("EventCode", "event"),
    ("UMask", "umask"),
    ("CounterMask", "cmask"),
    ("Invert", "inv"),
    ("EdgeDetect", "edge"),
    ("AnyThread", "any"),
    ("RdWrMask", "rdwrmask"),
    ("NodeType", "type"),
    ("EventidCode", "eventid"),
];

/// Units that have another name in the lists than in the kernel (tools/perf/pmu-events/ jevents.py,
/// Linux 6.12).
const UNITS: [(&str, &str); 6] = [
    ("CBO", "uncore_cbox"),
    ("QPI LL", "uncore_qpi"),
    ("L3PMC", "amd_l3"),
    ("DFPMC", "amd_df"),
    ("UMCPMC", "amd_umc"),
    ("arm_cmn", "arm_cmn"),
];

impl List {
    /// Whether the list has any event of this unit.
    pub(crate) fn has_unit(&self, unit: &str) -> bool {
        self.events.values().flatten().any(|known| known.unit == unit)
    }

    /// The event of this name and unit. Names are compared without regard to case: the lists write
    /// AMD's in lower case and perf finds them either way.
    pub(crate) fn find(&self, name: &str, unit: &str) -> Option<&Known> {
        let known = self.events.get(&name.to_ascii_lowercase())?;
        known.iter().find(|known| known.unit == unit)
    }
}

/// Reads all events of `name` beneath `arch`, and of the architecture those that it refers to.
pub(crate) fn read(arch: &Path, name: &str) -> Result<List, String> {
    let shared = name.split_once('/').map(|(architecture, _)| arch.join(architecture));
    let mut standard = BTreeMap::new();
    for file in shared.map_or(Ok(Vec::new()), |folder| files(&folder, false))? {
        for event in objects(&file)? {
            if let Some(name) = event.get("EventName").and_then(Value::as_str) {
                standard.insert(name.to_string(), event.clone());
            }
        }
    }
    let mut events: BTreeMap<String, Vec<Known>> = BTreeMap::new();
    for file in files(&arch.join(name), true)? {
        for mut event in objects(&file)? {
            if let Some(name) = event.get("ArchStdEvent").and_then(Value::as_str) {
                let shared = standard.get(name).cloned();
                let Some(mut shared) = shared else { continue };
                shared.append(&mut event);
                event = shared;
            }
            let Some(name) = event.get("EventName").and_then(Value::as_str) else { continue };
            let name = name.to_ascii_lowercase();
            events.entry(name).or_default().push(known(&event, &file)?);
        }
    }
    if events.is_empty() {
        return Err(format!("{}: no events", arch.join(name).display()));
    }
    Ok(List { name: name.to_string(), events })
}

fn known(event: &Map<String, Value>, file: &Path) -> Result<Known, String> {
    let text = |key: &str| event.get(key).and_then(Value::as_str);
    let unit = match text("Unit") {
        None => "core".to_string(),
        Some(unit) => match UNITS.iter().find(|(listed, _)| *listed == unit) {
            Some((_, ours)) => (*ours).to_string(),
            None => format!("uncore_{}", unit.to_ascii_lowercase()),
        },
    };
    let mut fields = BTreeMap::new();
    for (key, field) in FIELDS {
        let Some(value) = text(key) else { continue };
        // Offcore events have a code for each of the two registers; the first is as good.
        let first = value.split(',').next().unwrap_or(value).trim();
        let number = match first.strip_prefix("0x").or_else(|| first.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => first.parse(),
        };
        let number =
            number.map_err(|_| format!("{}: {key} `{value}` where a number is", file.display()))?;
        fields.insert(field, number);
    }
    Ok(Known { unit, fields })
}

/// The JSON files of a folder, those beneath it too where asked for; sorted.
fn files(folder: &Path, beneath: bool) -> Result<Vec<PathBuf>, String> {
    let fail = |error: std::io::Error| format!("{}: cannot list: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.is_dir() && beneath {
            found.extend(files(&path, true)?);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            // Names of groups of metrics: no list of events.
            if !path.ends_with("metricgroups.json") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn objects(file: &Path) -> Result<Vec<Map<String, Value>>, String> {
    let bytes =
        std::fs::read(file).map_err(|error| format!("{}: cannot read: {error}", file.display()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| format!("{}: no list of events: {error}", file.display()))
}
