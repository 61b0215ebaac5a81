//! `./x setup`: fetches what the lab needs into the cache folder, and alters nothing else.
//!
//! Each step can be interrupted, and is not repeated when it is done:
//! 1. check this machine;
//! 2. fetch the package lists;
//! 3. say what will be fetched;
//! 4. fetch and unpack;
//! 5. check what was unpacked;
//! 6. write `setup.toml`.
//!
//! Everything that it says goes to standard error: other commands run it and print results.

mod apt;
mod archive;
mod elf;
#[path = "../../lab/runner/src/fetched.rs"]
mod fetched;
#[path = "../../lab/runner/src/installed.rs"]
pub(crate) mod installed;
pub(crate) mod kernels;
pub(crate) mod linux;
mod plan;
pub(crate) mod probe;
pub(crate) mod programs;
mod record;
mod sources;
pub(crate) mod system;
mod tested;
mod unpack;
mod witness;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use apt::{Download, PrivateRoot};
use installed::Installed;
use plan::Plan;

use crate::progress::{Progress, Unit, rough};

/// Arguments of `./x setup`.
#[derive(Default, clap::Args)]
pub(crate) struct Arguments {
    /// Look for newer packages although everything is there
    #[arg(long)]
    refresh: bool,
    /// Only say what would be fetched, and how much (the package lists are fetched to know)
    #[arg(long)]
    dry_run: bool,
    /// Write down the packages that are set up as those that ./x test passed with
    #[arg(long)]
    record_tested: bool,
    /// Fetch the kernel's own event lists and SPE decoder, which ./x test compares ours with
    #[arg(long)]
    witness: bool,
    /// Fetch the packages of the real programs in lab/programs, for ./x lab programs
    #[arg(long)]
    programs: bool,
    /// Fetch the kernels of other Debian releases, for ./x lab kernels
    #[arg(long)]
    kernels: bool,
}

/// Unpacked bytes per byte of package, rounded up (measured: 390 MB from 136 MB).
const UNPACKED_PER_PACKED: u64 = 3;

/// Disk space for apt's lists and its cache of them (measured: 20 MB). On a full disk apt hangs and
/// does not fail.
const LISTS_BYTES: u64 = 100_000_000;

/// Unpacking speed in packed bytes per second, from xz on a slow core; used for the forecast only.
const UNPACK_BYTES_PER_S: f64 = 10e6;

/// Download speed for the forecast if apt reports none.
const UNKNOWN_BYTES_PER_S: f64 = 5e6;

/// The contents of `cache`. Sets it up if needed.
pub(crate) fn provide(cache: &Path) -> Result<Installed> {
    if !cache.join(installed::FILE_NAME).exists() {
        eprintln!("no setup in {} yet: fetching the lab's parts, once", cache.display());
        run(&Arguments::default())?;
    }
    Ok(Installed::load(cache)?)
}

/// The kept part of the kernel's sources. Fetches it if needed.
pub(crate) fn kernel_sources() -> Result<witness::Sources> {
    witness::provide(&installed::cache_folder(|name| std::env::var(name).ok())?)
}

/// `./x setup`.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let cache = installed::cache_folder(|name| std::env::var(name).ok())?;
    if arguments.record_tested {
        return tested::record(&Installed::load(&cache)?);
    }
    if arguments.witness {
        let lists = witness::provide(&cache)?.lists();
        eprintln!("the kernel's event lists are in {}", lists.display());
        return Ok(());
    }
    if arguments.programs {
        programs::provide(&cache, &programs::all()?, arguments.refresh)?;
        eprintln!("the packages of the suite's programs are in {}", cache.display());
        return Ok(());
    }
    if arguments.kernels {
        let images = kernels::provide(&cache, arguments.refresh)?;
        eprintln!("{} kernels are in {}", images.len(), cache.display());
        return Ok(());
    }
    let may_be_done = !arguments.refresh && !arguments.dry_run;
    if may_be_done && let Ok(installed) = Installed::load(&cache) {
        report(&installed, &cache)?;
        eprintln!("nothing to do (./x setup --refresh looks for newer packages)");
        return Ok(());
    }
    system::check()?;
    system::check_cache(&cache)?;
    let _lock = lock(&cache)?;
    check_space(LISTS_BYTES, &cache)?;
    let apt = private_root(&cache)?;
    let speed = apt.update()?;
    let plan = Plan::choose(&apt, system::find_program("x86_64-linux-gnu-gcc-12").is_none())?;
    let missing = announce(&plan, &apt.archives(), &cache, speed);
    if arguments.dry_run {
        return Ok(());
    }
    check_space(space_needed(&plan, &missing, &cache), &cache)?;
    if !missing.is_empty() {
        apt.fetch(&missing)?;
    }
    let trees = unpack_all(&plan, &apt.archives(), &cache)?;
    let installed = record::describe(&plan, &trees)?;
    record::write(installed, &cache)?;
    tidy_up(&apt, &trees, &cache)?;
    report(&Installed::load(&cache)?, &cache)
}

/// Locks the cache, so that one setup runs at a time. Closing the file, even by a kill, releases
/// the lock.
fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("setup.lock");
    let file = File::create(&path).with_context(|| format!("{}: cannot create", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("another setup works in {}; waiting for it …", cache.display());
        file.lock().with_context(|| format!("{}: cannot lock", path.display()))?;
    }
    Ok(file)
}

fn private_root(cache: &Path) -> Result<PrivateRoot> {
    let sources = sources::private_sources(&system::apt_sources()?).with_context(|| {
        format!("no entry in /etc/apt/sources.list or /etc/apt/sources.list.d carries \"{} main\"; setup uses the mirror named there", sources::RELEASE)
    })?;
    PrivateRoot::create(&cache.join("apt"), &sources)
}

/// Prints the packages to fetch, their size and a forecast of the time. Returns the missing ones.
fn announce<'plan>(
    plan: &'plan Plan,
    archives: &Path,
    cache: &Path,
    speed: Option<f64>,
) -> Vec<&'plan Download> {
    let is_unpacked = |group: &plan::Group| cache.join(group.folder()).exists();
    // Groups share some packages; each is fetched once.
    let wanted: BTreeSet<_> = plan
        .groups
        .iter()
        .filter(|group| !is_unpacked(group))
        .flat_map(|group| &group.downloads)
        .collect();
    let is_here = |download: &Download| {
        fs::metadata(archives.join(&download.file)).is_ok_and(|file| file.len() == download.bytes)
    };
    for group in &plan.groups {
        let bytes: u64 = group.downloads.iter().map(|download| download.bytes).sum();
        let state = if is_unpacked(group) { ", already unpacked" } else { "" };
        eprintln!(
            "  {:<7} {:>3} packages, {:>4.0} MB{state}",
            group.name,
            group.downloads.len(),
            megabytes(bytes)
        );
    }
    let missing: Vec<_> = wanted.iter().copied().filter(|download| !is_here(download)).collect();
    if wanted.is_empty() {
        eprintln!("nothing to fetch: these are the newest");
        return missing;
    }
    let bytes: u64 = missing.iter().map(|download| download.bytes).sum();
    let packed: u64 = wanted.iter().map(|download| download.bytes).sum();
    let seconds =
        bytes as f64 / speed.unwrap_or(UNKNOWN_BYTES_PER_S) + packed as f64 / UNPACK_BYTES_PER_S;
    eprintln!(
        "will fetch {} packages, {:.0} MB (apt's numbers), and unpack them into {} (about {:.0} MB); \
         roughly {} at the speed just seen. Nothing else on this machine is changed.",
        missing.len(),
        megabytes(bytes),
        cache.display(),
        megabytes(packed * UNPACKED_PER_PACKED),
        rough(seconds),
    );
    missing
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Unpacks every group. Returns the trees' folders.
fn unpack_all(plan: &Plan, archives: &Path, cache: &Path) -> Result<Vec<PathBuf>> {
    let pending = plan.groups.iter().filter(|group| !cache.join(group.folder()).exists());
    let total = pending.flat_map(|group| &group.downloads).map(|download| download.bytes).sum();
    let mut progress = Progress::new("unpacking", Unit::Bytes, total);
    let mut done = 0;
    let mut unpacked = |bytes| {
        done += bytes;
        progress.at(done, total);
    };
    let trees =
        plan.groups.iter().map(|group| unpack::unpack(group, archives, cache, &mut unpacked));
    let trees = trees.collect::<Result<Vec<_>>>()?;
    progress.finish();
    Ok(trees)
}

/// Disk space for fetching and unpacking, bytes.
fn space_needed(plan: &Plan, missing: &[&Download], cache: &Path) -> u64 {
    let fetched: u64 = missing.iter().map(|download| download.bytes).sum();
    let pending = plan.groups.iter().filter(|group| !cache.join(group.folder()).exists());
    let unpacked = pending
        .flat_map(|group| &group.downloads)
        .map(|download| download.bytes * UNPACKED_PER_PACKED);
    fetched + unpacked.sum::<u64>()
}

fn check_space(needed: u64, cache: &Path) -> Result<()> {
    let free = system::free_bytes(cache)?;
    if free < needed {
        bail!(
            "{}: {:.0} MB are free and about {:.0} MB are needed; make room, or choose another folder with RONDPOINT_CACHE",
            cache.display(),
            megabytes(free),
            megabytes(needed)
        );
    }
    Ok(())
}

/// Removes the package files, which are unpacked, and trees of earlier setups.
fn tidy_up(apt: &PrivateRoot, trees: &[PathBuf], cache: &Path) -> Result<()> {
    fs::remove_dir_all(apt.archives()).context("cannot remove the package files")?;
    for entry in fs::read_dir(cache).with_context(|| format!("{}: cannot list", cache.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_tree = ["host-", "kernel-", "guest-"].iter().any(|group| name.starts_with(group));
        if is_tree && !trees.contains(&path) {
            fs::remove_dir_all(&path)
                .with_context(|| format!("{}: cannot remove", path.display()))?;
        }
    }
    Ok(())
}

/// Prints the installed parts, and how they differ from the tested ones.
fn report(installed: &Installed, cache: &Path) -> Result<()> {
    let (qemu, kernel) = (&installed.host.qemu_version, &installed.kernel.release);
    let programs = installed.guest.programs.len();
    eprintln!(
        "lab parts in {}: QEMU {qemu}, guest kernel {kernel}, {programs} guest programs",
        cache.display()
    );
    for difference in tested::differences(installed)? {
        eprintln!("note: {difference}");
    }
    Ok(())
}
