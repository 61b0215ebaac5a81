//! `/proc/PID/maps`: where a process has mapped something (proc_pid_maps(5)).

use rondpoint_core::observation::{SharedMapping, SharedObject};

use super::ParseError;
use super::fields::{decimal, hexadecimal, lines, words};

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

/// What is mapped so that others see what is written: files and shared memory, writable here. Not what has a driver behind it
/// (`anon_inode:[io_uring]`, `/dev/kvm`): there one number stands for something else in each process.
///
/// # Errors
/// A line that does not begin as one of a shared mapping does.
pub fn parse_shared(bytes: &[u8]) -> Result<Vec<SharedMapping>, ParseError> {
    let mut mappings = Vec::new();
    for (number, line) in lines(bytes) {
        let permissions = words(line).nth(1).unwrap_or_default();
        if permissions.starts_with(b"rw") && permissions.ends_with(b"s") && is_memory(line) {
            let fail =
                || ParseError::new(number, "START-END PERMISSIONS OFFSET DEVICE INODE", line);
            mappings.push(shared_mapping(line).ok_or_else(fail)?);
        }
    }
    Ok(mappings)
}

/// By its name, as `/proc` shows it: what lies under `/dev` is a device, but for shared memory (`/dev/zero` is what an anonymous
/// shared mapping is called).
fn is_memory(line: &[u8]) -> bool {
    const MEMORY: [&[u8]; 3] = [b"/dev/shm/", b"/dev/zero", b"/dev/hugepages/"];
    let name = words(line).nth(5).unwrap_or_default();
    let is_device = name.starts_with(b"/dev/") && !MEMORY.iter().any(|one| name.starts_with(one));
    name.starts_with(b"/") && !is_device
}

fn shared_mapping(line: &[u8]) -> Option<SharedMapping> {
    let Mapping { start, end, .. } = mapping(line)?;
    let mut rest = words(line).skip(2);
    let offset = hexadecimal(rest.next()?)?;
    let device = rest.next()?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    // A major number has 12 bits, a minor one 20 (include/linux/kdev_t.h).
    let device = hexadecimal(&device[..colon])? << 20 | hexadecimal(&device[colon + 1..])?;
    let object = SharedObject { device, inode: decimal(rest.next()?)? };
    Some(SharedMapping { start, end, object, offset })
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
    use proptest::prelude::*;

    use super::*;

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
    fn shared_memory_is_known_by_device_and_number() {
        let text = b"7f00-7f01 rw-s 00001000 00:19 42 /dev/shm/a name\n\
            7f02-7f03 rw-p 00000000 08:01 123 /usr/lib/a\n\
            7f04-7f05 r--s 00000000 08:01 124 /usr/share/a\n\
            7f06-7f07 rw-s 00000000 00:0e 1055 anon_inode:[io_uring]\n\
            7f08-7f09 rw-s 00000000 00:05 99 /dev/dri/card0\n\
            7f0a-7f0b rw-s 00000000 00:01 7 /SYSV00000000 (deleted)\n";
        let object = SharedObject { device: 0x19, inode: 42 };
        let expected = SharedMapping { start: 0x7f00, end: 0x7f01, object, offset: 0x1000 };
        let found = parse_shared(text).unwrap();
        assert_eq!((found.len(), found[0], found[1].object.inode), (2, expected, 7));
        let error = parse_shared(b"1000-2000 rw-s 0 0019 42 /a").unwrap_err().to_string();
        assert_eq!(
            error,
            "line 1: expected START-END PERMISSIONS OFFSET DEVICE INODE, found `1000-2000 rw-s 0 0019 42 /a`"
        );
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
