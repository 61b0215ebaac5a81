//! Ledgers on a real disk.

use std::os::unix::fs::PermissionsExt;

use rondpoint_core::plan::{Mechanism, PageMove};
use rondpoint_core::topology::synthetic;

use super::*;

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
            let left = left_behind(&path, &Root::live()).unwrap();
            assert!(left.is_empty(), "{left:?}");
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
    assert_eq!(left_behind(&folder, &Root::live()).unwrap(), [], "this manager lives");
    // The same file, as if another process had written it.
    let text = fs::read_to_string(&ledger.path).unwrap();
    let dead = text.replacen("\"started\":", "\"started\":1", 1) + "{\"entry\":\"pa";
    fs::write(folder.join("1.ledger"), dead).unwrap();
    let left = left_behind(&folder, &Root::live()).unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].bad_lines, 1);
    assert_eq!(left[0].open, entries(&[pages(2, 0x2000)]));
    assert_eq!(left[0].masks, Masks::of_ledger(&[mask(1)]));
    assert_eq!(left[0].masks.tasks().count(), 1);
    assert_eq!(left[0].frozen, [(process(8), Means::Cgroup)]);
    drop(stands);
    ledger.close().unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the dead one's");
}

#[test]
fn a_folder_that_others_may_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let error = left_behind(&folder, &Root::live()).unwrap_err();
    assert!(error.to_string().contains("nobody else may write"), "{error}");
    let error = LedgerFile::create(&folder, &Root::live()).unwrap_err();
    assert!(error.to_string().contains("nobody else may write"), "{error}");
    assert_eq!(left_behind(&directory.path().join("none"), &Root::live()).unwrap(), []);
}

#[test]
fn ledgers_lie_where_nobody_else_writes() {
    assert_eq!(folder(0, None), Path::new("/run/rondpoint"));
    assert_eq!(folder(5, Some(Path::new("/run/user/5"))), Path::new("/run/user/5/rondpoint"));
    assert_eq!(folder(5, None), Path::new("/tmp/rondpoint-5"));
}
