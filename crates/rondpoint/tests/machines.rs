//! `rondpoint topology` on every machine of `fixtures/machines`, against the text beside it, and on
//! the cases of `fixtures/cases`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[path = "../../../fixtures/tree.rs"]
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use expect_test::expect_file;
use rondpoint_machine::{Machine, limits};
use serde_json::Value;

/// hwloc's program.
const HWLOC: &str = "lstopo-no-graphics";
/// CPUs of a machine that hwloc is shown.
const MOST_FOR_HWLOC: usize = 256;

fn fixtures(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

fn unpacked(path: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    tree::unpack(&fs::read(path).unwrap(), folder.path());
    folder
}

fn case(name: &str) -> tempfile::TempDir {
    unpacked(&fixtures(&format!("cases/{name}.tree")))
}

fn topology(root: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["topology", "--root", root.to_str().unwrap()]).args(more).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is printed, and the status where it is not 0; without the place of the files.
fn shown(root: &Path, more: &[&str]) -> String {
    let output = topology(root, more);
    let status = match output.status.code() {
        Some(0) => String::new(),
        status => format!("exit status {}\n", status.unwrap()),
    };
    let text = text(&output.stdout) + &text(&output.stderr) + &status;
    text.replace(&root.display().to_string(), "")
}

fn object(root: &Path) -> Value {
    let output = topology(root, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The machine file, read back.
fn machine(root: &Path) -> Machine {
    let output = topology(root, &["--machine-file"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    Machine::parse(&text(&output.stdout), "here").unwrap()
}

/// Text, JSON and machine file of one machine tell the same.
fn check_alike(name: &str, root: &Path) {
    let object = object(root);
    let cpus = |node: &Value| node["cpus"].as_array().unwrap().len();
    let nodes = object["nodes"].as_array().unwrap();
    let found = object["cpus"].as_array().unwrap().len();
    assert_eq!(nodes.iter().map(cpus).sum::<usize>(), found, "{name}");
    assert!(nodes.len() <= limits::NODES_MAX, "{name}");
    let machine = machine(root);
    let shape = |node: &Value| (cpus(node), node["memory_bytes"].as_u64().unwrap());
    let expected: Vec<_> = nodes.iter().map(shape).collect();
    let found: Vec<_> =
        machine.nodes.iter().map(|node| (node.cpus as usize, node.memory_bytes)).collect();
    assert_eq!(found, expected, "{name}");
    let notes = object["notes"].as_array().unwrap();
    let text = shown(root, &[]);
    let first = notes.iter().take(12).map(|note| note["text"].as_str().unwrap());
    checked_xml(name, root, &object);
    for note in first {
        let note = note.lines().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("\nnote: {note}\n")), "{name}: {note}\n{text}");
    }
}

/// The XML for hwloc. It has each node and each CPU of the JSON once.
fn checked_xml(name: &str, root: &Path, object: &Value) -> String {
    let output = topology(root, &["--xml", "-"]);
    assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
    let document = text(&output.stdout);
    let count = |kind: &str| document.matches(&format!("<object type=\"{kind}\"")).count();
    assert_eq!(count("NUMANode"), object["nodes"].as_array().unwrap().len(), "{name}: {document}");
    assert_eq!(count("PU"), object["cpus"].as_array().unwrap().len(), "{name}");
    document
}

/// hwloc reads the XML without a complaint, and finds as many nodes.
fn check_with_hwloc(name: &str, root: &Path) {
    let object = object(root);
    let document = checked_xml(name, root, &object);
    // hwloc takes minutes for the largest.
    if object["cpus"].as_array().unwrap().len() > MOST_FOR_HWLOC {
        return;
    }
    let file = root.join("machine.xml");
    fs::write(&file, &document).unwrap();
    let mut hwloc = Command::new(HWLOC);
    let read = hwloc.arg("-i").arg(&file).args(["--of", "console"]).output().unwrap();
    let (shown, errors) = (text(&read.stdout), text(&read.stderr));
    assert!(read.status.success() && errors.is_empty(), "{name}: {errors}\n{document}");
    let nodes = shown.matches("NUMANode").count();
    let expected = object["nodes"].as_array().unwrap().len();
    assert_eq!(nodes, expected, "{name}: {shown}\n{document}");
}

/// Checks each captured machine by its name and its unpacked files, two at a time.
fn check_each(check: impl Fn(&Path, &Path) + Sync) {
    let mut trees: Vec<PathBuf> = fs::read_dir(fixtures("machines"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tree"))
        .collect();
    trees.sort();
    assert!(trees.len() >= 40, "{} machines", trees.len());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(path) = trees.get(next.fetch_add(1, Ordering::Relaxed)) {
            check(path, unpacked(path).path());
        }
    };
    thread::scope(|scope| {
        for worker in [scope.spawn(work), scope.spawn(work)] {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

#[test]
fn every_machine_is_shown_as_the_text_beside_it() {
    check_each(|path, folder| {
        let name = path.file_stem().unwrap().to_string_lossy();
        let text = shown(folder, &[]);
        expect_file![path.with_extension("txt")].assert_eq(&text);
        if !text.contains("exit status") {
            check_alike(&name, folder);
        }
    });
}

#[test]
fn hwloc_reads_the_xml_of_every_machine() {
    if Command::new(HWLOC).arg("--version").output().is_err() {
        println!("not tried: no hwloc here");
        return;
    }
    let is_shown = |root: &Path| !shown(root, &[]).contains("exit status");
    check_each(|path, folder| {
        if is_shown(folder) {
            check_with_hwloc(&path.file_stem().unwrap().to_string_lossy(), folder);
        }
    });
    for name in ["fake-numa", "cpu-of-no-node", "container-renumbers-cpus"] {
        check_with_hwloc(name, case(name).path());
    }
}

#[test]
fn cpus_in_several_nodes_count_where_their_folder_says() {
    let folder = case("fake-numa");
    let object = object(folder.path());
    let cpus: Vec<_> =
        object["cpus"].as_array().unwrap().iter().map(|cpu| (&cpu["cpu"], &cpu["node"])).collect();
    assert_eq!(serde_json::to_string(&cpus).unwrap(), "[[0,0],[1,1]]");
    assert_eq!(object["distances"], serde_json::json!([[10, 10], [10, 10]]));
    for node in 0..2 {
        assert_eq!(object["nodes"][node]["memory_bytes"], 1u64 << 30);
    }
    assert_eq!(object["notes"][0]["kind"], "cpus-in-several-nodes");
    check_alike("fake-numa", folder.path());
}

#[test]
fn a_cpu_of_no_node_is_counted_and_told() {
    let folder = case("cpu-of-no-node");
    let object = object(folder.path());
    assert_eq!(object["cpus"].as_array().unwrap().len(), 3);
    assert_eq!(object["notes"][0]["kind"], "cpus-of-no-node");
    check_alike("cpu-of-no-node", folder.path());
}

#[test]
fn a_container_that_renumbers_cpus_does_not_hide_a_node() {
    let folder = case("container-renumbers-cpus");
    let object = object(folder.path());
    assert_eq!(object["nodes"][1]["cpus"], serde_json::json!([2, 3]));
    assert_eq!(object["notes"][0]["kind"], "online-differs");
    check_alike("container-renumbers-cpus", folder.path());
}

#[test]
fn firmware_without_distances_is_no_obstacle() {
    let text = shown(case("distance-zero").path(), &[]);
    assert!(text.contains("1 node, ") && text.contains("CPUs 0-1"), "{text}");
}

#[test]
fn a_name_that_is_not_utf8_is_shown_with_a_replacement() {
    let text = shown(case("cpuinfo-not-utf8").path(), &[]);
    assert!(text.starts_with("CPU \u{fffd} X"), "{text}");
}

#[test]
fn padding_of_a_capture_is_no_text() {
    let text = shown(case("nul-padded-capture").path(), &[]);
    assert!(text.contains("2 packages, 2 nodes"), "{text}");
    assert!(text.contains("node 0: 1.0 GiB, CPUs 0\nnode 1: 1.0 GiB, CPUs 1\n"), "{text}");
}

#[test]
fn an_idle_cpu_does_not_tell_the_nominal_clock() {
    let clock = object(case("nominal-clock").path())["processor"]["clock_hz"].as_f64().unwrap();
    assert!((1.95e9..2.05e9).contains(&clock), "{clock}");
}

#[test]
fn a_machine_file_holds_cpus_without_memory() {
    let folder = case("machine-file-cpus-without-memory");
    let machine = machine(folder.path());
    assert_eq!((machine.nodes.len(), machine.cpu_count()), (2, 4));
    assert!(machine.nodes[0].controller.is_none());
    assert!(machine.transfer_ns.remote_ns[1][0] > machine.transfer_ns.same_node_ns);
}

#[test]
fn a_machine_file_holds_a_cache_of_odd_ways() {
    let output = topology(case("machine-file-odd-ways").path(), &["--machine-file"]);
    let file = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let line = file.lines().find(|line| line.starts_with("llc")).unwrap();
    assert!(line.contains("# adjusted: sysfs reports 33554432 bytes, 15 ways"), "{line}");
    let cache = Machine::parse(&file, "here").unwrap().caches.llc;
    assert_eq!((cache.bytes, cache.ways), (32 << 20, 16));
}

/// `zoneinfo` as Linux 6.7 writes it, of 66 zones and 1920 CPUs: 22 MB.
fn write_large_zoneinfo(path: &Path) {
    let of_cpu = |cpu| {
        format!(
            "    cpu: {cpu}\n              count:    0\n              high:     62\n              \
             batch:    63\n              high_min: 62\n              high_max: 700\n  vm stats \
             threshold: 125\n"
        )
    };
    let cpus: String = (0..1920).map(of_cpu).collect();
    let zone = |node: u64| {
        format!(
            "Node {node}, zone   Normal\n  pages free     1\n        spanned  262144\n        \
             present  262144\n  pagesets\n{cpus}  start_pfn:           {}\n",
            node * 262_144
        )
    };
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, (0..66).map(zone).collect::<String>()).unwrap();
}

#[test]
fn a_capture_has_files_of_any_machine() {
    let folder = case("large-zoneinfo");
    let zoneinfo = folder.path().join("proc/zoneinfo");
    write_large_zoneinfo(&zoneinfo);
    let archive = folder.path().join("out.tar");
    let output = topology(folder.path(), &["--capture", archive.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("left out"), "{}", text(&output.stderr));
    let there = folder.path().join("there");
    tar::Archive::new(fs::File::open(&archive).unwrap()).unpack(&there).unwrap();
    assert_eq!(fs::read(there.join("proc/zoneinfo")).unwrap(), fs::read(zoneinfo).unwrap());
    assert_eq!(shown(&there, &[]), shown(folder.path(), &[]));
}

#[test]
fn a_capture_keeps_links_and_tells_what_it_leaves_out() {
    let folder = case("fake-numa");
    fs::create_dir_all(folder.path().join("proc/zoneinfo")).unwrap();
    let archive = folder.path().join("out.tar");
    let output = topology(folder.path(), &["--capture", archive.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert!(said.contains("left out: proc/zoneinfo: Is a directory"), "{said}");
    let there = folder.path().join("there");
    tar::Archive::new(fs::File::open(&archive).unwrap()).unpack(&there).unwrap();
    assert_eq!(shown(&there, &[]), shown(folder.path(), &[]));
    assert!(there.join("sys/devices/system/cpu/cpu1/node1").is_dir());
}
