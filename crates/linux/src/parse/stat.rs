//! `/proc/PID/stat` and `/proc/PID/task/TID/stat` (proc_pid_stat(5)).
//!
//! The name stands in parentheses and may itself hold spaces and parentheses, so fields are counted
//! from the *last* closing one.

use super::ParseError;
use super::fields::{decimal, trim, words};

/// The used fields of a task's `stat` (proc(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStat {
    /// Field 1: number of the task.
    pub id: u32,
    /// Field 2: name, without parentheses.
    pub name: String,
    /// Field 3: state, `R`, `S`, `D`, `T`, `Z` …
    pub state: char,
    /// Field 4: number of the parent process.
    pub parent: u32,
    /// Field 6: session. It is 0 if the session's leader is outside this PID namespace, and for
    /// kernel threads.
    pub session: u32,
    /// Fields 10 and 12 together: minor and major page faults.
    pub faults: u64,
    /// Fields 14 and 15 together: user and system time, in clock ticks.
    pub cpu_time_ticks: u64,
    /// Field 20: number of threads.
    pub threads: u32,
    /// Field 22: start time since boot, in clock ticks. Together with `id` it identifies a task.
    pub start_ticks: u64,
    /// Field 39: CPU on which the task last ran.
    pub cpu: u32,
    /// Field 24: resident pages.
    pub resident_pages: u64,
    /// Whether field 9 has `PF_KTHREAD`.
    pub is_kernel_thread: bool,
    /// Field 41: scheduling policy. 0 is the ordinary one; 1, 2 and 6 are real-time ones.
    pub policy: u32,
}

impl TaskStat {
    /// Whether some thread of the process lives. The main thread may end before others.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.state != 'X' && (self.state != 'Z' || self.threads > 1)
    }
}

/// Flag of a kernel thread (include/linux/sched.h, the same from Linux 2.6 on).
const PF_KTHREAD: u64 = 0x0020_0000;

/// Number of the last used field.
const LAST_FIELD: usize = 41;

/// Parses the one line.
///
/// # Errors
/// Missing parentheses, too few fields, or a field that is no number.
pub fn parse(bytes: &[u8]) -> Result<TaskStat, ParseError> {
    let fail = || ParseError::new(1, "PID (NAME) STATE and at least 41 fields", bytes);
    let open = bytes.iter().position(|&byte| byte == b'(').ok_or_else(fail)?;
    let close = bytes.iter().rposition(|&byte| byte == b')').ok_or_else(fail)?;
    if close < open {
        return Err(fail());
    }
    // rest[0] is field 3. Later fields than the last used one are not parsed.
    let mut rest = [&[][..]; LAST_FIELD - 2];
    rest.iter_mut().zip(words(&bytes[close + 1..])).for_each(|(field, word)| *field = word);
    let number = |field: usize| decimal(rest[field - 3]).ok_or_else(fail);
    let small = |field: usize| u32::try_from(number(field)?).map_err(|_| fail());
    Ok(TaskStat {
        id: decimal(trim(&bytes[..open])).and_then(|id| id.try_into().ok()).ok_or_else(fail)?,
        name: String::from_utf8_lossy(&bytes[open + 1..close]).into_owned(),
        state: rest[0].first().map(|&letter| char::from(letter)).ok_or_else(fail)?,
        parent: small(4)?,
        session: number(6).and_then(|id| u32::try_from(id).map_err(|_| fail())).unwrap_or(0),
        cpu_time_ticks: number(14)?.saturating_add(number(15)?),
        threads: small(20)?,
        start_ticks: number(22)?,
        cpu: small(39)?,
        resident_pages: number(24)?,
        faults: number(10)?.saturating_add(number(12)?),
        is_kernel_thread: number(9)? & PF_KTHREAD != 0,
        policy: small(LAST_FIELD)?,
    })
}

/// `stat` of process 7 in this state and with so many threads. Its other fields are those of this
/// process.
#[cfg(test)]
pub(crate) fn sample(state: &str, threads: &str) -> String {
    let own = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = own.rsplit_once(") ").unwrap();
    let mut fields: Vec<&str> = fields.split(' ').collect();
    // Fields 3 and 20 of proc_pid_stat(5).
    (fields[0], fields[17]) = (state, threads);
    format!("7 (x) {}", fields.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "71 (a) b (c)) S 1 71 71 0 -1 4194560 100 0 0 0 25 5 0 0 20 0 3 0 9304 \
        3104768 456 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 6 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let stat = parse(LINE.as_bytes()).unwrap();
        assert_eq!(stat.name, "a) b (c)");
        assert_eq!((stat.id, stat.state, stat.parent, stat.threads), (71, 'S', 1, 3));
        assert_eq!(stat.session, 71);
        assert_eq!((stat.cpu_time_ticks, stat.start_ticks, stat.resident_pages), (30, 9304, 456));
        assert_eq!((stat.cpu, stat.faults, stat.policy, stat.is_kernel_thread), (6, 100, 0, false));
    }

    #[test]
    fn a_cut_line_is_refused() {
        assert!(parse(&LINE.as_bytes()[..60]).is_err());
        assert!(parse(b"1 )x( S").is_err());
        assert!(parse(b"").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_stat_or_an_error(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn any_name_is_read_back(name in "[ -~]{0,20}") {
            let line = LINE.replace("a) b (c)", &name);
            prop_assert_eq!(parse(line.as_bytes()).unwrap().name, name);
        }
    }
}
