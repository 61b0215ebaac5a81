//! The library in programs that it is preloaded into.
//!
//! No line names the library's crate, because linked into this program it would replace its `open`.

#![allow(clippy::unwrap_used, reason = "a test ends where its own set-up fails")]

use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use rondpoint_linux::replicas::{self, Copy, Identity, LIBRARY, Node, TABLE_VARIABLE, Table};
use tempfile::TempDir;

/// What the original holds. A copy holds something else here, so that a reader shows its file.
const ORIGINAL: &str = "original";
const COPY: &str = "the copy";

/// CPUs of the one node: more than the machine has.
const CPUS: u32 = 4096;

/// A replicated file with its table and log.
struct Replicated {
    folder: TempDir,
    original: PathBuf,
}

impl Replicated {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let original = folder.path().join("original");
        fs::write(&original, ORIGINAL).unwrap();
        fs::write(folder.path().join("log"), "").unwrap();
        Self { folder, original }
    }

    /// With a copy of other content.
    fn with_copy() -> Self {
        let it = Self::new();
        let copy = it.path("copy");
        fs::write(&copy, COPY).unwrap();
        it.write_table(identity(&copy), &copy);
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_table(&self, identity: Identity, copy: &Path) {
        let facts = fs::metadata(&self.original).unwrap();
        let file = replicas::File {
            original: self::identity(&self.original),
            length: facts.len(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            copies: vec![Copy { identity, path: copy.to_owned() }],
        };
        let nodes = vec![Node { node: 0, cpus: (0..CPUS).collect() }];
        let table = Table { watch: false, log: self.path("log"), nodes, files: vec![file] };
        fs::write(self.path("table"), table.to_string()).unwrap();
    }

    /// Runs a program with the library. Returns what it wrote.
    fn run(&self, program: &mut Command) -> String {
        let program = program.env("LD_PRELOAD", library()).env(TABLE_VARIABLE, self.path("table"));
        written(&program.output().unwrap(), program)
    }

    fn log_bytes(&self) -> u64 {
        fs::metadata(self.path("log")).unwrap().len()
    }
}

fn identity(path: &Path) -> Identity {
    let facts = fs::metadata(path).unwrap();
    Identity { device: facts.dev(), inode: facts.ino() }
}

/// Where cargo puts this package's libraries when it builds its tests.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let library = test.parent().unwrap().join(LIBRARY);
    assert!(library.exists(), "{}", library.display());
    library
}

#[track_caller]
fn written(output: &Output, program: &Command) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {}\n{errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_limit_of_file_sizes_does_not_end_a_program_that_opens_a_copy() {
    let it = Replicated::with_copy();
    for blocks in ["0", "4"] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f $1 && exec cat $2", "sh", blocks]).arg(&it.original);
        assert_eq!((it.run(&mut limited).as_str(), it.log_bytes()), (COPY, 0), "{blocks} blocks");
    }
}

#[test]
fn the_log_of_opens_ends_at_its_limit() {
    const MIB: u64 = 1 << 20;
    let it = Replicated::with_copy();
    let mut cat = Command::new("cat");
    cat.arg(&it.original);
    let mut added_behind = |length| {
        File::options().write(true).open(it.path("log")).unwrap().set_len(length).unwrap();
        assert_eq!(it.run(&mut cat), COPY);
        it.log_bytes() - length
    };
    assert!(added_behind(0) > 0 && added_behind(MIB - 4096) > 0);
    assert_eq!([added_behind(MIB), added_behind(2 * MIB)], [0, 0]);
}

/// No program reads an older state of a file than the one that its open finds.
#[test]
fn a_file_that_was_written_or_replaced_is_read_itself() {
    let read = |it: &Replicated| it.run(Command::new("cat").arg(&it.original));
    let written = Replicated::with_copy();
    assert_eq!(read(&written), COPY);
    fs::write(&written.original, "changed!").unwrap();
    let file = File::options().write(true).open(&written.original).unwrap();
    // The kernel's clock for files may stand still between two writes.
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(read(&written), "changed!");
    let replaced = Replicated::with_copy();
    fs::write(replaced.path("other"), "replaced").unwrap();
    fs::rename(replaced.path("other"), &replaced.original).unwrap();
    assert_eq!(read(&replaced), "replaced");
}

#[test]
fn a_file_that_is_opened_for_writing_too_is_the_original() {
    let it = Replicated::with_copy();
    for (redirection, expected) in [("<", COPY), ("<>", ORIGINAL)] {
        let script = format!("exec cat {redirection} \"$1\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).arg(&it.original);
        assert_eq!(it.run(&mut shell), expected, "{redirection}");
    }
}

/// A folder opens as a file does, but the kernel refuses to map it (ENODEV).
#[test]
fn a_copy_that_cannot_be_mapped_leaves_the_original() {
    let it = Replicated::new();
    let program = it.path("maps");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/maps.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror"]).arg(source).arg("-o").arg(&program);
    written(&compiler.output().unwrap(), &compiler);
    let run = || it.run(Command::new(&program).stdin(File::open(&it.original).unwrap()));
    it.write_table(identity(it.folder.path()), it.folder.path());
    assert_eq!(run(), ORIGINAL);
    let copy = it.path("copy");
    fs::write(&copy, COPY).unwrap();
    it.write_table(identity(&copy), &copy);
    assert_eq!(run(), COPY, "a copy that can be mapped is");
}

/// In a mount namespace of its own. Where a user may have none, nothing is tried.
#[test]
fn a_copy_whose_file_system_forbids_execution_is_not_opened_for_a_program() {
    let it = Replicated::new();
    let mounted = it.path("mounted");
    fs::create_dir(&mounted).unwrap();
    let copy = mounted.join("copy");
    it.write_table(Identity { device: 1 << 40, inode: 1 << 50 }, &copy);
    let places = format!("copy {} {} ", 1u64 << 40, 1u64 << 50);
    let script = format!(
        "mount -t tmpfs -o $1 none '{mounted}' && printf '{COPY}' > '{copy}' && \
         sed -i \"s|^{places}|copy $(stat -c '%d %i' '{copy}') |\" '{table}' && \
         LD_PRELOAD='{library}' exec cat '{original}'",
        mounted = mounted.display(),
        copy = copy.display(),
        table = it.path("table").display(),
        library = library().display(),
        original = it.original.display(),
    );
    let own_mounts = ["--user", "--map-root-user", "--mount"];
    let mut trial = Command::new("unshare");
    trial.args(own_mounts).args(["mount", "-t", "tmpfs", "none"]).arg(&mounted);
    if !trial.output().is_ok_and(|output| output.status.success()) {
        println!("not tried: this user may mount nothing");
        return;
    }
    for (option, mode, expected) in
        [("noexec", 0o755, ORIGINAL), ("noexec", 0o644, COPY), ("exec", 0o755, COPY)]
    {
        fs::set_permissions(&it.original, Permissions::from_mode(mode)).unwrap();
        it.write_table(Identity { device: 1 << 40, inode: 1 << 50 }, &copy);
        let mut program = Command::new("unshare");
        program.args(own_mounts).args(["sh", "-c", &script, "sh", option]);
        program.env(TABLE_VARIABLE, it.path("table"));
        assert_eq!(written(&program.output().unwrap(), &program), expected, "{option} {mode:o}");
    }
}
