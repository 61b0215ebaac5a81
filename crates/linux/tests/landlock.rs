//! A command that reads files can change no file outside the folder that it writes to. A process of
//! its own, because the filter of system calls covers all its threads.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};

use landlock::{AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};
use rondpoint_linux::privileges::{Needs, keep_only};

/// Whether this kernel restricts files; without that the test could not fail.
fn has_landlock() -> bool {
    let strict = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    strict.handle_access(AccessFs::WriteFile).is_ok()
}

fn is_refused<T>(result: std::io::Result<T>) -> bool {
    result.err().is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn a_reader_of_files_writes_only_into_its_folder() {
    if !has_landlock() {
        println!("not tried: this kernel has no Landlock");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("written")).expect("ours");
    for name in ["outside", "opened", "written/old"] {
        fs::write(at(name), "before").expect("ours");
    }
    let mut opened = File::create(at("opened")).expect("ours");
    let refused = keep_only(&Needs::to_read(Some(&at("written/new"))));
    assert_eq!(refused, Vec::<String>::new());

    assert_eq!(fs::read(at("outside")).expect("any file may be read"), b"before");
    fs::write(at("written/new"), "x").expect("it is in the folder");
    fs::rename(at("written/new"), at("written/old")).expect("both are in the folder");
    opened.write_all(b"x").expect("it was open before");

    assert!(is_refused(fs::write(at("outside"), "x")));
    assert!(is_refused(fs::write(at("another"), "x")));
    assert!(is_refused(fs::remove_file(at("outside"))));
    let moved = fs::rename(at("written/old"), at("outside"));
    assert!(moved.is_err(), "a file leaves its folder");
    assert_eq!(fs::read(at("outside")).expect("it is there"), b"before");
}
