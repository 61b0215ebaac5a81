//! Ledgers of killed managers, and `rondpoint restore`, which undoes their entries.

mod restored;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use rondpoint_core::plan::{PageCounts, PageMove, StepResult};
use rondpoint_core::{Nanos, Pid, Topology};
use rondpoint_linux::act::Identity;
use rondpoint_linux::act::copies;
use rondpoint_linux::act::pages::{self, Origin};
use rondpoint_linux::act::threads;
use rondpoint_linux::bulk;
use rondpoint_linux::freeze;
use rondpoint_linux::ledger_file::{self, Ended, Entry, Found, LedgerFile, Left};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::syscall::pages::Reach;
use rondpoint_linux::syscall::process;
use rondpoint_linux::{Root, topology};

pub(crate) use self::restored::masks_told;
use self::restored::{Due, Restored};
use crate::story::words::many;
use crate::terminal;

/// Put back what killed managers have changed; does nothing where there is nothing left
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo rondpoint restore --dry-run     # list them first
  sudo rondpoint restore

Pages that a trial has judged stay where they are.

Exit status: 0 all else is as before, 1 something could not be put back.")]
pub(crate) struct Arguments {
    /// Only say what would be put back
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
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
    if others > 0 && process::effective_user() == 0 {
        say(format!(
            "the daemon's user left {} in {}, which root does not trust; the daemon undoes them \
             when it starts: systemctl start rondpoint",
            many(others as u64, "ledger"),
            service.display()
        ));
    }
    let whole = restored.is_whole() && unusable + others == 0;
    if arguments.json {
        return Ok((restored.json(arguments.dry_run.then_some(&due))?, whole));
    }
    let text = match (restored.ledgers, arguments.dry_run) {
        // What could not be read was told.
        (0, _) if unusable + others > 0 => String::new(),
        (0, _) => nothing_left(process::effective_user() == 0).to_string(),
        (count, true) => due.text(count),
        (_, false) => restored.text(),
    };
    Ok((text, whole))
}

/// Only root sees the ledgers of root's managers and of the daemon.
fn nothing_left(is_root: bool) -> &'static str {
    match is_root {
        true => "nothing was left behind\n",
        false => {
            "nothing of this user was left behind; for what root's managers or the daemon left: \
             sudo rondpoint restore\n"
        }
    }
}

/// At the start of a manager: what its dead predecessors left.
pub(crate) fn put_back_what_was_left(folder: &Path, topology: &Topology) -> Result<()> {
    put_back_after("an earlier manager was killed", folder, topology)
}

/// After a failure, which is told as `cause`: what this manager left, and dead ones.
pub(crate) fn put_back_after(cause: &str, folder: &Path, topology: &Topology) -> Result<()> {
    let mut restored = Restored::default();
    ledger_file::each_left(folder, |found| match found {
        Found::Unusable(error) => terminal::say(&format!("rondpoint: not restored: {error}\n")),
        Found::Ended(ledger) => terminal::say(&format!("rondpoint: {}\n", set_aside(&ledger))),
        Found::Left(left) => work_off(&left, topology, &mut restored),
    })?;
    if restored.ledgers > 0 {
        terminal::say(&format!("rondpoint: {cause}; {}", restored.text()));
    }
    Ok(())
}

/// Takes a manager's own ledger away. It stays for `restore` if a living process was stopped by it
/// and not resumed, because the kernel refused that.
///
/// # Errors
/// A process may be stopped still, or the ledger cannot be read or removed.
pub(crate) fn close(ledger: LedgerFile) -> Result<()> {
    // A file that was moved or removed has nothing that a restore would find.
    if !ledger.is_lost() {
        let path = ledger.path().to_path_buf();
        let bytes = std::fs::read(&path)
            .with_context(|| format!("{}: it stays, for it cannot be read", path.display()))?;
        let stopped = stopped(&String::from_utf8_lossy(&bytes));
        // An error leaves the answer open, and then the ledger stays.
        if let Some(one) = stopped.iter().find(|one| !matches!(one.lives(&Root::live()), Ok(false)))
        {
            bail!(
                "process {} may be stopped still; to resume it: rondpoint restore (its ledger is \
                 {})",
                one.pid,
                path.display()
            );
        }
    }
    Ok(ledger.close()?)
}

/// Processes that a ledger says are stopped.
fn stopped(text: &str) -> BTreeSet<Identity> {
    // A ledger may be long, and its other entries need not be read.
    const TAGS: [&str; 2] = ["{\"entry\":\"freeze\"", "{\"entry\":\"thaw\""];
    let mut stopped = BTreeSet::new();
    for line in text.lines().filter(|line| TAGS.iter().any(|tag| line.starts_with(tag))) {
        let identity = |pid, started| Identity { pid: Pid(pid), started: Nanos(started) };
        match serde_json::from_str(line) {
            Ok(Entry::Freeze { pid, started, .. }) => {
                stopped.insert(identity(pid, started));
            }
            Ok(Entry::Thaw { pid, started }) => {
                stopped.remove(&identity(pid, started));
            }
            _ => {}
        }
    }
    stopped
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
    // with: a later manager may have changed again what it names.
    if threads.refused + frozen.refused == 0 && restored.unseen == unseen {
        restored.set_aside.extend(ledger.settle());
    } else {
        restored.kept += 1;
    }
}

/// Undoes one change of memory.
fn put_back(entry: &Entry, topology: &Topology, restored: &mut Restored) {
    let Some(process) = entry.process() else { return };
    match process.lives(&Root::live()) {
        Ok(true) => {}
        Ok(false) => return restored.gone += 1,
        Err(_) => return restored.unseen += 1,
    }
    let result = match entry {
        Entry::Pages { pages: list, .. } => {
            let (kernel, moves) = (pages::Live(Reach::Own), moves(list, topology));
            let homeless = (list.len() - moves.len()) as u64;
            let result = pages::relocate(&kernel, process.pid, &moves, Origin::Any, topology);
            of_pages(result, moves.len() as u64, homeless)
        }
        Entry::Copies { ranges, .. } => copies::drop_copies(&Root::live(), process, ranges),
        Entry::Memory { nodes, .. } => {
            // No process has to stand still for it.
            bulk::move_back(&Root::live(), process, nodes.iter().copied().collect())
        }
        _ => StepResult::Unsupported,
    };
    restored.take_in(result);
}

/// A refusal of all pages as counts, with those whose node this machine does not have.
fn of_pages(result: StepResult, pages: u64, homeless: u64) -> StepResult {
    let counts = match result {
        StepResult::Pages(counts) => counts,
        StepResult::Refused { .. } => PageCounts { failed: pages, ..PageCounts::default() },
        other => return other,
    };
    StepResult::Pages(PageCounts { failed: counts.failed + homeless, ..counts })
}

fn moves(list: &[(u64, u8, u32)], topology: &Topology) -> Vec<PageMove> {
    let one = |&(address, shift, node): &(u64, u8, u32)| {
        let to = topology.node_of_kernel_id(node)? as u16;
        Some(PageMove { address, shift, from: to, to })
    };
    list.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use rondpoint_core::topology::synthetic;
    use rondpoint_linux::freeze::Means;

    use super::*;

    #[test]
    fn a_user_is_told_whose_ledgers_are_not_seen() {
        assert!(nothing_left(false).contains("sudo rondpoint restore"));
        assert!(!nothing_left(true).contains("sudo"));
    }

    /// The end of a manager must not take away the only word of a process that stands still.
    #[test]
    fn a_ledger_of_a_process_that_was_not_resumed_outlives_its_manager() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = Identity::of(&Root::live(), Pid(std::process::id())).expect("this process");
        let earlier = Identity { started: Nanos(1), ..own };
        let line = |entry: &Entry| serde_json::to_string(entry).expect("JSON") + "\n";
        let thaw = |one: Identity| Entry::Thaw { pid: one.pid.0, started: one.started.0 };
        let (stays, goes) = (true, false);
        for (process, resumed, expected) in [
            (own, None, stays),
            (own, Some(earlier), stays),
            (own, Some(own), goes),
            (earlier, None, goes),
        ] {
            let mut ledger = LedgerFile::create(folder.path(), &Root::live()).expect("a ledger");
            let path = ledger.path().to_path_buf();
            drop(ledger.freeze(process, Means::Signal).expect("written"));
            let said = resumed.map(|one| line(&thaw(one))).unwrap_or_default();
            let mut text = std::fs::read(&path).expect("bytes");
            // A line that is no text hides no other.
            text.extend_from_slice(b"\xff\n");
            text.extend_from_slice(said.as_bytes());
            std::fs::write(&path, text).expect("written");
            let closed = close(ledger).map_err(|error| error.to_string());
            assert_eq!((closed.is_err(), path.exists()), (expected, expected), "{closed:?}");
            let _ = std::fs::remove_file(&path);
        }
    }

    /// The memory of this process is to go to a node that no machine of ours has.
    #[test]
    fn pages_that_cannot_be_put_back_are_a_failure_and_their_ledger_is_done_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("1-1-1.ledger");
        let own = Identity::of(&Root::live(), Pid(std::process::id())).expect("this process");
        let place = vec![1u8; 8192];
        let page = (place.as_ptr() as u64).next_multiple_of(4096);
        let mut text = r#"{"entry":"manager","format":1,"pid":1,"started":1}"#.to_string() + "\n";
        for (plan, pid, started) in [(3, own.pid.0, own.started.0), (4, 1, 1)] {
            let entry = Entry::Pages { plan, pid, started, pages: vec![(page, 12, 63)] };
            let _ = writeln!(text, "{}", serde_json::to_string(&entry).expect("JSON"));
        }
        std::fs::write(&file, text).expect("written");
        let machine = synthetic::parse("node:64 core:1").expect("a machine");
        let mut restored = Restored::default();
        let done = ledger_file::each_left(folder.path(), |found| {
            let Found::Left(left) = found else { panic!("{found:?}") };
            work_off(&left, &machine, &mut restored);
        });
        done.expect("a private folder");
        assert_eq!((restored.gone, restored.kept, restored.is_whole()), (1, 0, false));
        assert!(restored.text().contains("1 page could not be moved back"), "{}", restored.text());
        assert!(!file.exists());
        drop(place);
    }
}
