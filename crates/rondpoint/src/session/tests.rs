//! Tests of the caller, by the variables of sudo, pkexec and doas.

use super::caller::caller_of;
use super::*;

fn caller(set: &[(&str, &str)]) -> Result<Option<User>> {
    let find = |name: &str| set.iter().find(|(known, _)| *known == name);
    let passwd = || b"root:x:0:0::/:/bin/sh\nada:x:3999999999:3999999998::/:/bin/sh\n".to_vec();
    caller_of(|name| find(name).map(|(_, value)| OsString::from(value)), &passwd)
}

#[test]
fn a_caller_that_sudo_does_not_name_is_refused_and_never_root() {
    assert_eq!(caller(&[]).unwrap(), None, "root without sudo");
    for set in [
        &[("SUDO_UID", "1000")][..],
        &[("SUDO_GID", "1000")],
        &[("SUDO_USER", "eve")],
        &[("SUDO_UID", "1000"), ("SUDO_GID", "")],
        &[("SUDO_UID", "1000"), ("SUDO_GID", "-1")],
        &[("SUDO_UID", "1000"), ("SUDO_GID", "4294967295")],
        &[("SUDO_UID", "4294967295"), ("SUDO_GID", "1000")],
        &[("SUDO_UID", "+1000"), ("SUDO_GID", "1000")],
        &[("SUDO_UID", "eve"), ("SUDO_GID", "1000")],
    ] {
        let error = caller(set).unwrap_err().to_string();
        assert!(error.contains("expected the number that sudo sets"), "{error}");
    }
    let root = [("SUDO_UID", "0"), ("SUDO_GID", "0"), ("SUDO_USER", "root")];
    assert_eq!(caller(&root).unwrap(), None);
}

#[test]
fn a_caller_through_pkexec_or_doas_is_that_user_or_refused() {
    let ada = User { user: 3_999_999_999, group: 3_999_999_998, groups: vec![3_999_999_998] };
    for set in [("PKEXEC_UID", "3999999999"), ("DOAS_USER", "ada")] {
        assert_eq!(caller(&[set]).unwrap().as_ref(), Some(&ada), "{set:?}");
    }
    for set in [("PKEXEC_UID", "0"), ("DOAS_USER", "root")] {
        assert_eq!(caller(&[set]).unwrap(), None, "{set:?}");
    }
    for set in [("PKEXEC_UID", "1000"), ("PKEXEC_UID", ""), ("DOAS_USER", "eve")] {
        let error = caller(&[set]).unwrap_err().to_string();
        assert!(error.contains("expected a user of /etc/passwd"), "{error}");
    }
    let both = [("SUDO_UID", "0"), ("SUDO_GID", "0"), ("DOAS_USER", "ada")];
    assert_eq!(caller(&both).unwrap(), None, "sudo counts where it is set");
}

#[test]
fn a_caller_that_no_file_knows_keeps_its_numbers() {
    let set = [("SUDO_UID", "3999999999"), ("SUDO_GID", "3999999998")];
    let user = caller(&set).unwrap().expect("not root");
    let expected = User { user: 3_999_999_999, group: 3_999_999_998, groups: vec![3_999_999_998] };
    assert_eq!(user, expected);
}
