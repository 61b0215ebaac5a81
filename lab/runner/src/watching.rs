//! A page of docs/results on what watching alone costs programs: experiments and real programs.
//!
//! A program runs alone, under `--policy observe` and under `--dry-run`, with the kernel's NUMA
//! balancing off. Its pages and threads stay as they are alone, so any loss is the price.

use serde_json::{Value, json};

use crate::comparison::Speed;
use crate::results::{FORMAT, VERDICT, fine_cell, kept_findings};

/// Goal: the least work under `observe`, relative to the program alone.
const GOAL: f64 = 0.99;

/// What a page is of.
pub(crate) struct Head<'a> {
    /// Whose programs these are, for the title.
    pub(crate) of: &'a str,
    pub(crate) machine: String,
    pub(crate) seeds: u64,
    /// The command that ran them.
    pub(crate) command: String,
}

/// One program. Works are relative to the program alone with the same seed.
pub(crate) struct Watched {
    pub(crate) title: String,
    pub(crate) observe: Price,
    pub(crate) dry_run: Price,
}

/// What one way to watch costs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Price {
    /// Work of the whole run.
    pub(crate) work: Option<Speed>,
    /// CPU time of the manager, percent of all.
    pub(crate) cpu_percent: Option<Speed>,
}

/// The JSON of docs/results; `before` is what the file holds.
pub(crate) fn object(head: &Head<'_>, programs: &[Watched], before: &Value, commit: &str) -> Value {
    let mut findings: Vec<Value> = verdicts(programs).into_iter().map(Value::from).collect();
    findings.extend(kept_findings(before));
    json!({
        "format": FORMAT,
        "title": format!("What watching costs: {}", head.of),
        "about": "Each program runs alone, under --policy observe, which only watches, and under --dry-run, \
                  which also decides. NUMA balancing is off. Work is that of the whole run, relative to the \
                  program alone with the same seed. CPU time of the manager is charged at full speed.",
        "kind": "emulated",
        "machine": head.machine,
        "seeds": head.seeds,
        "commit": commit,
        "commands": [head.command],
        "reference": 1.0,
        "digits": 3,
        "columns": [
            "work under observe, of alone", "under --dry-run",
            "CPU time of the manager under observe, %", "under --dry-run, %",
        ],
        "rows": programs.iter().map(row).collect::<Vec<_>>(),
        "findings": findings,
    })
}

fn row(program: &Watched) -> Value {
    let Watched { title, observe, dry_run } = program;
    let cells = [observe.work, dry_run.work, observe.cpu_percent, dry_run.cpu_percent];
    json!({"name": title, "cells": cells.map(fine_cell)})
}

/// Whether the goal is met, and by which programs it is missed.
fn verdicts(programs: &[Watched]) -> Vec<String> {
    let loss = |program: &Watched| Some((program.title.clone(), program.observe.work?.median));
    let measured: Vec<(String, f64)> = programs.iter().filter_map(loss).collect();
    let missed = measured.iter().filter(|(_, work)| *work < GOAL);
    let missed = missed.map(|(title, work)| format!("{title} loses {:.1} %", 100.0 * (1.0 - work)));
    let missed: Vec<String> = missed.collect();
    let all = measured.len();
    let met = all - missed.len();
    let mut said =
        vec![format!("{VERDICT}: observe costs at most 1 %. {met} of {all} programs meet it.")];
    said.extend(missed.iter().map(|loss| format!("{VERDICT} missed: {loss} under observe.")));
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(title: &str, work: f64) -> Watched {
        let same = |value| Some(Speed { median: value, least: value, most: value });
        let observe = Price { work: same(work), cpu_percent: same(0.4321) };
        Watched { title: title.to_owned(), observe, dry_run: Price::default() }
    }

    #[test]
    fn a_program_that_loses_more_than_one_percent_is_named_and_what_was_learnt_stays() {
        let head = Head {
            of: "experiments",
            machine: "m".to_owned(),
            seeds: 3,
            command: "./x lab".to_owned(),
        };
        let before = json!({"findings": ["Goal missed: an old one.", "It sleeps."]});
        let programs = [watched("calm", 0.9904), watched("store", 0.9651)];
        let page = object(&head, &programs, &before, "abc");
        assert_eq!(page["rows"][1]["cells"], json!([0.965, null, 0.432, null]));
        let expected = [
            "Goal: observe costs at most 1 %. 1 of 2 programs meet it.",
            "Goal missed: store loses 3.5 % under observe.",
            "It sleeps.",
        ];
        assert_eq!(page["findings"], json!(expected));
    }
}
