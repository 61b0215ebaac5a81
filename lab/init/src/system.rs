//! The guest's system calls; the only unsafe code of PID 1.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Seek, Write as _};
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use rondpoint_lab_init::MANAGER_PATH;

/// `MPOL_INTERLEAVE` (`include/uapi/linux/mempolicy.h`).
const MPOL_INTERLEAVE: libc::c_long = 3;

/// What a program expects to be mounted: source and target, kind.
const MOUNTS: [(&str, &str); 7] = [
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("tmpfs", "/dev/shm"),
    ("debugfs", "/sys/kernel/debug"),
];

/// Mounts the usual file systems. Folders that an initramfs lacks are made.
pub(crate) fn mount_all() -> Result<(), String> {
    for (kind, target) in MOUNTS {
        let _ = fs::create_dir_all(target);
        let kind = CString::new(kind).expect("no NUL in a literal");
        let path = CString::new(target).expect("no NUL in a literal");
        // SAFETY: both strings are NUL-terminated and live through the call; no data is passed.
        let result = unsafe {
            libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), 0, std::ptr::null())
        };
        if result != 0 {
            return Err(format!("{target}: cannot mount: {}", io::Error::last_os_error()));
        }
    }
    for folder in ["/root", "/var/run", "/var/log", "/var/lock"] {
        let _ = fs::create_dir_all(folder);
    }
    Ok(())
}

/// Shows the file at `source` in the place of `target`.
pub(crate) fn mount_over(source: &str, target: &str) -> Result<(), String> {
    let [from, to] = [source, target].map(|path| CString::new(path).expect("no NUL in a literal"));
    // SAFETY: both strings are NUL-terminated and live through the call; a bind mount reads
    // neither kind nor data.
    let result = unsafe {
        libc::mount(from.as_ptr(), to.as_ptr(), std::ptr::null(), libc::MS_BIND, std::ptr::null())
    };
    match result {
        0 => Ok(()),
        _ => Err(format!("{source} over {target}: cannot mount: {}", io::Error::last_os_error())),
    }
}

/// Allows as many open descriptors as systemd does (`DefaultLimitNOFILE=1024:524288`,
/// systemd-system.conf(5)). The kernel's own bound for process 1 is 4,096.
pub(crate) fn allow_descriptors() -> Result<(), String> {
    let limit = libc::rlimit { rlim_cur: 1024, rlim_max: 524_288 };
    // SAFETY: the kernel reads one rlimit that lives through the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    match result {
        0 => Ok(()),
        _ => Err(format!("setrlimit(RLIMIT_NOFILE): {}", io::Error::last_os_error())),
    }
}

/// Opens a serial port so that bytes pass unchanged.
pub(crate) fn open_raw_port(path: &str) -> Result<File, String> {
    let port =
        File::options().write(true).open(path).map_err(|error| format!("{path}: {error}"))?;
    // SAFETY: termios is plain data, and the descriptor is open for the length of both calls.
    let result = unsafe {
        let mut settings: libc::termios = zeroed();
        libc::tcgetattr(port.as_raw_fd(), &raw mut settings);
        libc::cfmakeraw(&raw mut settings);
        libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const settings)
    };
    if result != 0 {
        return Err(format!("{path}: cannot set raw mode: {}", io::Error::last_os_error()));
    }
    Ok(port)
}

/// Makes the console this process's terminal, for a shell with job control.
pub(crate) fn take_console() -> Result<File, String> {
    let path = "/dev/ttyS0";
    // SAFETY: setsid and ioctl(TIOCSCTTY) take no pointers.
    unsafe { libc::setsid() };
    let console = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| format!("{path}: {error}"))?;
    // SAFETY: as above; the descriptor is open.
    unsafe { libc::ioctl(console.as_raw_fd(), libc::TIOCSCTTY, 1) };
    Ok(console)
}

/// Loads a kernel module from an uncompressed file.
pub(crate) fn load_module(path: &str, parameters: &CStr) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    // SAFETY: the descriptor is open and the parameter string is NUL-terminated.
    let result =
        unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result != 0 {
        return Err(format!("{path}: cannot load: {}", io::Error::last_os_error()));
    }
    Ok(())
}

/// Bit mask of the nodes with memory.
pub(crate) fn nodes_with_memory() -> Result<u64, String> {
    let path = "/sys/devices/system/node/has_memory";
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let mut mask = 0_u64;
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.parse::<u32>().ok().filter(|node| *node < 64).ok_or(format!("{path}: {text:?}"))
        };
        for node in number(first)?..=number(last)? {
            mask |= 1 << node;
        }
    }
    Ok(mask)
}

/// Spreads this process's future pages over the nodes of `mask`. Safe after fork: no allocation.
pub(crate) fn interleave(mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads 64 bits from the mask, which lives through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_INTERLEAVE, &raw const mask, 64 + 1) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The nodes of a mask, ascending.
pub(crate) fn nodes_of(mask: u64) -> Vec<i32> {
    (0..64).filter(|node| mask >> node & 1 == 1).collect()
}

/// Which node holds each page of another process; negative (an errno) where none does.
pub(crate) fn nodes_of_pages(process: u32, addresses: &[u64]) -> Vec<i32> {
    call_move_pages(process, addresses, None)
}

/// Moves these pages of another process to a node, as far as the kernel lets them go. What it says
/// of each page is incomplete where one cannot go. A caller that needs the result asks afterwards.
pub(crate) fn move_pages(process: u32, addresses: &[u64], node: i32) {
    call_move_pages(process, addresses, Some(node));
}

fn call_move_pages(process: u32, addresses: &[u64], target: Option<i32>) -> Vec<i32> {
    /// `MPOL_MF_MOVE` (`include/uapi/linux/mempolicy.h`): only pages that no other process has.
    const MOVE: libc::c_long = 2;
    let targets = target.map(|node| vec![node; addresses.len()]);
    let mut status = vec![-libc::ESRCH; addresses.len()];
    // SAFETY: addresses, status, and targets where there are any, have as many entries as the call
    // is told and outlive it. The pages are another process's, whose memory reads the same
    // afterwards.
    unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            libc::c_long::from(process),
            addresses.len(),
            addresses.as_ptr(),
            targets.as_ref().map_or(std::ptr::null(), Vec::as_ptr),
            status.as_mut_ptr(),
            MOVE,
        )
    };
    status
}

/// Runs `prepare` in the child between fork and exec.
pub(crate) fn before_exec(
    command: &mut Command,
    prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: callers pass closures that only make system calls, as fork demands.
    unsafe { command.pre_exec(prepare) };
}

/// Makes the calling process a manager: it keeps that over its next exec. Only makes system calls.
pub(crate) fn become_manager() -> io::Result<()> {
    let mut parameter = File::options().write(true).open(MANAGER_PATH)?;
    parameter.write_all(b"1")
}

/// Waits for the program, burying orphans meanwhile. Returns its status and largest resident set
/// in KiB. What it left running in its process group is killed.
pub(crate) fn wait_for(child: &Child) -> io::Result<(ExitStatus, u64)> {
    let pid = libc::pid_t::try_from(child.id()).expect("a process id fits pid_t");
    loop {
        let mut status = 0;
        // SAFETY: both out-pointers are to live locals; rusage is plain data.
        let (ended, usage) = unsafe {
            let mut usage: libc::rusage = zeroed();
            (libc::wait4(-1, &raw mut status, 0, &raw mut usage), usage)
        };
        if ended == pid {
            // SAFETY: kill takes no pointers; a group that is gone already is no error for us.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            let max_rss_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
            return Ok((ExitStatus::from_raw(status), max_rss_kib));
        }
        if ended < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Back to the start of a captured stream, through a descriptor of its own.
pub(crate) fn rewind(file: &mut File) -> Result<(), String> {
    file.rewind().map_err(|error| format!("captured output: {error}"))
}

/// The guest's monotonic clock, ns.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: the kernel writes a timespec into a live local.
    let time = unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time
    };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Sleeps for guest time.
pub(crate) fn pause_ns(ns: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(ns));
}

/// From here on every access goes through the hardware model (a marker that the plugin knows).
pub(crate) fn model_on() {
    // SAFETY: exchanging a register with itself changes nothing.
    unsafe { std::arch::asm!("xchg rcx, rcx", options(nomem, nostack, preserves_flags)) };
}

/// The modelled part is over.
pub(crate) fn model_off() {
    // SAFETY: as in `model_on`.
    unsafe { std::arch::asm!("xchg rdx, rdx", options(nomem, nostack, preserves_flags)) };
}

/// Ends the machine.
pub(crate) fn power_off() -> ! {
    // SAFETY: neither call takes pointers; PID 1 has the right to power off.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    loop {
        // The kernel takes the machine down meanwhile; PID 1 must not return.
        pause_ns(1_000_000_000);
    }
}
