//! Copies of files in memory, one on each node, and the table by which programs find them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rondpoint_core::observation::SharedObject;
use rondpoint_core::{CpuSet, Topology};
use rondpoint_linux::replicas::{self as table, FOLDERS, Identity, Table};
use rondpoint_linux::syscall::affinity;
use rondpoint_linux::syscall::memory::{MemoryPolicy, prefer_node, set_memory_policy};
use rondpoint_linux::syscall::process::{User, effective_user};
use rondpoint_linux::{Root, room};

use crate::session::Held;

/// File systems in memory that every process sees.
const MEMORY: &str = "/dev/shm";
/// A node keeps this part of its memory free of copies.
const RESERVE: u64 = 16;
/// Bytes of one reading and one writing.
const CHUNK: usize = 4 << 20;
/// Threads that fill the copies of one node, at most.
const THREADS: usize = 4;
/// Bytes of the log that are read, at most: a line of about 20 bytes for each opened file.
const MOST_LOGGED: u64 = 16 << 20;
/// What is copied to learn how fast copying is, bytes at most.
const SAMPLE: u64 = 64 << 20;

/// A file that is to be replicated.
#[derive(Debug)]
pub(super) struct Original {
    pub(super) path: PathBuf,
    pub(super) length: u64,
    /// Time of its last change: seconds and nanoseconds.
    modified: (i64, i64),
    file: File,
}

/// What happened to a file while the program ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Its content or its length is another one.
    Written,
    /// Its path leads to another file, or to none.
    Replaced,
}

impl Original {
    /// Opens it for a program that runs as `reader`; under sudo root does this.
    ///
    /// # Errors
    /// No regular file, an empty one, or one that the reader might not be able to read itself.
    pub(super) fn open(path: &Path, reader: Option<&User>) -> Result<Self> {
        let name = || path.display().to_string();
        // From here on no symbolic link can lead elsewhere.
        let real = path.canonicalize().with_context(name)?;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(table::O_NONBLOCK | table::O_NOFOLLOW)
            .open(&real)
            .with_context(name)?;
        let facts = file.metadata().with_context(name)?;
        if !facts.is_file() || facts.len() == 0 {
            bail!("{}: expected a regular file that is not empty", path.display());
        }
        if let Some(reader) = reader
            && facts.uid() != reader.user
            && !is_public(&real, &facts)
        {
            bail!(
                "{}: under sudo only files are copied that the caller owns, or that everybody may \
                 read in folders where only root writes",
                path.display()
            );
        }
        let modified = (facts.mtime(), facts.mtime_nsec());
        Ok(Self { path: path.to_owned(), length: facts.len(), modified, file })
    }
}

impl Original {
    /// What happened to the file since it was opened.
    pub(super) fn change(&self) -> Option<Change> {
        let facts = self.file.metadata().ok()?;
        if (facts.len(), (facts.mtime(), facts.mtime_nsec())) != (self.length, self.modified) {
            return Some(Change::Written);
        }
        let is_same =
            |there: &fs::Metadata| (there.dev(), there.ino()) == (facts.dev(), facts.ino());
        let is_there = fs::metadata(&self.path).is_ok_and(|there| is_same(&there));
        (!is_there).then_some(Change::Replaced)
    }

    /// The file as `/proc/PID/maps` names what is mapped.
    pub(super) fn object(&self) -> io::Result<SharedObject> {
        let facts = self.file.metadata()?;
        Ok(SharedObject { device: device_of_maps(facts.dev()), inode: facts.ino() })
    }
}

/// A device's number, with 12 bits for the major part before 20 for the minor one. stat(2) spreads
/// both (`gnu_dev_major` of glibc).
fn device_of_maps(stat: u64) -> u64 {
    let major = (stat >> 8 & 0xfff) | (stat >> 32 & !0xfff);
    let minor = (stat & 0xff) | (stat >> 12 & !0xff & 0xffff_ffff);
    major << 20 | minor
}

/// Whether every user may read the file by this path, and only root can change it.
fn is_public(path: &Path, facts: &fs::Metadata) -> bool {
    let is_safe = |folder: &Path| {
        folder.symlink_metadata().is_ok_and(|facts| {
            facts.is_dir()
                && facts.uid() == 0
                && facts.mode() & 0o001 != 0
                && facts.mode() & 0o022 == 0
        })
    };
    facts.mode() & 0o004 != 0 && path.ancestors().skip(1).all(is_safe)
}

/// A node that gets copies, and the CPUs that read them; numbers are the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: u32,
    pub(super) cpus: CpuSet,
}

/// The nodes with CPUs that the program may use.
///
/// # Errors
/// There are fewer than two.
pub(super) fn places(machine: &Topology) -> Result<Vec<Place>> {
    let allowed = affinity::get(0).context("the CPUs of this process")?;
    let mut places: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for node in machine.compute_nodes().iter() {
        let cpus = machine.cpus_of_node(node).iter().map(|cpu| machine.kernel_cpu(cpu) as usize);
        let usable = cpus.collect::<CpuSet>().intersection(&allowed);
        if !usable.is_empty() {
            let home = machine.kernel_node(machine.nearest_memory(node));
            let cpus = places.entry(home).or_default();
            *cpus = cpus.union(&usable);
        }
    }
    if places.len() < 2 {
        bail!("the program can use one memory node: the original is the nearest copy");
    }
    Ok(places.into_iter().map(|(node, cpus)| Place { node, cpus }).collect())
}

/// # Errors
/// A node, or the cgroup, has too little memory for a copy of `bytes` bytes on each node.
pub(super) fn fit(places: &[Place], bytes: u64) -> Result<()> {
    for place in places {
        let room = room::of_node(&Root::live(), place.node)?;
        let free = room.free_bytes.saturating_sub(room.total_bytes / RESERVE);
        if bytes > free {
            let [free, needed] = [free, bytes].map(|bytes| bytes.div_ceil(1 << 20));
            bail!("node {} has {free} MiB for copies; they need {needed} MiB", place.node);
        }
    }
    let needed = bytes.saturating_mul(places.len() as u64);
    if let Some(free) = room::of_cgroup(&Root::live())?
        && needed > free
    {
        let [free, needed] = [free, needed].map(|bytes| bytes.div_ceil(1 << 20));
        bail!("the cgroup's memory limit leaves {free} MiB; copies need {needed} MiB");
    }
    Ok(())
}

/// What programs do with the copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// They read them.
    Exchange,
    /// They log what they would read; there are no copies.
    Watch,
}

/// A folder of copies, removed with this value.
#[derive(Debug)]
pub(super) struct Copies {
    folder: PathBuf,
    nodes: Vec<u32>,
    /// Locked as long as this run lives, so that a later one knows what is left over.
    _lock: File,
}

impl Copies {
    /// Copies every file to every node. What killed runs left is removed before.
    ///
    /// # Errors
    /// A file cannot be read, memory cannot be written, or processes would not take the copies. Or
    /// a signal said to stop ([`is_interruption`]); the copies are gone then.
    pub(super) fn make(
        places: &[Place],
        originals: &[Original],
        mode: Mode,
        reader: Option<&User>,
    ) -> Result<Self> {
        Self::make_in(Path::new(MEMORY), places, originals, mode, reader)
    }

    fn make_in(
        memory: &Path,
        places: &[Place],
        originals: &[Original],
        mode: Mode,
        reader: Option<&User>,
    ) -> Result<Self> {
        let held = Held::begin()?;
        remove_left_over(memory);
        let nodes = places.iter().map(|place| place.node).collect();
        let copies = Self::in_new_folder(memory, nodes)?;
        mount::may_replace(originals, &copies._lock)?;
        let files = originals.iter().enumerate().map(|(position, original)| {
            let facts = original.file.metadata()?;
            let made = match mode {
                Mode::Watch => Vec::new(),
                Mode::Exchange => copies.copy(places, (position, original), reader, &held)?,
            };
            Ok(table::File {
                original: Identity { device: facts.dev(), inode: facts.ino() },
                length: original.length,
                modified: original.modified,
                copies: made,
            })
        });
        let files = files.collect::<Result<_>>()?;
        let nodes = places.iter().map(|Place { node, cpus }| table::Node {
            node: *node,
            cpus: cpus.iter().map(|cpu| cpu as u32).collect(),
        });
        let log = copies.new_file("log", 0o600, reader)?.0;
        let watch = mode == Mode::Watch;
        let table = Table { watch, log, nodes: nodes.collect(), files }.to_string();
        fs::write(copies.table(), table).context("writing the table of copies")?;
        // A signal that ended this process would leave the copies in memory.
        go_on(&held)?;
        Ok(copies)
    }

    fn in_new_folder(parent: &Path, nodes: Vec<u32>) -> Result<Self> {
        let process = std::process::id();
        for attempt in 0..100 {
            let folder = parent.join(format!("{FOLDERS}{process}-{attempt}"));
            match DirBuilder::new().mode(0o755).create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made.with_context(|| folder.display().to_string())?;
                    // Under its name it is locked from the beginning: another run that finds it
                    // free may remove the folder.
                    let new = folder.join("new");
                    let lock = File::create_new(&new).and_then(|lock| {
                        lock.lock()?;
                        fs::rename(&new, folder.join("lock"))?;
                        Ok(lock)
                    });
                    let lock = lock.with_context(|| folder.display().to_string())?;
                    return Ok(Self { folder, nodes, _lock: lock });
                }
            }
        }
        bail!("{}: too many folders of this process", parent.display())
    }

    /// A new file for the program's user. Root gives it away; else its owner is that user.
    fn new_file(&self, name: &str, mode: u32, reader: Option<&User>) -> Result<(PathBuf, File)> {
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).with_context(|| path.display().to_string())?;
        if let Some(reader) = reader {
            fchown(&file, Some(reader.user), Some(reader.group))
                .with_context(|| path.display().to_string())?;
        }
        file.set_permissions(Permissions::from_mode(mode))
            .with_context(|| path.display().to_string())?;
        Ok((path, file))
    }

    /// One copy on each node. Readable by all where the original is, else by the program's user
    /// alone. Its time of change is the original's: servers derive their answers' headers from it.
    fn copy(
        &self,
        places: &[Place],
        (position, original): (usize, &Original),
        reader: Option<&User>,
        held: &Held,
    ) -> Result<Vec<table::Copy>> {
        let facts = original.file.metadata()?;
        let all_read = facts.mode() & 0o004 != 0;
        let mode = if all_read { 0o444 } else { 0o400 };
        let targets = places.iter().map(|place| {
            let (path, file) =
                self.new_file(&format!("{position}-{}", place.node), mode, reader)?;
            file.set_len(original.length).context("making room for a copy")?;
            Ok((path, file))
        });
        let targets = targets.collect::<Result<Vec<_>>>()?;
        let fills = places.iter().zip(&targets).map(|(place, (_, target))| {
            move || fill(place, &original.file, (target, original.length), held)
        });
        all(fills).with_context(|| format!("copying {}", original.path.display()))?;
        let modified = facts.modified()?;
        let copies = targets.into_iter().map(|(path, file)| {
            file.set_modified(modified)?;
            let facts = file.metadata()?;
            let identity = Identity { device: facts.dev(), inode: facts.ino() };
            Ok(table::Copy { identity, path })
        });
        copies.collect()
    }

    /// The nodes with copies, the kernel's numbers.
    pub(super) fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// The table's path.
    pub(super) fn table(&self) -> PathBuf {
        self.folder.join("table")
    }

    /// What programs logged, up to [`MOST_LOGGED`]: the program may write there whatever it likes.
    pub(super) fn log(&self) -> String {
        let mut bytes = Vec::new();
        // What cannot be read is not told.
        let _ = File::open(self.folder.join("log"))
            .and_then(|log| log.take(MOST_LOGGED).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // What cannot be removed is left over for the next run.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Writes a copy from the node's CPUs. Its policy keeps it on the node; without one, memory comes
/// from the node that touches it first.
fn fill(
    place: &Place,
    original: &File,
    (target, length): (&File, u64),
    held: &Held,
) -> io::Result<()> {
    // Refused in containers, and by a kernel without NUMA.
    let _ = prefer_node(target.as_fd(), length as usize, place.node);
    let threads = place.cpus.len().clamp(1, THREADS) as u64;
    let part = length.div_ceil(threads).next_multiple_of(CHUNK as u64);
    let starts = (0..length).step_by(part as usize);
    all(starts.map(|start| {
        move || {
            affinity::set(0, &place.cpus)?;
            // Refused by a kernel without NUMA, where it says nothing new.
            let _ = set_memory_policy(&MemoryPolicy::Local);
            copy_range(original, target, start..length.min(start + part), held)
        }
    }))
}

/// Does each work in a thread of its own.
///
/// # Errors
/// Of one of them, or there is no room for another thread (RLIMIT_NPROC, memory).
fn all<Work>(works: impl Iterator<Item = Work>) -> io::Result<()>
where
    Work: FnOnce() -> io::Result<()> + Send,
{
    thread::scope(|scope| {
        let threads = works.map(|work| thread::Builder::new().spawn_scoped(scope, work));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().try_for_each(|thread| {
            thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn copy_range(original: &File, target: &File, range: Range<u64>, held: &Held) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let mut offset = range.start;
    while offset < range.end {
        go_on(held)?;
        let bytes = &mut buffer[..CHUNK.min((range.end - offset) as usize)];
        original.read_exact_at(bytes, offset)?;
        target.write_all_at(bytes, offset)?;
        offset += bytes.len() as u64;
    }
    Ok(())
}

/// # Errors
/// A signal said to stop.
fn go_on(held: &Held) -> io::Result<()> {
    match held.has_stopped() {
        true => Err(io::Error::new(io::ErrorKind::Interrupted, "a signal said to stop")),
        false => Ok(()),
    }
}

/// Whether an error is that a signal said to stop.
pub(super) fn is_interruption(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::Interrupted)
    })
}

/// Bytes per second at which copies to all nodes are filled together, from the file's beginning.
///
/// # Errors
/// The file cannot be read, memory cannot be written, or a signal said to stop.
pub(super) fn measure(places: &[Place], original: &Original) -> Result<f64> {
    let held = &Held::begin()?;
    let length = original.length.min(SAMPLE);
    let trial = Copies::in_new_folder(Path::new(MEMORY), Vec::new())?;
    let sample = |round: u32| -> Result<f64> {
        let targets = places
            .iter()
            .map(|place| Ok(trial.new_file(&format!("{round}-{}", place.node), 0o600, None)?.1));
        let targets = targets.collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        let fills = places.iter().zip(&targets);
        all(fills
            .map(|(place, target)| move || fill(place, &original.file, (target, length), held)))?;
        Ok((length * places.len() as u64) as f64 / began.elapsed().as_secs_f64())
    };
    // The first time the file may come from its disk.
    sample(0)?;
    sample(1)
}

/// Removes this user's folders of runs that have ended: their lock is free.
fn remove_left_over(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(FOLDERS)
            && entry
                .metadata()
                .is_ok_and(|facts| facts.is_dir() && facts.uid() == effective_user());
        if !is_ours {
            continue;
        }
        let lock = OpenOptions::new()
            .write(true)
            .custom_flags(table::O_NOFOLLOW | table::O_NONBLOCK)
            .open(entry.path().join("lock"));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

mod mount;

#[cfg(test)]
mod tests;
