//! The machine files of this repository: each parses, fits the lab and has its papers' numbers.

#![expect(clippy::unwrap_used, reason = "a test fails where a file is not what it should be")]

use std::path::{Path, PathBuf};

use rondpoint_machine::{LINE_BYTES, Machine, Vendor};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines")
}

fn load(name: &str) -> Machine {
    Machine::load(&folder().join(format!("{name}.toml"))).unwrap_or_else(|error| panic!("{error}"))
}

fn all() -> Vec<Machine> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|file| file.strip_suffix(".toml").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    names.iter().map(|name| load(name)).collect()
}

#[test]
fn every_file_is_named_as_its_machine_and_runs_in_the_lab() {
    for machine in all() {
        assert!(folder().join(format!("{}.toml", machine.name)).exists(), "{}", machine.name);
        let lab = machine.for_lab().unwrap_or_else(|error| panic!("{error}"));
        assert!(machine.check_saturation().holds(), "{}", machine.check_saturation());
        assert!(lab.cpu_count() <= 24);
    }
}

#[test]
fn every_file_is_written_and_read_back_unchanged() {
    for machine in all() {
        let lab = machine.for_lab().unwrap();
        for machine in [machine, lab] {
            let text = machine.to_toml();
            assert_eq!(Machine::parse(&text, "written").unwrap(), machine, "{text}");
        }
    }
}

#[test]
fn carrefours_controller_full_from_all_cores_takes_about_a_thousand_cycles() {
    let machine = load("carrefour-a");
    let controller = machine.nodes[0].controller.clone().unwrap();
    let lines = f64::from(machine.cpu_count() as u32 * machine.core.outstanding_misses);
    // Little's law: bytes under way over bytes per ns.
    let full_ns = lines * LINE_BYTES as f64 * 1000.0 / controller.bandwidth_mb_s;
    let cycles = full_ns / machine.cycle_ns();
    assert!((1000.0..1150.0).contains(&cycles), "{cycles}");
    let unloaded = controller.latency_ns / machine.cycle_ns();
    assert!((195.0..205.0).contains(&unloaded), "{unloaded}");
}

#[test]
fn carrefours_links_are_used_as_in_table_1() {
    let machine = load("carrefour-a");
    let capacity: f64 = machine.links.iter().map(|link| link.bandwidth_mb_s).sum();
    let hops_from = |holding: usize| (0..4).map(|a| machine.hops(a, holding)).sum::<usize>() as f64;
    // 180 lines/us spread evenly over all pairs; 93 lines/us all from node 0.
    let interleaved = 180.0 * 64.0 * (0..4).map(hops_from).sum::<f64>() / 16.0 / capacity;
    assert!((0.57..0.61).contains(&interleaved), "{interleaved}");
    let first_touch = 93.0 * 64.0 * hops_from(0) / 4.0 / capacity;
    assert!((0.29..0.35).contains(&first_touch), "{first_touch}");
}

#[test]
fn the_asymmetric_machine_reaches_its_matrix_over_one_and_two_hops() {
    let machine = load("asymsched-8");
    let mut sum = 0.0;
    for accessing in 0..8 {
        for holding in (0..8).filter(|&holding| holding != accessing) {
            sum += machine.bandwidth_mb_s(accessing, holding);
            let two_hops = machine.distances[accessing][holding] == 22;
            assert_eq!(machine.hops(accessing, holding), 1 + usize::from(two_hops));
        }
    }
    // ALGORITHMS of the project: the sum of entries is 189.4 GB/s, 36 pairs are one hop apart.
    assert!((sum - 189_400.0).abs() < 1e-6, "{sum}");
    assert_eq!(machine.links.len(), 36);
    assert_eq!(machine.bandwidth_mb_s(0, 3), 3800.0);
    assert_eq!(machine.bandwidth_mb_s(3, 0), 1900.0);
}

#[test]
fn only_intels_machines_forward_clean_lines_between_nodes() {
    for machine in all() {
        let intel = machine.pmu.vendor == Vendor::Intel;
        assert_eq!(machine.transfer_ns.forwards_clean, intel, "{}", machine.name);
    }
    let base = include_str!("base.toml");
    assert!(!base.contains("forwards_clean"), "to show the default");
    assert!(!Machine::parse(base, "base.toml").unwrap().transfer_ns.forwards_clean);
}

#[test]
fn n_mass_and_sam_have_the_papers_latencies_and_widths() {
    let machine = load("nmass-2");
    assert_eq!(machine.latency_ns, [[50.0, 90.0], [90.0, 50.0]]);
    assert_eq!(machine.bandwidth_mb_s(0, 1), 11720.0);
    let machine = load("sam-2");
    assert_eq!((machine.cpu_count(), machine.core.threads_per_core), (40, 2));
    assert_eq!(machine.caches.llc.bytes, 25 << 20);
}

#[test]
fn the_modern_machine_has_small_domains_and_memory_without_cpus() {
    let machine = load("chiplet-cxl");
    assert_eq!(machine.domain_count(), 8);
    assert_eq!((machine.domain_of_cpu(7), machine.domain_of_cpu(8)), (0, 1));
    assert_eq!(machine.domain_of_cpu(63), 7);
    assert_eq!(machine.nodes[2].cpus, 0);
    assert_eq!(machine.hops(1, 2), 2);
    assert_eq!(machine.latency_ns[1][2], 180.0 + 70.0 + 90.0);
    let lab = machine.for_lab().unwrap();
    assert_eq!((lab.cpu_count(), lab.domain_count()), (8, 4));
    assert_eq!(lab.domain_of_cpu(2), 1);
}

#[test]
fn the_format_in_the_readme_is_a_machine() {
    let text = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let (_, example) = text.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    // The example has two links of a ring; the others close it.
    let closed = example.replacen(
        "links = [",
        "links = [\n{ between = [2, 3], bandwidth_mb_s = 1 },\n{ between = [3, 0], bandwidth_mb_s = 1 },",
        1,
    );
    let machine = Machine::parse(&closed, "README.md").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(machine.hops(1, 2), 3);
    assert_eq!(machine.latency_ns[2][1], 87.0 + 15.0);
    for matrix in ["distances", "bandwidth_mb_s", "latency_ns", "routes"] {
        assert!(example.contains(&format!("{matrix} = [")), "{matrix}");
    }
}
