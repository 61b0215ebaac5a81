//! `rondpoint report` from outside: the page that it writes, what an attacker's recording makes of
//! it, and what a browser shows.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");

/// An element that runs a script, ends what it stands in, and calls for another host.
const ATTACK: &str = "</title></style></text></svg>\\\"'><script>document.title='owned'</script>\
                      <img src=http://192.0.2.1/x onerror=document.title='owned'>";

fn recording() -> String {
    fs::read_to_string(RECORDING).unwrap()
}

fn folder_with(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("run.trace"), text).unwrap();
    folder
}

fn report(folder: &TempDir, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.current_dir(folder.path()).args(["report", "run.trace"]).args(more).output().unwrap()
}

#[track_caller]
fn page(text: &str) -> (TempDir, String) {
    let folder = folder_with(text);
    let output = report(&folder, &["-o", "page.html"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty());
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    (folder, page)
}

/// The recording with markup in all that a program or another user can put there.
fn attacked() -> String {
    recording()
        .replacen("\"command\":[\"./stage\"", &format!("\"command\":[\"{ATTACK}\""), 1)
        .replacen("\"notes\":[]", &format!("\"notes\":[\"{ATTACK}\"]"), 1)
        .replacen("\"written_by\":\"", &format!("\"written_by\":\"{ATTACK}"), 1)
        .replace("controller imbalance", &format!("imbalance {ATTACK}"))
}

#[test]
fn the_page_has_what_was_done_and_measured() {
    let (folder, page) = page(&recording());
    for expected in [
        "<h1 class=\"file\">./stage</h1>",
        "24 pages (96.0 KiB) spread over nodes",
        "controller imbalance 173.2 %",
        "+71 %",
        "plan 3 of carrefour: better",
        "not watched for long enough yet",
        "Process 100",
        "prefers-color-scheme: dark",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    let mode = fs::metadata(folder.path().join("page.html")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds the command line");
}

/// Readable without scripts, and without the network.
#[test]
fn a_page_goes_to_stdout_and_no_file_is_made() {
    let (_other, expected) = page(&recording());
    let folder = folder_with(&recording());
    let output = report(&folder, &["-o", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["run.trace"]);
}

#[test]
fn the_page_needs_nothing_else() {
    let (_folder, page) = page(&recording());
    for needed in ["<script", "<link", "<img", "<iframe", " src=", " href=", "url(", "@import"] {
        assert!(!page.contains(needed), "{needed}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn each_element_is_closed_and_no_figure_is_missing() {
    let (_folder, page) = page(&recording());
    for tag in ["svg", "table", "tr", "td", "figure", "div", "g", "text", "path", "h2", "h3", "p"] {
        let open = page.matches(&format!("<{tag}>")).count();
        let open = open + page.matches(&format!("<{tag} ")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    for number in ["NaN", "inf", "Infinity"] {
        let inside = |part: &str| part.split_once('"').is_some_and(|(d, _)| d.contains(number));
        assert!(!page.split(" d=\"").skip(1).any(inside), "{number}");
    }
}

#[test]
fn nothing_of_a_recording_becomes_markup() {
    let (_folder, page) = page(&attacked());
    assert!(page.matches("owned").count() > 5, "the attack is on the page");
    for harm in ["<script", "<img", "onerror=document.title='"] {
        assert!(!page.contains(harm), "{harm}");
    }
    assert_eq!(page.matches("</title>").count(), page.matches("<title>").count());
}

#[test]
fn a_page_is_replaced_only_by_a_page_and_root_follows_no_link() {
    let folder = folder_with("no trace");
    let older = folder.path().join("page.html");
    fs::write(&older, "precious").unwrap();
    let output = report(&folder, &["-o", "page.html"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&older).unwrap(), "precious");
    let output = report(&folder, &["-o", "new.html"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!folder.path().join("new.html").exists());
    fs::write(folder.path().join("run.trace"), recording()).unwrap();
    let output = report(&folder, &["-o", "run.trace"]);
    assert_eq!(output.status.code(), Some(2));
    let kept = fs::read_to_string(folder.path().join("run.trace")).unwrap();
    assert_eq!(kept, recording(), "the recording is no place for its page");
    symlink(&older, folder.path().join("link.html")).unwrap();
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    if !is_root {
        println!("not tried further: only root is in danger of it");
        return;
    }
    let output = report(&folder, &["-o", "link.html"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("symbolic link"));
    assert_eq!(fs::read_to_string(&older).unwrap(), "precious");
}

#[test]
fn a_recording_that_ends_early_is_a_page_that_says_so_and_a_newer_one_is_refused() {
    let all = recording();
    let header = all.lines().next().unwrap().to_string() + "\n";
    let (_begun, begun) = page(&header);
    assert!(begun.contains("0.0 s in 0 looks"), "{begun}");
    assert!(begun.contains("Nothing was moved.") && !begun.contains("NaN"), "{begun}");
    let (_cut, cut) = page(&all[..all.len() - 40]);
    let last = all.lines().count();
    assert!(cut.contains(&format!("Line {last} is cut off")), "{cut}");
    for (text, expected) in [
        (String::new(), "run.trace:1: "),
        (all.replacen("\"version\":1", "\"version\":99", 1), "99"),
    ] {
        let output = report(&folder_with(&text), &["-o", "page.html"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn the_figures_are_there_as_json() {
    let folder = folder_with(&recording());
    let output = report(&folder, &["--json"]);
    assert!(output.status.success());
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(all["moments"].as_array().unwrap().len(), 12);
    assert_eq!(all["moments"][3]["known"]["controllers"][0]["of_all_percent"], 100.0);
    assert_eq!(all["wanted"][3][0]["pages"], 24);
    assert_eq!(report(&folder, &[]).status.code(), Some(2), "neither page nor JSON");
}

/// A browser of Chromium's family on this machine.
fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let folders = std::env::var_os("PATH")?;
    let all =
        std::env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// What the browser made of a page, and what it complained of.
fn opened(browser: &Path, page: &Path) -> (String, String) {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"])
        .args(["--disable-dev-shm-usage", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", profile.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into());
    (out, err)
}

/// Texts of the cells of all tables, without the elements in them.
fn cells(page: &str) -> Vec<String> {
    let cells = page.split("<td").skip(1).filter_map(|rest| rest.split_once("</td>"));
    let text = |(cell, _): (&str, &str)| {
        // Each part begins with a tag, the first one with the end of the cell's own.
        let texts = cell.split('<').filter_map(|part| part.split_once('>'));
        let text: String = texts.map(|(_, text)| text).collect();
        let marks =
            [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
        marks.iter().fold(text, |text, (written, mark)| text.replace(written, mark))
    };
    cells.map(text).collect()
}

#[test]
fn a_browser_shows_the_page_and_runs_nothing_of_it() {
    let Some(browser) = browser() else {
        println!("not tried: no chromium here");
        return;
    };
    for text in [recording(), attacked()] {
        let (folder, page) = page(&text);
        let (found, complaints) = opened(&browser, &folder.path().join("page.html"));
        assert!(found.contains("<title>Rondpoint: run.trace</title>"), "{complaints}");
        for tag in ["<svg", "<path", "<circle", "<rect", "<td", "<h2"] {
            assert_eq!(found.matches(tag).count(), page.matches(tag).count(), "{tag}");
        }
        let shown = cells(&found);
        assert_eq!(shown, cells(&page));
        for text in ["100", "+90 %", "+71 %", "better", "not judged"] {
            assert!(shown.iter().any(|cell| cell == text), "{text}: {shown:?}");
        }
        let moved = "24 pages (96.0 KiB) spread over nodes 0→3, 0→2, 0→1";
        assert!(shown.iter().any(|cell| cell.starts_with(moved)), "{shown:?}");
        assert!(!complaints.contains("Refused to"), "{complaints}");
    }
}
