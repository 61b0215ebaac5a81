//! Wrong input of `rondpoint-lab` gives one message with the place and the expected value, exit
//! status 2, and no standard output. The tests need no QEMU and no setup, because input is checked
//! first.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A good machine file, of which each case spoils one thing.
const MACHINE: &str = include_str!("../../../machines/sam-2.toml");

/// Runs the command in `folder`, with an empty cache there.
fn rondpoint_lab(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint-lab"));
    command.current_dir(folder).args(arguments).env("RONDPOINT_CACHE", folder.join("cache"));
    command.output().expect("the command starts")
}

/// The message is the one expected; `FOLDER` in it stands for where the command ran.
#[track_caller]
fn check_in(folder: &Path, arguments: &[&str], expected: &str) {
    let output = rondpoint_lab(folder, arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    let said = said.replace(&folder.display().to_string(), "FOLDER");
    assert_eq!(said.trim_end(), expected);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stdout, b"");
}

#[track_caller]
fn check(arguments: &[&str], expected: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    check_in(folder.path(), arguments, expected);
}

/// A value that a flag does not take.
#[track_caller]
fn check_usage(arguments: &[&str], expected: &str) {
    let expected =
        format!("error: invalid value {expected}\n\nFor more information, try '--help'.");
    check(arguments, &expected);
}

/// `machine.toml` is the good one with `from` replaced by `to`; the message names that line.
#[track_caller]
fn check_machine(line: u32, (from, to): (&str, &str), expected: &str) {
    assert!(MACHINE.contains(from), "{from:?} is no longer in the machine file");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("machine.toml"), MACHINE.replacen(from, to, 1)).expect("written");
    let expected = format!("rondpoint-lab: machine.toml:{line}: {expected}");
    check_in(folder.path(), &["run", "--machine", "machine.toml", "true"], &expected);
}

/// `program` consists of `bytes`.
#[track_caller]
fn check_program(bytes: &[u8], expected: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("program"), bytes).expect("written");
    let expected = format!("rondpoint-lab: ./program: {expected}");
    check_in(folder.path(), &["run", "./program"], &expected);
}

#[test]
fn an_unknown_machine_is_told_the_known_ones() {
    for command in [
        &["run", "--machine", "vax", "true"][..],
        &["shell", "--machine", "vax"],
        &["bench", "--machine", "vax"],
    ] {
        check(
            command,
            "rondpoint-lab: vax: neither a machine file nor one of altra-2, asymsched-8, \
             carrefour-a, carrefour-b, chiplet-cxl, nmass-2, sam-2",
        );
    }
}

#[test]
fn a_machine_files_unknown_key_is_named_with_its_line() {
    check_machine(
        15,
        ("reorder_window", "reorder_windov"),
        "core.reorder_windov: unknown field `reorder_windov`, expected one of `clock_mhz`, \
         `cycles_per_instruction`, `outstanding_misses`, `reorder_window`, `threads_per_core`",
    );
    check_machine(
        12,
        ("clock_mhz = 2200", "clock_mhz = \"fast\""),
        "core.clock_mhz: invalid type: string \"fast\", expected f64",
    );
    check_machine(11, ("[core]", "[core"), "unclosed table, expected `]`");
}

#[test]
fn an_impossible_topology_is_refused() {
    check_machine(
        39,
        ("between = [0, 1]", "between = [0, 7]"),
        "interconnect.links[0].between: expected a node from 0 to 1, got 7",
    );
    check_machine(
        36,
        ("links = [{ between = [0, 1], bandwidth_mb_s = 25600 }]", "links = []"),
        "interconnect: expected links from node 1 to node 0, got no route",
    );
    check_machine(
        40,
        ("[[10, 21], [21, 10]]", "[[10, 21]]"),
        "interconnect.distances: expected 2 rows, one for each node, got 1",
    );
    check_machine(28, ("cpus = 20", "cpus = 0"), "nodes: expected at least one node with CPUs");
}

#[test]
fn a_machine_that_the_lab_cannot_scale_is_refused() {
    let (without_lab, _) = MACHINE.split_once("[lab]").expect("the machine file has a [lab] table");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("machine.toml"), without_lab).expect("written");
    let expected =
        "rondpoint-lab: machine sam-2 cannot run in the lab: its file has no [lab] table";
    check_in(folder.path(), &["run", "--machine", "machine.toml", "true"], expected);
}

#[test]
fn a_missing_program_is_named() {
    check(
        &["run", "no-such-program-anywhere"],
        "rondpoint-lab: no-such-program-anywhere: no such program, neither in PATH nor in the lab",
    );
    check(&["run", "./absent"], "rondpoint-lab: ./absent: no such program");
    check(&["shell", "--program", "./absent"], "rondpoint-lab: ./absent: no such program");
}

#[test]
fn what_is_no_program_of_this_architecture_is_refused() {
    check_program(
        b"#!/usr/bin/python3\n",
        "a script; name its interpreter as the program and add the script with --file",
    );
    check_program(b"hello", "not a program (expected an ELF file for Linux x86-64)");
    check_program(&elf_header(183), "a program for Aarch64, but the lab's machine is x86-64");
}

/// The header of a 64-bit little-endian program without sections, for the machine of that number.
fn elf_header(machine: u8) -> [u8; 64] {
    let mut header = [0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (header[16], header[18], header[20]) = (2, machine, 1);
    (header[52], header[54], header[58]) = (64, 56, 64);
    header
}

#[test]
fn a_missing_input_file_is_named() {
    check(
        &["run", "--file", "input.txt", "true"],
        "rondpoint-lab: input.txt: cannot read: No such file or directory (os error 2)",
    );
}

#[test]
fn flags_out_of_range_are_refused() {
    check_usage(
        &["run", "--config", "first-touch,magic", "true"],
        "'magic' for '--config <LIST>': expected one of first-touch, interleave, interleave-late, \
         autonuma, numad, rondpoint, rondpoint-faults, rondpoint-observe, \
         rondpoint-dry-run, rondpoint-replicate, \
         rondpoint-replicate-dry-run, oracle",
    );
    check_usage(
        &["run", "--config", "interleave-late=soon", "true"],
        "'interleave-late=soon' for '--config <LIST>': expected guest seconds from 0.001 to 1000 \
         behind the =",
    );
    for (arguments, place, expected) in [
        (["run", "--seeds", "0"], "--seeds <N>", "runs from 1 to 1000"),
        (["run", "--seeds", "few"], "--seeds <N>", "runs from 1 to 1000"),
        (["run", "--timeout", "soon"], "--timeout <SECONDS>", "seconds from 1 to 604800"),
        (["run", "--jobs", "all"], "--jobs <N>", "machines from 1 to 256"),
        (["demo", "--seeds", "many"], "--seeds <N>", "runs from 1 to 1000"),
        (["bench", "--runs", "0"], "--runs <N>", "repetitions from 1 to 100"),
        (["bench", "--rounds", "1e3"], "--rounds <N>", "rounds from 1 to 10000"),
    ] {
        let expected =
            format!("'{}' for '{place}': expected a whole number of {expected}", arguments[2]);
        check_usage(&arguments, &expected);
    }
    check(
        &["bench", "--cache-plugin", "libcache.so"],
        "rondpoint-lab: libcache.so: no such file; expected QEMU's libcache.so",
    );
}

#[test]
fn a_placement_that_is_asked_for_twice_is_refused() {
    check(
        &["run", "--config", "numad,first-touch,numad", "/bin/true"],
        "rondpoint-lab: --config: numad is there twice",
    );
}

#[test]
fn an_oracle_is_refused_to_programs_that_know_none() {
    check(
        &["run", "--config", "oracle", "/bin/true"],
        "rondpoint-lab: --config oracle: there is no known right placement of /bin/true; it is there \
         for rondpoint-workloads kmeans, stencil, wellplaced, bucketsort only",
    );
}

#[test]
fn without_setup_the_command_that_provides_it_is_named() {
    for command in [&["run", "true"][..], &["shell"], &["bench"], &["demo"]] {
        check(
            command,
            "rondpoint-lab: FOLDER/cache/setup.toml: not there; run ./x setup first \
             (it says what it fetches before it does)",
        );
    }
}

#[test]
fn a_setup_of_another_version_is_told_from_none() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("cache")).expect("made");
    fs::write(folder.path().join("cache/setup.toml"), "format = 99\n").expect("written");
    let expected = "rondpoint-lab: FOLDER/cache/setup.toml: not a setup file of this version \
                    (format 99, expected 1); run ./x setup again";
    check_in(folder.path(), &["run", "true"], expected);
}
