//! `./x lab …`: builds the lab's parts into `target/lab`, then hands the rest of the line to
//! `rondpoint-lab` there.
//!
//! What runs in the guest is linked statically, so that it needs nothing of the guest's file
//! system. The guest driver is built by Debian's own kernel build system from the headers in the
//! cache.

#[path = "../../lab/runner/src/built.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "only the runner looks for the parts"))]
pub(crate) mod built;

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context as _, Result, bail};

use crate::commit::commit;
use crate::progress::{Progress, Unit};
use crate::setup::installed::{Installed, OwnKernel, cache_folder};
use crate::test::Tally;
use crate::tidy::root;
use crate::times::Times;
use crate::trusted::Trusted;
use crate::watched::watched;
use crate::{cargo, dist, kernel, setup};

/// The target that guest programs are built for. Naming it keeps static linking away from build
/// scripts.
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Arguments of `./x lab`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Arguments of rondpoint-lab; --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds the parts, then becomes `rondpoint-lab`. `./x lab kernel` is handled here, because only a
/// repository can build a kernel.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let words: Vec<&str> = arguments.arguments.iter().map(String::as_str).collect();
    match words.split_first() {
        Some((&"kernel", rest)) => kernel::run(rest),
        Some((&"adversary", rest)) => crate::adversary::run(rest),
        Some((&"programs", rest)) if !asks_for_help(&words) => {
            let folder = setup::programs::provide_named(rest)?.display().to_string();
            become_runner(&[&["programs", "--folder", &folder], rest].concat())
        }
        Some((&"screens", rest)) if !asks_for_help(&words) => {
            let (folder, commit) = (screens_folder(), commit().unwrap_or_default());
            let head = ["screens", "--folder", &folder, "--commit", &commit];
            become_runner(&[&head[..], rest].concat())
        }
        Some((&"lifecycle", rest)) if !asks_for_help(&words) => {
            let inputs = Lifecycle::provide()?;
            become_runner(&[&inputs.words(), rest].concat())
        }
        Some((&"kernels", rest)) if !asks_for_help(&words) => {
            let images = kernel_images(rest)?;
            let images = images.iter().map(String::as_str);
            become_runner(
                &["kernels"]
                    .into_iter()
                    .chain(rest.iter().copied())
                    .chain(images)
                    .collect::<Vec<_>>(),
            )
        }
        _ => become_runner(&words),
    }
}

/// The kernels to try if a line names none: the lab's own and those of other releases.
fn kernel_images(words: &[&str]) -> Result<Vec<String>> {
    if words.iter().any(|word| !word.starts_with('-')) {
        return Ok(Vec::new());
    }
    let cache = cache_folder(|name| env::var(name).ok())?;
    let own = setup::provide(&cache)?.kernel.image;
    let mut images = setup::kernels::provide(&cache, false)?;
    images.insert(images.len() - 1, own);
    Ok(images.iter().map(|image| image.display().to_string()).collect())
}

/// Builds the parts, then replaces this process by `rondpoint-lab` with `arguments`; returns only
/// when that fails. Help needs `rondpoint-lab` alone, and no setup.
pub(crate) fn become_runner(arguments: &[&str]) -> Result<()> {
    let program = if asks_for_help(arguments) {
        static_build("building the lab's command", &target_folder(), &["rondpoint-lab"])?
            .join(built::RUNNER)
    } else {
        build_for(arguments, &Times::none())?.join(built::RUNNER)
    };
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("{}: cannot run", program.display()))
}

/// Builds the parts, then runs `rondpoint-lab` with `arguments`; both add their stages to the file
/// of times.
pub(crate) fn run_timed(arguments: &[&str], times: &Times) -> Result<ExitStatus> {
    let program = build_for(arguments, times)?.join(built::RUNNER);
    let mut command = Command::new(&program);
    command.args(arguments);
    if let Some(path) = times.path() {
        command.arg("--times").arg(path);
    }
    command.status().with_context(|| format!("{}: cannot run", program.display()))
}

/// Whether the user asks the lab's command or a subcommand for help. Further words may belong to a
/// program, which has a `--help` of its own.
pub(crate) fn asks_for_help(arguments: &[&str]) -> bool {
    let is_help = |word: &&str| matches!(*word, "-h" | "--help");
    arguments.iter().take(2).any(is_help) || arguments.is_empty()
}

/// The lab's own checks. Each prints target, measured value and verdict.
pub(crate) fn test() -> Result<Tally> {
    runner(&["physics"])
}

/// Rondpoint's promises, each tried in the guest. Each prints target, measured value and verdict.
pub(crate) fn live() -> Result<Tally> {
    runner(&["live"])
}

/// Tries `rondpoint calibrate` in the guest on one machine, the fastest. The others are tried by
/// hand.
pub(crate) fn calibration() -> Result<Tally> {
    runner(&["calibration", "nmass-2"])
}

/// Tries the fastest program of the suite, alone and under Rondpoint. Fetches its packages, runs it
/// and checks its result.
pub(crate) fn real_program() -> Result<Tally> {
    const NAME: &str = "sort";
    let folder = setup::programs::provide_named(&[NAME])?.display().to_string();
    let one = ["--jobs", "1", "--config", "first-touch,rondpoint"];
    runner(&[&["programs", NAME, "--folder", &folder][..], &one].concat())
}

fn screens_folder() -> String {
    root().join("docs/screens").display().to_string()
}

/// Checks the guide's screens: their commands must print the same text, except figures.
pub(crate) fn screens() -> Result<Tally> {
    runner(&["screens", "--check", "--folder", &screens_folder()])
}

/// The Debian package, and a guest with systemd in which it is tried.
struct Lifecycle {
    package: String,
    script: String,
    system: String,
}

impl Lifecycle {
    /// Builds the package and fetches the guest's packages.
    fn provide() -> Result<Self> {
        let cache = cache_folder(|name| env::var(name).ok())?;
        let system = root().join("lab/debian.toml");
        setup::programs::provide(&cache, std::slice::from_ref(&system), false)?;
        let shown = |path: &Path| path.display().to_string();
        Ok(Self {
            package: shown(&dist::debian_package()?),
            script: shown(&root().join("packaging/lifecycle.sh")),
            system: shown(&system),
        })
    }

    fn words(&self) -> [&str; 6] {
        ["lifecycle", &self.package, "--script", &self.script, "--system", &self.system]
    }
}

/// The Debian package under systemd, from its installation to its purge.
pub(crate) fn lifecycle() -> Result<Tally> {
    runner(&Lifecycle::provide()?.words())
}

fn runner(arguments: &[&str]) -> Result<Tally> {
    let program = build_for(arguments, &Times::none())?.join(built::RUNNER);
    let status = Command::new(&program).args(arguments).status();
    Ok(Tally::one(status.with_context(|| format!("{}: cannot run", program.display()))?.success()))
}

/// One machine of each encoding of a sample's data source.
const PMU_MACHINES: [&str; 3] = ["carrefour-a", "nmass-2", "altra-2"];

/// The guest driver's check of the PMU, run inside the guest, which prints a line for each thing it
/// tries.
pub(crate) fn check_pmu() -> Result<Tally> {
    let parts = build()?;
    let program = parts.join("pmu_check");
    let sources = root().join("lab/driver/tests");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-Wall", "-Wextra", "-static", "-pthread", "-o"]).arg(&program);
    for source in ["pmu_check.c", "counting.c", "sampling.c", "sources.c"] {
        compile.arg(sources.join(source));
    }
    if !compile.status().context("cc: cannot run")?.success() {
        bail!("{}: cannot compile", sources.display());
    }
    let mut passed = true;
    for machine in PMU_MACHINES {
        let mut run = Command::new(parts.join(built::RUNNER));
        run.args(["run", "--config", "first-touch", "--output", "--machine", machine, "--"]);
        let status = run.arg(&program).status().context("cannot run the lab")?;
        passed &= status.success();
    }
    Ok(Tally::one(passed))
}

/// Cargo's target folder.
pub(crate) fn target_folder() -> PathBuf {
    let asked = env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty());
    // Cargo runs in the repository's folder and would take a relative one as beneath that.
    let asked = asked.and_then(|folder| std::path::absolute(folder).ok());
    asked.unwrap_or_else(|| root().join("target"))
}

/// Whether a line may boot the kernel of `./x lab kernel`: `--kernel NAME` asks for it. Some
/// experiments and one of the live checks are made on it.
fn asks_for_own_kernel(arguments: &[&str], name: &str) -> bool {
    let may = match arguments.first() {
        Some(&"experiments") => true,
        Some(&"live") => arguments.contains(&"copies"),
        _ => false,
    };
    let follows = arguments.windows(2).any(|pair| pair == ["--kernel", name]);
    let is_named = arguments.contains(&format!("--kernel={name}").as_str());
    (may && name == kernel::NAME) || follows || is_named
}

/// Whether a line may copy files or memory to every node by our libraries.
fn asks_for_copies(arguments: &[&str]) -> bool {
    let is_about_copies = |word: &&str| word.contains("replicate") || word.contains("copies");
    matches!(arguments.first(), Some(&"experiments")) || arguments.iter().any(is_about_copies)
}

/// Builds every changed part, after setting up the lab if needed. Returns the folder of the parts.
pub(crate) fn build() -> Result<PathBuf> {
    build_for(&[], &Times::none())
}

/// As [`build`], for one command line of the lab. It builds a driver for the kernel of `./x lab
/// kernel` only if the line may boot that kernel.
fn build_for(arguments: &[&str], times: &Times) -> Result<PathBuf> {
    let target = target_folder();
    let cache = cache_folder(|name| env::var(name).ok())?;
    let installed = times.stage("setup of the lab's parts", || setup::provide(&cache))?;
    let parts = parts_folder()?;
    if !Trusted::Parts.is_trusted() {
        build_programs(&target, &parts, times)?;
    }
    if asks_for_copies(arguments) {
        let built = times.stage("build of the shared libraries", shared_libraries)?;
        for name in [built::INTERPOSE, built::PLACEMENT] {
            provide(&built.join(name), &parts.join(name))?;
        }
    }
    let driver = times.stage("build of the guest's driver", || {
        build_driver(&installed, &installed.kernel.headers, &target.join("driver"))
    })?;
    provide(&driver, &parts.join(built::DRIVER))?;
    for name in [kernel::NAME, kernel::DEBUG_NAME] {
        let own = asks_for_own_kernel(arguments, name).then(|| OwnKernel::load(&cache, name));
        let Some(own) = own.flatten() else { continue };
        let folder = target.join(format!("driver-{name}"));
        let driver = build_driver(&installed, &own.kernel.headers, &folder)?;
        let there = parts.join(name);
        fs::create_dir_all(&there)
            .with_context(|| format!("{}: cannot create", there.display()))?;
        provide(&driver, &there.join(built::DRIVER))?;
    }
    Ok(parts)
}

/// Parts that cargo links statically. The lab's command is one of them, so that the crates that it
/// shares with the product are built once.
const STATIC_PARTS: [&str; 4] = [built::RUNNER, built::INIT, built::WORKLOADS, built::PRODUCT];

/// Takes over the parts in `folder`, which were built from the same sources as ours.
pub(crate) fn take_parts(folder: &Path) -> Result<()> {
    let parts = parts_folder()?;
    for name in [built::PLUGIN].iter().chain(&STATIC_PARTS) {
        provide(&folder.join(name), &parts.join(name))?;
    }
    Trusted::Parts.trust();
    Ok(())
}

/// The folder of the parts, which is made if it is not there.
fn parts_folder() -> Result<PathBuf> {
    let parts = target_folder().join("lab");
    fs::create_dir_all(&parts).with_context(|| format!("{}: cannot create", parts.display()))?;
    Ok(parts)
}

/// Has cargo build the parts.
fn build_programs(target: &Path, parts: &Path, times: &Times) -> Result<()> {
    let here = times.stage("build of the lab's plugin", || {
        release_build("building the lab's plugin", target, &["rondpoint-lab-plugin"])
    })?;
    provide(&here.join(built::PLUGIN), &parts.join(built::PLUGIN))?;
    let here = times.stage("build of the lab and the guest's programs", || {
        let packages = ["rondpoint-lab", "rondpoint-lab-init", "rondpoint-workloads", "rondpoint"];
        static_build("building the lab and the guest's programs", target, &packages)
    })?;
    for name in STATIC_PARTS {
        provide(&here.join(name), &parts.join(name))?;
    }
    Ok(())
}

/// Builds what is loaded into programs of this machine: the interposer and the library of copies,
/// and the program that tries the latter. Returns their folder.
pub(crate) fn shared_libraries() -> Result<PathBuf> {
    let packages = ["rondpoint-interpose", "rondpoint-replica"];
    release_build("building the shared libraries", &target_folder(), &packages)
}

/// Makes a release build for this machine. Returns its folder.
fn release_build(title: &str, target: &Path, packages: &[&str]) -> Result<PathBuf> {
    finish(title, &mut release_of(packages, target))?;
    Ok(target.join("release"))
}

/// Makes a release build of statically linked programs. Returns its folder.
fn static_build(title: &str, target: &Path, packages: &[&str]) -> Result<PathBuf> {
    let folder = target.join("guest");
    let mut command = release_of(packages, &folder);
    command.args(["--target", GUEST_TARGET]).env("RUSTFLAGS", "-Ctarget-feature=+crt-static");
    finish(title, &mut command)?;
    Ok(folder.join(GUEST_TARGET).join("release"))
}

/// The command that builds packages beneath `folder`.
fn release_of(packages: &[&str], folder: &Path) -> Command {
    let mut command = cargo::command();
    command.args(["build", "--release", "--target-dir"]).arg(folder);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    // A commit in the program would change the guest with every commit, and no run could come from
    // the cache.
    command.env("RONDPOINT_COMMIT", "");
    command
}

fn finish(title: &str, command: &mut Command) -> Result<()> {
    if !cargo::build(title, command)? {
        bail!("{title}: cargo failed");
    }
    Ok(())
}

/// Builds the guest's driver for the kernel with these headers, in a copy of its sources, because
/// kbuild writes beside them.
fn build_driver(installed: &Installed, headers: &Path, folder: &Path) -> Result<PathBuf> {
    let sources = root().join("lab/driver");
    fs::create_dir_all(folder).with_context(|| format!("{}: cannot create", folder.display()))?;
    // A second ./x waits here. Two kbuilds in one folder would use each other's unfinished files.
    let path = folder.with_extension("lock");
    let turn =
        fs::File::create(&path).with_context(|| format!("{}: cannot create", path.display()))?;
    turn.lock().with_context(|| format!("{}: cannot lock", path.display()))?;
    for entry in
        fs::read_dir(&sources).with_context(|| format!("{}: cannot list", sources.display()))?
    {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            continue;
        }
        provide(&entry.path(), &folder.join(entry.file_name()))?;
    }
    let text = |name| env::var(name).unwrap_or_default();
    // Debian's headers come with type information that only pahole could extend; the driver needs
    // none.
    let mut progress = Progress::new("building the guest's driver", Unit::Pieces("files"), 0);
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(headers)
        .arg(format!("M={}", folder.display()))
        .args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "--no-print-directory", "modules"])
        .env_remove("MAKEFLAGS")
        .envs(installed.environment(&text("PATH"), &text("LD_LIBRARY_PATH")));
    let output = watched(&mut make, || progress.tick())?;
    if !output.status.success() {
        bail!(
            "cannot build the guest driver:\n{}",
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    progress.finish();
    Ok(folder.join(built::DRIVER))
}

/// Copies a file unless the same is there already, so that its time tells when it changed.
pub(crate) fn provide(source: &Path, copy: &Path) -> Result<()> {
    let bytes = fs::read(source).with_context(|| format!("{}: cannot read", source.display()))?;
    if fs::read(copy).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    // The copy is written beside the file and then renamed, because a guest may use the old file
    // and another ./x may do the same.
    let partial = copy.with_extension(format!("partial-{}", std::process::id()));
    fs::copy(source, &partial).with_context(|| format!("{}: cannot write", partial.display()))?;
    fs::rename(&partial, copy).with_context(|| format!("{}: cannot rename", partial.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_built_only_where_a_line_may_need_them() {
        assert!(asks_for_copies(&["run", "--config", "rondpoint-replicate", "--", "a"]));
        assert!(asks_for_copies(&["live", "copies"]) && asks_for_copies(&["experiments"]));
        assert!(!asks_for_copies(&["live"]) && !asks_for_copies(&[]));
    }

    #[test]
    fn a_driver_for_our_own_kernel_is_built_only_where_a_line_may_need_it() {
        assert!(asks_for_own_kernel(&["run", "--kernel", kernel::NAME, "--", "a"], kernel::NAME));
        assert!(asks_for_own_kernel(&["run", &format!("--kernel={}", kernel::NAME)], kernel::NAME));
        assert!(asks_for_own_kernel(&["experiments"], kernel::NAME));
        assert!(!asks_for_own_kernel(&["experiments"], kernel::DEBUG_NAME));
        assert!(asks_for_own_kernel(&["live", "--json", "copies"], kernel::NAME));
        assert!(!asks_for_own_kernel(&["live"], kernel::NAME));
    }

    #[test]
    fn help_of_the_lab_is_told_from_that_of_a_program() {
        assert!(asks_for_help(&[]));
        // The container's image is built with this one, and needs all parts.
        assert!(!asks_for_help(&["--version"]));
        assert!(asks_for_help(&["demo", "--help"]));
        assert!(!asks_for_help(&["demo", "--quick"]));
        assert!(!asks_for_help(&["run", "--", "app", "--help"]));
    }
}
