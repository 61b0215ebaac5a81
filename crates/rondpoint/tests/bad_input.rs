//! Every command with every kind of bad file: one message that names the file, the status of bad
//! input, and nothing half done.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A command line in which `FILE` stands for what is bad, and its status then.
const READERS: [(&str, i32); 12] = [
    ("replay FILE", 2),
    ("replay --json FILE", 2),
    ("report FILE -o OUT", 2),
    ("explain FILE", 2),
    ("decide --machine FILE --model MODEL --policy carrefour", 2),
    ("decide --machine MACHINE --model FILE --policy carrefour", 2),
    ("weights --calibration FILE", 2),
    ("run --machine FILE -- touch RAN", 125),
    ("record --machine FILE -o OUT -- touch RAN", 125),
    ("observe --machine FILE -- touch RAN", 125),
    ("run --replicate FILE/none -- touch RAN", 125),
    ("topology --root FILE", 2),
];

/// The same for what is written.
const WRITERS: [(&str, i32); 9] = [
    ("topology --write-machine FILE", 2),
    ("topology --capture FILE", 2),
    ("topology --xml FILE", 2),
    ("run --report FILE -- touch RAN", 125),
    ("run --record FILE -- touch RAN", 125),
    ("record -o FILE -- touch RAN", 125),
    ("observe -o FILE -- touch RAN", 125),
    ("calibrate --time 5 -o FILE", 1),
    ("report RECORD -o FILE", 2),
];

struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, line: &str, file: &Path) -> Output {
        let file = file.to_str().unwrap();
        let own = |word: &str| self.path(word).to_str().unwrap().to_owned();
        let words = line.split(' ').map(|word| match word {
            "OUT" | "RAN" | "MODEL" | "MACHINE" | "RECORD" => own(word),
            _ => word.replace("FILE", file),
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(words).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs it and checks what every refusal has in common.
    fn refused(&self, line: &str, file: &Path, status: i32, what: &str) -> String {
        let found = self.run(line, file);
        let errors = String::from_utf8_lossy(&found.stderr).into_owned();
        let context = format!("{line} with {what}: {:?}\n{errors}", found.status);
        assert_eq!(found.status.code(), Some(status), "{context}");
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "{context}");
        let who = format!("rondpoint {}: ", line.split(' ').next().unwrap());
        let messages = errors.lines().filter(|one| !one.contains("warning: this machine is busy"));
        let messages: Vec<&str> = messages.filter(|one| !one.starts_with(' ')).collect();
        assert!(messages[0].starts_with(&who), "{context}");
        assert!(messages.len() <= 1 || !messages[1].starts_with("rondpoint"), "{context}");
        for word in ["panicked", "RUST_BACKTRACE", "(os error 2): No such"] {
            assert!(!errors.contains(word), "{context}");
        }
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(errors.contains(name), "the file is not named: {context}");
        for left in ["OUT", "RAN"] {
            assert!(!self.path(left).exists(), "{left} was made: {context}");
        }
        errors
    }
}

/// Every kind of bad file to read, by name.
fn bad_files(stage: &Stage) -> Vec<(&'static str, PathBuf)> {
    let put = |name: &str, bytes: &[u8]| {
        let path = stage.path(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let noise: Vec<u8> =
        (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let huge = stage.path("huge");
    // Without a block of the disk.
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    let directory = stage.path("directory");
    fs::create_dir(&directory).unwrap();
    let pipe = stage.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let link = stage.path("dangling");
    symlink(stage.path("nowhere"), &link).unwrap();
    vec![
        ("a missing file", stage.path("missing")),
        ("an empty file", put("empty", b"")),
        ("noise", put("noise", &noise)),
        ("NUL bytes", put("nul", &[0; 512])),
        ("a file of another kind", put("other", b"{\"a\": [1, 2}\n[x]\n")),
        ("a terabyte", huge),
        ("a folder", directory),
        ("a pipe without a writer", pipe),
        ("a dangling link", link),
    ]
}

#[test]
fn every_reader_refuses_every_bad_file_with_one_message() {
    let stage = Stage::new();
    fs::write(stage.path("MODEL"), b"{}").unwrap();
    let machine = stage.path("MACHINE");
    let written = stage.run("topology --write-machine FILE", &machine);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    for (what, file) in bad_files(&stage) {
        for (line, status) in READERS {
            // A folder is what --root wants; this one has no machine in it, and a file in it is
            // named.
            stage.refused(line, &file, status, what);
        }
    }
}

#[test]
fn every_writer_refuses_what_cannot_be_written_before_anything_is_done() {
    let stage = Stage::new();
    let recorded = stage.run("record -o RECORD -- true", Path::new("unused"));
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    fs::create_dir(stage.path("folder")).unwrap();
    for (what, file) in [
        ("no such folder", stage.path("none/deep/file")),
        ("a folder", stage.path("folder")),
        ("a file as its folder", stage.path("RECORD/file")),
    ] {
        for (line, status) in WRITERS {
            stage.refused(line, &file, status, what);
        }
    }
}

/// Of all commands that write a file which the user names.
#[test]
fn root_follows_no_link_that_another_user_may_have_laid() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("not tried: only root is in danger of it");
        return;
    }
    let stage = Stage::new();
    stage.run("record -o RECORD -- true", Path::new("unused"));
    let (precious, link) = (stage.path("precious"), stage.path("link"));
    fs::File::create(&precious).unwrap().write_all(b"precious").unwrap();
    symlink(&precious, &link).unwrap();
    // calibrate replaces the link itself, by its name.
    for (line, status) in WRITERS.into_iter().filter(|(line, _)| !line.starts_with("calibrate")) {
        let errors = stage.refused(line, &link, status, "a link");
        assert!(errors.contains("symbolic link"), "{line}: {errors}");
        assert_eq!(fs::read(&precious).unwrap(), b"precious", "{line}");
    }
}

#[test]
fn a_file_that_is_there_keeps_its_content_until_there_is_something_better() {
    let stage = Stage::new();
    let older = stage.path("older");
    let elsewhere = stage.path("empty-machine");
    fs::create_dir(&elsewhere).unwrap();
    let root = elsewhere.to_str().unwrap();
    for line in ["topology --root ROOT --xml FILE", "topology --root ROOT --write-machine FILE"]
        .into_iter()
        .chain(["topology --root ROOT --capture FILE", "observe -o FILE -- /no/such/program"])
    {
        fs::write(&older, "what was there before").unwrap();
        let found = stage.run(&line.replace("ROOT", root), &older);
        assert!(!found.status.success(), "{line}");
        assert_eq!(fs::read(&older).unwrap(), b"what was there before", "{line}");
    }
    let shared = stage.path("machine.xml");
    let found = stage.run("topology --xml FILE", &shared);
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let mode = fs::metadata(&shared).unwrap().permissions().mode();
    assert_eq!(mode & 0o600, 0o600);
    let text = fs::read_to_string(&shared).unwrap();
    assert!(text.ends_with("</topology>\n"), "{text}");
}
