//! What the daemon costs beside many idle processes.
//!
//! `idle_scale [seen|managed:]PROCESSES…`, in a PID namespace of its own and beside a release build
//! of `rondpoint`, starts so many processes of ten threads. They are pairs of parent and child. One
//! pair of fifty uses 1 % of a CPU, the others sleep. The daemon may act. `seen`: no rule names the
//! processes. `managed`: a rule names all, and half of them at most are managed.
//!
//! The cost for 1,000 processes is that for 1,000 managed ones, where any are managed.
//!
//! Prints the rows of `docs/results/idle-scale.json`.

use std::error::Error;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const THREADS: usize = 10;
/// One of so many processes has some work, a parent.
const BUSY_EVERY: usize = 100;
/// Work of a busy process, in each period.
const WORK: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_millis(100);
const STACK: usize = 64 << 10;
/// Until all processes have begun and the daemon knows them.
const SETTLE: Duration = Duration::from_secs(30);
/// Idle processes are looked at once a minute: two rounds.
const MEASURE: Duration = Duration::from_secs(120);
/// First argument of a process that is watched.
const TARGET: &str = "as-target";
/// Ticks of `/proc/PID/stat` a second (`USER_HZ`).
const TICKS_PER_S: f64 = 100.0;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, kind] = &words[..]
        && first == TARGET
    {
        return be_target(kind);
    }
    for word in &words {
        let (kind, count) = word.split_once(':').ok_or("expected seen:N or managed:N")?;
        let count: usize = count.parse()?;
        let (cpu_percent, memory_mib, managed) = measure(count, kind == "managed")?;
        let of = if managed > 0 { managed } else { count as u64 };
        let per_thousand = cpu_percent * 1000.0 / of as f64;
        let name = format!("{count} processes, {} threads, {kind}", count * THREADS);
        println!(
            "{{\"name\": \"{name}\", \"cells\": [{cpu_percent:.3}, {per_thousand:.3}, \
             {memory_mib:.1}, {managed}]}}"
        );
    }
    Ok(())
}

/// A process that is watched, of one of three kinds. `busy` and `idle` start a `second` process,
/// which ends with them.
fn be_target(kind: &str) -> Result<()> {
    for _ in 1..THREADS {
        std::thread::Builder::new().stack_size(STACK).spawn(std::thread::park)?;
    }
    if kind == "second" {
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(());
    }
    let mut second = Command::new(std::env::args_os().next().ok_or("no name")?);
    let _second = second.args([TARGET, "second"]).stdin(Stdio::piped()).spawn()?;
    loop {
        let begin = Instant::now();
        while kind == "busy" && begin.elapsed() < WORK {
            std::hint::spin_loop();
        }
        std::thread::sleep(if kind == "busy" { PERIOD } else { PERIOD * 100 });
    }
}

/// Processes that are killed at the end.
struct Killed(Vec<Child>);

impl Drop for Killed {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// CPU of the daemon in percent, its memory in MiB, and the processes that it manages.
fn measure(count: usize, manages: bool) -> Result<(f64, f64, u64)> {
    let folder = tempfile::tempdir()?;
    let own = std::env::current_exe()?;
    let target = folder.path().join("idle-target");
    std::os::unix::fs::symlink(&own, &target)?;
    let mut targets = Killed(Vec::new());
    for number in (0..count).step_by(2) {
        let kind = if number % BUSY_EVERY == 0 { "busy" } else { "idle" };
        targets.0.push(Command::new(&target).args([TARGET, kind]).stdin(Stdio::null()).spawn()?);
    }
    let rondpoint = own.ancestors().nth(2).ok_or("no folder")?.join("rondpoint");
    let configuration = configure(folder.path(), count, manages)?;
    let mut daemon = Command::new(&rondpoint);
    daemon.args(["daemon", "--config"]).arg(configuration);
    daemon.env("RUNTIME_DIRECTORY", folder.path().join("ledgers"));
    let daemon = Killed(vec![daemon.stdin(Stdio::null()).spawn()?]);
    std::thread::sleep(SETTLE);
    let pid = daemon.0[0].id();
    let (before, begin) = (ticks(pid)?, Instant::now());
    std::thread::sleep(MEASURE);
    let used_s = (ticks(pid)? - before) / TICKS_PER_S;
    let cpu_percent = 100.0 * used_s / begin.elapsed().as_secs_f64();
    let managed = managed(&rondpoint, folder.path())?;
    Ok((cpu_percent, peak_mib(pid)?, managed))
}

fn configure(folder: &Path, count: usize, manages: bool) -> Result<PathBuf> {
    let commands = if manages { "idle-target" } else { "no-such-program" };
    let text = format!(
        "mode = \"act\"\n[manage]\nmin_memory_mib = 0\nmin_cpus = 0.0\nmost = {}\n\
         commands = [\"{commands}\"]\n[control]\nsocket = \"{}/control\"\n",
        count.div_ceil(2),
        folder.display()
    );
    let path = folder.join("rondpoint.toml");
    fs::write(&path, text)?;
    Ok(path)
}

/// CPU time of a process.
fn ticks(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = text.rsplit_once(") ").ok_or("no name in stat")?.1;
    let fields: Vec<&str> = fields.split(' ').collect();
    let field = |number: usize| -> Result<f64> { Ok(fields.get(number).ok_or("short")?.parse()?) };
    // utime and stime (proc_pid_stat(5)).
    Ok(field(11)? + field(12)?)
}

fn peak_mib(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

fn managed(rondpoint: &Path, folder: &Path) -> Result<u64> {
    let mut status = Command::new(rondpoint);
    status.args(["status", "--json", "--socket"]).arg(folder.join("control"));
    let status: serde_json::Value = serde_json::from_slice(&status.output()?.stdout)?;
    let processes = status["processes"].as_array().ok_or("no processes")?;
    let is_managed = |one: &&serde_json::Value| one["state"] == "managed";
    Ok(processes.iter().filter(is_managed).count() as u64)
}
