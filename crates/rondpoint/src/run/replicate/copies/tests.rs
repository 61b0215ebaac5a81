//! Copies on whatever machine this is: one node's memory, seen as two nodes by a synthetic machine.

use std::io::Write as _;
use std::process::Command;

use rondpoint_core::topology::synthetic;
use rondpoint_linux::syscall::signal;
use tempfile::TempDir;

use super::*;

/// Of signal(7).
const SIGUSR1: i32 = 10;

/// CPU 0 is node 0's and CPU 1 node 1's. Needs two CPUs.
fn two_places() -> Vec<Place> {
    places(&synthetic::parse("node:2 core:1").unwrap()).unwrap()
}

fn original(folder: &TempDir, bytes: usize) -> Original {
    let path = folder.path().join("data");
    let data: Vec<u8> = (0..bytes).map(|number| (number % 253) as u8).collect();
    fs::write(&path, data).unwrap();
    Original::open(&path, None).unwrap()
}

#[test]
fn a_machine_of_one_node_gets_no_copies() {
    let error = places(&synthetic::parse("core:2").unwrap()).unwrap_err();
    assert!(error.to_string().contains("one memory node"), "{error}");
}

/// The log is the program's: a sparse file without an end, too.
#[test]
fn of_a_log_without_an_end_the_beginning_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let copies = Copies::in_new_folder(folder.path(), Vec::new()).unwrap();
    let (_, mut log) = copies.new_file("log", 0o600, None).unwrap();
    log.write_all(b"7 0 1 0\n").unwrap();
    log.set_len(1 << 40).unwrap();
    let read = copies.log();
    assert_eq!((read.len() as u64, read.starts_with("7 0 1 0\n")), (MOST_LOGGED, true));
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (path, words) in [
        (folder.path().join("absent"), "No such file"),
        (folder.path().to_owned(), "expected a regular file"),
    ] {
        let error = format!("{:#}", Original::open(&path, None).unwrap_err());
        assert!(error.contains(words), "{error}");
    }
    fs::write(folder.path().join("empty"), "").unwrap();
    assert!(Original::open(&folder.path().join("empty"), None).is_err());
}

/// A user that may start Rondpoint as root must not read files of others by it.
#[test]
fn under_sudo_nothing_is_copied_that_the_caller_might_not_read() {
    let nobody = User { user: 65_534, group: 65_534, groups: vec![65_534] };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::write(&path, "data").unwrap();
    let open = |path: &Path, user: &User| Original::open(path, Some(user)).map(|_| ());
    // Everybody may read the file, but not reach it; and others may put another in its place.
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let error = open(&path, &nobody).unwrap_err().to_string();
    assert!(error.contains("under sudo"), "{error}");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(open(&link, &nobody).is_err());
    let owner = User { user: effective_user(), ..nobody.clone() };
    assert!(open(&path, &owner).is_ok());
    // Root's, in folders of root's.
    assert!(open(Path::new("/etc/passwd"), &nobody).is_ok());
    let private = Path::new("/etc/shadow").metadata();
    assert!(private.is_err() || open(Path::new("/etc/shadow"), &nobody).is_err());
}

#[test]
fn each_node_s_copy_has_the_bytes_and_goes_with_its_run() {
    let folder = tempfile::tempdir().unwrap();
    // Two parts, the second of which is cut.
    let original = original(&folder, CHUNK + 4_321);
    let copies = Copies::make(&two_places(), &[original], Mode::Exchange, None).unwrap();
    let text = fs::read_to_string(copies.table()).unwrap();
    let table = Table::parse(&text).expect("a table of ours");
    assert_eq!(table.files.len(), 1);
    let expected = fs::read(folder.path().join("data")).unwrap();
    let modified = folder.path().join("data").metadata().unwrap().modified().unwrap();
    for copy in &table.files[0].copies {
        assert!(fs::read(&copy.path).unwrap() == expected, "{}", copy.path.display());
        assert_eq!(copy.path.metadata().unwrap().modified().unwrap(), modified);
        assert_eq!(copy.path.metadata().unwrap().mode() & 0o222, 0);
    }
    assert_eq!(table.nodes.iter().map(|node| node.node).collect::<Vec<_>>(), [0, 1]);
    let place = copies.folder.clone();
    drop(copies);
    assert!(!place.exists());
}

#[test]
fn a_file_that_is_written_or_replaced_meanwhile_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let unchanged = original(&folder, 10);
    assert_eq!(unchanged.change(), None);
    let file = OpenOptions::new().write(true).open(&unchanged.path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(unchanged.change(), Some(Change::Written), "as long as before");
    let shorter = original(&folder, 10);
    file.set_len(5).unwrap();
    assert_eq!(shorter.change(), Some(Change::Written));
    let replaced = original(&folder, 10);
    let other = folder.path().join("other");
    fs::write(&other, "other").unwrap();
    fs::rename(&other, &replaced.path).unwrap();
    assert_eq!(replaced.change(), Some(Change::Replaced));
    fs::remove_file(&replaced.path).unwrap();
    assert_eq!(replaced.change(), Some(Change::Replaced), "removed");
}

#[test]
fn a_private_file_s_copies_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let original = original(&folder, 10);
    original.file.set_permissions(Permissions::from_mode(0o640)).unwrap();
    let copies = Copies::make(&two_places(), &[original], Mode::Exchange, None).unwrap();
    let table = Table::parse(&fs::read_to_string(copies.table()).unwrap()).unwrap();
    let mode = table.files[0].copies[0].path.metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o400);
}

#[test]
fn what_a_killed_run_left_is_removed_and_a_living_one_s_stays() {
    let parent = tempfile::tempdir().unwrap();
    let living = Copies::in_new_folder(parent.path(), vec![]).unwrap();
    let dead = parent.path().join(format!("{FOLDERS}1-0"));
    fs::create_dir(&dead).unwrap();
    File::create(dead.join("lock")).unwrap().write_all(b"x").unwrap();
    let other = parent.path().join("somebody-else-s");
    fs::create_dir(&other).unwrap();
    remove_left_over(parent.path());
    assert_eq!((living.folder.exists(), dead.exists(), other.exists()), (true, false, true));
}

/// The library as cargo built it for these tests, in the folder of this test's own program.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join(table::LIBRARY)
}

/// Runs a shell on one CPU, with the library preloaded.
fn shell_on(cpu: usize, copies: &Copies, script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.env("LD_PRELOAD", library()).env(table::TABLE_VARIABLE, copies.table());
    shell.args(["-c", script]);
    // A child inherits its parent thread's CPUs.
    let output = thread::spawn(move || {
        affinity::set(0, &std::iter::once(cpu).collect()).unwrap();
        shell.output().unwrap()
    });
    let output = output.join().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{script}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn processes_read_the_copy_of_their_node_and_write_to_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let data = original(&folder, 50_000);
    let path = data.path.display().to_string();
    let copies = Copies::make(&two_places(), &[data], Mode::Exchange, None).unwrap();
    let shown = format!("exec 5<{path}; readlink /proc/$$/fd/5; cat {path} | cksum");
    let original_sum = shell_on(0, &copies, &format!("exec 5<>{path}; cksum <&5"));
    for (cpu, name) in [(0, "0-0"), (1, "0-1")] {
        let copy = copies.folder.join(name).display().to_string();
        assert_eq!(shell_on(cpu, &copies, &shown), format!("{copy}\n{original_sum}"));
    }
    // Written to: not replaced, because it differs from what was copied.
    assert_eq!(
        shell_on(1, &copies, &format!("echo more >>{path}; exec 5<{path}; readlink /proc/$$/fd/5")),
        format!("{path}\n")
    );
    let log = copies.log();
    let nodes: Vec<&str> =
        log.lines().filter_map(|line| line.split_once(' ')).map(|l| l.1).collect();
    assert!(nodes.contains(&"0 0 0") && nodes.contains(&"0 1 0"), "{log}");
    assert!(nodes.iter().all(|line| ["0 0 0", "0 1 0"].contains(line)), "{log}");
}

/// A program that maps descriptor 5 and prints the path of the mapping and a byte of it.
fn mapper(folder: &TempDir) -> PathBuf {
    const SOURCE: &str = r#"
        #include <stdio.h>
        #include <string.h>
        #include <sys/mman.h>
        int main(void) {
            unsigned char *m = mmap(NULL, 50000, PROT_READ, MAP_SHARED, 5, 0);
            FILE *maps = fopen("/proc/self/maps", "r");
            char line[4096];
            while (m != MAP_FAILED && maps && fgets(line, sizeof line, maps))
                if (strstr(line, "replicas")) {
                    line[strcspn(line, "\n")] = 0;
                    printf("%s %d\n", strchr(line, '/'), m[49999]);
                    return 0;
                }
            return 1;
        }"#;
    let (source, program) = (folder.path().join("map.c"), folder.path().join("map"));
    fs::write(&source, SOURCE).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(built.success());
    program
}

#[test]
fn streams_and_descriptors_of_other_processes_lead_to_the_copy_too() {
    let folder = tempfile::tempdir().unwrap();
    let data = original(&folder, 50_000);
    let path = data.path.display().to_string();
    let copies = Copies::make(&two_places(), &[data], Mode::Exchange, None).unwrap();
    // cksum reads by fopen.
    shell_on(1, &copies, &format!("cksum {path}"));
    assert!(copies.log().ends_with(" 0 1 0\n"), "{}", copies.log());
    // A descriptor that was opened without the library, and one of the other node's copy.
    let map = mapper(&folder);
    let expected = format!("{} {}\n", copies.folder.join("0-1").display(), 49_999 % 253);
    for opened_with in ["LD_PRELOAD=", "x="] {
        let script = format!(
            "P=$LD_PRELOAD {opened_with} exec env sh -c \
             'exec 5<{path}; LD_PRELOAD=$P exec taskset -c 1 {}'",
            map.display()
        );
        assert_eq!(shell_on(0, &copies, &script), expected);
    }
}

#[test]
fn watching_logs_and_exchanges_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = original(&folder, 100);
    let path = data.path.display().to_string();
    let copies = Copies::make(&two_places(), &[data], Mode::Watch, None).unwrap();
    let script = format!("exec 5<{path}; readlink /proc/$$/fd/5");
    assert_eq!(shell_on(1, &copies, &script), format!("{path}\n"));
    assert!(copies.log().ends_with(" 0 1 0\n"), "{}", copies.log());
}

#[test]
fn copies_that_have_gone_leave_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let data = original(&folder, 100);
    let path = data.path.display().to_string();
    let copies = Copies::make(&two_places(), &[data], Mode::Exchange, None).unwrap();
    fs::remove_file(copies.folder.join("0-0")).unwrap();
    // Not what was copied, though its name is.
    fs::remove_file(copies.folder.join("0-1")).unwrap();
    fs::write(copies.folder.join("0-1"), "other").unwrap();
    for cpu in [0, 1] {
        let script = format!("exec 5<{path}; readlink /proc/$$/fd/5");
        assert_eq!(shell_on(cpu, &copies, &script), format!("{path}\n"));
    }
}

#[test]
fn a_program_gets_copies_only_where_they_may_be_executed() {
    let folder = tempfile::tempdir().unwrap();
    let path = original(&folder, 100).path;
    let with = |mode: u32| {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        [Original::open(&path, None).unwrap()]
    };
    assert!(mount::may_be_on(true, &with(0o644)).is_ok());
    assert!(mount::may_be_on(false, &with(0o755)).is_ok());
    let error = mount::may_be_on(true, &with(0o755)).unwrap_err().to_string();
    assert!(error.contains("mounted with noexec"), "{error}");
}

#[test]
fn copying_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let speed = measure(&two_places(), &original(&folder, 1 << 20)).unwrap();
    assert!(speed > 1e6 && speed.is_finite(), "{speed} bytes per second");
}

#[test]
fn a_device_has_one_number_in_maps_and_another_in_stat() {
    // 8:1, 259:3 and 0:300: a disk, an NVMe partition, a file system without a device.
    for (stat, major, minor) in [(0x801, 8, 1), (0x1_0303, 259, 3), (0x10_002c, 0, 300)] {
        assert_eq!(device_of_maps(stat), major << 20 | minor, "{stat:x}");
    }
}

/// A signal that ended `run` meanwhile would leave the copies in memory.
#[test]
fn a_signal_ends_the_copying_and_leaves_no_copy() {
    let (folder, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let original = original(&folder, 10);
    let held = Told::begin();
    let made = Copies::make_in(memory.path(), &two_places(), &[original], Mode::Exchange, None);
    let comes_again = held.end();
    let error = made.unwrap_err();
    assert!(is_interruption(&error), "{error:#}");
    assert!(!is_interruption(&anyhow::anyhow!("another")));
    assert!(comes_again, "it ends this process once the copies are gone");
    assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0);
}

/// Copying a large file takes long, and a signal does not wait for its end.
#[test]
fn a_signal_ends_the_copying_before_the_next_piece() {
    let folder = tempfile::tempdir().unwrap();
    let original = original(&folder, 10);
    let target = tempfile::tempfile().unwrap();
    let held = Told::begin();
    let is_read = held.0.has_stopped();
    let copied = copy_range(&original.file, &target, 0..10, &held.0);
    held.end();
    assert_eq!((is_read, target.metadata().unwrap().len()), (true, 0));
    assert_eq!(copied.unwrap_err().kind(), io::ErrorKind::Interrupted);
}

/// A signal that says to stop, of this thread only: others run other tests.
struct Told(Held);

impl Told {
    fn begin() -> Self {
        let held = Held::begin().unwrap();
        signal::raise(SIGUSR1).unwrap();
        Self(held)
    }

    /// Whether the signal was read here or is still to be read. It does not end this process.
    fn end(mut self) -> bool {
        let has_stopped = self.0.has_stopped();
        signal::restore(&self.0.hand_over().unwrap()).unwrap();
        has_stopped
    }
}
