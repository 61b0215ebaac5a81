//! Tests of stops that the world refuses, prevents or has already made. The process runs on, or
//! stays as it was, and the ledger says so.

use std::fs;
use std::os::unix::fs::symlink;

use rondpoint_core::Pid;

use super::*;
use crate::sleeper::Sleeper;

const LONG: Duration = Duration::from_secs(1000);

/// A target of this machine, with what a captured `/proc` tells of it.
struct Told {
    folder: tempfile::TempDir,
    root: Root,
    target: Sleeper,
    ledger: LedgerFile,
}

impl Told {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path());
        let target = Sleeper::start();
        let ledgers = folder.path().join("ledgers");
        let ledger = LedgerFile::create(&ledgers, &Root::live()).unwrap();
        fs::create_dir_all(root.in_proc(format!("{0}/task/{0}", target.pid()))).unwrap();
        Self { folder, root, target, ledger }
    }

    /// The target is in this state, and so is its thread.
    fn state(&self, process: char, thread: char) {
        let pid = self.target.pid();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (name, fields) = stat.rsplit_once(") ").unwrap();
        let put = |path: String, state: char| {
            fs::write(self.root.in_proc(path), format!("{name}) {state}{}", &fields[1..])).unwrap();
        };
        put(format!("{pid}/stat"), process);
        put(format!("{pid}/task/{pid}/stat"), thread);
    }

    /// The target is alone in a cgroup whose files say this.
    fn cgroup(&self, switch: &str, events: &str) {
        let pid = self.target.pid();
        let own = self.folder.path().join("cgroups/own");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(self.root.in_proc("self")).unwrap();
        let mounted = own.parent().unwrap().display();
        let mount = format!("41 31 0:38 / {mounted} rw - cgroup2 cgroup2 rw\n");
        fs::write(self.root.in_proc("self/mountinfo"), mount).unwrap();
        fs::write(self.root.in_proc(format!("{pid}/cgroup")), "0::/own\n").unwrap();
        fs::write(own.join("cgroup.procs"), format!("{pid}\n")).unwrap();
        fs::write(own.join("cgroup.freeze"), switch).unwrap();
        fs::write(own.join("cgroup.events"), events).unwrap();
    }

    fn freeze(&mut self) -> Result<Freeze, LinuxError> {
        freeze(&self.root, self.target.identity(), LONG, &mut self.ledger)
    }

    /// Lines in the ledger after that of the manager.
    fn lines(&self) -> usize {
        fs::read_to_string(self.ledger.path()).unwrap().lines().count() - 1
    }

    fn goes_on(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.target.is_stopped() {
            assert!(Instant::now() < deadline, "it is still stopped");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_cgroup_that_others_have_frozen_or_are_about_to_freeze_is_left_to_them() {
    let mut told = Told::new();
    told.state('S', 'S');
    for (switch, events) in [("0", "frozen 1\n"), ("1", "frozen 0\n"), ("1", "frozen 1\n")] {
        told.cgroup(switch, events);
        let found = told.freeze().unwrap();
        assert!(matches!(found, Freeze::AlreadyStopped), "{switch} {events} {found:?}");
        let now = fs::read_to_string(told.folder.path().join("cgroups/own/cgroup.freeze"));
        assert_eq!((now.unwrap().as_str(), told.lines()), (switch, 0));
    }
}

#[test]
fn a_target_that_others_have_stopped_is_left_to_them_whichever_thread_lives() {
    let mut told = Told::new();
    let process = told.target.identity();
    let state = |told: &Told| state(&told.root, process).unwrap();
    assert_eq!(state(&told), None);
    for (main, thread, expected) in [('S', 'T', 'S'), ('T', 'S', 'T'), ('Z', 'T', 'T')] {
        told.state(main, thread);
        assert_eq!(state(&told), Some(expected));
    }
    told.state('T', 'T');
    assert!(matches!(told.freeze(), Ok(Freeze::AlreadyStopped)));
    assert_eq!(told.lines(), 0);
    told.state('Z', 'Z');
    assert_eq!(state(&told), None, "no thread lives");
    assert!(matches!(told.freeze(), Ok(Freeze::Gone)));
}

#[test]
fn a_target_that_does_not_stop_in_time_goes_on_and_the_ledger_says_so() {
    let mut told = Told::new();
    told.state('R', 'R');
    let refused = told.freeze().unwrap_err().to_string();
    assert!(refused.contains("it did not stop within 2 s"), "{refused}");
    told.goes_on();
    assert_eq!(told.lines(), 2, "the freeze, the thaw");
}

#[test]
fn a_target_that_ends_while_it_is_being_stopped_is_gone_and_the_ledger_says_so() {
    let mut told = Told::new();
    let process = told.target.identity();
    let handle = watch_end(process.pid.0 as i32).unwrap();
    let farewell = told.ledger.freeze(process, Means::Signal).unwrap();
    // Nothing of it is in `/proc` any more.
    fs::remove_dir_all(&told.root.proc).unwrap();
    let found = by_signal(&told.root, process, handle, farewell, LONG).unwrap();
    assert!(matches!(found, Freeze::Gone), "{found:?}");
    told.goes_on();
    assert_eq!(told.lines(), 2, "the freeze, the thaw");
}

/// Writing into it fails, as where a cgroup was removed.
fn broken(folder: &std::path::Path) -> Freezer {
    symlink("/dev/full", folder.join("cgroup.freeze")).unwrap();
    fs::write(folder.join("cgroup.events"), "frozen 1\n").unwrap();
    Freezer::open(folder).unwrap()
}

#[test]
fn a_cgroup_whose_switch_fails_is_not_taken_for_a_frozen_one() {
    let mut told = Told::new();
    let process = told.target.identity();
    let handle = watch_end(process.pid.0 as i32).unwrap();
    let farewell = told.ledger.freeze(process, Means::Cgroup).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let begin = Instant::now();
    let found = by_cgroup(&handle, broken(folder.path()), farewell, LONG).unwrap();
    assert!(found.is_none() && begin.elapsed() < PATIENCE);
}

#[test]
fn a_thaw_that_fails_is_told_and_not_written_down() {
    let mut told = Told::new();
    let process = told.target.identity();
    let farewell = told.ledger.freeze(process, Means::Cgroup).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let freezer = broken(folder.path());
    // A child that another test forks meanwhile may hold the leash, so the time ends it at last.
    let limit = Duration::from_secs(10);
    let guardian = guardian::guard(Deed::WriteZero(freezer.switch()), farewell.line(), limit);
    let guardian = guardian.unwrap();
    let number = guardian.process;
    let (freezer, guardian) = (Some(freezer), Some(guardian));
    let process = watch_end(process.pid.0 as i32).unwrap();
    let frozen = Frozen { process, freezer, guardian, farewell, since: Instant::now() };
    assert_eq!(frozen.thaw().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    // The guardian has tried, too.
    crate::syscall::process::wait(number).unwrap();
    assert_eq!(told.lines(), 1, "the freeze alone: a restore has to try again");
}

/// The number of an ended process is none to be frozen.
#[test]
fn a_process_that_has_ended_is_gone_before_anything_is_written_down() {
    let mut told = Told::new();
    told.state('S', 'S');
    let nobody = Identity { pid: Pid(5_000_000), started: told.target.identity().started };
    let found = freeze(&told.root, nobody, LONG, &mut told.ledger).unwrap();
    assert!(matches!(found, Freeze::Gone), "{found:?}");
    assert_eq!(told.lines(), 0);
}
