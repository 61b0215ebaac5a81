//! `rondpoint topology` and `rondpoint doctor` from outside.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn rondpoint(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rondpoint")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn topology(root: &Path, more: &[&str]) -> Output {
    rondpoint(&[&["topology", "--root", root.to_str().unwrap()], more].concat())
}

/// Two sockets of two cache domains, and a memory-only node with firmware's word on it.
fn two_sockets() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let put = |path: &str, content: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    };
    put(
        "proc/cpuinfo",
        "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nmodel name : EPYC\ncpu MHz : 2400.0\nflags : fpu tsc",
    );
    put("sys/devices/system/cpu/online", "0-7");
    put("sys/devices/system/cpu/isolated", "7");
    put("sys/devices/system/node/online", "0-1,4");
    for (node, cpus, distances) in
        [(0, "0-3", "10 32 50"), (1, "4-7", "32 10 60"), (4, "", "50 60 10")]
    {
        let file = |name: &str| format!("sys/devices/system/node/node{node}/{name}");
        put(&file("cpulist"), cpus);
        put(&file("distance"), distances);
        put(
            &file("meminfo"),
            &format!("Node {node} MemTotal: 8388608 kB\nNode {node} MemFree: 1 kB"),
        );
    }
    put("sys/devices/system/node/node4/access0/initiators/read_bandwidth", "38000");
    put("sys/devices/system/node/node4/access0/initiators/read_latency", "250");
    for cpu in 0..8 {
        let file = |name: &str| format!("sys/devices/system/cpu/cpu{cpu}/{name}");
        put(&file("topology/physical_package_id"), if cpu < 4 { "0" } else { "1" });
        put(&file("topology/core_cpus_list"), &cpu.to_string());
        let first = cpu / 2 * 2;
        for (index, level, size, shared) in [
            (0, 1, "32K", cpu.to_string()),
            (2, 2, "1024K", cpu.to_string()),
            (3, 3, "32768K", format!("{first}-{}", first + 1)),
        ] {
            let file = |name: &str| file(&format!("cache/index{index}/{name}"));
            put(&file("level"), &level.to_string());
            put(&file("size"), size);
            put(&file("type"), if level == 1 { "Data" } else { "Unified" });
            put(&file("ways_of_associativity"), "8");
            put(&file("shared_cpu_list"), &shared);
        }
    }
    directory
}

#[test]
fn a_machine_is_shown_as_text() {
    let machine = two_sockets();
    let output = topology(machine.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "\
EPYC, 2400 MHz: 2 packages, 3 nodes, 4 cache domains, 8 CPUs
node 0: 8.0 GiB, CPUs 0-3
  cache domain 0: CPUs 0-1
  cache domain 1: CPUs 2-3
node 1: 8.0 GiB, CPUs 4-7
  cache domain 2: CPUs 4-5
  cache domain 3: CPUs 6-7
  isolated, never used: CPUs 7
node 4: 8.0 GiB, no CPUs (memory only); firmware says 38000 MB/s, 250 ns
distances (row accesses, column holds)
          0    1    4
     0   10   32   50
     1   32   10   60
     4   50   60   10
L1 data: 32.0 KiB
L2 unified: 1.0 MiB
L3 unified: 32.0 MiB, shared by 2 CPUs
";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn a_machine_is_an_object_and_a_machine_file_that_is_read_again() {
    let machine = two_sockets();
    let object: Value =
        serde_json::from_slice(&topology(machine.path(), &["--json"]).stdout).unwrap();
    assert_eq!(object["nodes"][2]["node"], 4);
    assert_eq!(object["nodes"][2]["firmware_latency_ns"], 250.0);
    assert_eq!(object["cpus"][7]["isolated"], true);
    assert_eq!(object["distances"][0][2], 50);
    let output = topology(machine.path(), &["--write-machine", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let file = text(&output.stdout);
    let path = machine.path().join("here.toml");
    let written = topology(machine.path(), &["--write-machine", path.to_str().unwrap()]);
    assert_eq!((written.status.code(), &written.stdout[..]), (Some(0), &b""[..]));
    assert_eq!(fs::read_to_string(&path).unwrap(), file);
    assert_eq!(
        text(&topology(machine.path(), &["--machine-file"]).stdout),
        file,
        "as it was spelt"
    );
    let read = rondpoint_machine::Machine::parse(&file, "here").unwrap();
    assert_eq!((read.nodes.len(), read.cpu_count(), read.nodes_per_package), (3, 8, 1));
    assert_eq!(read.nodes[0].cache_domains, 2);
    assert_eq!(read.distances[1][2], 60);
    assert!((read.latency_ns[0][2] - 1250.0).abs() < 1e-9, "{}", read.latency_ns[0][2]);
    assert!(file.contains("assumed"));
}

#[test]
fn a_captured_machine_is_shown_like_itself() {
    let machine = two_sockets();
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("machine.tar");
    let output = topology(machine.path(), &["--capture", archive.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let there = directory.path().join("there");
    tar::Archive::new(fs::File::open(&archive).unwrap()).unpack(&there).unwrap();
    assert_eq!(topology(&there, &[]).stdout, topology(machine.path(), &[]).stdout);
}

#[test]
fn this_machine_is_shown_too() {
    for option in [&[][..], &["--json"], &["--write-machine", "-"]] {
        let output = rondpoint(&[&["topology"], option].concat());
        assert_eq!(output.status.code(), Some(0), "{option:?}: {}", text(&output.stderr));
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn a_tree_that_is_no_machine_is_refused_with_the_file() {
    let empty = tempfile::tempdir().unwrap();
    let refuse = |output: Output, expected: &str| {
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    };
    refuse(topology(empty.path(), &[]), "sys/devices/system/cpu/online: cannot open: No such file");
    refuse(topology(Path::new("/no/such/place"), &[]), "/no/such/place: No such file");
    refuse(topology(empty.path(), &["--capture", "/dev/null"]), "nothing to capture");
    let unwritable = ["--write-machine", "/no/such/place/x"];
    refuse(topology(two_sockets().path(), &unwritable), "writing /no/such/place/x: No such file");
    let machine = two_sockets();
    fs::write(machine.path().join("sys/devices/system/node/node1/meminfo"), "ten\n").unwrap();
    refuse(topology(machine.path(), &[]), "node1/meminfo: line 1: expected Node N MemTotal");
    refuse(rondpoint(&["topology", "--json", "--write-machine", "-"]), "cannot be used with");
}

#[test]
fn the_doctor_says_what_works_and_its_status_agrees() {
    let output = rondpoint(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fit = report["fit"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!fit)));
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() >= 9);
    for check in checks {
        assert!(!check["finding"].as_str().unwrap().is_empty(), "{check}");
        assert!(["good", "limited", "missing"].contains(&check["verdict"].as_str().unwrap()));
    }
    let shown = text(&rondpoint(&["doctor"]).stdout);
    assert_eq!(shown.contains("not fit for Rondpoint"), !fit, "{shown}");
    assert!(shown.contains("moving pages"));
}
