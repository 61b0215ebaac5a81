//! A machine of `fixtures/pmu`: its form is in the README there.

use std::fs;
use std::path::PathBuf;

use rondpoint_core::Topology;
use rondpoint_core::topology::synthetic;
use rondpoint_linux::Root;
use rondpoint_linux::parse::cpuinfo::CpuIdentity;
use rondpoint_linux::perf::generation::{Available, Generation};
use rondpoint_linux::perf::pmu::{Event, Pmus};

pub(crate) struct Machine {
    pub(crate) available: Available,
    pub(crate) topology: Topology,
}

/// Writes the machine's units as sysfs has them, and finds out what can be counted there.
pub(crate) fn machine(name: &str) -> Machine {
    machine_as(name, None)
}

/// The same with another processor in its place.
pub(crate) fn machine_as(name: &str, processor: Option<&str>) -> Machine {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pmu");
    let text = fs::read_to_string(file.join(format!("{name}.txt"))).expect("a fixture");
    let tree = tempfile::tempdir().expect("a folder");
    let root = Root::captured(tree.path());
    let mut identity = CpuIdentity::default();
    let mut nodes = Vec::new();
    let mut topology = None;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (path, content) = line.split_once(" = ").unwrap_or_else(|| panic!("{name}: {line}"));
        match path {
            "cpuinfo" => identity = identity_of(processor.unwrap_or(content)),
            "nodes" => nodes = numbers(content),
            "cpus" => topology = Some(synthetic::parse(content).expect("a machine")),
            _ => {
                for (path, content) in expanded(path, content) {
                    let path = root.in_sys("bus/event_source/devices").join(path);
                    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                    fs::write(path, format!("{content}\n")).expect("written");
                }
            }
        }
    }
    let (pmus, problems) = Pmus::discover(&root).expect("listed");
    assert!(problems.is_empty(), "{name}: {problems:?}");
    let available = Generation::choose(&pmus, &identity).resolve(&pmus, &nodes);
    Machine { available, topology: topology.expect("a line `cpus`") }
}

fn numbers(list: &str) -> Vec<u32> {
    rondpoint_linux::parse::cpulist::parse(list.as_bytes()).expect("numbers")
}

/// `GenuineIntel 6 0x8f`, `0x41 - 0xd0c`, or a name alone.
fn identity_of(text: &str) -> CpuIdentity {
    let words: Vec<&str> = text.split(' ').collect();
    let [vendor, family, model] = words[..] else {
        return CpuIdentity { name: text.to_string(), ..CpuIdentity::default() };
    };
    CpuIdentity {
        vendor: vendor.to_string(),
        family: family.parse().ok(),
        model: u32::from_str_radix(model.trim_start_matches("0x"), 16).ok(),
        ..CpuIdentity::default()
    }
}

/// `a_[0-1,4]/type = 20+` → `a_0/type` 20, `a_1/type` 21, `a_4/type` 22.
fn expanded(path: &str, content: &str) -> Vec<(String, String)> {
    let Some((before, rest)) = path.split_once('[') else {
        return vec![(path.to_string(), content.to_string())];
    };
    let (numbers, after) = rest.split_once(']').expect("a closing bracket");
    let numbers = self::numbers(numbers);
    let counted = content.strip_suffix('+').map(|first| first.parse::<usize>().expect("a number"));
    let one = |(index, number): (usize, &u32)| {
        let content = counted.map_or(content.to_string(), |first| (first + index).to_string());
        (format!("{before}{number}{after}"), content)
    };
    numbers.iter().enumerate().map(one).collect()
}

/// `type:config[,config1[,config2]] on CPUs`, as perf_event_open(2) gets it.
pub(crate) fn shown(event: &Event) -> String {
    let attr = &event.attr;
    let words = [attr.config, attr.config1, attr.config2];
    let used = words.iter().rposition(|word| *word != 0).map_or(1, |last| last + 1);
    let words: Vec<String> = words[..used].iter().map(|word| format!("{word:#x}")).collect();
    let cpus = event.cpus.as_ref().map_or(String::new(), |cpus| {
        format!(" on {}", rondpoint_linux::parse::cpulist::format(cpus))
    });
    format!("{}:{}{cpus}", attr.kind, words.join(","))
}
