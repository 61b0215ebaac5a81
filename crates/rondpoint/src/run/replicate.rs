//! `rondpoint run --replicate`: every process of the program reads the copy of a file on its own
//! node.
//!
//! The copies are files in memory, filled by threads on each node. A preloaded library opens them
//! in place of the original, and logs each opened file. If that is not possible, the program runs
//! without copies, and the report says why.

mod copies;
mod outlook;
mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rondpoint_core::limits::MAX_NODES;
use rondpoint_core::observation::SharedObject;
use rondpoint_linux::replicas::{LIBRARY, TABLE_VARIABLE};
use rondpoint_linux::syscall::process::User;
use rondpoint_linux::topology::Discovered;

use self::copies::{Change, Copies, Mode, Original};
use self::outlook::Outlook;
use super::files_read::CopiesWorth;
use crate::session::Held;

/// What was done for `--replicate`, until the program has ended.
pub(super) struct Replication {
    copies: Option<Copies>,
    originals: Vec<Original>,
    /// What the library that is preloaded is called, where it is.
    preload: Option<PathBuf>,
    outlook: Option<Outlook>,
    /// Why there are no copies, and what else there is to say.
    notes: Vec<String>,
    /// A signal that ended this process would leave the copies in memory. Dropped after them.
    held: Option<Held>,
}

/// What a run offers.
pub(super) struct Request<'a> {
    pub(super) paths: &'a [PathBuf],
    pub(super) command: &'a [OsString],
    pub(super) machine: &'a Discovered,
    pub(super) caller: Option<&'a User>,
    pub(super) dry_run: bool,
}

impl Replication {
    /// Makes the copies. Without paths there is nothing to do.
    ///
    /// # Errors
    /// A path that is not a regular file with something in it. Or a signal said to stop; it ends
    /// this process.
    pub(super) fn prepare(request: &Request<'_>) -> Result<Self> {
        let originals = request.paths.iter().map(|path| Original::open(path, request.caller));
        let originals = originals.collect::<Result<Vec<_>>>().context("--replicate")?;
        let (copies, preload, outlook) = (None, None, None);
        let notes = Vec::new();
        let mut replication = Self { copies, originals, preload, outlook, notes, held: None };
        if !request.paths.is_empty() {
            replication.held = Some(Held::begin()?);
            match replication.make(request) {
                Ok(copies) => replication.copies = Some(copies),
                Err(reason) if copies::is_interruption(&reason) => return Err(reason),
                Err(reason) => replication.notes.push(format!("no copies: {reason:#}")),
            }
        }
        Ok(replication)
    }

    fn make(&mut self, request: &Request<'_>) -> Result<Copies> {
        let places = copies::places(&request.machine.topology)?;
        let preload = library()?;
        program::may_preload(request.command)?;
        let bytes = self.originals.iter().map(|original| original.length).sum();
        let fits = copies::fit(&places, bytes);
        let mode = if request.dry_run { Mode::Watch } else { Mode::Exchange };
        if request.dry_run {
            let fill_bytes_per_s = copies::measure(&places, &self.originals[0])?;
            let caches = request.machine.caches.iter();
            let cache_bytes = caches.map(|cache| cache.bytes).max().unwrap_or(0);
            let refusal = fits.err().map(|refusal| refusal.to_string());
            self.outlook = Some(Outlook { fill_bytes_per_s, cache_bytes, refusal });
        } else {
            fits?;
        }
        let copies = Copies::make(&places, &self.originals, mode, request.caller)?;
        self.preload = Some(preload);
        Ok(copies)
    }

    /// What holds signals back until the program is forked.
    pub(super) fn held(&mut self) -> Option<&mut Held> {
        self.held.as_mut()
    }

    /// The program's environment: this one's, and what the library needs.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<_> = std::env::vars_os().collect();
        if let (Some(copies), Some(preload)) = (&self.copies, &self.preload) {
            let mut libraries = preload.clone().into_os_string();
            if let Some((_, before)) = environment.iter().find(|(name, _)| name == "LD_PRELOAD") {
                libraries.push(":");
                libraries.push(before);
            }
            environment.retain(|(name, _)| name != "LD_PRELOAD" && name != TABLE_VARIABLE);
            environment.push(("LD_PRELOAD".into(), libraries));
            environment.push((TABLE_VARIABLE.into(), copies.table().into()));
        }
        environment
    }

    /// The files of which is to be found out what copies would win.
    pub(super) fn asked(&self) -> Vec<SharedObject> {
        let originals = self.outlook.iter().flat_map(|_| &self.originals);
        originals.filter_map(|original| original.object().ok()).collect()
    }

    /// What is to be said once the program has ended. The copies are freed.
    pub(super) fn finish(mut self, worth: Option<CopiesWorth>) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let _ = writeln!(text, "replicate: {note}");
        }
        let Some(copies) = self.copies.take() else { return text };
        let opened = Opened::read(&copies.log(), self.originals.len());
        for (position, original) in self.originals.iter().enumerate() {
            let opens = opened.by_file.get(&position);
            let none = BTreeMap::new();
            let by_node = opens.unwrap_or(&none);
            let line = match &self.outlook {
                Some(outlook) => {
                    outlook.say(original.length, copies.nodes(), by_node, &opened, worth)
                }
                None => said(original.length, copies.nodes(), by_node),
            };
            let _ = writeln!(text, "replicate: {}: {line}", original.path.display());
            if let Some(change) = original.change() {
                let words = meanwhile(change, self.outlook.is_some());
                let _ = writeln!(text, "replicate: {}: {words}", original.path.display());
            }
        }
        if let Some(process) = opened.roaming.first() {
            let others = match opened.roaming.len() {
                1 => String::new(),
                count => format!(" and {} others", count - 1),
            };
            let read = if self.outlook.is_some() { "would read" } else { "read" };
            let _ = writeln!(
                text,
                "replicate: process {process}{others} may run on several nodes: all its threads \
                 {read} the copy of the node on which it opened the file. Bind each process to a \
                 node, or give each thread its copy with the library rondpoint-replica"
            );
        }
        text
    }
}

/// What a change of a file means for processes that have its copy, or would have it.
fn meanwhile(change: Change, is_dry: bool) -> &'static str {
    match (change, is_dry) {
        (Change::Written, false) => {
            "it was written while the program ran. A process that had opened its copy before did \
             not see that; one that opened it later read the original"
        }
        (Change::Written, true) => {
            "it was written while the program ran. A process that had opened a copy before would \
             not have seen that: do not replicate it"
        }
        (Change::Replaced, false) => {
            "it was replaced or removed while the program ran. A process that opened the new file \
             read it without copies"
        }
        (Change::Replaced, true) => {
            "it was replaced or removed while the program ran. The new file would have no copies"
        }
    }
}

/// One line about a file that has copies.
fn said(length: u64, nodes: &[u32], by_node: &BTreeMap<u32, u64>) -> String {
    let mib = length.div_ceil(1 << 20);
    let copies = format!("{} copies of {mib} MiB", nodes.len());
    if by_node.is_empty() {
        return format!(
            "{copies}; no process opened it. Programs that are linked statically or run with other \
             privileges (setuid) load no library"
        );
    }
    let counts: Vec<String> =
        by_node.iter().map(|(node, opens)| format!("node {node}: {opens}")).collect();
    format!("{copies}; opened on {}", counts.join(", "))
}

/// What the library logged.
#[derive(Debug, Default, PartialEq, Eq)]
struct Opened {
    /// Opens by position of the file, then by node.
    by_file: BTreeMap<usize, BTreeMap<u32, u64>>,
    /// Processes that may run on several nodes, each once.
    roaming: Vec<u32>,
}

impl Opened {
    /// The log about this number of files. Lines that make no sense are left out: the program can
    /// write to the log.
    fn read(log: &str, files: usize) -> Self {
        let mut opened = Self::default();
        let mut known = BTreeSet::new();
        for line in log.lines() {
            let numbers: Vec<u32> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [process, file, node, may_leave] = numbers[..] else { continue };
            if file as usize >= files || node as usize >= MAX_NODES {
                continue;
            }
            *opened.by_file.entry(file as usize).or_default().entry(node).or_insert(0) += 1;
            if may_leave == 1 && known.insert(process) {
                opened.roaming.push(process);
            }
        }
        opened
    }
}

/// The library, beside this program or where packages put it.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program's own path")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib/rondpoint").join(LIBRARY)];
    let Some(found) = places.iter().find(|path| path.is_file()) else {
        bail!("{LIBRARY} is neither in {} nor in ../lib/rondpoint", folder.display());
    };
    let found = found.canonicalize().with_context(|| found.display().to_string())?;
    if found.to_string_lossy().contains([':', ' ']) {
        bail!("{}: the dynamic linker takes no path with a colon or a space", found.display());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_counted_and_nonsense_left_out() {
        let log = "7 0 1 0\n7 0 1 0\nx\n9 0 0 1\n9 1 0 1\n1 2\n7 2 1 0\n7 0 4000000000 0\n";
        let opened = Opened::read(log, 2);
        let expected: BTreeMap<usize, BTreeMap<u32, u64>> =
            [(0, [(0, 1), (1, 2)].into()), (1, [(0, 1)].into())].into();
        assert_eq!((opened.by_file, opened.roaming), (expected, vec![9]));
    }

    /// The program may write whatever it likes, and its end waits for this.
    #[test]
    fn a_log_of_many_processes_is_read_in_time() {
        let log: String = (0..200_000).map(|process| format!("{process} 0 1 1\n")).collect();
        let began = std::time::Instant::now();
        let opened = Opened::read(&log, 1);
        assert_eq!(opened.roaming.len(), 200_000);
        assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn a_dry_run_warns_of_a_file_that_the_program_writes() {
        assert!(meanwhile(Change::Written, true).ends_with("do not replicate it"));
        assert!(meanwhile(Change::Written, false).contains("did not see that"));
        assert!(meanwhile(Change::Replaced, false).contains("without copies"));
    }

    #[test]
    fn a_file_that_nothing_opened_is_said() {
        assert_eq!(
            said(5 << 20, &[0, 3], &[(3, 2), (0, 1)].into()),
            "2 copies of 5 MiB; opened on node 0: 1, node 3: 2"
        );
        assert!(said(1, &[0, 1], &BTreeMap::new()).contains("no process opened it"));
    }
}
