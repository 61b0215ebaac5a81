//! Ledgers on a real disk.

use std::os::unix::fs::PermissionsExt;

use rondpoint_core::Nanos;
use rondpoint_core::plan::{Action, Inverse, Mechanism, PageMove};
use rondpoint_core::topology::synthetic;
use rustix::fs::{MemfdFlags, SealFlags};

use super::*;
use crate::act::masks::Masks;

impl LedgerFile {
    /// A ledger on a full disk.
    pub(crate) fn full() -> Self {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        Self { file, path, compact_at: COMPACT }
    }
}

fn pages(plan: u64, address: u64) -> Inverse {
    let page = PageMove { address, shift: 12, from: 1, to: 0 };
    let action =
        Action::MovePages { pid: Pid(7), mechanism: Mechanism::Interleaving, pages: vec![page] };
    Inverse { plan, step: 0, action: Some(action), exact: false }
}

fn mask(plan: u64) -> Entry {
    Entry::Mask(MaskEntry {
        plan,
        pid: 7,
        started: 5,
        session: 3,
        tid: 8,
        born: 6,
        at: 9,
        before: "0-2,64".to_string(),
        whole: false,
        via: Some(1),
        given: "0-1".to_string(),
    })
}

fn entries(inverses: &[Inverse]) -> Vec<Entry> {
    let machine = synthetic::parse("node:2 core:2").unwrap();
    inverses.iter().filter_map(|inverse| Entry::of(inverse, Nanos(5), &machine)).collect()
}

#[test]
fn a_ledger_that_is_just_being_made_is_nobodys_legacy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledgers");
    make_private(&path).unwrap();
    std::thread::scope(|scope| {
        let starts = scope.spawn(|| {
            (0..500).for_each(|_| {
                LedgerFile::create(&path, &Root::live()).unwrap().close().unwrap();
            });
        });
        while !starts.is_finished() {
            let legacy = left_behind(&path).unwrap();
            assert!(legacy.left.is_empty() && legacy.unusable.is_empty(), "{legacy:?}");
        }
    });
}

#[test]
fn what_a_dead_manager_left_is_told_last_change_first_without_what_was_settled() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let mut ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
    ledger.write(&entries(&[pages(1, 0x1000)])).unwrap();
    ledger.write(&[mask(1)]).unwrap();
    let process = |pid| Identity { pid: Pid(pid), started: Nanos(5) };
    let farewell = ledger.freeze(process(7), Means::Signal).unwrap();
    let stands = ledger.freeze(process(8), Means::Cgroup).unwrap();
    farewell.write().unwrap();
    ledger.write(&entries(&[pages(2, 0x2000)])).unwrap();
    ledger.write(&[Entry::Settled { pid: 7, plans: vec![1] }]).unwrap();
    assert!(left_behind(&folder).unwrap().left.is_empty(), "this manager lives");
    // The same file, as if another process had written it.
    let text = fs::read_to_string(&ledger.path).unwrap();
    let dead = text + "{\"entry\":\"pa";
    fs::write(folder.join("1.ledger"), dead).unwrap();
    let left = left_behind(&folder).unwrap().left;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].unknown_lines, 0, "what was cut off was never done");
    assert_eq!(left[0].open, entries(&[pages(2, 0x2000)]));
    assert_eq!(left[0].masks, Masks::of_ledger(&[mask(1)]));
    assert_eq!(left[0].masks.tasks().count(), 1);
    assert_eq!(left[0].frozen, [(process(8), Means::Cgroup)]);
    drop(stands);
    let path = ledger.path().to_path_buf();
    ledger.close().unwrap();
    assert!(!path.exists());
}

/// Plans of two managed trees may have the same number.
#[test]
fn what_is_settled_of_one_process_is_left_to_undo_of_another() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let mut dead = LedgerFile::create(&folder, &Root::live()).unwrap();
    dead.write(&entries(&[pages(1, 0x1000)])).unwrap();
    dead.write(&[Entry::Settled { pid: 8, plans: vec![1] }]).unwrap();
    drop(dead);
    assert_eq!(left_behind(&folder).unwrap().left[0].open, entries(&[pages(1, 0x1000)]));
}

/// A newer version may have written it: what it says is not to be lost.
#[test]
fn a_ledger_that_is_not_understood_is_set_aside_and_never_removed() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
    let head = fs::read_to_string(ledger.path()).unwrap();
    ledger.close().unwrap();
    let path = folder.join("1.ledger");
    fs::write(&path, format!("{head}{{\"entry\":\"of-tomorrow\"}}\n")).unwrap();
    let left = left_behind(&folder).unwrap().left;
    assert_eq!(left[0].unknown_lines, 1);
    let aside = left[0].settle().expect("kept");
    assert!(aside.exists() && !path.exists());
    fs::rename(&aside, &path).unwrap();
    fs::create_dir(&aside).unwrap();
    assert_eq!(left[0].settle(), Some(path.clone()), "no other name for it");
    assert!(path.exists());
    fs::remove_dir(&aside).unwrap();
    fs::rename(&path, &aside).unwrap();
    let next = left_behind(&folder).unwrap();
    assert!(next.left.is_empty() && next.unusable.is_empty(), "it is told once");

    let other = head.replace(&format!("\"format\":{FORMAT}"), "\"format\":99");
    assert_ne!(other, head);
    fs::write(&path, other).unwrap();
    let legacy = left_behind(&folder).unwrap();
    assert!(legacy.left.is_empty(), "its entries may mean something else");
    assert!(legacy.unusable[0].to_string().contains("format 99, this program reads"));
    assert!(path.exists());
}

#[test]
fn copies_that_a_dead_manager_made_are_to_be_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let unreplicate = |plan, addresses: &[u64]| {
        let page = |&address: &u64| PageMove { address, shift: 12, from: 0, to: 0 };
        let action =
            Action::Unreplicate { pid: Pid(7), pages: addresses.iter().map(page).collect() };
        Inverse { plan, step: 0, action: Some(action), exact: false }
    };
    let mut dead = LedgerFile::create(&folder, &Root::live()).unwrap();
    dead.write(&entries(&[unreplicate(1, &[0x9000]), unreplicate(2, &[0x1000, 0x2000])])).unwrap();
    dead.write(&[Entry::Settled { pid: 7, plans: vec![1] }]).unwrap();
    drop(dead);
    let ranges = vec![(0x1000, 0x3000)];
    assert_eq!(
        left_behind(&folder).unwrap().left[0].open,
        [Entry::Copies { plan: 2, pid: 7, started: 5, ranges }]
    );
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let error = LedgerFile::create(&folder, &Root::live()).unwrap_err();
    assert!(error.to_string().contains("only this user may write"), "{error}");
    let error = left_behind(&folder).unwrap_err();
    assert!(error.to_string().contains("only this user may write"), "{error}");
    assert!(left_behind(&directory.path().join("none")).unwrap().left.is_empty());
}

#[test]
fn a_later_manager_with_the_same_number_leaves_a_dead_ones_ledger_alone() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let mut dead = LedgerFile::create(&folder, &Root::live()).unwrap();
    dead.write(&entries(&[pages(1, 0x1000)])).unwrap();
    // The lock goes, the file stays: as after SIGKILL.
    drop(dead);
    let later = LedgerFile::create(&folder, &Root::live()).unwrap();
    let left = left_behind(&folder).unwrap().left;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].open, entries(&[pages(1, 0x1000)]));
    assert!(left_behind(&folder).unwrap().left.is_empty(), "the first restore holds it");
    drop(left);
    later.close().unwrap();
    assert_eq!(left_behind(&folder).unwrap().left.len(), 1);
}

#[test]
fn what_was_never_finished_is_taken_away() {
    let directory = tempfile::tempdir().unwrap();
    make_private(directory.path()).unwrap();
    let path = directory.path().join("7-5-1.new");
    fs::write(&path, "{\"entry\":\"man").unwrap();
    assert!(left_behind(directory.path()).unwrap().left.is_empty());
    assert!(!path.exists());
}

#[test]
fn links_pipes_and_giants_are_named_unread_and_hide_no_ledger() {
    let directory = tempfile::tempdir().unwrap();
    make_private(directory.path()).unwrap();
    let name = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink("/etc/passwd", name("link.ledger")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(name("pipe.ledger")).status().unwrap();
    assert!(made.success());
    File::create(name("giant.ledger")).unwrap().set_len(1 << 40).unwrap();
    fs::write(name("7-5-1.ledger"), line(&mask(1))).unwrap();
    let legacy = left_behind(directory.path()).unwrap();
    assert_eq!(legacy.left.len(), 1);
    assert_eq!(legacy.left[0].masks.tasks().count(), 1);
    let told = |name: &str| legacy.unusable.iter().any(|error| error.to_string().contains(name));
    assert!(["link", "pipe", "giant"].into_iter().all(told), "{:?}", legacy.unusable);
}

#[test]
fn ledgers_lie_where_nobody_else_writes() {
    let path = |text: &'static str| Some(Path::new(text));
    let of = |places: &Places<'_>| folder(places).map(|path| path.display().to_string());
    let user = Places { runtime: path("/run/user/5"), home: path("/h"), ..Places::default() };
    assert_eq!(of(&user).unwrap(), "/run/user/5/rondpoint");
    let root = Places { owns_run: true, ..user };
    assert_eq!(of(&root).unwrap(), "/run/rondpoint");
    let beside = Places { is_services: true, ..root };
    assert_eq!(of(&beside).unwrap(), "/run/rondpoint-root", "the service's user owns the other");
    let bare = Places { runtime: None, ..user };
    assert_eq!(of(&bare).unwrap(), "/h/.local/state/rondpoint");
    assert_eq!(of(&Places { state: path("/s"), ..bare }).unwrap(), "/s/rondpoint");
    assert_eq!(of(&Places { home: path("relative"), ..Places::default() }), None);
}

/// Root counts the ledgers of the daemon's user and reads none of them.
#[test]
fn ledgers_that_nobody_holds_are_counted_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    assert_eq!(left_by_others(&at("absent")), 0);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let held = LedgerFile::create(folder.path(), &Root::live()).unwrap();
    fs::write(at("control"), "").unwrap();
    fs::create_dir(at("folder.ledger")).unwrap();
    std::os::unix::fs::symlink(at("control"), at("link.ledger")).unwrap();
    assert_eq!(left_by_others(folder.path()), 0);
    fs::write(at("left.ledger"), "").unwrap();
    assert_eq!(left_by_others(folder.path()), 1);
    drop(held);
}

#[test]
fn what_others_own_or_may_write_and_what_is_no_folder_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledgers");
    fs::create_dir(&path).unwrap();
    let is_refused = |mode| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        check_private(&path).is_err()
    };
    assert_eq!([0o700, 0o755, 0o720, 0o702].map(is_refused), [false, false, true, true]);
    is_refused(0o700);
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(check_private(&file).is_err());
    if effective_user() == 0 {
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        assert!(check_private(&path).is_err(), "of another user");
    } else {
        println!("not tried further: only root gives a folder to another user");
    }
}

#[test]
fn a_ledger_of_another_user_is_named_unread_and_other_files_are_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    make_private(directory.path()).unwrap();
    fs::write(directory.path().join("notes.txt"), "no ledger").unwrap();
    fs::create_dir(directory.path().join("folder")).unwrap();
    let legacy = left_behind(directory.path()).unwrap();
    assert!(legacy.left.is_empty() && legacy.unusable.is_empty(), "{legacy:?}");
    let ledger = directory.path().join("7-5-1.ledger");
    fs::write(&ledger, line(&mask(1))).unwrap();
    if effective_user() == 0 {
        std::os::unix::fs::chown(&ledger, Some(1), None).unwrap();
        let legacy = left_behind(directory.path()).unwrap();
        assert_eq!((legacy.left.len(), legacy.unusable.len()), (0, 1));
        assert!(ledger.exists());
    } else {
        println!("not tried further: only root gives a file to another user");
    }
}

#[test]
fn a_manager_gives_up_where_all_names_are_taken_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    // As managers of this number and start leave them in other namespaces.
    for attempt in 1..=ATTEMPTS {
        let ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
        let name = ledger.path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(name.ends_with(&format!("-{attempt}")), "{name}");
    }
    let error = LedgerFile::create(&folder, &Root::live()).unwrap_err();
    assert!(
        matches!(&error, LinuxError::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists),
        "{error}"
    );
    assert_eq!(left_behind(&folder).unwrap().left.len(), ATTEMPTS as usize);
    LedgerFile::create_for(&folder, &Root::live(), Pid(9)).expect("another tree's name");
}

#[test]
fn roots_ledgers_are_in_run_and_those_of_others_are_not() {
    let Ok(run) = fs::symlink_metadata("/run") else { return };
    let in_run = own_folder().is_some_and(|folder| folder.parent() == Some(Path::new("/run")));
    assert_eq!(in_run, effective_user() == 0 && run.uid() == 0);
}

#[test]
fn run_is_for_the_machines_root_alone_and_must_be_looked_at() {
    let error = |errno| Err(io::Error::from_raw_os_error(errno));
    let of = |owner, user| owns_run(Ok(owner), user);
    let found = [of(0, 0), of(0, 7), of(65534, 0), of(7, 7)];
    assert_eq!(found, [Some(true), Some(false), Some(false), Some(false)]);
    assert_eq!(owns_run(error(libc::ENOENT), 0), Some(false));
    assert_eq!(owns_run(error(libc::EACCES), 0), None, "ledgers may be there");
    let own = tempfile::tempdir().unwrap();
    assert!(!is_of_another(own.path()) && !is_of_another(&own.path().join("absent")));
    if effective_user() == 0 {
        std::os::unix::fs::chown(own.path(), Some(1), None).unwrap();
        assert!(is_of_another(own.path()));
    } else {
        println!("not tried further: only root gives a folder to another user");
    }
}

#[test]
fn a_line_that_a_full_disk_cut_is_taken_away_again() {
    // It may not grow, so that of a line across its end the first part is written.
    let (size, before) = (8192, 4000);
    let file = File::from(rustix::fs::memfd_create("full", MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(size).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).unwrap();
    let mut ledger = LedgerFile { path: PathBuf::from("full"), file, compact_at: COMPACT };
    ledger.file.seek(SeekFrom::Start(before)).unwrap();
    ledger.append(&[b'x'; 5000]).unwrap_err();
    assert_eq!(ledger.file.metadata().unwrap().len(), before, "the last line is whole");
    assert_eq!(ledger.file.stream_position().unwrap(), before, "the next leaves no hole");
}

#[test]
fn nothing_is_written_into_a_ledger_that_was_removed() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let mut ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
    ledger.write(&[mask(1)]).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert!(ledger.is_lost());
    ledger.write(&[mask(2)]).unwrap_err();
    ledger.close().unwrap();
}

#[test]
fn nothing_is_written_into_a_ledger_that_was_moved_and_no_other_file_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, away) = (directory.path().join("ledgers"), directory.path().join("away"));
    let mut ledger = LedgerFile::create(&folder, &Root::live()).unwrap();
    ledger.write(&[mask(1)]).unwrap();
    fs::rename(&folder, &away).unwrap();
    assert!(ledger.is_lost());
    ledger.write(&[mask(2)]).unwrap_err();
    // Another folder has its name, and another file.
    make_private(&folder).unwrap();
    fs::write(ledger.path(), "another's").unwrap();
    assert!(ledger.is_lost());
    ledger.write(&[mask(2)]).unwrap_err();
    let path = ledger.path().to_path_buf();
    let moved = away.join(path.file_name().unwrap());
    assert_eq!(fs::read_to_string(&moved).unwrap().lines().count(), 2, "the manager, a mask");
    ledger.close().unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), "another's");
    // All was put back: a later restore from there has nothing to do.
    assert_eq!(fs::read_to_string(moved).unwrap(), "");
}

/// In a process of its own, which may write no byte into a file: a full disk does the same.
#[test]
fn a_ledger_that_has_no_room_leaves_no_file() {
    const FOLDER: &str = "RONDPOINT_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        for _ in 0..2 * ATTEMPTS {
            let error = LedgerFile::create(Path::new(&folder), &Root::live()).unwrap_err();
            assert_eq!(error.errno(), Some(libc::EFBIG), "{error}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledgers");
    let own = std::thread::current().name().unwrap().to_string();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' XFSZ && ulimit -f 0 && exec \"$@\"", "sh"]);
    command.arg(std::env::current_exe().unwrap()).args([own.as_str(), "--exact"]);
    let output = command.env(FOLDER, &path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
}

/// The own ledger of this process with one mask, as text before and after its namespaces.
fn with_namespaces(folder: &Path) -> (String, String, String) {
    let ledger = LedgerFile::create(folder, &Root::live()).unwrap();
    let text = fs::read_to_string(ledger.path()).unwrap() + &line(&mask(1));
    ledger.close().unwrap();
    let (before, behind) = text.split_once("\"namespaces\":\"").expect("they are told");
    let (words, rest) = behind.split_once('"').unwrap();
    (format!("{before}\"namespaces\":\""), words.to_string(), format!("\"{rest}"))
}

/// Process numbers and start times mean other processes there.
#[test]
fn a_ledger_of_other_namespaces_is_told_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let (before, own, rest) = with_namespaces(&folder);
    let path = folder.join("1.ledger");
    let found = |text: &str| {
        // A new file each time: a child that another test has just forked may hold the old one.
        let _ = fs::remove_file(&path);
        fs::write(&path, text).unwrap();
        let legacy = left_behind(&folder).unwrap();
        let told = legacy.unusable.first().map(ToString::to_string);
        (legacy.left.len(), told.unwrap_or_default())
    };
    assert_eq!(found(&format!("{before}{own}{rest}")), (1, String::new()));
    let old = format!("{before}{own}{rest}").replace(&format!(",\"namespaces\":\"{own}\""), "");
    assert!(!old.contains("namespaces"), "{old}");
    assert_eq!(found(&old), (1, String::new()), "of an older version");
    let pid_namespace = own.split_once(' ').unwrap().0;
    // The kernel rounds start times, so these cannot be converted.
    let other = format!("{pid_namespace} boottime 12345 5");
    let (left, told) = found(&format!("{before}{other}{rest}"));
    assert_eq!(left, 0, "{other}");
    assert!(told.contains("in other namespaces") && told.contains(&other), "{told}");
    assert!(path.exists());
}

#[test]
fn a_ledger_of_another_time_namespace_names_processes_by_their_times_here() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let (before, own, rest) = with_namespaces(&folder);
    let (pid_namespace, offset) = own.split_once(" boottime ").unwrap();
    let seconds: i64 = offset.split_once(' ').unwrap().0.parse().unwrap();
    let theirs = format!("{pid_namespace} boottime {} 0", seconds - 1000);
    fs::write(folder.join("1.ledger"), format!("{before}{theirs}{rest}")).unwrap();
    let legacy = left_behind(&folder).unwrap();
    assert!(legacy.unusable.is_empty(), "{legacy:?}");
    let Entry::Mask(there) = mask(1) else { unreachable!("it is one") };
    let later = |time: u64| time + 1_000_000_000_000;
    let (started, born, at) = (later(there.started), later(there.born), later(there.at));
    let here = Entry::Mask(MaskEntry { started, born, at, ..there });
    assert_eq!(legacy.left[0].masks, Masks::of_ledger(&[here]));
    assert_eq!(legacy.left[0].unknown_lines, 0);
}

/// A container's only program may be a manager. The kernel ends the container with it.
#[test]
fn a_ledger_of_a_namespace_that_ended_with_its_manager_is_set_aside_and_not_undone() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ledgers");
    let (before, _, rest) = with_namespaces(&folder);
    let number = format!("\"pid\":{},", std::process::id());
    assert!(before.contains(&number), "{before}");
    let text = before.replace(&number, "\"pid\":1,") + "pid:[7] boottime 0 0" + &rest;
    let path = folder.join("1.ledger");
    fs::write(&path, &text).unwrap();
    let legacy = left_behind(&folder).unwrap();
    assert!(legacy.left.is_empty() && legacy.unusable.is_empty(), "{legacy:?}");
    assert_eq!(legacy.ended.len(), 1);
    let aside = legacy.ended[0].set_aside().unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), text);
    assert!(!path.exists());
    drop(legacy);
    let next = left_behind(&folder).unwrap();
    assert!(next.ended.is_empty() && next.unusable.is_empty(), "it is told once");
}
