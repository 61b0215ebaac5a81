//! Opening events, with the retries that older kernels and lower privileges need, and reading them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::attr::{Attr, flag, read_format, sample_type};
use super::count::{self, Count};
use crate::LinuxError;
use crate::syscall::perf::{self, Target};

/// An open event.
pub struct OpenEvent {
    file: File,
    /// The attributes that the kernel accepted.
    pub attr: Attr,
}

impl OpenEvent {
    /// Opens `attr` on `target`. If the kernel refuses it, parts are left out, in this order:
    /// - the count of lost samples (before Linux 6.0);
    /// - WEIGHT_STRUCT, replaced by WEIGHT (before 5.12);
    /// - page sizes (before 5.11);
    /// - kernel mode (`perf_event_paranoid`);
    /// - physical addresses.
    ///
    /// [`OpenEvent::attr`] has the remaining parts.
    ///
    /// # Errors
    /// The kernel's error of the last attempt; its refusal, if it takes the event in no other mode.
    pub fn open(
        name: &str,
        attr: &Attr,
        target: Target,
        group: Option<BorrowedFd<'_>>,
    ) -> Result<Self, LinuxError> {
        let mut attr = attr.clone();
        match lessened(&mut attr, group.is_some(), |attr| open_sized(attr, target, group)) {
            Ok(fd) => Ok(Self { file: File::from(fd), attr }),
            Err(source) => {
                let (event, target) = (name.to_string(), describe(target));
                Err(LinuxError::PerfOpen { event, target, source })
            }
        }
    }

    /// Reads the count; for the leader of a group, the counts of all its `members`.
    ///
    /// # Errors
    /// As read(2); a read shorter than its format prescribes.
    pub fn read(&self, members: usize) -> io::Result<Vec<Count>> {
        let mut bytes = vec![0; count::bytes(self.attr.read_format, members)];
        let read = loop {
            match (&self.file).read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        count::parse(&bytes[..read], self.attr.read_format).map_err(io::Error::other)
    }

    /// Whether the event is in the error state: it is pinned, and once found no counter. Reading it
    /// then gives no bytes (`__perf_read`, kernel/events/core.c, Linux 6.12).
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let mut bytes = vec![0; count::bytes(self.attr.read_format, 1)];
        matches!((&self.file).read(&mut bytes), Ok(0))
    }

    /// A file that stands for an event.
    #[cfg(test)]
    pub(crate) fn of_file(file: File, attr: Attr) -> Self {
        Self { file, attr }
    }

    /// Starts the event.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn enable(&self) -> io::Result<()> {
        perf::enable(self.file.as_fd())
    }

    /// Stops the event.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn disable(&self) -> io::Result<()> {
        perf::disable(self.file.as_fd())
    }

    /// Whether kernel mode is excluded.
    #[must_use]
    pub fn is_user_only(&self) -> bool {
        self.attr.flags & flag::EXCLUDE_KERNEL != 0
    }
}

impl AsFd for OpenEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn describe(target: Target) -> String {
    match (target.task, target.cpu) {
        (-1, cpu) => format!("CPU {cpu}"),
        (0, -1) => "this thread".to_string(),
        (task, -1) => format!("thread {task}"),
        (task, cpu) => format!("thread {task} on CPU {cpu}"),
    }
}

/// Tries `open` with ever fewer parts of `attr`. A unit that cannot leave kernel mode out (AMD's
/// IBS) answers EINVAL without it. The kernel's refusal of that mode is then the reason. For a
/// member of a group, EINVAL is about the group.
fn lessened<T>(
    attr: &mut Attr,
    is_member: bool,
    mut open: impl FnMut(&mut Attr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = match open(attr) {
        Err(error) => error,
        opened => return opened,
    };
    let mut refused = None;
    for lessen in LESSENINGS {
        let wanted = attr.clone();
        if !lessen.applies_to(&last) || !(lessen.change)(attr) {
            *attr = wanted;
            continue;
        }
        refused = refused.or(last.raw_os_error().filter(|errno| REFUSED.contains(errno)));
        match open(attr) {
            Err(error) => last = error,
            opened => return opened,
        }
    }
    let is_invalid = last.raw_os_error().is_some_and(|errno| UNKNOWN.contains(&errno));
    let reason = refused.filter(|_| is_invalid && !is_member);
    Err(reason.map_or(last, io::Error::from_raw_os_error))
}

/// Opens an event. If the kernel has a smaller structure and the rest is zero, it retries with that
/// size.
fn open_sized(
    attr: &mut Attr,
    target: Target,
    group: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let size = attr.size;
    match perf::open(attr, target, group) {
        Err(error) if error.raw_os_error() == Some(libc::E2BIG) && attr.size < size => {
            if let Some(field) = attr.field_beyond(attr.size) {
                let text = format!("this kernel's perf_event_attr has no field {field}");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            perf::open(attr, target, group)
        }
        other => other,
    }
}

struct Lessening {
    errnos: &'static [i32],
    /// Removes the part from the event; false if the event does not have it.
    change: fn(&mut Attr) -> bool,
}

impl Lessening {
    fn applies_to(&self, error: &io::Error) -> bool {
        error.raw_os_error().is_some_and(|errno| self.errnos.contains(&errno))
    }
}

const REFUSED: &[i32] = &[libc::EACCES, libc::EPERM];
const UNKNOWN: &[i32] = &[libc::EINVAL];

const LESSENINGS: [Lessening; 5] = [
    Lessening { errnos: UNKNOWN, change: |attr| take(&mut attr.read_format, read_format::LOST) },
    Lessening {
        errnos: UNKNOWN,
        change: |attr| {
            let had = take(&mut attr.sample_type, sample_type::WEIGHT_STRUCT);
            attr.sample_type |= if had { sample_type::WEIGHT } else { 0 };
            had
        },
    },
    Lessening {
        errnos: UNKNOWN,
        change: |attr| take(&mut attr.sample_type, sample_type::DATA_PAGE_SIZE),
    },
    Lessening {
        errnos: REFUSED,
        change: |attr| {
            let user_only = attr.flags & flag::EXCLUDE_KERNEL != 0;
            attr.exclude_kernel_and_hypervisor();
            !user_only
        },
    },
    Lessening {
        errnos: REFUSED,
        change: |attr| take(&mut attr.sample_type, sample_type::PHYS_ADDR),
    },
];

fn take(word: &mut u64, bit: u64) -> bool {
    let had = *word & bit != 0;
    *word &= !bit;
    had
}

/// Highest level of `perf_event_paranoid` at which CAP_PERFMON suffices. Kernels of Debian and
/// Ubuntu have higher levels, which need CAP_SYS_ADMIN.
const STRICTEST_FOR_PERFMON: i64 = 2;

/// Most open files that a process may have, unless `fs.nr_open` was changed (`sysctl_nr_open`,
/// fs/file.c, Linux 6.12). The kernel refuses a higher limit, `unlimited` too.
const MOST_FILES: u32 = 1 << 20;

/// One sentence with the cause why an event could not be opened and, if one helps, a command.
/// `holds_perfmon`: whether the caller has CAP_PERFMON, which suffices at the kernel's own default
/// level.
#[must_use]
pub fn advice(errno: Option<i32>, paranoid: Option<i64>, holds_perfmon: bool) -> String {
    let cause = cause(errno, paranoid);
    let is_above = paranoid.is_some_and(|level| level > STRICTEST_FOR_PERFMON);
    let level = if holds_perfmon && is_above { STRICTEST_FOR_PERFMON } else { -1 };
    match errno {
        Some(libc::EACCES | libc::EPERM) if paranoid.is_some_and(|level| level < 0) => format!(
            "{cause}; the level allows them, so a container's filter, a security module or \
             lockdown refuses them"
        ),
        Some(libc::EACCES | libc::EPERM) => format!(
            "{cause}; `sudo sysctl kernel.perf_event_paranoid={level}` allows them until the next \
             boot"
        ),
        _ => cause,
    }
}

/// The sentence of [`advice`] without the command.
#[must_use]
pub fn cause(errno: Option<i32>, paranoid: Option<i64>) -> String {
    match errno {
        Some(libc::EACCES | libc::EPERM) => {
            let level = paranoid.map_or("not readable".to_string(), |level| level.to_string());
            format!("the kernel refuses performance events (kernel.perf_event_paranoid is {level})")
        }
        Some(libc::EMFILE) => format!(
            "too many open files for all events; `ulimit -n {MOST_FILES}` as root, or \
             LimitNOFILE={MOST_FILES} in a unit, allows more"
        ),
        Some(libc::ENFILE) => {
            "too many open files on this machine; `sudo sysctl fs.file-max=` with a larger number \
             allows more"
                .to_string()
        }
        Some(libc::EBUSY) => "another profiler holds the counters; stop it first".to_string(),
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "this machine has no hardware performance counters (most virtual machines have none)"
                .to_string()
        }
        Some(libc::ENOSYS) => "this kernel is built without performance events".to_string(),
        Some(errno) => io::Error::from_raw_os_error(errno).to_string(),
        None => "the event is unknown here".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::{SW_DUMMY, SW_PAGE_FAULTS_MIN, SW_TASK_CLOCK, TYPE_SOFTWARE};
    use crate::syscall::memory::Anonymous;

    const SELF: Target = Target { task: 0, cpu: -1 };

    #[test]
    fn an_event_counts_between_enabling_and_reading() {
        let attr = Attr::counting(TYPE_SOFTWARE, SW_PAGE_FAULTS_MIN);
        let event = OpenEvent::open("faults", &attr, SELF, None).unwrap();
        event.enable().unwrap();
        Anonymous::new(32 * 4096).unwrap().touch_every(4096);
        let count = event.read(1).unwrap()[0];
        assert!(count.value >= 32 && count.running_ns > 0, "{count:?}");
        assert_eq!(count.enabled_ns, count.running_ns);
    }

    #[test]
    fn an_event_that_gives_no_bytes_has_failed() {
        let attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
        assert!(!OpenEvent::open("dummy", &attr, SELF, None).unwrap().has_failed());
        let empty = File::open("/dev/null").unwrap();
        assert!(OpenEvent::of_file(empty, attr).has_failed());
    }

    #[test]
    fn a_group_is_read_at_once() {
        let mut attr = Attr::counting(TYPE_SOFTWARE, SW_TASK_CLOCK);
        attr.read_format |= read_format::GROUP;
        let leader = OpenEvent::open("clock", &attr, SELF, None).unwrap();
        let member = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
        let _member = OpenEvent::open("dummy", &member, SELF, Some(leader.as_fd())).unwrap();
        leader.enable().unwrap();
        let counts = leader.read(2).unwrap();
        assert_eq!(counts.len(), 2);
        assert_eq!(counts[1].value, 0);
    }

    #[test]
    fn an_event_nobody_has_is_named_with_its_target() {
        let attr = Attr::counting(9_999, 0);
        let error = OpenEvent::open("odd", &attr, Target { task: 0, cpu: 0 }, None).err().unwrap();
        let text = error.to_string();
        assert_eq!(
            text,
            "perf event odd on thread 0 on CPU 0: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn a_task_that_is_gone_is_an_error_of_the_world() {
        let attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
        let target = Target { task: i32::MAX, cpu: -1 };
        let error = OpenEvent::open("dummy", &attr, target, None).err().unwrap();
        assert_eq!(error.errno(), Some(libc::ESRCH));
    }

    /// The kernel's answers to an event, by whether it leaves kernel mode and physical addresses
    /// out.
    fn answered(is_member: bool, answer: impl Fn(bool, bool) -> i32) -> (Option<i32>, u32) {
        let mut attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
        attr.sample_type = sample_type::PHYS_ADDR;
        let mut tries = 0;
        let opened = lessened(&mut attr, is_member, |attr| {
            tries += 1;
            let is_user_only = attr.flags & flag::EXCLUDE_KERNEL != 0;
            match answer(is_user_only, attr.sample_type & sample_type::PHYS_ADDR == 0) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        });
        (opened.err().and_then(|error| error.raw_os_error()), tries)
    }

    #[test]
    fn a_unit_that_cannot_leave_kernel_mode_out_is_refused_and_not_invalid() {
        let ibs = |is_user_only, has_no_physical| match (is_user_only, has_no_physical) {
            (true, true) => libc::EINVAL,
            _ => libc::EACCES,
        };
        assert_eq!(answered(false, ibs), (Some(libc::EACCES), 3));
        assert_eq!(answered(true, ibs).0, Some(libc::EINVAL), "its leader may be another task's");
        let without_physical = |_, has_no_physical| if has_no_physical { 0 } else { libc::EACCES };
        assert_eq!(answered(false, without_physical), (None, 3));
        assert_eq!(answered(false, |_, _| libc::ENOENT), (Some(libc::ENOENT), 1));
        assert_eq!(answered(false, |_, _| libc::EINVAL).0, Some(libc::EINVAL), "never refused");
    }

    #[test]
    fn advice_names_the_command() {
        let refused = |level, holds| advice(Some(libc::EACCES), Some(level), holds);
        let text = refused(3, false);
        assert!(text.contains("paranoid is 3") && text.contains("paranoid=-1"), "{text}");
        // What Debian refuses to CAP_PERFMON, the kernel's own default allows.
        assert!(refused(3, true).contains("`sudo sysctl kernel.perf_event_paranoid=2`"));
        assert!(refused(2, true).contains("paranoid=-1"));
        // A lower level does not help where the level allows all.
        let text = refused(-1, false);
        assert!(!text.contains("sudo") && text.contains("a container's filter"), "{text}");
        assert!(!cause(Some(libc::EACCES), Some(3)).contains("sysctl kernel"));
        // The kernel refuses `unlimited`, to root too.
        let text = advice(Some(libc::EMFILE), None, false);
        assert!(text.contains("`ulimit -n 1048576` as root") && !text.contains("unlimited"));
        assert!(advice(Some(libc::ENFILE), None, false).contains("fs.file-max"));
        assert!(advice(Some(libc::ENOENT), None, false).contains("virtual machines"));
    }
}
