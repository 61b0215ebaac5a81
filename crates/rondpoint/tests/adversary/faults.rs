//! System calls of a manager fail by chance.

use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use rondpoint_core::CpuSet;
use rondpoint_core::random::Random;

use crate::harness::Test;
use crate::restore::restore;
use crate::setting;
use crate::tracer::{Call, Ended, Fate, trace};

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

/// Calls that never fail in this way: a program without memory or locks aborts by design, and the
/// others cannot fail or tell the program's end.
const SPARED: [i64; 24] = [
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
];

/// Runs in `./x test`. By hand: 2,000 runs and more.
const USUAL_RUNS: u64 = 25;

/// Share of calls that fail, by run: some runs fail at a single call, some at one in ten.
const SHARES: [f64; 4] = [0.001, 0.005, 0.02, 0.1];

fn runs(_: &CpuSet) {
    let (first, runs) = (setting("RONDPOINT_SEED", 1), setting("RONDPOINT_RUNS", USUAL_RUNS));
    let (mut calls, mut failed, mut begun) = (0, 0, 0);
    for seed in first..first + runs {
        let (ended, has_begun) = run(seed);
        calls += ended.calls;
        failed += ended.failed;
        begun += u64::from(has_begun);
    }
    println!("{runs} runs: {calls} system calls, {failed} made to fail; {begun} programs begun");
    assert!((failed > 0 && begun > 0) || runs < USUAL_RUNS, "nothing was tried");
}

/// One managed run; what is promised of it.
fn run(seed: u64) -> (Ended, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (begun, done) = (path("begun"), path("done"));
    let program = format!(
        "echo > {}; sleep 0.4 & end=$(($(date +%s%N) + 600000000)); \
         while [ $(date +%s%N) -lt $end ]; do :; done; wait; echo > {}; exit {OWN_STATUS}",
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
    let fate = |call: Call| {
        let spared = SPARED.contains(&call.number) || (late && !begun.exists());
        match !spared && random.unit() < share {
            true => Fate::Fail(ERRORS[random.below(ERRORS.len())]),
            false => Fate::Pass,
        }
    };
    let (ended, errors) = trace(&command, fate);
    let has_begun = begun.exists();
    let context = || format!("RONDPOINT_SEED={seed} RONDPOINT_RUNS=1: {ended:?}\n{errors}");
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
