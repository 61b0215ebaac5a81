//! The ledger of a killed manager, read back from the disk.

use std::os::unix::fs::PermissionsExt;

use rondpoint_linux::ledger_file;

use crate::Target;

/// A ledger file.
pub(crate) const LEDGER: Target = Target { name: "ledger", run: ledger, seeds };

fn ledger(bytes: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).expect("it is ours");
    std::fs::write(folder.path().join("1-1.ledger"), bytes).expect("room for a small file");
    let legacy = ledger_file::left_behind(folder.path()).expect("a private folder");
    assert_eq!(legacy.left.len() + legacy.unusable.len(), 1, "it is read or named");
    let is_read = !legacy.left.is_empty();
    for left in legacy.left {
        let lines = bytes.split(|byte| *byte == b'\n').count();
        assert!(left.open.len() + left.frozen.len() + left.unknown_lines <= lines);
    }
    is_read
}

fn seeds() -> Vec<Vec<u8>> {
    let text = r#"{"entry":"manager","format":1,"pid":70,"started":1000}
{"entry":"mask","plan":1,"pid":71,"started":2000,"session":70,"tid":72,"born":2100,"at":3000,"before":"0-3","whole":true,"via":2,"given":"2-3"}
{"entry":"pages","plan":2,"pid":71,"started":2000,"pages":[[139637976727552,12,0],[139637976731648,21,1]]}
{"entry":"memory","plan":3,"pid":71,"started":2000,"nodes":[[0,1],[1,0]]}
{"entry":"own-mask","pid":71,"started":2000,"tid":72,"born":2100}
{"entry":"member","pid":73,"started":4000}
{"entry":"freeze","pid":71,"started":2000,"means":"signal"}
{"entry":"thaw","pid":71,"started":2000}
{"entry":"settled","pid":71,"plans":[2,3]}
"#;
    vec![text.into()]
}
