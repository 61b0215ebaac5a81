//! Entries of the lists as patterns. An entry that no process can match is refused: an exclusion
//! that excludes nothing would go unnoticed.

use anyhow::{Context as _, Result, bail};
use glob::Pattern;

use crate::targets::NAME_BYTES;

/// What a pattern may have beside text.
const WILDCARDS: [char; 3] = ['*', '?', '['];
/// Where the cgroups of version 2 are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// Endings of units that have processes of their own.
const ENDINGS: [&str; 2] = [".service", ".scope"];
/// Endings of all units, with which systemctl(1) takes a name as whole.
const UNITS: [&str; 11] = [
    ".service",
    ".scope",
    ".socket",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".target",
    ".path",
    ".timer",
    ".slice",
];

/// A path of cgroups.
///
/// # Errors
/// It does not begin at the root, goes up as paths do that a container reads, or is malformed.
pub(super) fn cgroup(text: &str) -> Result<Pattern> {
    if !text.starts_with(['/', '*']) {
        bail!("expected a path from the root, as /{text} or */{text}");
    }
    if text.split('/').any(|part| part == "..") {
        bail!("expected a path from the top of /sys/fs/cgroup, without `..`");
    }
    if let Some(rest) =
        text.strip_prefix(MOUNT).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    {
        bail!("expected a path from the top of {MOUNT}, as /{}", rest.trim_matches('/'));
    }
    let path = text.trim_end_matches('/');
    if path.split('/').skip(1).any(|part| part.is_empty() || part == ".") {
        bail!("expected a path without empty parts and `.`");
    }
    pattern(if path.is_empty() { "/" } else { path })
}

/// A unit of systemd. A name without an ending is that of a service, as for systemctl.
///
/// # Errors
/// No service and no scope can have that name, or it is malformed.
pub(super) fn unit(text: &str) -> Result<Pattern> {
    if text.ends_with(".slice") {
        bail!("a slice is no unit with processes; expected cgroups = [\"*/{text}\"]");
    }
    let has_ending = UNITS.iter().any(|ending| text.ends_with(ending));
    let is_whole = has_ending || text.contains(WILDCARDS);
    let name = if is_whole { text.to_owned() } else { format!("{text}.service") };
    if text.is_empty() || text.contains('/') || !may_be_a_unit(&name) {
        bail!("expected the name of a service or a scope, such as nginx.service, or a pattern");
    }
    pattern(&name)
}

/// Whether a name that matches may end as a service or a scope does.
fn may_be_a_unit(name: &str) -> bool {
    let end = name.rfind(['*', '?', ']']).map_or(0, |last| last + 1);
    match &name[end..] {
        "" => name.contains('*'),
        rest if end == 0 => ENDINGS.iter().any(|ending| rest.ends_with(ending)),
        rest => ENDINGS.iter().any(|ending| rest.ends_with(ending) || ending.ends_with(rest)),
    }
}

/// The name of a command.
///
/// # Errors
/// Every name that matches is longer than the kernel's, or it is malformed.
pub(super) fn command(text: &str) -> Result<Pattern> {
    let found = pattern(text)?;
    if text.is_empty() {
        bail!("expected the name of a command, or a pattern");
    }
    if shortest(text) > NAME_BYTES {
        let begin = text.split(WILDCARDS).next().unwrap_or_default();
        let expected = match begin.is_char_boundary(NAME_BYTES) {
            true => begin[..NAME_BYTES].to_owned(),
            false => format!("a pattern of at most {NAME_BYTES} bytes"),
        };
        bail!("the kernel keeps {NAME_BYTES} bytes of a name; expected {expected}");
    }
    Ok(found)
}

/// Bytes of the shortest name that matches a pattern. A class of characters counts as one byte.
fn shortest(text: &str) -> usize {
    let (mut bytes, mut rest) = (0, text);
    while let Some(first) = rest.chars().next() {
        // A `]` that comes first is a member of the class.
        let inside = if rest.starts_with("[!") { 3 } else { 2 };
        let class = || rest.get(inside..)?.find(']').map(|end| inside + end + 1);
        let class = (first == '[').then(class).flatten();
        bytes += match first {
            '*' => 0,
            '?' | '[' => 1,
            other => other.len_utf8(),
        };
        rest = &rest[class.unwrap_or(first.len_utf8())..];
    }
    bytes
}

/// The identifier of a container, of which the beginning is enough, as for the programs that run
/// containers.
///
/// # Errors
/// No identifier begins like that, or it is malformed.
pub(super) fn container(text: &str) -> Result<Pattern> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !text.contains(WILDCARDS) && (text.is_empty() || !is_hex) {
        bail!("expected the beginning of an identifier: hexadecimal digits");
    }
    pattern(&format!("{}*", text.trim_end_matches('*')))
}

fn pattern(text: &str) -> Result<Pattern> {
    Pattern::new(text).context("malformed pattern")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(found: Result<Pattern>) -> String {
        match found {
            Ok(found) => found.to_string(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn a_cgroup_is_a_path_from_the_root_with_or_without_a_last_slash() {
        for (written, meant) in [
            ("/system.slice/", "/system.slice"),
            ("/", "/"),
            ("*/machine.slice", "*/machine.slice"),
            ("/sys/fs/cgroups-of-mine", "/sys/fs/cgroups-of-mine"),
            ("/sys/fs/cgroup/a/b", "expected a path from the top of /sys/fs/cgroup, as /a/b"),
            ("/sys/fs/cgroup", "expected a path from the top of /sys/fs/cgroup, as /"),
            ("/a//b", "expected a path without empty parts and `.`"),
            ("/a/./b", "expected a path without empty parts and `.`"),
            (
                "/../../kubepods.slice",
                "expected a path from the top of /sys/fs/cgroup, without `..`",
            ),
            (
                "machine.slice",
                "expected a path from the root, as /machine.slice or */machine.slice",
            ),
        ] {
            assert_eq!(said(cgroup(written)), meant, "{written}");
        }
    }

    #[test]
    fn a_unit_without_an_ending_is_a_service_and_a_slice_is_a_cgroup() {
        let expected = "expected the name of a service or a scope, such as nginx.service, or a \
                        pattern";
        for (written, meant) in [
            ("postgresql", "postgresql.service"),
            ("pg@1.service", "pg@1.service"),
            ("session-3.scope", "session-3.scope"),
            ("postgresql*", "postgresql*"),
            ("*-db.service", "*-db.service"),
            ("*vice", "*vice"),
            ("pg?", expected),
            ("*.timer", expected),
            ("nginx.socket", expected),
            ("org.gnome.Shell", "org.gnome.Shell.service"),
            ("/system.slice/nginx.service", expected),
            ("", expected),
            (
                "machine.slice",
                "a slice is no unit with processes; expected cgroups = [\"*/machine.slice\"]",
            ),
        ] {
            assert_eq!(said(unit(written)), meant, "{written}");
        }
    }

    #[test]
    fn a_command_that_is_longer_than_the_kernels_names_is_refused_with_what_to_write() {
        let short = "the kernel keeps 15 bytes of a name; expected prometheus-node";
        let none = "the kernel keeps 15 bytes of a name; expected a pattern of at most 15 bytes";
        for (written, meant) in [
            ("prometheus-node", "prometheus-node"),
            ("prometheus-node-exporter", short),
            ("prometheus-node-exp*", short),
            ("qemu-system-*", "qemu-system-*"),
            ("[a-z]-[]]-node-exp-*", "[a-z]-[]]-node-exp-*"),
            ("*-a-very-long-name-*", none),
            ("fourteen-bytesé-", none),
            ("a[", "malformed pattern"),
            ("", "expected the name of a command, or a pattern"),
        ] {
            assert!(said(command(written)).starts_with(meant), "{written}: {:?}", command(written));
        }
    }

    #[test]
    fn a_container_is_the_beginning_of_its_identifier_and_no_name() {
        let expected = "expected the beginning of an identifier: hexadecimal digits";
        let all = [
            ("1f2e", "1f2e*"),
            ("1f2e*", "1f2e*"),
            ("*", "*"),
            ("nginx", expected),
            ("", expected),
        ];
        for (written, meant) in all {
            assert_eq!(said(container(written)), meant, "{written}");
        }
    }
}
