//! Runs many programs in parallel, each in its own boot, or takes the result from the cache.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_machine::Machine;

use crate::cache::Cache;
use crate::configuration::{self, Configuration, Order, RECORD_PATH, REPORT_PATH};
use crate::initramfs::Initramfs;
use crate::lab::Lab;
use crate::progress::{Progress, Unit};
use crate::result::{RunResult, summarise};
use crate::side_by_side::side_by_side;
use crate::stage_times::Line;
use crate::vm::{Boot, Record};
use crate::whole::whole;

/// Pause between two looks at the clock while runs are being emulated.
const TICK: Duration = Duration::from_secs(1);

/// Memory that an emulated machine may take, bytes: the guest's, mostly 1 to 2 GB, and QEMU's own.
const MACHINE_BYTES: u64 = 2_500_000_000;

/// Machines that are emulated side by side unless told: each needs a core, and room in memory.
pub(crate) fn default_jobs() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    jobs(cores, available_bytes(&meminfo).unwrap_or(u64::MAX))
}

fn jobs(cores: usize, available_bytes: u64) -> usize {
    let room = usize::try_from(available_bytes / MACHINE_BYTES).unwrap_or(usize::MAX);
    cores.min(room).clamp(1, 8)
}

/// What `/proc/meminfo` says can be had without swapping.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// What every command takes that compares runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Series {
    /// Runs of each program under each placement; each seed is another address layout and another
    /// start
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>("runs", 1..=1000))]
    pub(crate) seeds: u64,
    /// Machines to emulate side by side
    #[arg(long, value_name = "N", default_value_t = default_jobs(), value_parser = whole::<usize>("machines", 1..=256))]
    pub(crate) jobs: usize,
    /// Emulate even where the same run is in the cache
    #[arg(long)]
    no_cache: bool,
    /// One JSON object on standard output instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

impl Series {
    /// The cache, unless it is not to be used.
    pub(crate) fn cache(&self, lab: &Lab) -> Result<Option<Cache>> {
        (!self.no_cache).then(|| Cache::open(lab)).transpose()
    }
}

/// What all runs share.
pub(crate) struct Batch<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) machine: &'a Machine,
    /// Host time after which a run is given up.
    pub(crate) limit: Duration,
    pub(crate) cache: Option<Cache>,
    /// Where Rondpoint's records and reports go; they are not in the cache.
    pub(crate) keep: Option<&'a Path>,
    /// The file that is told how long each run took.
    pub(crate) times: Option<&'a Path>,
    /// Whether this is the only batch at work, so that the terminal's last line is its own.
    pub(crate) alone: bool,
}

/// One run.
#[derive(Clone)]
pub(crate) struct Task<'a> {
    /// What progress calls it, where there are several programs.
    pub(crate) title: Option<&'a str>,
    /// The guest with the program in it.
    pub(crate) guest: &'a Initramfs,
    /// The program in the guest and its arguments.
    pub(crate) command: &'a [String],
    /// Files of the guest that `--replicate` names.
    pub(crate) replicated: &'a [String],
    pub(crate) configuration: Configuration,
    pub(crate) seed: u64,
}

impl Task<'_> {
    fn name(&self) -> String {
        let title = self.title.map(|title| format!("{title}, ")).unwrap_or_default();
        format!("{title}{}, seed {}", self.configuration, self.seed)
    }
}

/// How one run came about.
struct Done {
    result: RunResult,
    cached: bool,
}

impl Batch<'_> {
    /// Carries all tasks out, `jobs` at a time; results are in the tasks' order. The first failure
    /// ends the rest.
    pub(crate) fn all(&self, tasks: &[Task<'_>], jobs: usize) -> Result<Vec<RunResult>> {
        let total = tasks.len() as u64;
        let progress = Progress::new("emulating", Unit::Pieces("runs"), total);
        let progress = if self.alone { progress } else { progress.without_bar() };
        let progress = Mutex::new((progress, 0));
        let locked = || progress.lock().expect("no thread panics with the progress");
        let (end, ended) = mpsc::channel::<()>();
        let results = std::thread::scope(|scope| {
            if self.alone {
                scope.spawn(move || {
                    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                        locked().0.tick();
                    }
                });
            }
            let results = side_by_side(tasks.len(), jobs, |index| {
                let started = Instant::now();
                let done = self.one(&tasks[index]).with_context(|| tasks[index].name())?;
                let (progress, finished) = &mut *locked();
                *finished += 1;
                progress.advance(*finished, total);
                let took = started.elapsed();
                if let Some(path) = self.times {
                    Line::stage(&tasks[index].name(), took).add_to(path)?;
                }
                let line = line(&tasks[index], (*finished, total), took, done.cached);
                let forecast = progress.forecast().filter(|_| self.alone && *finished < total);
                progress.tell(&forecast.map_or(line.clone(), |left| format!("{line}; {left}")));
                Ok(done.result)
            });
            drop(end);
            results
        });
        let (progress, _) = progress.into_inner().expect("no thread panics with the progress");
        match self.alone && results.is_ok() {
            true => progress.finish(),
            false => progress.clear(),
        }
        results
    }

    fn one(&self, task: &Task<'_>) -> Result<Done> {
        let mut guest = task.guest.clone();
        if task.configuration.is_rondpoint() {
            configuration::add_product(&mut guest, &self.lab.built, self.machine)?;
        }
        if task.configuration.replicates() {
            configuration::add_interpose(&mut guest, &self.lab.built)?;
        }
        let installed = &self.lab.installed;
        let keeps = self.keep.is_some() && task.configuration.is_rondpoint();
        let with_job =
            if keeps { configuration::with_recording_job } else { configuration::with_job };
        let Task { configuration, command, replicated, seed, .. } = *task;
        let guest =
            with_job(guest, installed, &Order { configuration, command, replicated, seed })?;
        let archive = guest.archive()?;
        let key = self.cache.as_ref().map(|cache| cache.key(self.machine, &archive, task.seed));
        if let (Some(cache), Some(key), false) = (&self.cache, &key, keeps)
            && let Some(result) = cache.get(key)
        {
            return Ok(Done { result, cached: true });
        }
        let boot = Boot {
            installed,
            built: &self.lab.built,
            machine: self.machine,
            initramfs: &archive,
            seed: task.seed,
            limit: self.limit,
        };
        let record = boot.run()?;
        let result = summarise(task.seed, self.machine, &record).map_err(anyhow::Error::msg)?;
        if task.configuration.is_rondpoint() && result.rondpoint.is_none() {
            let said = result.stderr.trim();
            bail!("rondpoint left no report ({:?}); it said: {said}", result.ending);
        }
        if let (true, Some(folder)) = (keeps, self.keep) {
            keep(folder, task, &record)?;
        }
        if let (Some(cache), Some(key)) = (&self.cache, &key) {
            cache.put(key, &result)?;
        }
        Ok(Done { result, cached: false })
    }
}

/// Writes what Rondpoint left, as `CONFIGURATION-SEED.trace` and `.report.json`.
fn keep(folder: &Path, task: &Task<'_>, record: &Record) -> Result<()> {
    for (path, end) in [(RECORD_PATH, "trace"), (REPORT_PATH, "report.json")] {
        let bytes = record.files.get(path).with_context(|| format!("rondpoint left no {end}"))?;
        let file = folder.join(format!("{}-{}.{end}", task.configuration, task.seed));
        fs::write(&file, bytes).with_context(|| format!("{}: cannot write", file.display()))?;
    }
    Ok(())
}

/// `[3/20] k-means, numad, seed 1: 17 s`.
fn line(task: &Task<'_>, (done, total): (u64, u64), took: Duration, cached: bool) -> String {
    let how =
        if cached { "from the cache".to_owned() } else { format!("{:.0} s", took.as_secs_f64()) };
    format!("[{done}/{total}] {}: {how}", task.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_side_by_side_need_cores_and_memory() {
        assert_eq!(jobs(2, 24_000_000_000), 2);
        assert_eq!(jobs(16, 64_000_000_000), 8);
        assert_eq!(jobs(16, 11_000_000_000), 4);
        assert_eq!(jobs(4, 1_000_000_000), 1);
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        let meminfo = "MemTotal:       24628184 kB\nMemAvailable:    9876543 kB\nBuffers: 1 kB\n";
        assert_eq!(available_bytes(meminfo), Some(9_876_543 * 1024));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
    }
}
