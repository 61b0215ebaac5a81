//! The user that called sudo, pkexec or doas.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use rondpoint_linux::parse::accounts;
use rondpoint_linux::syscall::process::{self, User};

/// The user that called sudo, under which a program is to run. `None` without sudo, or where root
/// called it.
///
/// # Errors
/// Root runs this under sudo, and sudo's variables do not say for whom: a program would run as root
/// by mistake.
pub(crate) fn caller() -> Result<Option<User>> {
    if process::effective_user() != 0 {
        return Ok(None);
    }
    caller_of(|name| std::env::var_os(name), &|| std::fs::read("/etc/passwd").unwrap_or_default())
}

/// The same from the variables that sudo, pkexec and doas set.
pub(super) fn caller_of(
    variable: impl Fn(&str) -> Option<OsString>,
    passwd: &dyn Fn() -> Vec<u8>,
) -> Result<Option<User>> {
    const ALL: [&str; 3] = ["SUDO_UID", "SUDO_GID", "SUDO_USER"];
    // pkexec(1) tells a number, doas(1) a name; none of them a group.
    const OTHERS: [&str; 2] = ["PKEXEC_UID", "DOAS_USER"];
    if ALL.iter().all(|name| variable(name).is_none()) {
        let set = OTHERS.iter().find_map(|name| Some((name, variable(name)?)));
        let Some((name, value)) = set else { return Ok(None) };
        let told = value.to_string_lossy();
        let (user, group) = accounts::user_of(&passwd(), &told).with_context(|| {
            format!(
                "{name} is {told}; expected a user of /etc/passwd. Nothing was started, for it \
                 would run as root; to want that: env -u {name} rondpoint …"
            )
        })?;
        return Ok((user != 0).then(|| User::with_number(user, group)));
    }
    let number = |name: &str| {
        let text = variable(name);
        let told = text.as_ref().map_or("not set".into(), |text| text.to_string_lossy());
        // The largest number means "no change" to setuid(2).
        let found = told.parse::<u32>().ok().filter(|&id| id != u32::MAX && !told.contains('+'));
        found.with_context(|| {
            format!(
                "{name} is {told}; expected the number that sudo sets. Nothing was started, for it \
                 would run as root; to want that: env -u SUDO_UID -u SUDO_GID -u SUDO_USER \
                 rondpoint …"
            )
        })
    };
    let (user, group) = (number("SUDO_UID")?, number("SUDO_GID")?);
    Ok((user != 0).then(|| User::with_number(user, group)))
}
