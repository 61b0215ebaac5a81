//! Carries out one job: settings, daemon, the program, and the measurement of the machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rondpoint_lab_init::{
    CHECK_PATH, DRIVER_PATH, Ending, Event, JOB_PATH, Job, MemoryPolicy, PREPARE_PATH,
};

use crate::report::Report;
use crate::spread::Spreader;
use crate::system;

/// Reads the job, runs it and reports. An error means that the program did not run.
pub(crate) fn carry_out(report: &mut Report) -> Result<(), String> {
    let text = fs::read_to_string(JOB_PATH).map_err(|error| format!("{JOB_PATH}: {error}"))?;
    let job: Job = serde_json::from_str(&text).map_err(|error| format!("{JOB_PATH}: {error}"))?;
    let driver = fs::exists(DRIVER_PATH).unwrap_or(false);
    if driver {
        system::load_module(DRIVER_PATH, if job.without_pmu { c"pmu=N" } else { c"" })?;
    }
    let pmu = driver && !job.without_pmu;
    apply_settings(&job)?;
    let mut daemon = start_daemon(&job.daemon, driver)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    report.say(&Event::Started { kernel: kernel.trim().to_owned(), pmu });
    let result =
        if job.command.is_empty() { shell(&job) } else { run_program(&job, driver, report) };
    if let Some(daemon) = &mut daemon {
        // The machine goes down with it in any case.
        let _ = daemon.kill();
    }
    result
}

fn apply_settings(job: &Job) -> Result<(), String> {
    let set = |path: &str, value: &str| {
        fs::write(path, value).map_err(|error| format!("{path}: cannot set {value}: {error}"))
    };
    set("/proc/sys/kernel/numa_balancing", if job.numa_balancing { "1" } else { "0" })?;
    // Debian's kernel refuses perf to every user but root unless told; programs may drop root.
    set("/proc/sys/kernel/perf_event_paranoid", "-1")?;
    set("/proc/sys/kernel/kptr_restrict", "0")?;
    // In slow motion a program may spend seconds of guest time where a real one spends tenths.
    set("/proc/sys/kernel/hung_task_timeout_secs", "0").or(Ok(()))
}

fn start_daemon(command: &[String], driver: bool) -> Result<Option<Child>, String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if driver {
        system::before_exec(&mut command, system::become_manager);
    }
    command.spawn().map(Some).map_err(|error| format!("{program}: cannot start: {error}"))
}

/// An interactive shell on the console, with job control.
fn shell(job: &Job) -> Result<(), String> {
    let console = system::take_console()?;
    let duplicate = || console.try_clone().map_err(|error| format!("console: {error}"));
    if job.modelled {
        system::model_on();
    }
    let status = Command::new("/bin/busybox")
        .args(["sh", "-l"])
        .env("PATH", "/bin")
        .env("HOME", "/root")
        .env("TERM", "linux")
        .stdin(duplicate()?)
        .stdout(duplicate()?)
        .stderr(duplicate()?)
        .status();
    if job.modelled {
        system::model_off();
    }
    status.map(drop).map_err(|error| format!("/bin/busybox: cannot start a shell: {error}"))
}

/// Where programs and scripts start.
const HOME: &str = "/root";
/// Where the program's output is kept until it is sent.
const STDOUT_PATH: &str = "/tmp/.lab-stdout";
const STDERR_PATH: &str = "/tmp/.lab-stderr";
/// Characters kept of what a script says.
const SAID_CHARACTERS: usize = 2000;

/// Runs a script that the runner left; `None` where there is none. Returns how it ended, and the
/// end of what it said.
fn run_script(path: &str, job: &Job, folder: &Path) -> Result<Option<(Ending, String)>, String> {
    if !fs::exists(path).unwrap_or(false) {
        return Ok(None);
    }
    let mut command = Command::new(path);
    command.env_clear().envs(&job.environment).current_dir(folder).stdin(Stdio::null());
    command.env("OUTPUT", STDOUT_PATH).env("ERRORS", STDERR_PATH);
    if path == PREPARE_PATH && job.prepare_placed {
        apply_policy(&mut command, job)?;
    }
    let output = command.output().map_err(|error| format!("{path}: cannot start: {error}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let begin = said.char_indices().rev().nth(SAID_CHARACTERS).map_or(0, |(at, _)| at);
    Ok(Some((ending(output.status), said[begin..].trim().to_owned())))
}

fn run_program(job: &Job, driver: bool, report: &mut Report) -> Result<(), String> {
    let home = Path::new(HOME);
    if let Some((ending, said)) = run_script(PREPARE_PATH, job, home)?
        && ending != Ending::Exit(0)
    {
        return Err(format!("preparation of the program: {ending:?}: {said}"));
    }
    let mut stdout = capture(STDOUT_PATH)?;
    let mut stderr = capture(STDERR_PATH)?;
    let mut command = Command::new(&job.command[0]);
    command.args(&job.command[1..]).env_clear().envs(&job.environment).current_dir(HOME);
    command.stdin(Stdio::null());
    command.stdout(stdout.try_clone().map_err(|error| format!("stdout: {error}"))?);
    command.stderr(stderr.try_clone().map_err(|error| format!("stderr: {error}"))?);
    apply_policy(&mut command, job)?;
    if job.manager && driver {
        system::before_exec(&mut command, system::become_manager);
    }
    command.process_group(0);

    let nodes = system::nodes_of(system::nodes_with_memory()?);
    let before = vmstat()?;
    if job.modelled {
        system::model_on();
    }
    let model_on_ns = system::monotonic_ns();
    system::pause_ns(job.start_offset_ns);
    let start_ns = system::monotonic_ns();
    let child = command.spawn();
    let spreader = match (&child, job.spread_after_ns) {
        (Ok(child), Some(after_ns)) => Some(Spreader::start(child.id(), nodes, after_ns)),
        _ => None,
    };
    let ended = child.and_then(|child| system::wait_for(&child));
    let elapsed_ns = system::monotonic_ns() - start_ns;
    if job.modelled {
        system::model_off();
    }
    let (status, max_rss_kib) =
        ended.map_err(|error| format!("{}: cannot start: {error}", job.command[0]))?;
    let vmstat = rises(&before, &vmstat()?);
    let ending = ending(status);
    report.say(&Event::Finished { model_on_ns, elapsed_ns, ending, max_rss_kib, vmstat });
    if let Some(event) = spreader.map(Spreader::finish).transpose()?.flatten() {
        report.say(&event);
    }
    if let Some((ending, said)) = run_script(CHECK_PATH, job, home)? {
        report.say(&Event::Checked { ending, said });
    }
    report.send_output(1, &mut stdout)?;
    report.send_output(2, &mut stderr)?;
    job.files.iter().try_for_each(|path| report.send_file(path))
}

/// Lets the command start with the job's memory policy.
fn apply_policy(command: &mut Command, job: &Job) -> Result<(), String> {
    if job.policy == MemoryPolicy::Interleave {
        let nodes = system::nodes_with_memory()?;
        system::before_exec(command, move || system::interleave(nodes));
    }
    Ok(())
}

fn capture(path: &str) -> Result<File, String> {
    let mut options = File::options();
    options.read(true).append(true).create(true);
    options.open(path).map_err(|error| format!("{path}: {error}"))
}

fn ending(status: ExitStatus) -> Ending {
    status.signal().map_or_else(|| Ending::Exit(status.code().unwrap_or(-1)), Ending::Signal)
}

/// The counters of `/proc/vmstat` that only rise.
fn vmstat() -> Result<BTreeMap<String, u64>, String> {
    let text =
        fs::read_to_string("/proc/vmstat").map_err(|error| format!("/proc/vmstat: {error}"))?;
    let pair = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let counts = ["numa_", "pgmigrate_", "thp_migration_", "pgfault", "pgmajfault"];
        let wanted = counts.iter().any(|prefix| name.starts_with(prefix));
        wanted.then_some(())?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Ok(text.lines().filter_map(pair).collect())
}

fn rises(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let rise = |(name, value): (&String, &u64)| {
        let rise = value.saturating_sub(before.get(name).copied().unwrap_or(0));
        (rise > 0).then(|| (name.clone(), rise))
    };
    after.iter().filter_map(rise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_told_the_output_and_its_end_and_words_come_back() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("rondpoint-script-{}", std::process::id()));
        let text = "#!/bin/sh\necho $OUTPUT; echo wrong byte >&2; exit 3\n";
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        let place = std::env::temp_dir();
        let ran = run_script(&path.display().to_string(), &Job::default(), &place);
        fs::remove_file(&path).expect("there");
        let said = format!("{STDOUT_PATH}\nwrong byte");
        assert_eq!(ran, Ok(Some((Ending::Exit(3), said))));
        assert_eq!(run_script("/nonexistent", &Job::default(), &place), Ok(None));
    }

    #[test]
    fn only_counters_that_rose_are_reported() {
        let map = |pairs: &[(&str, u64)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let before = map(&[("numa_hit", 10), ("pgfault", 5)]);
        let after = map(&[("numa_hit", 10), ("pgfault", 9), ("numa_pages_migrated", 2)]);
        assert_eq!(rises(&before, &after), map(&[("pgfault", 4), ("numa_pages_migrated", 2)]));
    }
}
