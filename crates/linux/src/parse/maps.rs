//! `/proc/PID/maps`: where a process has mapped something (proc_pid_maps(5)).

use super::ParseError;
use super::fields::{hexadecimal, lines};

/// One mapping: addresses from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// It may be read, written or executed; what may not is often address space in reserve.
    pub is_accessible: bool,
}

/// Parts of the kernel that are mapped into every process: no memory of the process.
const KERNELS: [&[u8]; 5] = [b"[vdso]", b"[vvar]", b"[vvar_vclock]", b"[vsyscall]", b"[uprobes]"];

/// Parses the file. What the kernel maps into every process is left out.
///
/// # Errors
/// A line that does not begin with a range of addresses and permissions.
pub fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, ParseError> {
    let mut mappings = Vec::new();
    for (number, line) in lines(bytes).filter(|(_, line)| !line.is_empty()) {
        if KERNELS.iter().any(|name| line.ends_with(name)) {
            continue;
        }
        let fail = || ParseError::new(number, "START-END PERMISSIONS", line);
        mappings.push(mapping(line).ok_or_else(fail)?);
    }
    Ok(mappings)
}

fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.split(|&byte| byte == b' ');
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?);
    let permissions = words.next()?;
    let is_accessible = !permissions.starts_with(b"---");
    (start < end).then_some(Mapping { start, end, is_accessible })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_read_and_the_kernels_own_left_out() {
        let text = b"55d0a000-55d0c000 r-xp 00001000 08:01 123   /usr/bin/a [vdso] b\n\
            7f0000000000-7f0040000000 ---p 00000000 00:00 0 \n\
            7ffd1000-7ffd3000 r--p 00000000 00:00 0    [vvar]\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    [vsyscall]\n";
        let expected = [
            Mapping { start: 0x55d0_a000, end: 0x55d0_c000, is_accessible: true },
            Mapping { start: 0x7f00_0000_0000, end: 0x7f00_4000_0000, is_accessible: false },
        ];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for bad in ["7f00 rw-p", "2000-1000 rw-p", "1000-2000", "x-y rw-p"] {
            let error = parse(bad.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, format!("line 1: expected START-END PERMISSIONS, found `{bad}`"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_mappings_or_an_error(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
