//! `rondpoint-lab screens`: screens of docs/guide.md, made by running its commands in the guest.
//!
//! The same build and seed give the same bytes. Another build or kernel gives other figures, so
//! `--check` compares what is left of a screen without them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::lab::{Lab, cut_machine};
use crate::physics::script;
use crate::vm::Record;

/// Version of the format that `./x results` reads.
const FORMAT: u32 = 1;
/// Four nodes with a CPU each.
const MACHINE: &str = "carrefour-a";
const CPUS_PER_NODE: u32 = 1;

/// A screen, its command, which is typed in `/root`, and what the guest does before.
const SCREENS: [(&str, &str, &str); 5] = [
    ("doctor", "sudo rondpoint doctor", ""),
    ("observe", "rondpoint observe --quiet -- ./app", ""),
    ("run", "sudo rondpoint run -- ./app", ""),
    (
        "whatif",
        "rondpoint whatif run.trace --place interleave",
        "rondpoint record --output run.trace -- ./app > /dev/null 2>&1\n",
    ),
    ("status", "rondpoint status", DAEMON),
];

/// `app` has its memory on one node, and threads on all. It prints nothing.
const HEAD: &str = r#"
cd /root
printf '#!/bin/sh\nexec rondpoint-workloads kmeans --rotate --pin --no-huge-pages --size 8M --seconds 6 --centres 1 > /dev/null\n' > app
chmod +x app
sudo() { "$@"; }
screen() { name=$1; shift; "$@" 2>&1 | sed "s/^/screen-$name /"; }
"#;
/// The daemon, and the program as what it manages.
const DAEMON: &str = r#"
daemon /dev/null < /dev/null
./app &
sleep 4
"#;
const TAIL: &str = r#"
kill -TERM $daemon
wait $daemon
"#;

/// Lines of which only the beginning is compared: what they say depends on the run.
const OF_THE_RUN: [&str; 5] = ["Moved:", "Why:", "Cost:", "NUMA:", "done:"];
/// Beginnings of the line that says what the trials found: which one it is depends on the run.
const FOUND: [&str; 2] = ["Helped:", "No clear change:"];
/// Lines that a run has or has not.
const SOMETIMES: [&str; 4] = ["note:", "Not seen:", "Next time:", "rondpoint: "];
/// Units of an amount of memory, which depend on how large it is.
const BYTES: [&str; 3] = ["KiB", "MiB", "GiB"];

/// What `screens` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder of the screens' files
    #[arg(long, value_name = "FOLDER", default_value = "docs/screens")]
    folder: PathBuf,
    /// The commit that the product is built from, for the files
    #[arg(long, value_name = "COMMIT", required_unless_present = "check")]
    commit: Option<String>,
    /// Write nothing: compare with the files but for figures; exit status 1 where they differ
    #[arg(long)]
    check: bool,
}

/// A file of docs/screens, as `xtask/src/results/screens.rs` reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Screen {
    format: u32,
    kind: String,
    machine: String,
    commit: String,
    command: String,
    output: Vec<String>,
}

/// Makes the screens, and writes or compares them.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = Lab::open()?;
    let machine = cut_machine(MACHINE, CPUS_PER_NODE)?;
    let screens: String = SCREENS
        .iter()
        .map(|(name, command, before)| format!("{before}screen {name} {command}\n"))
        .collect();
    let text = [HEAD, &screens, TAIL].concat();
    let record = script::run(&lab, &machine, "the screens of the guide", &text)?;
    let cpus = machine.cpu_count();
    let mut are_as_shown = true;
    for (name, command, _) in SCREENS {
        let screen = Screen {
            format: FORMAT,
            kind: "emulated".to_owned(),
            machine: format!("{MACHINE}, {cpus} CPUs"),
            commit: arguments.commit.clone().unwrap_or_default(),
            command: command.to_owned(),
            output: output(&record, name)?,
        };
        let path = arguments.folder.join(format!("{name}.json"));
        if arguments.check {
            are_as_shown &= is_as_shown(&path, &screen)?;
        } else {
            let text = serde_json::to_string_pretty(&screen)? + "\n";
            fs::write(&path, text).with_context(|| path.display().to_string())?;
            println!("{}", path.display());
        }
    }
    Ok(ExitCode::from(u8::from(!are_as_shown)))
}

/// What the command of a screen wrote.
fn output(record: &Record, name: &str) -> Result<Vec<String>> {
    let tag = format!("screen-{name} ");
    let said = std::str::from_utf8(&record.stdout).context("the guest's output")?;
    let lines: Vec<String> = said
        .lines()
        .filter_map(|line| Some(line.strip_prefix(&tag)?.trim_end().to_owned()))
        .collect();
    ensure!(!lines.is_empty(), "{name}: its command wrote nothing");
    Ok(lines)
}

/// Compares with the file, and says on stdout what differs.
fn is_as_shown(path: &Path, today: &Screen) -> Result<bool> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| name.to_string())?;
    let shown: Screen = serde_json::from_str(&text).with_context(|| name.to_string())?;
    let (words_shown, words_today) = (words(&shown), words(today));
    for line in words_today.difference(&words_shown) {
        println!("{name}: the command says, and the screen does not: {line}");
    }
    for line in words_shown.difference(&words_today) {
        println!("{name}: the screen says, and the command does not: {line}");
    }
    let is_as_shown = shown.command == today.command && words_shown == words_today;
    let verdict = if is_as_shown { "as the command says" } else { "old: ./x lab screens makes it" };
    println!("{name}: {verdict}");
    Ok(is_as_shown)
}

/// The lines of a screen without their figures. Rows of a table, which begin with one, are left
/// out.
fn words(screen: &Screen) -> BTreeSet<String> {
    let lines = screen.output.iter().map(|line| line.trim());
    let lines = lines.filter(|line| !SOMETIMES.iter().any(|head| line.starts_with(head)));
    let lines =
        lines.filter(|line| !line.is_empty() && !line.starts_with(|c: char| c.is_numeric()));
    let head = |line: &str| {
        let has_found = FOUND.iter().any(|head| line.starts_with(head));
        let of_the_run = OF_THE_RUN.iter().find(|head| line.starts_with(**head)).copied();
        has_found.then_some(FOUND[0]).or(of_the_run)
    };
    lines.map(|line| head(line).map_or_else(|| without_figures(line), str::to_owned)).collect()
}

/// `latency 842 → 503 cycles, 6.2 MiB` → `latency # → # cycles, # B`.
fn without_figures(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let mut text = String::new();
        for part in word.chars() {
            let is_figure = part.is_ascii_digit() || (part == '.' && text.ends_with('#'));
            match is_figure {
                true if text.ends_with('#') => {}
                true => text.push('#'),
                false => text.push(part),
            }
        }
        text
    });
    let text = words.collect::<Vec<_>>().join(" ");
    BYTES.iter().fold(text, |text, unit| text.replace(unit, "B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_figures_are_the_same_screen_and_other_words_are_not() {
        let screen = |output: &[&str]| Screen {
            format: FORMAT,
            kind: "emulated".to_owned(),
            machine: "m".to_owned(),
            commit: "c".to_owned(),
            command: "rondpoint run".to_owned(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.json");
        let latency = "latency 842 → 503.5 cycles, 6.2 MiB";
        assert_eq!(without_figures(latency), "latency # → # cycles, # B");
        let shown = screen(&["Helped: by +12 %", latency, "  12 kmeans  40 %", "note: slow"]);
        fs::write(&path, serde_json::to_string(&shown).expect("plain data")).expect("written");
        let alike = |output: &[&str]| is_as_shown(&path, &screen(output)).expect("readable");
        let other = "latency 1 → 2 cycles, 7 KiB";
        assert!(alike(&["Helped: by 2 checks", other, "  99 kmeans  1 %", "  98 sort  -"]));
        assert!(alike(&["No clear change: by +3 %", other, "  99 kmeans  1 %"]));
        assert!(!alike(&["Did not help: by +12 %", latency]));
        assert!(!alike(&["Helped: by +12 %", "latency 842 → 503 cycles in 6.2 MiB"]));
        assert!(!alike(&["Helped: by +12 %"]));
    }
}
