//! The tasks on which events are opened: a program with all its descendants, or all tasks.

use crate::LinuxError;
use crate::perf::attr::{Attr, flag};
use crate::perf::event::OpenEvent;
use crate::perf::group::OpenGroup;
use crate::perf::pmu::Event;
use crate::syscall::perf::Target;

/// Most inherited events of a task (our choice). Every new thread gets its own copy of each, until
/// it ends. A copy takes about 1.2 KiB of kernel memory (`struct perf_event`, `inherit_event`,
/// Linux 6.12). For programs that start many threads the limit is lower (`inherited.rs`).
const MAX_INHERITED: usize = 512;
/// Most descriptors for the threads at the start (our choice).
const MAX_OPENED: usize = 8192;

/// Most openings of a group for a task that starts a thread each time (our choice).
const MAX_OPENINGS: u32 = 10;

/// The time at which events begin to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the task's `execve`.
    OnExec,
    /// At once.
    Now,
}

/// The tasks that events are opened on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    tasks: Vec<i32>,
    start: Start,
}

const EVERYBODY: i32 = -1;

impl Subject {
    /// These threads and their descendants.
    #[must_use]
    pub fn tasks(threads: &[u32], start: Start) -> Self {
        Self { tasks: threads.iter().map(|&thread| thread as i32).collect(), start }
    }

    /// All tasks on a CPU.
    #[must_use]
    pub fn all_tasks() -> Self {
        Self { tasks: vec![EVERYBODY], start: Start::Now }
    }

    /// Whether the subject is all tasks.
    #[must_use]
    pub fn is_all_tasks(&self) -> bool {
        self.tasks == [EVERYBODY]
    }

    /// Whether `events` events on `cpus` CPUs are too many for the tasks.
    #[must_use]
    pub fn is_too_much(&self, events: usize, cpus: usize) -> bool {
        let each = events * cpus;
        each > MAX_INHERITED || each * self.tasks.len() > MAX_OPENED
    }

    /// Opens an event on one CPU for each of the tasks, without ended ones.
    ///
    /// # Errors
    /// The kernel's error about the first living task.
    pub fn open(&self, event: &Event, cpu: u32) -> Result<Vec<OpenEvent>, LinuxError> {
        self.open_from(event, cpu, self.start)
    }

    /// Opens `events` as one group on one CPU for each of the tasks. If a thread starts meanwhile,
    /// the group is opened again. Otherwise that thread would have a part of it, and the group
    /// could not be read (see [`OpenGroup::read_inherited`]).
    ///
    /// # Errors
    /// As [`Subject::open`].
    pub fn open_groups(&self, events: &[Event], cpu: u32) -> Result<Vec<OpenGroup>, LinuxError> {
        self.each(cpu, |target| {
            // Members start with their leader, so all may have the same start.
            let open = || OpenGroup::open(events, target, |attr| prepare(attr, self.start));
            let mut opened = open();
            for _ in 1..MAX_OPENINGS {
                // A task starts no threads before `execve`, and a CPU has none.
                if self.start == Start::OnExec || self.is_all_tasks() || !is_torn(&opened)? {
                    break;
                }
                opened = open();
            }
            opened
        })
    }

    /// As [`Subject::open`], with events that run at once, for records that begin before `execve`.
    ///
    /// # Errors
    /// As [`Subject::open`].
    pub fn open_now(&self, event: &Event, cpu: u32) -> Result<Vec<OpenEvent>, LinuxError> {
        self.open_from(event, cpu, Start::Now)
    }

    fn open_from(
        &self,
        event: &Event,
        cpu: u32,
        start: Start,
    ) -> Result<Vec<OpenEvent>, LinuxError> {
        let mut attr = event.attr.clone();
        prepare(&mut attr, start);
        self.each(cpu, |target| OpenEvent::open(&event.name, &attr, target, None))
    }

    fn each<T>(
        &self,
        cpu: u32,
        open: impl Fn(Target) -> Result<T, LinuxError>,
    ) -> Result<Vec<T>, LinuxError> {
        let mut opened = Vec::new();
        for &task in &self.tasks {
            match open(Target { task, cpu: cpu as i32 }) {
                Ok(one) => opened.push(one),
                Err(error) if error.errno() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }
}

/// What opens on each CPU. A CPU that is off now has none (ENODEV), unless no CPU has one.
pub(super) fn on_cpus<T: Default>(
    cpus: usize,
    open: impl Fn(usize) -> Result<T, LinuxError>,
) -> Result<Vec<T>, LinuxError> {
    let (mut opened, mut is_any, mut absent) = (Vec::with_capacity(cpus), false, None);
    for cpu in 0..cpus {
        match open(cpu) {
            Ok(one) => {
                is_any = true;
                opened.push(one);
            }
            Err(error) if error.errno() == Some(libc::ENODEV) => {
                absent = Some(error);
                opened.push(T::default());
            }
            Err(error) => return Err(error),
        }
    }
    match absent {
        Some(error) if !is_any => Err(error),
        _ => Ok(opened),
    }
}

/// Whether a thread started between the events of a group. At a switch between parent and child the
/// kernel may also swap their events. It then refuses the next member with EINVAL, because its
/// leader is another task's (`perf_event_context_sched_out`, kernel/events/core.c). In one of some
/// thousand openings the error was ENODEV (measured).
fn is_torn(opened: &Result<OpenGroup, LinuxError>) -> Result<bool, LinuxError> {
    match opened {
        Ok(group) => Ok(group.read_inherited()?.is_none()),
        Err(error) => Ok(matches!(error.errno(), Some(libc::EINVAL | libc::ENODEV))),
    }
}

fn prepare(attr: &mut Attr, start: Start) {
    attr.flags |= flag::INHERIT;
    match start {
        Start::OnExec => attr.flags |= flag::ENABLE_ON_EXEC,
        Start::Now => attr.flags &= !flag::DISABLED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::{SW_DUMMY, TYPE_SOFTWARE};
    use crate::sleeper::own_thread;

    fn dummy() -> Event {
        let attr = Attr::counting(TYPE_SOFTWARE, SW_DUMMY);
        Event { name: "dummy".into(), attr, cpus: None }
    }

    #[test]
    fn a_cpu_that_is_off_is_passed_over_unless_all_are() {
        let refused = |errno| {
            LinuxError::io(
                std::path::Path::new("x"),
                "open",
                std::io::Error::from_raw_os_error(errno),
            )
        };
        let open = |errnos: [i32; 3]| {
            on_cpus(3, |cpu| match errnos[cpu] {
                0 => Ok(vec![cpu]),
                errno => Err(refused(errno)),
            })
        };
        let [off, none] = [libc::ENODEV, libc::ENOENT];
        assert_eq!(open([0, off, 0]).unwrap(), [vec![0], vec![], vec![2]]);
        assert_eq!(open([off; 3]).unwrap_err().errno(), Some(off), "the processor has it not");
        assert_eq!(open([0, none, off]).unwrap_err().errno(), Some(none));
    }

    #[test]
    fn tasks_that_have_ended_are_passed_over() {
        let event = dummy();
        let subject = Subject::tasks(&[0, i32::MAX as u32], Start::Now);
        assert_eq!(subject.open(&event, 0).unwrap().len(), 1);
        assert!(!subject.is_all_tasks() && Subject::all_tasks().is_all_tasks());
    }

    #[test]
    fn a_thread_that_is_born_while_a_group_is_opened_leaves_it_readable() {
        let events = vec![dummy(); 64];
        let (told, hear) = std::sync::mpsc::channel();
        let over = std::sync::Arc::new(std::sync::Barrier::new(101));
        let wait = over.clone();
        let parent = std::thread::spawn(move || {
            told.send(own_thread().0).unwrap();
            for _ in 0..100 {
                let wait = wait.clone();
                std::thread::spawn(move || wait.wait());
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            told.send(0).unwrap();
            wait.wait();
        });
        let subject = Subject::tasks(&[hear.recv().unwrap()], Start::Now);
        while hear.try_recv().is_err() {
            let groups = subject.open_groups(&events, 0).unwrap();
            assert!(groups.iter().all(|group| group.read_inherited().unwrap().is_some()));
        }
        parent.join().unwrap();
    }

    #[test]
    fn many_cpus_or_many_threads_are_too_much() {
        let one = Subject::tasks(&[1], Start::Now);
        assert!(!one.is_too_much(16, 32) && one.is_too_much(16, 33));
        let many = Subject::tasks(&[1; 100], Start::Now);
        assert!(!many.is_too_much(10, 8) && many.is_too_much(11, 8));
    }
}
