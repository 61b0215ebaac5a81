//! `/proc/PID/status`: `Name:\tvalue` lines (proc_pid_status(5)).

use super::ParseError;
use super::cpulist;
use super::fields::{decimal, lines, trim, words};

/// The used fields of a task's `status`; `None` if the kernel has no such line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// `Tgid`: the process that a thread belongs to.
    pub process: Option<u32>,
    /// `Uid`: the real user.
    pub user: Option<u32>,
    /// `CapEff`: the effective capabilities, one bit each.
    pub effective_capabilities: Option<u64>,
    /// `Cpus_allowed_list`: the thread's mask within its cpuset.
    pub cpus_allowed: Option<Vec<u32>>,
    /// `Mems_allowed_list`: the nodes of its cpuset.
    pub nodes_allowed: Option<Vec<u32>>,
}

/// Parses the file.
///
/// # Errors
/// A used line has a malformed value.
pub fn parse(bytes: &[u8]) -> Result<Status, ParseError> {
    let mut status = Status::default();
    for (number, line) in lines(bytes) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        let fail = |expected| ParseError::new(number, expected, line);
        let small = || {
            let first = words(value).next().and_then(decimal);
            first.and_then(|first| u32::try_from(first).ok()).ok_or_else(|| fail("a number"))
        };
        let list = || cpulist::parse(value).map_err(|_| fail("a list such as 0-3,8"));
        match name {
            b"Tgid" => status.process = Some(small()?),
            b"Uid" => status.user = Some(small()?),
            b"Cpus_allowed_list" => status.cpus_allowed = Some(list()?),
            b"Mems_allowed_list" => status.nodes_allowed = Some(list()?),
            b"CapEff" => {
                let mask = super::fields::hexadecimal(value);
                status.effective_capabilities =
                    Some(mask.ok_or_else(|| fail("a hexadecimal mask"))?);
            }
            _ => {}
        }
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_lists_and_capabilities_are_read() {
        let text = b"Name:\tcat\nTgid:\t7\nUid:\t1000\t1000\t1000\t1000\n\
            CapEff:\t000001fffeffffff\nCpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n";
        let status = parse(text).unwrap();
        assert_eq!((status.process, status.user), (Some(7), Some(1000)));
        assert_eq!(status.effective_capabilities, Some(0x1ff_feff_ffff));
        assert_eq!(status.cpus_allowed, Some(vec![0, 1]));
        assert_eq!(status.nodes_allowed, Some(vec![0]));
    }

    #[test]
    fn a_bad_value_names_its_line() {
        let error = parse(b"Name:\tx\nCpus_allowed_list:\t0-\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2: expected a list"), "{error}");
        assert_eq!(parse(b"").unwrap(), Status::default());
    }
}
