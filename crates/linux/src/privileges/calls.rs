//! Lists of system calls, and the filter that lets no other through.
//!
//! A call that is not on its list fails with EPERM, as if the user might not make it. Ending the
//! manager instead would leave its program with masks that stay changed. So a list that lacks a
//! call costs a feature and harms no program. Builds with debug assertions end with the call's
//! number, so that a test finds what a list lacks.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::syscall::refusal;

/// The system calls that a command makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// Reading files and printing.
    Read,
    /// Also talking over a local socket that is already connected.
    Ask,
    /// Also connecting to local sockets, and using the terminal as a screen.
    Show,
    /// Also observing and changing processes.
    Manage,
    /// Also giving a new file to its owner.
    Replace,
    /// Also answering over sockets: local ones, and a loopback port that is already open.
    Serve,
}

/// Calls for memory, files, threads and clocks, which the standard library makes to read and print.
/// None opens a socket, executes a program, changes an owner or a mode, or traces.
const READ: [c_long; 76] = [
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mkdirat,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_prlimit64,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_fstatfs,
    libc::SYS_fchdir,
];

/// Calls to observe and change processes, and for the guardian of a stopped one.
const MANAGE: [c_long; 25] = [
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_eventfd2,
    libc::SYS_flock,
    libc::SYS_get_mempolicy,
    libc::SYS_kill,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pipe2,
    libc::SYS_process_madvise,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_set_mempolicy,
    libc::SYS_setsid,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Calls to talk over a connected socket.
const ASK: [c_long; 2] = [libc::SYS_recvfrom, libc::SYS_sendto];

/// Calls of a screen: threads, connections to a daemon, and waiting for keys. socket(2) may make
/// local ones only, see [`rules`].
const SHOW: [c_long; 8] = [
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_setsockopt,
    libc::SYS_socketpair,
];

/// Calls to answer over sockets. socket(2) may make local ones only, see [`rules`].
const SERVE: [c_long; 11] = [
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
];

/// Calls of x86-64 that newer architectures do not have. C libraries still make some of them.
#[cfg(target_arch = "x86_64")]
const LEGACY: [(Calls, c_long); 14] = [
    (Calls::Read, libc::SYS_access),
    (Calls::Read, libc::SYS_dup2),
    (Calls::Read, libc::SYS_getdents),
    (Calls::Read, libc::SYS_lstat),
    (Calls::Read, libc::SYS_mkdir),
    (Calls::Read, libc::SYS_open),
    (Calls::Read, libc::SYS_poll),
    (Calls::Read, libc::SYS_readlink),
    (Calls::Read, libc::SYS_rename),
    (Calls::Read, libc::SYS_stat),
    (Calls::Read, libc::SYS_unlink),
    (Calls::Show, libc::SYS_epoll_wait),
    (Calls::Manage, libc::SYS_fork),
    (Calls::Manage, libc::SYS_pipe),
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: [(Calls, c_long); 0] = [];

/// Requests of ioctl(2) about a terminal and its width (TCGETS, TIOCGWINSZ and TCGETS2,
/// include/uapi/asm-generic/ioctls.h).
const TERMINAL: [u64; 3] = [0x5401, 0x5413, 0x802c_542a];
/// Requests of ioctl(2) that set the mode of a terminal (TCSETS and TCSETS2 of the same file).
/// None puts text into its input (TIOCSTI).
const SCREEN: [u64; 2] = [0x5402, 0x402c_542b];
/// Requests of ioctl(2) to an event (include/uapi/linux/perf_event.h), and `PAGEMAP_SCAN`.
const EVENTS: [u64; 7] = [0x2400, 0x2401, 0x2403, 0x2405, 0x4008_2404, 0x8008_2407, 0xc060_6610];

/// Request of ioctl(2) that makes a socket non-blocking (FIONBIO of the same file).
const SOCKETS: [u64; 1] = [0x5421];

/// Installs the filter of system calls in every thread, which cannot be removed. Sets
/// `no_new_privs`.
pub(super) fn restrict(calls: Calls) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let action = match cfg!(debug_assertions) {
        true => {
            refusal::end_with_number().map_err(|error| said(&error))?;
            SeccompAction::Trap
        }
        false => SeccompAction::Errno(libc::EPERM as u32),
    };
    let target = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| said(&error))?;
    let rules = rules(calls).map_err(|error| said(&error))?;
    let filter = SeccompFilter::new(rules, action, SeccompAction::Allow, target)
        .map_err(|error| said(&error))?;
    let program: BpfProgram =
        filter.try_into().map_err(|error: seccompiler::BackendError| said(&error))?;
    seccompiler::apply_filter_all_threads(&program).map_err(|error| said(&error))
}

fn rules(calls: Calls) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let manages = matches!(calls, Calls::Manage | Calls::Replace | Calls::Serve);
    let is_ours = |of: Calls| of == Calls::Read || of == calls || manages && of == Calls::Manage;
    let legacy = LEGACY.iter().filter(|(of, _)| is_ours(*of)).map(|(_, call)| call);
    let more: &[&[c_long]] = match calls {
        Calls::Read => &[],
        Calls::Ask => &[&ASK],
        Calls::Show => &[&ASK, &SHOW],
        Calls::Manage | Calls::Replace => &[&MANAGE],
        Calls::Serve => &[&MANAGE, &SERVE],
    };
    let all = READ.iter().chain(more.iter().copied().flatten()).chain(legacy);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = all.map(|call| (*call, Vec::new())).collect();
    let request = |request: &u64| {
        // The kernel reads 32 bits of the request.
        let is_it = SeccompCondition::new(1, Length::Dword, Compare::Eq, *request)?;
        SeccompRule::new(vec![is_it])
    };
    let requests: &[&[u64]] = match calls {
        Calls::Read | Calls::Ask => &[&TERMINAL],
        Calls::Show => &[&TERMINAL, &SCREEN],
        Calls::Manage | Calls::Replace => &[&TERMINAL, &EVENTS],
        Calls::Serve => &[&TERMINAL, &EVENTS, &SOCKETS],
    };
    let requests = requests.iter().copied().flatten().map(request);
    rules.insert(libc::SYS_ioctl, requests.collect::<Result<_, _>>()?);
    if matches!(calls, Calls::Show | Calls::Serve) {
        let local = libc::AF_UNIX as u64;
        let is_local = SeccompCondition::new(0, Length::Dword, Compare::Eq, local)?;
        rules.insert(libc::SYS_socket, vec![SeccompRule::new(vec![is_local])?]);
    }
    if calls == Calls::Replace {
        rules.insert(libc::SYS_fchown, Vec::new());
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_list_has_a_call_that_starts_programs_or_changes_owners() {
        let forbidden = [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_ptrace,
            libc::SYS_process_vm_writev,
            libc::SYS_setuid,
            libc::SYS_setresuid,
            libc::SYS_capset,
            libc::SYS_fchmodat,
            libc::SYS_fchown,
            libc::SYS_fchownat,
            libc::SYS_mount,
            libc::SYS_bpf,
            libc::SYS_init_module,
            libc::SYS_keyctl,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_reboot,
        ];
        let all = [
            (Calls::Read, vec![]),
            (Calls::Ask, vec![]),
            (Calls::Manage, vec![]),
            (Calls::Replace, vec![libc::SYS_fchown]),
            (Calls::Show, vec![libc::SYS_socket, libc::SYS_connect]),
            (Calls::Serve, vec![libc::SYS_socket, libc::SYS_connect]),
        ];
        for (calls, expected) in all {
            let rules = rules(calls).unwrap();
            let kept = forbidden.iter().filter(|call| rules.contains_key(call));
            assert_eq!(kept.copied().collect::<Vec<_>>(), expected, "{calls:?}");
            assert!(rules.len() > READ.len(), "no call is named twice");
        }
        let family = |family: i32| {
            let is_it = SeccompCondition::new(0, Length::Dword, Compare::Eq, family as u64);
            vec![SeccompRule::new(vec![is_it.unwrap()]).unwrap()]
        };
        for calls in [Calls::Show, Calls::Serve] {
            let sockets = &rules(calls).unwrap()[&libc::SYS_socket];
            assert_eq!(*sockets, family(libc::AF_UNIX), "of one family only");
        }
        let requests = |calls| rules(calls).unwrap()[&libc::SYS_ioctl].len();
        let (few, more) = (TERMINAL.len(), TERMINAL.len() + EVENTS.len());
        let all = [Calls::Read, Calls::Manage, Calls::Serve].map(requests);
        assert_eq!(all, [few, more, more + SOCKETS.len()], "no rule would let any request through");
        assert_eq!([Calls::Ask, Calls::Show].map(requests), [few, few + SCREEN.len()]);
        let changes = MANAGE.iter().filter(|call| !SHOW.contains(call));
        for calls in [Calls::Read, Calls::Ask, Calls::Show] {
            let rules = rules(calls).unwrap();
            assert!(changes.clone().all(|call| !rules.contains_key(call)), "{calls:?}");
        }
    }
}
