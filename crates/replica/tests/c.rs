//! Programs in C and Python that use the library: the example of `docs/replication.md`, and one
//! that tries every function.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Where cargo puts this package's libraries when it builds its tests.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("a test has a file");
    test.parent().expect("in a folder").to_owned()
}

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[track_caller]
fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// What the shared library is linked by, and the static one with what it needs of the system.
const SHARED: &[&str] = &["-lrondpoint_replica"];
const STATIC: &[&str] =
    &["-l:librondpoint_replica.a", "-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// Compiles a program, strictly, and links it with the library.
fn compile(folder: &Path, source: &Path, library: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
    compiler.arg("-I").arg(package().join("include")).arg(source).arg("-o").arg(&program);
    compiler.arg("-L").arg(libraries()).args(library);
    succeed(compiler.arg(format!("-Wl,-rpath,{}", libraries().display())));
    program
}

/// The first block of this language in the page about replication.
fn example(language: &str) -> String {
    let page = fs::read_to_string(package().join("../../docs/replication.md"));
    let page = page.expect("the page about replication");
    let (_, rest) = page.split_once(&format!("```{language}\n")).expect("a block");
    rest.split_once("```").expect("its end").0.to_owned()
}

fn files(folder: &TempDir) -> [PathBuf; 2] {
    let paths = ["first", "second"].map(|name| folder.path().join(name));
    for (path, bytes) in paths.iter().zip([vec![1; 100_000], vec![2; 150_000]]) {
        fs::write(path, bytes).expect("room for a file");
    }
    paths
}

#[test]
fn the_example_of_the_page_reads_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("example.c");
    fs::write(&source, example("c")).unwrap();
    let program = compile(folder.path(), &source, SHARED);
    let output = succeed(Command::new(&program).args(files(&folder)));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "version 1: 100000\nversion 2: 300000\n");
    let absent = Command::new(&program).args(["absent", "absent"]).output().unwrap();
    let text = String::from_utf8(absent.stderr).unwrap();
    assert_eq!(text, "absent: cannot open: No such file or directory (os error 2)\n");
}

#[test]
fn every_function_keeps_the_header_s_promises() {
    let folder = tempfile::tempdir().unwrap();
    for library in [SHARED, STATIC] {
        let program = compile(folder.path(), &package().join("tests/interface.c"), library);
        succeed(Command::new(&program).args(files(&folder)));
    }
}

/// What pkg-config says is what the static library is linked with above.
#[test]
fn the_package_file_names_the_system_s_libraries() {
    let file = fs::read_to_string(package().join("rondpoint-replica.pc")).unwrap();
    let line = format!("Libs.private: {}\n", STATIC[1..].join(" "));
    assert!(file.contains(&line), "{file}");
    assert!(file.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{file}");
}

/// The shared library offers the header's functions, and no others of ours.
#[test]
fn header_and_library_have_the_same_functions() {
    let header = fs::read_to_string(package().join("include/rondpoint_replica.h")).unwrap();
    let code = header.split("*/").filter_map(|part| part.split("/*").next()).collect::<String>();
    let names = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let mut declared: Vec<&str> =
        names.filter(|name| code.contains(&format!("{name}(")) && !name.is_empty()).collect();
    declared.retain(|name| name.starts_with("rondpoint_"));
    declared.sort_unstable();
    declared.dedup();
    let library = libraries().join("librondpoint_replica.so");
    let output = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut offered: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|name| name.starts_with("rondpoint_"))
        .collect();
    offered.sort_unstable();
    assert_eq!(offered, declared);
    assert!(declared.len() > 12, "{declared:?}");
}

#[test]
fn python_reads_copies_without_writing_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let script = "\
import sys, rondpoint_replica as r
r.load(sys.argv[2])
places = [(0, [0]), (0, [1])]
with r.Replica.of_file(sys.argv[1], places=places) as data:
    near = data.nearest()
    assert data.has_copies() and str(data).startswith('2 copies of 100000 bytes'), str(data)
    assert len(near) == 100000 and near[99999] == 1 and near.readonly
    near.release()
with r.Replica.of_bytes(b'abc', budget_bytes=5, places=places) as data:
    assert not data.has_copies() and bytes(data.nearest()) == b'abc', str(data)
for refused, words in [
    (lambda: r.Replica.of_file('absent'), 'absent: cannot open'),
    (lambda: r.Replica.of_bytes(b'abc', places=[]), 'no place'),
    (lambda: data.nearest(), 'closed'),
]:
    try:
        refused()
    except (OSError, ValueError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
";
    let mut python = Command::new("python3");
    if Command::new("python3").arg("--version").output().is_err() {
        println!("not tried: no python3 here");
        return;
    }
    python.env("PYTHONPATH", package().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    python.args(["-c", script]).arg(&files(&folder)[0]);
    succeed(python.arg(libraries().join("librondpoint_replica.so")));
}
