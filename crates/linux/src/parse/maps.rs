//! `/proc/PID/maps`: where a process has mapped something (proc_pid_maps(5)).

use std::collections::BTreeSet;

use rondpoint_core::observation::{AddressRange, MappingKind, SharedMapping, SharedObject};

use super::ParseError;
use super::fields::{decimal, hexadecimal, lines, words};
use crate::replicas::is_copy;

/// One mapping: addresses from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Whether it may be read, written or executed. A mapping without these rights is often
    /// reserved address space.
    pub is_accessible: bool,
    /// Whether it is a copy of a file by `rondpoint run --replicate`, which stays on its node.
    pub is_copy: bool,
}

/// Mappings of the kernel in every process, which are no memory of the process.
const KERNELS: [&[u8]; 5] = [b"[vdso]", b"[vvar]", b"[vvar_vclock]", b"[vsyscall]", b"[uprobes]"];

/// Parses the file, without the kernel's own mappings.
///
/// # Errors
/// A line that does not begin with a range of addresses and permissions.
pub fn parse(bytes: &[u8]) -> Result<Vec<Mapping>, ParseError> {
    each(bytes, mapping_of)
}

/// Parses the shared mappings: files and shared memory. Mappings of drivers
/// (`anon_inode:[io_uring]`, `/dev/kvm`) are left out, because their inode number names different
/// memory in each process.
///
/// # Errors
/// A line does not begin as that of a mapped file.
pub fn parse_shared(bytes: &[u8]) -> Result<Vec<SharedMapping>, ParseError> {
    each(bytes, shared_of)
}

/// Parses all mapped files and shared memory, whose pages other processes may map too. Pages of a
/// private mapping are shared until this process writes to them.
///
/// # Errors
/// As [`parse_shared`].
pub fn parse_objects(bytes: &[u8]) -> Result<BTreeSet<SharedObject>, ParseError> {
    Ok(each(bytes, object_of)?.into_iter().collect())
}

fn each<T>(
    bytes: &[u8],
    of_line: fn(usize, &[u8]) -> Result<Option<T>, ParseError>,
) -> Result<Vec<T>, ParseError> {
    let found = lines(bytes).filter(|(_, line)| !line.is_empty());
    found.filter_map(|(number, line)| of_line(number, line).transpose()).collect()
}

/// Parses one line as [`parse`]; `None` for the kernel's own mappings.
///
/// # Errors
/// As [`parse`].
pub fn mapping_of(number: usize, line: &[u8]) -> Result<Option<Mapping>, ParseError> {
    if KERNELS.iter().any(|name| line.ends_with(name)) {
        return Ok(None);
    }
    let fail = || ParseError::new(number, "START-END PERMISSIONS", line);
    mapping(line).map(Some).ok_or_else(fail)
}

/// Parses one line as [`parse_shared`]; `None` for other mappings.
///
/// # Errors
/// As [`parse_shared`].
pub fn shared_of(number: usize, line: &[u8]) -> Result<Option<SharedMapping>, ParseError> {
    let is_shared = words(line).nth(1).is_some_and(|word| word.ends_with(b"s"));
    if is_shared && is_memory(line) { shared_mapping(number, line).map(Some) } else { Ok(None) }
}

/// Parses one line as [`parse_objects`]; `None` for other mappings.
///
/// # Errors
/// As [`parse_shared`].
pub fn object_of(number: usize, line: &[u8]) -> Result<Option<SharedObject>, ParseError> {
    let object = is_memory(line).then(|| shared_mapping(number, line).map(|found| found.object));
    object.transpose()
}

/// The mode of a mapping, by its permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Private: writes stay in the process.
    Private,
    /// Shared and writable: processes may exchange data there.
    SharedWritable,
    /// Shared and read-only.
    SharedReadOnly,
}

/// Range and mode of a line; `None` if it is malformed.
#[must_use]
pub fn mode_of(line: &[u8]) -> Option<(AddressRange, Mode)> {
    let Mapping { start, end, .. } = mapping(line)?;
    let mode = match words(line).nth(1)? {
        [_, b'w', _, b's', ..] => Mode::SharedWritable,
        [_, _, _, b's', ..] => Mode::SharedReadOnly,
        _ => Mode::Private,
    };
    Some((AddressRange { start, end }, mode))
}

/// The kind of a line's mapping for moving and copying its pages. The file does not show huge
/// pages.
#[must_use]
pub fn kind_of(line: &[u8]) -> MappingKind {
    let name = words(line).nth(5).unwrap_or_default();
    let is_named = !name.is_empty() && !matches!(name, b"[heap]" | b"[stack]");
    let is_anonymous = !is_named || name.starts_with(b"[anon:");
    match words(line).nth(1) {
        Some([_, _, _, b's', ..]) => MappingKind::Shared,
        Some([b'r', b'w', ..]) if is_anonymous => MappingKind::PrivateAnonymous,
        Some(_) if KERNELS.iter().any(|kernel| line.ends_with(kernel)) => MappingKind::Special,
        Some(_) => MappingKind::PrivateOther,
        None => MappingKind::Special,
    }
}

/// Folders of `/dev` with devices, from the kernel's drivers and udev's rules. Any other folder
/// there counts as a file system in memory, because hosts mount hugetlbfs and tmpfs under their own
/// names (`/dev/hugepages1G`). Taking a device for memory costs a call that the kernel refuses. The
/// opposite error would miss shared memory.
const DEVICE_FOLDERS: [&[u8]; 33] = [
    b"accel",
    b"block",
    b"bsg",
    b"bus",
    b"cdx",
    b"char",
    b"cpu",
    b"crypto",
    b"cxl",
    b"disk",
    b"dma_heap",
    b"dri",
    b"dvb",
    b"fd",
    b"habanalabs",
    b"hl",
    b"hwtracing",
    b"infiniband",
    b"input",
    b"iommu",
    b"mapper",
    b"net",
    b"nvidia-caps",
    b"ocxl",
    b"pts",
    b"sgx",
    b"snd",
    b"usb",
    b"v4l",
    b"vas",
    b"vfio",
    b"virtio-ports",
    b"xen",
];

/// Whether a line's mapping has pages of memory, by its name. A device in `/dev` has none, except
/// `/dev/zero`, the name of anonymous shared mappings.
fn is_memory(line: &[u8]) -> bool {
    let name = words(line).nth(5).unwrap_or_default();
    let Some(below) = name.strip_prefix(b"/dev/") else { return name.starts_with(b"/") };
    let Some(slash) = below.iter().position(|&byte| byte == b'/') else { return below == b"zero" };
    let folder = &below[..slash];
    !(DEVICE_FOLDERS.contains(&folder) || folder.starts_with(b"nvidia"))
}

fn shared_mapping(number: usize, line: &[u8]) -> Result<SharedMapping, ParseError> {
    let fail = || ParseError::new(number, "START-END PERMISSIONS OFFSET DEVICE INODE", line);
    part_of_object(line).ok_or_else(fail)
}

fn part_of_object(line: &[u8]) -> Option<SharedMapping> {
    let Mapping { start, end, .. } = mapping(line)?;
    let mut rest = words(line).skip(2);
    let offset = hexadecimal(rest.next()?)?;
    let device = rest.next()?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    // A major number has 12 bits, a minor one 20 (include/linux/kdev_t.h).
    let (major, minor) = (hexadecimal(&device[..colon])?, hexadecimal(&device[colon + 1..])?);
    let device = (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)?;
    let object = SharedObject { device, inode: decimal(rest.next()?)? };
    Some(SharedMapping { start, end, object, offset })
}

fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = words(line);
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?);
    let permissions = words.next()?;
    let is_accessible = !permissions.starts_with(b"---");
    // After the permissions come offset, device, inode number and path.
    let is_copy = words.nth(3).is_some_and(is_copy);
    (start < end).then_some(Mapping { start, end, is_accessible, is_copy })
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
            Mapping { start: 0x55d0_a000, end: 0x55d0_c000, is_accessible: true, is_copy: false },
            Mapping {
                start: 0x7f00_0000_0000,
                end: 0x7f00_4000_0000,
                is_accessible: false,
                is_copy: false,
            },
        ];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn only_private_anonymous_memory_that_is_read_and_written_is_called_so() {
        let kind = |line: &str| kind_of(line.as_bytes());
        let anonymous = MappingKind::PrivateAnonymous;
        assert_eq!(kind("1000-2000 rw-p 00000000 00:00 0 "), anonymous);
        assert_eq!(kind("1000-2000 rw-p 00000000 00:00 0 [heap]"), anonymous);
        assert_eq!(kind("1000-2000 rw-p 00000000 00:00 0 [anon:table]"), anonymous);
        assert_eq!(kind("1000-2000 rw-p 00000000 08:01 9 /lib/a"), MappingKind::PrivateOther);
        assert_eq!(kind("1000-2000 r--p 00000000 00:00 0 "), MappingKind::PrivateOther);
        assert_eq!(kind("1000-2000 rw-s 00000000 00:01 9 /dev/zero"), MappingKind::Shared);
        assert_eq!(kind("1000-2000 r-xp 00000000 00:00 0 [vdso]"), MappingKind::Special);
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
        assert_eq!(found[0], expected);
        let numbers = |all: Vec<SharedObject>| all.iter().map(|one| one.inode).collect::<Vec<_>>();
        assert_eq!(numbers(found.iter().map(|one| one.object).collect()), [42, 124, 7]);
        let objects = parse_objects(text).unwrap();
        assert_eq!(numbers(objects.into_iter().collect()), [7, 42, 123, 124]);
        let error = parse_shared(b"1000-2000 rw-s 0 0019 42 /a").unwrap_err().to_string();
        assert_eq!(
            error,
            "line 1: expected START-END PERMISSIONS OFFSET DEVICE INODE, found `1000-2000 rw-s 0 0019 42 /a`"
        );
    }

    #[test]
    fn a_file_system_of_memory_may_be_mounted_anywhere_below_dev() {
        let line = |name: &str| format!("7f00-7f01 rw-s 00000000 00:2a 7 {name}");
        let is = |name: &str| shared_of(1, line(name).as_bytes()).unwrap().is_some();
        let memory = [
            "/dev/hugepages/pool",
            "/dev/hugepages1G/pool",
            "/dev/hugepages-1Gi/a/b",
            "/dev/huge2M/x",
            "/dev/shm/a",
            "/dev/shm2/a",
            "/dev/zero (deleted)",
            "/dev/zero",
            "/dev/pool/x (deleted)",
            "/pool",
            "/mnt/huge/x",
            "/memfd:a (deleted)",
            "/SYSV00000001 (deleted)",
            "/anon_hugepage (deleted)",
        ];
        let devices = [
            "/dev/kvm",
            "/dev/mem",
            "/dev/dax0.0",
            "/dev/uio0",
            "/dev/zeroes",
            "/dev/nvidia0",
            "/dev/dri/renderD128",
            "/dev/infiniband/uverbs0",
            "/dev/vfio/12",
            "/dev/nvidia-caps/x",
            "/dev/snd/pcmC0D0p",
            "anon_inode:[io_uring]",
            "[heap]",
            "",
        ];
        assert_eq!(memory.map(is), [true; 14], "{memory:?}");
        assert_eq!(devices.map(is), [false; 14], "{devices:?}");
    }

    #[test]
    fn permissions_tell_what_processes_share_on_purpose() {
        let mode = |text: &str| mode_of(format!("7f00-7f01 {text} 0 0:0 0").as_bytes());
        let range = AddressRange { start: 0x7f00, end: 0x7f01 };
        assert_eq!(mode("rw-p"), Some((range, Mode::Private)));
        assert_eq!(mode("rw-s"), Some((range, Mode::SharedWritable)));
        assert_eq!(mode("r--s"), Some((range, Mode::SharedReadOnly)));
        assert_eq!(mode_of(b"7f00 rw-s"), None);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for bad in ["7f00 rw-p", "2000-1000 rw-p", "1000-2000", "x-y rw-p", "+1-2 rw-p"] {
            let error = parse(bad.as_bytes()).unwrap_err().to_string();
            assert_eq!(error, format!("line 1: expected START-END PERMISSIONS, found `{bad}`"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_mappings_or_an_error(bytes: Vec<u8>) {
            let _ = (parse_shared(&bytes), parse_objects(&bytes));
            let _ = (parse(&bytes), mode_of(&bytes));
        }
    }
}
