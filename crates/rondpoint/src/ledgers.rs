//! Ledgers of killed managers, and `rondpoint restore`, which undoes their entries.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use rondpoint_core::Topology;
use rondpoint_core::plan::{PageCounts, PageMove, StepResult};
use rondpoint_linux::act::copies;
use rondpoint_linux::act::pages::{self, Origin};
use rondpoint_linux::act::threads;
use rondpoint_linux::bulk;
use rondpoint_linux::freeze;
use rondpoint_linux::ledger_file::{self, Ended, Entry, Found, Left};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::syscall::pages::Reach;
use rondpoint_linux::syscall::process;
use rondpoint_linux::{Root, topology};
use serde::Serialize;

use crate::story::words::many;
use crate::terminal;

/// Put back what managers that were killed have changed; does nothing where there is nothing left
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint restore --dry-run     # list the changes that a killed manager left
  sudo rondpoint restore

Exit status: 0 all is as it was, 1 something could not be put back.")]
pub(crate) struct Arguments {
    /// Only say what would be put back
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Restored {
    /// Ledgers that were worked off.
    ledgers: usize,
    /// Processes in them that have ended since.
    gone: usize,
    /// Entries of processes that the kernel did not let us look at.
    unseen: usize,
    /// Pages by outcome.
    pages: PageCounts,
    /// Threads with a changed mask, by outcome.
    threads: threads::Restored,
    /// Processes that stood still, by outcome.
    frozen: freeze::Restored,
    /// Entries that are not understood or cannot be put back here.
    skipped: usize,
    /// Ledgers with such entries, under their new names.
    set_aside: Vec<PathBuf>,
    /// Ledgers of PID namespaces that have ended.
    ended: usize,
}

/// Where this user's ledgers are.
///
/// # Errors
/// The user has no folder that only this user may write.
pub(crate) fn folder() -> Result<PathBuf> {
    ledger_file::own_folder().context(
        "no place for the ledger: expected XDG_RUNTIME_DIR, XDG_STATE_HOME or HOME to be an \
         absolute path",
    )
}

/// Where the ledgers of a service are: its runtime folder where systemd gives one, else the user's
/// place.
///
/// # Errors
/// As [`folder`].
pub(crate) fn folder_of_service() -> Result<PathBuf> {
    // One for each name of the unit's RuntimeDirectory=; ours has one.
    let given = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
    given.filter(|path| path.is_absolute()).map_or_else(folder, Ok)
}

/// `rondpoint restore`.
pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    match run(arguments) {
        Ok((text, whole)) => {
            let shown = match arguments.json {
                true => terminal::print_json_text(&text),
                false => terminal::print(&text),
            };
            if let Err(error) = shown {
                terminal::fail("restore", &error);
                return ExitCode::FAILURE;
            }
            if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            terminal::fail("restore", &error);
            ExitCode::FAILURE
        }
    }
}

/// Changes that a restore would undo.
#[derive(Debug, Default)]
struct Due {
    memory: usize,
    threads: usize,
    frozen: usize,
}

/// What was done, in words or JSON, and whether the kernel let us do all of it.
fn run(arguments: &Arguments) -> Result<(String, bool)> {
    let _ = process::raise_descriptor_limit();
    let _ = privileges::keep_only(&Needs::to_move());
    let machine = topology::discover(&Root::live())?;
    let (mut restored, mut due, mut unusable) = (Restored::default(), Due::default(), 0);
    let say = |told: String| terminal::say(&format!("rondpoint restore: {told}\n"));
    ledger_file::each_left(&folder_of_service()?, |found| match found {
        Found::Unusable(error) => {
            unusable += 1;
            say(error.to_string());
        }
        Found::Ended(ledger) => {
            restored.ended += 1;
            say(if arguments.dry_run { of_ended(&ledger) } else { set_aside(&ledger) });
        }
        Found::Left(left) if arguments.dry_run => {
            restored.ledgers += 1;
            due.add(&left);
        }
        Found::Left(left) => work_off(&left, &machine.topology, &mut restored),
    })?;
    let service = Path::new(ledger_file::SERVICES);
    let others = match ledger_file::is_of_another(service) {
        true => ledger_file::left_by_others(service),
        false => 0,
    };
    if others > 0 {
        say(format!(
            "the daemon's user left {} in {}, which root does not trust; the daemon undoes them \
             when it starts: systemctl start rondpoint",
            many(others as u64, "ledger"),
            service.display()
        ));
    }
    let refused = restored.threads.refused + restored.frozen.refused + others as u64;
    let whole =
        refused == 0 && restored.unseen == 0 && restored.set_aside.is_empty() && unusable == 0;
    if arguments.json {
        return Ok((serde_json::to_string_pretty(&restored)? + "\n", whole));
    }
    let text = match (restored.ledgers, arguments.dry_run) {
        // What could not be read was told.
        (0, _) if unusable + others > 0 => String::new(),
        (0, _) => "nothing was left behind\n".to_string(),
        (count, true) => due.text(count),
        (_, false) => restored.text(),
    };
    Ok((text, whole))
}

impl Due {
    fn add(&mut self, left: &Left) {
        self.memory += left.open.len();
        self.threads += left.masks.tasks().count();
        self.frozen += left.frozen.len();
    }

    fn text(&self, ledgers: usize) -> String {
        format!(
            "to undo from {}: {}, the masks of {}, frozen processes: {}\n",
            many(ledgers as u64, "ledger"),
            many(self.memory as u64, "change") + " of memory",
            many(self.threads as u64, "thread"),
            self.frozen,
        )
    }
}

/// At the start of a manager: what its dead predecessors left.
pub(crate) fn put_back_what_was_left(folder: &Path, topology: &Topology) -> Result<()> {
    let mut restored = Restored::default();
    ledger_file::each_left(folder, |found| match found {
        Found::Unusable(error) => terminal::say(&format!("rondpoint: not restored: {error}\n")),
        Found::Ended(ledger) => terminal::say(&format!("rondpoint: {}\n", set_aside(&ledger))),
        Found::Left(left) => work_off(&left, topology, &mut restored),
    })?;
    if restored.ledgers > 0 {
        terminal::say(&format!("rondpoint: an earlier manager was killed; {}", restored.text()));
    }
    Ok(())
}

fn of_ended(ledger: &Ended) -> String {
    let path = ledger.path.display();
    format!("{path}: all processes of its PID namespace have ended, so there is nothing to undo")
}

/// Renames the ledger of an ended PID namespace, and says so.
fn set_aside(ledger: &Ended) -> String {
    let told = of_ended(ledger);
    match ledger.set_aside() {
        Ok(aside) => format!("{told}; kept as {}", aside.display()),
        Err(error) => format!("{told}; {error}"),
    }
}

fn work_off(ledger: &Left, topology: &Topology, restored: &mut Restored) {
    restored.ledgers += 1;
    restored.skipped += ledger.unknown_lines;
    // First of all, for they wait.
    let frozen = freeze::restore(&Root::live(), ledger);
    restored.frozen.add(&frozen);
    let threads = threads::restore(&Root::live(), &ledger.masks);
    restored.threads.add(&threads);
    let unseen = restored.unseen;
    for entry in &ledger.open {
        put_back(entry, topology, restored);
    }
    // What the kernel refuses this user it may grant another, or later. Else the ledger is done
    // with, if another restore was not faster.
    if threads.refused + frozen.refused == 0 && restored.unseen == unseen {
        restored.set_aside.extend(ledger.settle());
    }
}

fn put_back(entry: &Entry, topology: &Topology, restored: &mut Restored) {
    let Some(process) = entry.process() else { return };
    match process.lives(&Root::live()) {
        Ok(true) => {}
        Ok(false) => return restored.gone += 1,
        Err(_) => return restored.unseen += 1,
    }
    let (result, untold) = match entry {
        Entry::Pages { pages: list, .. } => {
            let (kernel, moves) = (pages::Live(Reach::Own), moves(list, topology));
            let result = pages::relocate(&kernel, process.pid, &moves, Origin::Any, topology);
            (result, list.len() as u64)
        }
        Entry::Copies { ranges, .. } => (copies::drop_copies(&Root::live(), process, ranges), 0),
        Entry::Memory { nodes, .. } => {
            let ways = nodes.iter().copied().collect();
            // No process has to stand still for it now.
            (bulk::step(&Root::live(), process, ways, None, &mut || false).0, 0)
        }
        _ => {
            restored.skipped += 1;
            return;
        }
    };
    match result {
        StepResult::Pages(counts) => restored.pages.add(&counts),
        StepResult::Gone => restored.gone += 1,
        _ if untold > 0 => restored.pages.failed += untold,
        _ => restored.skipped += 1,
    }
}

fn moves(list: &[(u64, u8, u32)], topology: &Topology) -> Vec<PageMove> {
    let one = |&(address, shift, node): &(u64, u8, u32)| {
        let to = topology.node_of_kernel_id(node)? as u16;
        Some(PageMove { address, shift, from: to, to })
    };
    list.iter().filter_map(one).collect()
}

impl Restored {
    /// One line; actions that did not happen are left out.
    fn text(&self) -> String {
        let pages = &self.pages;
        let stuck = pages.absent + pages.busy + pages.no_memory + pages.failed;
        let frozen = &self.frozen;
        let counted = |counts: &[(u64, &str)]| -> Vec<String> {
            let happened = counts.iter().filter(|(count, _)| *count > 0);
            happened.map(|(count, what)| format!("{count} {what}")).collect()
        };
        // First of all, for they waited.
        let mut told = counted(&[
            (frozen.thawed, "frozen processes run again"),
            (frozen.running, "were running already"),
            (frozen.gone, "frozen processes have ended"),
            (frozen.refused, "could not be thawed"),
        ]);
        if self.threads != threads::Restored::default() {
            told.push(masks_told(&self.threads));
        }
        told.extend(counted(&[
            (pages.moved, "pages moved back"),
            (pages.in_place, "pages were in place"),
            (stuck, "pages could not be moved"),
            (self.gone as u64, "changes of memory of processes that have ended"),
            (self.unseen as u64, "changes of processes that cannot be read"),
            (self.skipped as u64, "entries not understood"),
        ]));
        if told.is_empty() {
            told.push("it had no change left".to_string());
        }
        let ledgers = if self.ledgers == 1 { "ledger" } else { "ledgers" };
        let mut text = format!("{} {ledgers} undone: {}\n", self.ledgers, told.join(", "));
        for file in &self.set_aside {
            text += &format!("kept for a version that understands it: {}\n", file.display());
        }
        text
    }
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
             1 changes of processes that cannot be read\n"
        );
    }
}
