//! Rules about the text of single files.

use super::{Complaint, SourceFile};

/// Files and folders that may hold `unsafe`:
/// - `interpose`: the functions of the C library that the preloaded library replaces;
/// - `linux`: system calls;
/// - `replica`: the C interface, and the C library's memory of each thread (`cpu`);
/// - `replica`, too: versions that threads share without a lock (`generations`), and memory that is
///   mapped and handed out as slices (`mapping`, `source`);
/// - the lab's plugin: QEMU's plugin interface;
/// - the lab's init: PID 1;
/// - the lab's workloads: the one module that makes system calls.
const UNSAFE_ROOMS: [&str; 11] = [
    "crates/interpose/src/hooks.rs",
    "crates/linux/src/syscall",
    "crates/replica/src/c_interface",
    "crates/replica/src/cpu.rs",
    "crates/replica/src/generations.rs",
    "crates/replica/src/mapping.rs",
    "crates/replica/src/source.rs",
    "lab/plugin/src/",
    "lab/init/src/",
    "lab/workloads/src/pages",
    "lab/workloads/src/system",
];

/// Longest file without a reason, in lines.
const LONGEST_FILE: usize = 500;

/// Mark in the first line of a longer file, followed by the reason.
const LONG_MARK: &str = "long:";

/// Longest line of a comment, in characters: rustfmt's limit for code.
const LONGEST_COMMENT: usize = 100;

/// Module names that do not say what a module holds.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "common", "helper", "helpers", "manager", "misc"];

/// Registries and mirrors, which the user chooses. The names are split, so that this file does not
/// break the rule.
const HOSTS: [[&str; 2]; 8] = [
    ["deb.deb", "ian.org"],
    ["security.deb", "ian.org"],
    ["snapshot.deb", "ian.org"],
    ["static.crates", ".io"],
    ["index.crates", ".io"],
    ["docker", ".io"],
    ["ghcr", ".io"],
    ["quay", ".io"],
];

/// Folders of one person's machine, split for the same reason.
const HOMES: [[&str; 2]; 4] = [["/ho", "me/"], ["/ro", "ot/."], ["/Us", "ers/"], ["/wo", "rk/"]];

/// Whether a file is written by a tool or is the text of a licence.
fn is_foreign(file: &SourceFile) -> bool {
    file.path == "Cargo.lock" || file.path.starts_with("LICENSE-")
}

fn rust_files(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| file.extension() == "rs")
}

/// Complaints about lines that `is_wrong` finds wrong.
fn complain<'a>(
    files: impl Iterator<Item = &'a SourceFile>,
    expected: &str,
    is_wrong: impl Fn(&str) -> bool,
) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files {
        let wrong = file.lines().filter(|(_, line)| is_wrong(line));
        complaints.extend(wrong.map(|(number, _)| format!("{}:{number}: {expected}", file.path)));
    }
    complaints
}

/// `unsafe` is only in [`UNSAFE_ROOMS`].
pub(super) fn unsafe_stays_in_its_rooms(files: &[SourceFile]) -> Vec<Complaint> {
    let outside = rust_files(files)
        .filter(|file| !UNSAFE_ROOMS.iter().any(|room| file.path.starts_with(room)));
    complain(outside, "unsafe belongs in the rooms that xtask/src/tidy/text.rs names", |line| {
        let code = line.split("//").next().unwrap_or_default();
        // Strings and longer words (`unsafe_code`) do not count.
        let code = code.split('"').step_by(2);
        code.flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
            .any(|word| word == "unsafe")
    })
}

/// Files have at most [`LONGEST_FILE`] lines, unless the first line gives a reason.
pub(super) fn files_are_short(files: &[SourceFile]) -> Vec<Complaint> {
    let code = files.iter().filter(|file| matches!(file.extension(), "rs" | "c" | "h" | "sh"));
    let long = code.filter(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        file.text.lines().count() > LONGEST_FILE && !first.contains(LONG_MARK)
    });
    long.map(|file| {
        let lines = file.text.lines().count();
        format!("{}:1: {lines} lines; at most {LONGEST_FILE}, or \"{LONG_MARK} REASON\" in the first line", file.path)
    })
    .collect()
}

/// Comments are at most as wide as code, except tables and text in columns.
pub(super) fn comments_are_no_wider_than_code(files: &[SourceFile]) -> Vec<Complaint> {
    complain(rust_files(files), "expected a comment of at most 100 characters", |line| {
        let comment = line.trim_start().strip_prefix("//");
        let text = comment.map(|text| text.strip_prefix(['/', '!']).unwrap_or(text));
        let is_set = |text: &str| text.starts_with(" |") || text.contains("   ");
        line.chars().count() > LONGEST_COMMENT && text.is_some_and(|text| !is_set(text))
    })
}

/// Each Rust file opens with a module comment, after its licence if it names one.
pub(super) fn rust_files_say_what_they_are_for(files: &[SourceFile]) -> Vec<Complaint> {
    let silent = rust_files(files).filter(|file| {
        let mut lines =
            file.text.lines().skip_while(|line| line.starts_with("// SPDX-License-Identifier: "));
        !lines.next().is_some_and(|line| line.starts_with("//! "))
    });
    silent.map(|file| format!("{}:1: expected \"//! what this file is for\"", file.path)).collect()
}

/// No module has one of [`EMPTY_NAMES`].
pub(super) fn module_names_are_nouns(files: &[SourceFile]) -> Vec<Complaint> {
    let stems = rust_files(files).filter(|file| {
        let mut parts = file.path.strip_suffix(".rs").unwrap_or_default().split('/');
        parts.any(|part| EMPTY_NAMES.contains(&part))
    });
    stems.map(|file| format!("{}: name the module after what it holds", file.path)).collect()
}

/// Each C file names its licence, because C has no manifest.
pub(super) fn c_files_name_their_licence(files: &[SourceFile]) -> Vec<Complaint> {
    let silent = files.iter().filter(|file| {
        matches!(file.extension(), "c" | "h")
            && !file.text.lines().take(2).any(|line| line.contains("SPDX-License-Identifier: "))
    });
    silent
        .map(|file| {
            format!("{}:1: expected SPDX-License-Identifier in the first two lines", file.path)
        })
        .collect()
}

/// No file names a registry or a path of one person's machine.
pub(super) fn no_host_and_no_home(files: &[SourceFile]) -> Vec<Complaint> {
    let ours = || files.iter().filter(|file| !is_foreign(file));
    let mut complaints =
        complain(ours(), "names a registry; take it from the user's configuration", |line| {
            HOSTS.iter().any(|host| line.contains(&host.concat()))
        });
    complaints.extend(complain(ours(), "names a folder of one machine", |line| {
        HOMES.iter().any(|home| line.contains(&home.concat()))
    }));
    complaints
}

/// A to-do note names its owner.
pub(super) fn to_do_notes_have_an_owner(files: &[SourceFile]) -> Vec<Complaint> {
    let words = [["TO", "DO"], ["FIX", "ME"], ["X", "XX"]].map(|halves| halves.concat());
    let ours = files.iter().filter(|file| !is_foreign(file));
    complain(ours, "expected an owner: the word, then (NAME)", |line| {
        words.iter().any(|word| {
            line.match_indices(word.as_str()).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                let after = line[at + word.len()..].chars().next();
                let is_word = |letter: Option<char>| {
                    letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
                };
                !is_word(before) && !is_word(after) && after != Some('(')
            })
        })
    })
}

/// No test is ignored, and no test's name begins with `test_`.
pub(super) fn tests_are_neither_ignored_nor_named_test(files: &[SourceFile]) -> Vec<Complaint> {
    let ignored = ["#[ign", "ore"].concat();
    let mut complaints =
        complain(rust_files(files), "a test that is not run: assert what happens now", |line| {
            line.trim_start().starts_with(&ignored)
        });
    complaints.extend(complain(
        rust_files(files),
        "name the test after the behaviour, not test_…",
        |line| line.trim_start().starts_with(&["fn te", "st_"].concat()),
    ));
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rule` on one file gives the complaints in `expected`, one a line.
    #[track_caller]
    fn check(rule: fn(&[SourceFile]) -> Vec<Complaint>, path: &str, text: &str, expected: &str) {
        let file = SourceFile { path: path.to_owned(), text: text.to_owned() };
        let found = rule(&[file]);
        let places: Vec<_> = found
            .iter()
            .map(|complaint| complaint.split(": ").next().unwrap_or_default())
            .collect();
        assert_eq!(places.join("\n"), expected, "{found:?}");
    }

    #[test]
    fn unsafe_is_seen_in_code_only() {
        let rule = unsafe_stays_in_its_rooms;
        check(
            rule,
            "crates/core/src/a.rs",
            "fn a() {\n    unsafe { b() }\n}",
            "crates/core/src/a.rs:2",
        );
        check(
            rule,
            "crates/core/src/a.rs",
            "#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";",
            "",
        );
        check(rule, "crates/linux/src/syscall/a.rs", "unsafe fn a() {}", "");
        check(
            rule,
            "crates/linux/src/observe.rs",
            "unsafe fn a() {}",
            "crates/linux/src/observe.rs:1",
        );
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = "x\n".repeat(LONGEST_FILE + 1);
        check(files_are_short, "a.rs", &long, "a.rs:1");
        check(files_are_short, "a.rs", &format!("//! Events (long: one table)\n{long}"), "");
        check(files_are_short, "a.rs", &"x\n".repeat(LONGEST_FILE), "");
        check(files_are_short, "a.md", &long, "");
    }

    #[test]
    fn a_comment_that_code_would_not_be_as_wide_as_is_found() {
        let check = |text: &str, expected: &str| {
            check(comments_are_no_wider_than_code, "a.rs", text, expected);
        };
        let fits = "ä".repeat(LONGEST_COMMENT - 4);
        check(&format!("/// {fits}\n    // {fits}"), "a.rs:2");
        check(&format!("//! | {fits}\n//!   {fits}\nlet a = \"{fits}\"; // {fits}"), "");
    }

    #[test]
    fn empty_module_names_are_found_as_file_and_as_folder() {
        check(module_names_are_nouns, "crates/core/src/utils.rs", "", "crates/core/src/utils.rs");
        check(
            module_names_are_nouns,
            "crates/core/src/common/a.rs",
            "",
            "crates/core/src/common/a.rs",
        );
        check(module_names_are_nouns, "crates/core/src/utilisation.rs", "", "");
    }

    #[test]
    fn files_must_say_what_they_are_and_under_which_licence() {
        check(rust_files_say_what_they_are_for, "a.rs", "use std;\n", "a.rs:1");
        check(rust_files_say_what_they_are_for, "a.rs", "//! Reads a file.\n", "");
        check(c_files_name_their_licence, "a.c", "int a;\n", "a.c:1");
        check(
            c_files_name_their_licence,
            "a.h",
            "/* SPDX-License-Identifier: GPL-2.0-or-later */\n",
            "",
        );
    }

    #[test]
    fn hosts_homes_and_orphaned_notes_are_found() {
        let host = HOSTS[0].concat();
        check(no_host_and_no_home, "README.md", &format!("\nhttp://{host}/debian"), "README.md:2");
        check(no_host_and_no_home, "Cargo.lock", &host, "");
        check(no_host_and_no_home, "a.sh", &format!("cd {}me", HOMES[0].concat()), "a.sh:1");
        let note = ["TO", "DO"].concat();
        check(to_do_notes_have_an_owner, "a.rs", &format!("// {note}: later"), "a.rs:1");
        check(to_do_notes_have_an_owner, "a.rs", &format!("// {note}(ada): later; MAS{note}N"), "");
    }

    #[test]
    fn a_test_that_is_switched_off_is_found() {
        let text = format!("{}{}]\nfn a() {{}}\nfn {}_b() {{}}", "#[ign", "ore", "test");
        check(tests_are_neither_ignored_nor_named_test, "a.rs", &text, "a.rs:1\na.rs:3");
    }
}
