//! `rondpoint report`: a recorded run as one page of HTML, without scripts, network access or other
//! files. It reads one file and writes one.

pub(crate) mod chart;
mod decisions;
pub(crate) mod html;
mod machine;
mod process;
mod series;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use rondpoint_core::Nanos;
use rondpoint_core::trial::Verdict;
use rondpoint_core::units::{Bytes, PAGE_BYTES};
use rondpoint_linux::privileges::{self, Needs};

use self::chart::Mark;
use self::html::Html;
use self::series::{Slice, mean_between, over_time};
use crate::output::Output;
use crate::story::words::{many, percent};
use crate::story::{self, Deed, Story};
use crate::{session, terminal};

/// Exit status of bad usage or input.
const BAD_INPUT: u8 = 2;
/// Marks of one chart at most; more would be a bar.
const MOST_MARKS: usize = 200;
/// Classes of marks.
const CLASSES: usize = 4;
/// Sentences of a mark at most.
const MOST_SENTENCES: usize = 4;

/// Show a recorded run as a page for the browser
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  rondpoint report run.trace -o report.html
  rondpoint report run.trace --json > run.json     # all figures of the page

The page is one file without scripts. It contains the command line of the run, and only its
owner can read it. Exit status: 0 good, 2 bad usage or file.")]
pub(crate) struct Arguments {
    /// A file of `rondpoint record` or `run --record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File for the page, required unless --json is given; - is stdout. As root no symbolic link is
    /// followed
    #[arg(long, short, value_name = "PAGE", required_unless_present = "json")]
    output: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Runs the command; a bad file is said on standard error and ends with status 2.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    match report(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::fail("report", &error);
            ExitCode::from(BAD_INPUT)
        }
    }
}

fn report(arguments: &Arguments) -> Result<()> {
    // Under sudo the page belongs to the caller, as a recording does.
    let named = arguments.output.as_deref();
    let caller = session::caller()?;
    let output = named.map(|path| Output::open(path, caller.as_ref())).transpose()?;
    output.iter().try_for_each(|output| output.check_apart(&arguments.file))?;
    let file = named.filter(|path| !Output::is_stdout(path));
    let _ = privileges::keep_only(&Needs::to_read(file));
    let story = story::read(&arguments.file)?;
    let Some(mut output) = output else { return print_json(&story) };
    let page = page(&story, &arguments.file);
    let written = output.write_all(page.as_bytes()).and_then(|()| output.keep());
    written.with_context(|| output.purpose())
}

fn print_json(story: &Story) -> Result<()> {
    let all = serde_json::json!({
        "version": 1,
        "written_by": story.header.written_by,
        "command": story.header.command,
        "seconds": story.seconds(),
        "moments": story.moments,
        "wanted": story.moments.iter().map(|moment| story.deeds_of(moment)).collect::<Vec<_>>(),
        "judged": story.moments.iter().map(|moment| story.verdicts_of(moment)).collect::<Vec<_>>(),
    });
    terminal::print_json(&all)
}

/// The page.
fn page(story: &Story, file: &Path) -> String {
    let mut html = Html::default();
    html.raw(concat!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ",
        "style-src 'unsafe-inline'\">\n<style>\n",
        include_str!("report/style.css"),
        "</style>\n"
    ));
    let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    html.element("title", &[], format!("Rondpoint: {name}")).raw("</head><body>\n");
    put_head(&mut html, story, &name);
    put_tiles(&mut html, story);
    machine::put(&mut html, story, &marks(story, None));
    process::put(&mut html, story, |pid| marks(story, Some(pid)));
    decisions::put(&mut html, story);
    put_notes(&mut html, story);
    html.raw("</body></html>\n");
    html.into_text()
}

fn put_head(html: &mut Html, story: &Story, name: &str) {
    let header = &story.header;
    let command = match header.command.is_empty() {
        true => name.to_string(),
        false => header.command.join(" "),
    };
    html.element("h1", &[("class", &"file")], command);
    let policies: Vec<String> = header.policies.iter().map(ToString::to_string).collect();
    let mut facts = vec![
        name.to_string(),
        format!(
            "{}, {}",
            many(header.topology.node_count() as u64, "node"),
            many(header.topology.cpu_count() as u64, "CPU")
        ),
        format!("policy {}", policies.join(", ")),
        format!("{:.1} s in {}", story.seconds(), many(story.moments.len() as u64, "look")),
        format!("recorded by {}", header.written_by),
    ];
    facts.extend(header.host.iter().map(|host| format!("on {host}")));
    if !header.guard.act {
        facts.push("nothing may be moved: it only recorded".to_string());
    }
    html.raw("<p class=\"muted file\">").text(facts.join(" · ")).raw("</p>\n");
}

/// The run in a few numbers: before the first action and after the last.
fn put_tiles(html: &mut Html, story: &Story) {
    html.raw("<div class=\"tiles\">\n");
    let acts =
        story.moments.iter().filter(|moment| story.deeds_of(moment).iter().any(Deed::is_tried));
    let times: Vec<f64> = acts.map(|moment| moment.at_s).collect();
    let (first, last) = (times.first().copied(), times.last().copied());
    let change = |slices: &[Slice<f64>], unit: &str| {
        let mean = |from_s, to_s| mean_between(slices, from_s, to_s);
        let end = story.seconds();
        match (first, last) {
            (Some(first), Some(last)) => {
                let (before, after) = (mean(0.0, first)?, mean(last, end)?);
                Some(format!("{before:.0} → {after:.0}{unit}"))
            }
            _ => Some(format!("{:.0}{unit}", mean(0.0, end)?)),
        }
    };
    let local = over_time(story, |known| known.local_percent);
    let imbalance = over_time(story, |known| known.imbalance_percent);
    let latency = over_time(story, |known| known.latency_cycles);
    let moved: u64 = story.deeds.iter().map(|deed| deed.came_of_it.pages.moved).sum();
    let spent: f64 = story.deeds.iter().map(|deed| deed.came_of_it.spent_s).sum();
    let compared = story.verdicts.iter().filter(|one| one.verdict != Verdict::PhaseChange);
    let best = compared.filter_map(|one| one.measured).max_by(f64::total_cmp);
    for (value, what) in [
        (change(&local, " %"), "local accesses"),
        (change(&imbalance, " %"), "imbalance of the controllers"),
        (change(&latency, ""), "cycles for an access to memory"),
        (Some(Bytes(moved * PAGE_BYTES).to_string()), "moved"),
        (Some(Nanos((spent * 1e9) as u64).to_string()), "spent on moving"),
        (best.map(percent), "best measured trial"),
    ] {
        if let Some(value) = value {
            html.raw("<div class=\"tile\">").element("b", &[], value).element("span", &[], what);
            html.close("div");
        }
    }
    html.close("div");
    if first.is_some() {
        html.raw("<p class=\"note\">Arrows: before the first action → after the last.</p>\n");
    }
}

/// What was done and judged, for the time axes; of one process or of all.
fn marks(story: &Story, pid: Option<u32>) -> Vec<Mark> {
    let concerns = |other: Option<u32>| pid.is_none() || pid == other;
    let mut marks = Vec::new();
    for moment in &story.moments {
        let deeds = story.deeds_of(moment).iter();
        let titles: Vec<String> = deeds
            .filter(|deed| deed.is_tried() && concerns(deed.pid))
            .map(Deed::sentence)
            .collect();
        if !titles.is_empty() {
            let more = titles.len().saturating_sub(MOST_SENTENCES);
            let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
            let told = titles[..titles.len().min(MOST_SENTENCES)].join("\n");
            let title = format!("{:.3} s: {told}{more}", moment.at_s);
            marks.push(Mark { at_s: moment.at_s, class: "deed", title });
        }
        for verdict in story.verdicts_of(moment).iter().filter(|one| concerns(Some(one.pid))) {
            let title = format!("{:.3} s: {}", moment.at_s, verdict.sentence());
            marks.push(Mark { at_s: moment.at_s, class: decisions::class(verdict), title });
        }
    }
    thinned(marks, story.seconds())
}

/// At most [`MOST_MARKS`] marks: of one class in one part of the time the first, which counts the
/// others.
fn thinned(marks: Vec<Mark>, seconds: f64) -> Vec<Mark> {
    if marks.len() <= MOST_MARKS {
        return marks;
    }
    let parts = MOST_MARKS / CLASSES;
    let part_of = |mark: &Mark| ((mark.at_s / seconds * parts as f64) as usize).min(parts - 1);
    let mut kept: Vec<(usize, Mark, u64)> = Vec::new();
    for mark in marks {
        let part = part_of(&mark);
        let mut near = kept.iter_mut().rev().take_while(|(other, ..)| *other == part);
        match near.find(|(_, first, _)| first.class == mark.class) {
            Some((.., others)) => *others += 1,
            None => kept.push((part, mark, 0)),
        }
    }
    let told = |(_, mark, others): (usize, Mark, u64)| match others {
        0 => mark,
        _ => Mark { title: format!("{}\nand {others} more marks after it", mark.title), ..mark },
    };
    kept.into_iter().map(told).collect()
}

fn put_notes(html: &mut Html, story: &Story) {
    let mut notes = story.header.notes.clone();
    if let Some(problem) = &story.unknown_policy {
        notes.push(format!("No price is known: this version cannot decide as it did: {problem}"));
    }
    if story.differing > 0 {
        let looks = many(story.differing, "look");
        notes.push(format!("{looks} decided otherwise by this version: no price is known there"));
    }
    if let Some(message) = &story.panicked {
        notes.push(format!("The controller panicked on the next look: {message}"));
    }
    if let Some(end) = story.truncated {
        notes.push(format!("Line {} is cut off: what came later was not recorded", end.line));
    }
    if notes.is_empty() {
        return;
    }
    html.raw("<h2>Notes of the recording</h2>\n<ul>\n");
    for note in notes {
        html.element("li", &[], note);
    }
    html.raw("</ul>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story() -> Story {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");
        story::read(Path::new(path)).expect("a recording")
    }

    #[test]
    fn a_recording_of_a_hundred_thousand_windows_is_one_page_with_its_end() {
        let mut story = story();
        let (first, turn_s) = (story.moments.clone(), story.seconds() + 1.0);
        let turns = 100_000 / first.len();
        for turn in 1..turns {
            let later = |moment: &story::Moment| story::Moment {
                at_s: moment.at_s + turn as f64 * turn_s,
                ..moment.clone()
            };
            story.moments.extend(first.iter().map(later));
        }
        let page = page(&story, Path::new("run.trace"));
        assert!(page.len() < 4 << 20, "{} bytes", page.len());
        let marks = marks(&story, None);
        assert!(marks.len() <= MOST_MARKS, "{}", marks.len());
        let last = marks.iter().rfind(|mark| mark.class == "deed").expect("one");
        assert!(last.at_s > 0.97 * story.seconds(), "the end is shown too: {} s", last.at_s);
    }

    #[test]
    fn marks_that_are_left_out_are_counted() {
        let mark = |at_s, class| Mark { at_s, class, title: String::new() };
        let deeds = (0..1000).map(|at_s| mark(f64::from(at_s), "deed"));
        let marks = thinned(deeds.chain([mark(999.0, "bad")]).collect(), 999.0);
        assert_eq!(marks.len(), MOST_MARKS / CLASSES + 1);
        let others = |one: &Mark| one.title.split(' ').nth(1).map_or(0, |n| n.parse().unwrap_or(0));
        let all: usize = marks.iter().map(|one| 1 + others(one)).sum();
        assert_eq!(all, 1001);
        assert_eq!(thinned((0..9).map(|at| mark(f64::from(at), "deed")).collect(), 9.0).len(), 9);
    }
}
