//! System calls of a manager fail by chance.

use std::collections::BTreeMap;
use std::process::Command;
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
use crate::{deadline, setting};

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

/// Runs in `./x test`: four of each kind of weather.
const USUAL_RUNS: u64 = 24;

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
    // Runs, calls, spoilt calls and begun programs of each kind.
    let mut of = BTreeMap::<Weather, [u64; 4]>::new();
    let until = deadline();
    for seed in (first..first + runs).take_while(|_| Instant::now() < until) {
        let weather = WEATHERS[(seed % WEATHERS.len() as u64) as usize];
        let (ended, has_begun) = run(seed, weather);
        let sums = of.entry(weather).or_default();
        for (sum, more) in sums.iter_mut().zip([1, ended.calls, ended.spoilt, has_begun.into()]) {
            *sum += more;
        }
    }
    for (weather, [runs, calls, spoilt, begun]) in &of {
        println!(
            "{weather:?}: {runs} runs, {calls} system calls, {spoilt} spoilt, {begun} programs begun"
        );
    }
    let tried = of.values().all(|[_, _, spoilt, begun]| *spoilt > 0 && *begun > 0);
    assert!(tried || runs < USUAL_RUNS, "nothing was tried");
}

/// One managed run. Returns how it ended, and whether the program had begun.
fn run(seed: u64, weather: Weather) -> (Ended, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (begun, done) = (path("begun"), path("done"));
    let program = format!(
        "echo > {}; sleep 0.4 & end=$(($(date +%s%N) + 600000000)); \
         while [ $(date +%s%N) -lt $end ]; do sleep 0.01; done; wait; echo > {}; exit {OWN_STATUS}",
        begun.display(),
        done.display()
    );
    let mut random = Random::new(seed);
    let share = SHARES[random.below(SHARES.len())];
    // Half of the runs fail only after the program has begun, where more is at stake.
    let late = random.below(2) == 1;
    let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
    command.args(["run", "--policy", "shuffle", "--report"]).arg(path("report"));
    command.args(["--", "sh", "-c", &program]);
    let mut in_main = false;
    let fate = |call: Call| {
        // The standard library begins with this call. Those of the loader are not ours.
        in_main |= call.number == libc::SYS_poll;
        let spared = match weather {
            Weather::Errors => late && !begun.exists(),
            _ => !in_main,
        };
        if spared { Fate::Pass } else { weather.fate(call, share, &mut random) }
    };
    let (ended, errors) = trace_all(&command, true, fate);
    let has_begun = begun.exists();
    let context =
        || format!("RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {weather:?}, {ended:?}\n{errors}");
    assert!(!errors.contains("panicked"), "{}", context());
    let as_promised = match ended.status {
        WaitStatus::Exited(_, status) if has_begun => done.exists() && status == OWN_STATUS,
        WaitStatus::Exited(_, status) => (OWN_FAILURE..=127).contains(&status),
        // The standard library aborts before main where it cannot poll its own descriptors.
        WaitStatus::Signaled(_, Signal::SIGABRT, _) => !has_begun && errors.is_empty(),
        _ => false,
    };
    assert!(as_promised, "{}", context());
    restore();
    assert_eq!(restore()["ledgers"], 0, "{}", context());
    (ended, has_begun)
}
