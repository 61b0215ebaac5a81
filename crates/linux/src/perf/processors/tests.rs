//! Tests of the tables: every string is understood, every processor finds its own.

use super::*;
use crate::perf::metric::Metric;
use crate::perf::spec::EventSpec;

fn placeholders_filled(text: &str) -> String {
    let fillings = [("{node}", "0"), ("{node_bit}", "0x1"), ("{link}", "0"), ("{latency}", "30")];
    fillings.iter().fold(text.to_string(), |text, (name, value)| text.replace(name, value))
}

#[test]
fn every_name_and_event_string_is_understood() {
    for entry in all() {
        let samples = [&entry.sample.loads, &entry.sample.stores].into_iter().flatten();
        let uncore = entry.uncore.iter().flat_map(UncoreLine::expanded);
        let texts = entry.core.values().chain(samples).chain(&entry.sample.buffer).cloned();
        for text in texts.chain(uncore) {
            let text = placeholders_filled(&text);
            assert!(text.parse::<EventSpec>().is_ok(), "{}: {text}", entry.name);
        }
        for name in entry.core.keys() {
            assert!(Metric::named(name).is_some(), "{}: no metric `{name}`", entry.name);
        }
    }
}

#[test]
fn a_property_is_that_of_an_event_that_samples_loads() {
    for entry in all() {
        let known = |text| entry.sample.loads.contains(text);
        for texts in [&entry.sample.both, &entry.sample.beyond_cache] {
            assert!(texts.iter().all(known), "{}: {texts:?}", entry.name);
        }
    }
}

#[test]
fn what_is_absent_is_a_metric_that_is_not_counted() {
    for entry in all() {
        for name in entry.absent.keys() {
            let outside = entry.uncore.iter().find(|line| line.metric.name() == name);
            let known = Metric::named(name).is_some() || UncoreMetric::named(name).is_some();
            assert!(known || name == SAMPLES, "{}: `{name}`", entry.name);
            assert!(!entry.core.contains_key(name), "{}: `{name}` is counted", entry.name);
            assert!(outside.is_none(), "{}: `{name}` is counted", entry.name);
            let is_buffered = name == SAMPLES && entry.sample.buffer.is_some();
            assert!(!is_buffered, "{}: `{name}` come through a buffer", entry.name);
        }
    }
}

#[test]
fn only_the_last_table_fits_every_machine() {
    let entries: Vec<Entry> = all().collect();
    let (last, others) = entries.split_last().unwrap();
    let fits = |entry: &Entry| entry.when.fits(&CpuIdentity::default(), |_| false);
    assert!(fits(last) && !others.iter().any(fits));
}

fn chosen(identity: &CpuIdentity) -> String {
    let mut entries = of_vendor(&identity.vendor);
    entries.find(|entry| entry.when.fits(identity, |_| false)).unwrap().name
}

fn check(vendor: &str, family: u32, models: &[u32], expected: &str) {
    for &model in models {
        let identity = CpuIdentity {
            vendor: vendor.to_string(),
            family: Some(family).filter(|family| *family > 0),
            model: Some(model),
            ..CpuIdentity::default()
        };
        assert_eq!(chosen(&identity), expected, "{vendor} {family} {model:#x}");
    }
}

#[test]
fn processors_find_their_table() {
    check("GenuineIntel", 6, &[0x1a], "nehalem-ep");
    check("GenuineIntel", 6, &[0x3e], "ivybridge-ep");
    check("GenuineIntel", 6, &[0x3f, 0x4f], "haswell-ep");
    check("GenuineIntel", 6, &[0x55], "skylake-sp");
    check("GenuineIntel", 6, &[0x6a, 0x6c], "icelake-sp");
    check("GenuineIntel", 6, &[0x8f, 0xcf], "sapphire-rapids");
    check("GenuineIntel", 6, &[0xad, 0xae], "granite-rapids");
    check("GenuineIntel", 6, &[0xaf], "sierra-forest");
    check("GenuineIntel", 6, &[0xdd], "clearwater-forest");
    check("GenuineIntel", 6, &[0x01, 0x3c, 0x97], "generic");
    check("GenuineIntel", 6, &[0x1e, 0x25, 0x2a, 0x2c, 0x2d, 0x2f, 0x3a], "generic-of-all-nodes");
    check("AuthenticAMD", 16, &[0x02, 0x09], "amd-fam10h");
    check("AuthenticAMD", 21, &[0x01, 0x60], "amd-fam15h");
    check("AuthenticAMD", 15, &[0x41], "generic-of-all-nodes");
    check("AuthenticAMD", 27, &[0x00], "generic");
    check("HygonGenuine", 24, &[0x00, 0x02, 0x03], "amd-zen1");
    check("HygonGenuine", 24, &[0x04, 0x06, 0x10], "hygon-c86");
}

/// Models by `bsp_init_amd`, arch/x86/kernel/cpu/amd.c, Linux 6.12.
#[test]
fn the_zen_generations_are_told_apart_by_model() {
    check("AuthenticAMD", 23, &[0x01, 0x08, 0x11, 0x2f, 0x50, 0x5f], "amd-zen1");
    check("AuthenticAMD", 23, &[0x30, 0x31, 0x4f, 0x60, 0x71, 0x90, 0xa0], "amd-zen2");
    check("AuthenticAMD", 25, &[0x00, 0x01, 0x0f, 0x20, 0x21, 0x44, 0x5f], "amd-zen3");
    check("AuthenticAMD", 25, &[0x10, 0x11, 0x1f, 0x60, 0x61, 0x7f, 0xa0, 0xaf], "amd-zen4");
    check("AuthenticAMD", 26, &[0x00, 0x02, 0x11, 0x2f, 0x44, 0x60, 0x70, 0xd0], "amd-zen5");
    check("AuthenticAMD", 26, &[0x50, 0x80, 0x90, 0xa0, 0xc0], "amd-zen6");
}

#[test]
fn arm_is_known_by_part_and_power_by_name() {
    check("0x41", 0, &[0xd0c], "neoverse-n1");
    check("0x41", 0, &[0xd40], "neoverse-v1");
    check("0x41", 0, &[0xd49], "neoverse-n2");
    check("0x6d", 0, &[0xd49], "neoverse-n2");
    check("0x41", 0, &[0xd83, 0xd84, 0xd8e], "neoverse-v3");
    check("0x6d", 0, &[0xd4f], "generic-arm");
    check("0x41", 0, &[0xd4f], "neoverse-v2");
    check("0xc0", 0, &[0xac3], "ampere-one");
    check("0xc0", 0, &[0xac4], "ampere-one-x");
    check("0x41", 0, &[0xd0b, 0xd85], "generic-arm");
    check("0x48", 0, &[0xd01], "generic-arm");
    let power = |name: &str| chosen(&CpuIdentity { name: name.to_string(), ..Default::default() });
    assert_eq!(power("POWER9, altivec supported"), "power9");
    assert_eq!(power("POWER10 (architected), altivec supported"), "power10");
    assert_eq!(power("POWER8 (raw), altivec supported"), "generic-power");
    assert_eq!(power("Power11 (raw), altivec supported"), "power11");
    assert_eq!(power("Power12 (raw), altivec supported"), "generic-power");
    assert_eq!(power("Po\u{fffd}"), "generic");
}

#[test]
fn a_child_replaces_and_removes_lines_of_its_parent() {
    let entry = |name: &str| all().find(|entry| entry.name == name).unwrap();
    let lines = |entry: &Entry, metric: UncoreMetric| {
        entry.uncore.iter().filter(|line| line.metric == metric).count()
    };
    let (zen1, zen2, zen5) = (entry("amd-zen1"), entry("amd-zen2"), entry("amd-zen5"));
    assert!(zen1.absent.contains_key("local_dram") && !zen2.absent.contains_key("local_dram"));
    assert_eq!(lines(&zen2, UncoreMetric::ControllerBytes), 1);
    assert_eq!(lines(&zen5, UncoreMetric::HomeReadsLocal), 0);
    assert_eq!(lines(&zen5, UncoreMetric::LinkIn), 1);
    assert_eq!(zen5.sample.loads.len(), 2);
    let forest = entry("sierra-forest");
    assert!(!forest.core.contains_key("remote_hitm") && forest.core.contains_key("local_dram"));
    assert_eq!(lines(&entry("neoverse-n1"), UncoreMetric::ControllerBytes), 3);
}

/// There the kernel's `cache-misses` are those of the first level.
#[test]
fn misses_of_the_first_level_are_not_taken_for_those_of_the_last() {
    let entry = |name: &str| all().find(|entry| entry.name == name).unwrap();
    let llc = |name: &str| entry(name).core.get("llc_misses").cloned();
    assert_eq!(llc("generic").as_deref(), Some("cache-misses"));
    assert_eq!(llc("generic-arm").as_deref(), Some("core/ll_cache_miss_rd/"));
    assert!(
        llc("generic-power").is_none() && entry("generic-power").absent.contains_key("llc_misses")
    );
}

/// The kernel's `node-loads` is local memory from Haswell on, and all memory before.
#[test]
fn what_counts_the_memory_of_all_nodes_is_not_taken_for_local() {
    let entry = |name: &str| all().find(|entry| entry.name == name).unwrap();
    let (newer, older) = (entry("generic"), entry("generic-of-all-nodes"));
    assert_eq!(newer.core["local_dram"], "node-loads");
    assert!(!older.core.contains_key("local_dram") && older.absent.contains_key("local_dram"));
    assert_eq!(older.core["remote_dram"], "node-load-misses");
}

#[test]
fn a_series_is_written_out() {
    let line = UncoreLine {
        metric: UncoreMetric::LinkOut,
        listed: None,
        of_device: false,
        events: vec!["amd_df/event={event},name=link{index}/".to_string()],
        series: Some(Series { first: 0x7c7, step: 0x40, count: 2 }),
        bytes: None,
        counts: None,
    };
    let expected = ["amd_df/event=0x7c7,name=link0/", "amd_df/event=0x807,name=link1/"];
    assert_eq!(line.expanded(), expected);
}
