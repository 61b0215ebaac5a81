//! What a restore has done or would do, in words and as JSON.

use std::path::PathBuf;

use anyhow::Result;
use rondpoint_core::plan::{PageCounts, StepResult};
use rondpoint_linux::act::threads;
use rondpoint_linux::freeze;
use rondpoint_linux::ledger_file::Left;
use serde::Serialize;

use crate::story::words::many;

const SCHEMA: u32 = 1;

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Restored {
    /// Ledgers that were worked off.
    pub(super) ledgers: usize,
    /// Those of them that stay, for the kernel refused this user something or showed it not.
    pub(super) kept: usize,
    /// Processes in them that have ended since.
    pub(super) gone: usize,
    /// Entries of processes that the kernel did not let us look at.
    pub(super) unseen: usize,
    /// Pages by outcome.
    pub(super) pages: PageCounts,
    /// Moves of whole processes and copies that the kernel did not let us undo.
    pub(super) refused: usize,
    /// Threads with a changed mask, by outcome.
    pub(super) threads: threads::Restored,
    /// Processes that stood still, by outcome.
    pub(super) frozen: freeze::Restored,
    /// Entries that are not understood or cannot be put back here.
    pub(super) skipped: usize,
    /// Ledgers with such entries, under their new names.
    pub(super) set_aside: Vec<PathBuf>,
    /// Ledgers of PID namespaces that have ended.
    pub(super) ended: usize,
}

/// Changes that a restore would undo.
#[derive(Debug, Default, Serialize)]
pub(super) struct Due {
    /// Changes of memory.
    memory: usize,
    /// Threads with a changed mask.
    threads: usize,
    /// Processes that stand still.
    frozen: usize,
}

/// The JSON.
#[derive(Serialize)]
struct Told<'a> {
    schema: u32,
    dry_run: bool,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What<'a> {
    Due { ledgers: usize, ended: usize, due: &'a Due },
    Done(&'a Restored),
}

impl Due {
    pub(super) fn add(&mut self, left: &Left) {
        self.memory += left.open.len();
        self.threads += left.masks.tasks().count();
        self.frozen += left.frozen.len();
    }

    pub(super) fn text(&self, ledgers: usize) -> String {
        format!(
            "to undo from {}: {}, the masks of {}, frozen processes: {}\n",
            many(ledgers as u64, "ledger"),
            many(self.memory as u64, "change") + " of memory",
            many(self.threads as u64, "thread"),
            self.frozen,
        )
    }
}

impl Restored {
    /// Adds the outcome of an entry of memory.
    pub(super) fn take_in(&mut self, result: StepResult) {
        match result {
            StepResult::Pages(counts) => self.pages.add(&counts),
            StepResult::Refused { .. } => self.refused += 1,
            StepResult::Gone => self.gone += 1,
            StepResult::Unsupported => self.skipped += 1,
            StepResult::Done => {}
        }
    }

    /// Whether everything is as it was before the managers.
    pub(super) fn is_whole(&self) -> bool {
        let refused = self.threads.refused + self.frozen.refused + stuck(&self.pages);
        let left = self.kept + self.unseen + self.refused + self.skipped;
        refused == 0 && left == 0 && self.set_aside.is_empty()
    }

    /// All of it, or what a dry run found `due`.
    ///
    /// # Errors
    /// A path of a ledger is not UTF-8.
    pub(super) fn json(&self, due: Option<&Due>) -> Result<String> {
        let (ledgers, ended) = (self.ledgers, self.ended);
        let what = match due {
            Some(due) => What::Due { ledgers, ended, due },
            None => What::Done(self),
        };
        let told = Told { schema: SCHEMA, dry_run: due.is_some(), what };
        Ok(serde_json::to_string_pretty(&told)? + "\n")
    }

    /// One line; actions that did not happen are left out.
    pub(super) fn text(&self) -> String {
        let pages = &self.pages;
        let frozen = &self.frozen;
        // Each with what it is a number of, and what is told of one and of several.
        let counted = |counts: &[(u64, &str, &str, &str)]| -> Vec<String> {
            let happened = counts.iter().filter(|(count, ..)| *count > 0);
            let told = |(count, what, of_one, of_many): &(u64, &str, &str, &str)| {
                many(*count, what) + if *count == 1 { of_one } else { of_many }
            };
            happened.map(told).collect()
        };
        // First of all, for they waited.
        const FROZEN: &str = "frozen process";
        let mut told = counted(&[
            (frozen.thawed, FROZEN, " runs again", " run again"),
            (frozen.running, FROZEN, " was running already", " were running already"),
            (frozen.gone, FROZEN, " has ended", " have ended"),
            (frozen.refused, FROZEN, " could not be thawed", " could not be thawed"),
        ]);
        if self.threads != threads::Restored::default() {
            told.push(masks_told(&self.threads));
        }
        let of_memory = [
            (self.refused, " of memory that the kernel does not undo"),
            (self.gone, " of memory of processes that have ended"),
            (self.unseen, " of processes that cannot be read"),
        ];
        told.extend(counted(&[
            (pages.moved, "page", " moved back", " moved back"),
            (pages.in_place, "page", " was in place", " were in place"),
            (stuck(pages), "page", " could not be moved back", " could not be moved back"),
            (pages.absent, "page", " was freed", " were freed"),
        ]));
        told.extend(counted(&of_memory.map(|(count, what)| (count as u64, "change", what, what))));
        if self.skipped > 0 {
            told.push(match self.skipped {
                1 => "1 entry not understood or not possible here".to_string(),
                many => format!("{many} entries not understood or not possible here"),
            });
        }
        if told.is_empty() {
            told.push("it had no change left".to_string());
        }
        let ledgers = if self.ledgers == 1 { "ledger" } else { "ledgers" };
        let mut text = format!("{} {ledgers} undone: {}\n", self.ledgers, told.join(", "));
        if self.kept > 0 {
            let kept = many(self.kept as u64, "ledger");
            text += &format!("kept for another try: {kept}\n");
        }
        for file in &self.set_aside {
            text += &format!("kept for a version that understands it: {}\n", file.display());
        }
        text
    }
}

/// Pages that are not where they were, and might be.
fn stuck(pages: &PageCounts) -> u64 {
    pages.busy + pages.no_memory + pages.failed
}

/// What became of masks, in words; counts that are zero are left out, but for the first.
pub(crate) fn masks_told(counts: &threads::Restored) -> String {
    let mut text = match counts.put_back {
        1 => "1 thread has its first mask again".to_string(),
        count => format!("{count} threads have their first mask again"),
    };
    for (count, what) in [
        (counts.in_place, "had it already"),
        (counts.heirs, "with an inherited mask have the mask of their creator"),
        (counts.outside, "have all CPUs of their cpuset, which has none of their first ones"),
        (counts.left_alone, "have chosen another mask and keep it"),
        (counts.gone, "have ended"),
        (counts.refused, "could not get their mask back"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_happen_is_left_out() {
        let nothing = Restored { ledgers: 1, ..Restored::default() };
        assert_eq!(nothing.text(), "1 ledger undone: it had no change left\n");
        let threads = threads::Restored { put_back: 3, gone: 1, ..threads::Restored::default() };
        let some = Restored { ledgers: 2, unseen: 1, threads, ..Restored::default() };
        assert_eq!(
            some.text(),
            "2 ledgers undone: 3 threads have their first mask again, 1 have ended, \
             1 change of processes that cannot be read\n"
        );
    }

    #[test]
    fn pages_that_did_not_move_and_entries_that_were_skipped_are_a_failure() {
        let done = |result| {
            let mut restored = Restored::default();
            restored.take_in(result);
            restored.is_whole()
        };
        let counts = PageCounts { moved: 7, in_place: 2, absent: 1, ..PageCounts::default() };
        assert!(done(StepResult::Pages(counts)));
        assert!(done(StepResult::Gone));
        for stuck in [
            PageCounts { busy: 1, ..counts },
            PageCounts { no_memory: 1, ..counts },
            PageCounts { failed: 1, ..counts },
        ] {
            assert!(!done(StepResult::Pages(stuck)), "{stuck:?}");
        }
        assert!(!done(StepResult::Refused { errno: 1 }));
        assert!(!done(StepResult::Unsupported));
    }

    #[test]
    fn the_json_of_a_dry_run_says_what_is_due_and_nothing_of_what_was_done() {
        let json = |restored: &Restored, due: Option<&Due>| {
            let text = restored.json(due).expect("JSON");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
        };
        let found = Restored { ledgers: 2, ..Restored::default() };
        let due = Due { memory: 3, threads: 4, frozen: 1 };
        let expected = serde_json::json!({
            "schema": SCHEMA, "dry_run": true, "ledgers": 2, "ended": 0,
            "due": {"memory": 3, "threads": 4, "frozen": 1},
        });
        assert_eq!(json(&found, Some(&due)), expected);
        let done = json(&found, None);
        assert_eq!((&done["schema"], &done["dry_run"]), (&SCHEMA.into(), &false.into()));
        assert_eq!((&done["ledgers"], &done["pages"]["moved"]), (&2.into(), &0.into()));
    }
}
