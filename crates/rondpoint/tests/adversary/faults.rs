//! System calls of a manager or an observer fail by chance.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use rondpoint_core::CpuSet;
use rondpoint_core::random::Random;

use crate::harness::Test;
use crate::restore::restore;
use crate::tracer::{Call, Ended, Fate, trace_all};
use crate::{deadline, ledgers, setting};

pub(crate) const TESTS: &[Test] = &[("faults::a_program_outlives_every_refused_call", runs)];

/// Status of the managed program.
const OWN_STATUS: i32 = 7;
/// Status of a failure of ours, before the program has begun.
const OWN_FAILURE: i32 = 125;

/// Errors that a call may have: of permission, of vanished things, of full tables, disks and
/// memory, and of interruption.
const ERRORS: [Errno; 12] = [
    Errno::EPERM,
    Errno::EACCES,
    Errno::ENOENT,
    Errno::ESRCH,
    Errno::EINTR,
    Errno::EIO,
    Errno::EAGAIN,
    Errno::ENOMEM,
    Errno::EBUSY,
    Errno::EMFILE,
    Errno::ENOSPC,
    Errno::EINVAL,
];

/// Calls that never fail in this way. A program without memory or locks aborts by design, and the
/// other calls cannot fail or tell the program's end.
const SPARED: [i64; 31] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_execve,
    libc::SYS_close,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_rseq,
    libc::SYS_arch_prctl,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_restart_syscall,
    // Always successful, as their manual pages say.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
];

/// Calls that a signal may interrupt before they have done anything. No signal interrupts the
/// opening of a directory.
const INTERRUPTIBLE: [i64; 19] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_nanosleep,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Calls that may do less than they were asked for; their third argument is a number of bytes.
const PARTIAL: [i64; 6] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
];

/// Runs in `./x test`: four of each kind of weather, of which one or two with each command.
const USUAL_RUNS: u64 = 24;

/// The command whose calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Run,
    Observe,
    /// The program is this test's, and runs already.
    Attach,
}

const MANNERS: [Manner; 3] = [Manner::Run, Manner::Observe, Manner::Attach];

/// The lab's workload, where this runs in its guest.
const WORKLOADS: &str = "/bin/rondpoint-workloads";
/// Each of its threads works on memory of another node.
const WORK: &str = "kmeans --rotate --pin --no-huge-pages --size 8M --seconds 4 --centres 1";

/// Share of calls that fail, by run: some runs fail at a single call, some at one in ten.
pub(crate) const SHARES: [f64; 4] = [0.001, 0.005, 0.02, 0.1];

/// Share of calls that are interrupted, partial or late: nearly all that may be.
const STORM: f64 = 0.75;

/// The longest delay of a call, and the farthest jump of the clock.
const LONGEST_DELAY: Duration = Duration::from_millis(3);
const FARTHEST_JUMP: Duration = Duration::from_secs(3600);

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weather {
    /// Calls fail with any error.
    Errors,
    /// Calls are interrupted by signals.
    Interruptions,
    /// Reads and writes do a part.
    Parts,
    /// Calls begin late.
    Delays,
    /// The clock jumps ahead.
    Jumps,
    /// All of it.
    All,
}

const WEATHERS: [Weather; 6] = [
    Weather::Errors,
    Weather::Interruptions,
    Weather::Parts,
    Weather::Delays,
    Weather::Jumps,
    Weather::All,
];

impl Weather {
    /// What becomes of a call; `errors` is the share that fails.
    pub(crate) fn fate(self, call: Call, errors: f64, random: &mut Random) -> Fate {
        let number = call.number;
        let chance = random.unit();
        match self {
            Self::Errors if chance < errors && !SPARED.contains(&number) => {
                Fate::Fail(ERRORS[random.below(ERRORS.len())])
            }
            Self::Interruptions
                if chance < STORM && INTERRUPTIBLE.contains(&number) && !opens_folder(call) =>
            {
                Fate::Fail(Errno::EINTR)
            }
            Self::Parts
                if chance < STORM
                    && PARTIAL.contains(&number)
                    && call.third > 1
                    && is_stream(call) =>
            {
                Fate::Shorten(1 + random.below(call.third as usize - 1) as u64)
            }
            Self::Delays if chance < STORM / 4.0 => {
                Fate::Delay(LONGEST_DELAY.mul_f64(random.unit()))
            }
            Self::Jumps if chance < STORM && number == libc::SYS_clock_gettime => {
                Fate::Jump(FARTHEST_JUMP.mul_f64(random.unit().powi(8)))
            }
            Self::All => WEATHERS[random.below(WEATHERS.len() - 1)].fate(call, errors, random),
            _ => Fate::Pass,
        }
    }
}

fn opens_folder(call: Call) -> bool {
    call.number == libc::SYS_openat && call.third & libc::O_DIRECTORY as u64 != 0
}

/// Whether bytes of its descriptor may come in parts. Bytes of counters and signals never do.
fn is_stream(call: Call) -> bool {
    let target = std::fs::read_link(format!("/proc/{}/fd/{}", call.pid, call.first));
    target.is_ok_and(|target| !target.to_string_lossy().starts_with("anon_inode:"))
}

fn runs(_: &CpuSet) {
    let (first, runs) = (setting("RONDPOINT_SEED", 1), setting("RONDPOINT_RUNS", USUAL_RUNS));
    // Runs, calls, spoilt calls, begun programs and moved pages of each kind.
    let mut of = BTreeMap::<Weather, [u64; 5]>::new();
    let until = deadline();
    for seed in (first..first + runs).take_while(|_| Instant::now() < until) {
        let (weathers, manners) = (WEATHERS.len() as u64, MANNERS.len() as u64);
        let weather = WEATHERS[(seed % weathers) as usize];
        let manner = MANNERS[(seed / weathers % manners) as usize];
        let Run { ended, has_begun, moved } = run(seed, weather, manner);
        let sums = of.entry(weather).or_default();
        let more = [1, ended.calls, ended.spoilt, has_begun.into(), moved];
        for (sum, more) in sums.iter_mut().zip(more) {
            *sum += more;
        }
    }
    for (weather, [runs, calls, spoilt, begun, moved]) in &of {
        println!(
            "{weather:?}: {runs} runs, {calls} system calls, {spoilt} spoilt, {begun} programs \
             begun, {moved} pages moved"
        );
    }
    let tried = of.values().all(|[_, _, spoilt, begun, _]| *spoilt > 0 && *begun > 0);
    assert!(tried || runs < USUAL_RUNS, "nothing was tried");
}

/// Masks at random; in the lab, where its workload has pages to move, what moves pages.
fn policy() -> &'static str {
    if Path::new(WORKLOADS).exists() { "auto" } else { "shuffle" }
}

/// A program that says when it begins and when it is done.
fn program(folder: &Path, manner: Manner) -> String {
    if Path::new(WORKLOADS).exists() {
        let folder = folder.display();
        return format!(
            "echo > {folder}/begun; {WORKLOADS} {WORK} > {folder}/out && echo > {folder}/done; \
             exit {OWN_STATUS}"
        );
    }
    // `attach` comes late, and its calls take longer than untraced ones.
    let ms = if manner == Manner::Attach { 2_000 } else { 600 };
    format!(
        "echo > {0}/begun; sleep 0.4 & end=$(($(date +%s%N) + {ms}000000)); \
         while [ $(date +%s%N) -lt $end ]; do sleep 0.01; done; wait; echo > {0}/done; \
         exit {OWN_STATUS}",
        folder.display()
    )
}

/// The command whose calls fail, and the program if that is not its child.
fn command(folder: &Path, manner: Manner) -> (Command, Option<Child>) {
    let words = ["sh".to_string(), "-c".to_string(), program(folder, manner)];
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    let report = folder.join("report");
    match manner {
        Manner::Run => {
            command.args(["run", "--policy", policy(), "--report"]).arg(report);
            command.arg("--").args(words);
        }
        Manner::Observe => {
            command.args(["observe", "--interval", "0.1", "--json", "--output"]).arg(report);
            command.arg("--").args(words);
        }
        Manner::Attach => {
            let mut program = Command::new(&words[0]);
            program.args(&words[1..]).stdin(Stdio::null());
            let program = program.spawn().expect("sh starts");
            command.args(["attach", "--policy", policy(), "--report"]).arg(report);
            command.arg(program.id().to_string());
            return (command, Some(program));
        }
    }
    (command, None)
}

/// What became of a run.
struct Run {
    ended: Ended,
    /// It was managed: the program had begun, or `attach` saw its end.
    has_begun: bool,
    /// Pages that the report says were moved.
    moved: u64,
}

/// Pages that a report says were moved; 0 where a fault has spoilt the report.
fn moved(report: &Path) -> u64 {
    let text = std::fs::read(report).unwrap_or_default();
    let report: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    report["pages_moved"].as_u64().unwrap_or(0)
}

fn run(seed: u64, weather: Weather, manner: Manner) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (begun, done) = (path("begun"), path("done"));
    let mut random = Random::new(seed);
    let share = SHARES[random.below(SHARES.len())];
    // Half of the runs fail only after the program has begun, where more is at stake.
    let late = random.below(2) == 1;
    let (command, program) = command(folder.path(), manner);
    let (mut in_main, mut is_managed) = (false, false);
    let fate = |call: Call| {
        is_managed = is_managed
            || match manner {
                Manner::Attach => !ledgers().is_empty(),
                Manner::Run | Manner::Observe => begun.exists(),
            };
        // The standard library begins with this call. Those of the loader are not ours.
        in_main |= call.number == libc::SYS_poll;
        let spared = match weather {
            Weather::Errors => late && !is_managed,
            _ => !in_main,
        };
        if spared { Fate::Pass } else { weather.fate(call, share, &mut random) }
    };
    let (ended, errors) = trace_all(&command, true, fate);
    let told = format!("{weather:?}, {manner:?}, {ended:?}\n{errors}");
    let context = || format!("RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {told}");
    let has_begun = match program {
        Some(mut program) => {
            let status = program.wait().expect("ours").code();
            assert!(status == Some(OWN_STATUS) && done.exists(), "{status:?} {}", context());
            matches!(ended.status, WaitStatus::Exited(_, 0))
        }
        None => begun.exists(),
    };
    assert!(!errors.contains("panicked"), "{}", context());
    let as_promised = match ended.status {
        WaitStatus::Exited(_, status) if has_begun => {
            let expected = if manner == Manner::Attach { 0 } else { OWN_STATUS };
            done.exists() && status == expected
        }
        WaitStatus::Exited(_, status) => (OWN_FAILURE..=127).contains(&status),
        // The standard library aborts before main where it cannot poll its own descriptors.
        WaitStatus::Signaled(_, Signal::SIGABRT, _) => !has_begun && errors.is_empty(),
        _ => false,
    };
    assert!(as_promised, "{}", context());
    restore();
    assert_eq!(restore()["ledgers"], 0, "{}", context());
    Run { ended, has_begun, moved: moved(&path("report")) }
}
