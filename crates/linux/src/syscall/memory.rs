//! `mmap(2)` of a perf ring, and anonymous memory to try page faults, moves and speeds on.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Size of a base page.
#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: sysconf reads no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every Linux has a page size")
}

struct Mapped {
    address: NonNull<u8>,
    bytes: usize,
}

impl Mapped {
    fn new(bytes: usize, flags: i32, fd: i32) -> io::Result<Self> {
        Self::from(0, bytes, flags, fd)
    }

    /// Maps `bytes` bytes of `fd` from `start`, a multiple of a page's size.
    fn from(start: usize, bytes: usize, flags: i32, fd: i32) -> io::Result<Self> {
        let start = libc::off_t::try_from(start).map_err(io::Error::other)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice cannot overlap memory that
        // Rust knows of.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, start) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address =
            NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { address, bytes })
    }

    /// Appends `bytes` bytes from `offset` to `into`.
    fn copy(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "copy beyond the mapping");
        into.reserve(bytes);
        // SAFETY: the source range lies inside the mapping (asserted), and the target has room for
        // `bytes` more (reserved). The two cannot overlap, and all bytes are initialised.
        unsafe {
            let source = self.address.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(source, into.as_mut_ptr().add(into.len()), bytes);
            into.set_len(into.len() + bytes);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned; no reference into it outlives `self`.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: a mapping belongs to the process, not to a thread. Access goes through &self methods that
// use atomics for what the kernel writes concurrently. No method hands out a reference into it.
unsafe impl Send for Mapped {}

/// The memory that the kernel writes perf records into: one control page, then 2^n data pages.
pub struct RingMemory {
    mapped: Mapped,
    data_bytes: usize,
}

/// Offsets in struct perf_event_mmap_page (include/uapi/linux/perf_event.h), fixed ABI.
const LOCK: usize = 8;
const CAPABILITIES: usize = 40;
const TIME_SCALE: usize = 48;
const TIME_ZERO: usize = 64;
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const AUX_TAIL: usize = 1064;
const AUX_OFFSET: usize = 1072;
const AUX_SIZE: usize = 1080;

/// The auxiliary area of a ring, into which a PMU such as Arm's SPE writes by itself.
pub struct AuxMemory {
    mapped: Mapped,
}

impl AuxMemory {
    /// Size of the area.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapped.bytes
    }

    /// Appends `bytes` bytes from `offset` to `into`. The caller asks only for bytes that a record
    /// reported and that were not released, which the PMU does not touch.
    pub fn copy(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) {
        self.mapped.copy(offset, bytes, into);
    }
}

impl RingMemory {
    /// Maps the ring of an event with `data_pages` pages of data.
    ///
    /// # Errors
    /// EPERM above the locked-memory limit, EINVAL for an event without a ring.
    pub fn new(event: BorrowedFd<'_>, data_pages: usize) -> io::Result<Self> {
        assert!(data_pages.is_power_of_two(), "a ring of {data_pages} pages");
        let data_bytes = data_pages * page_bytes();
        let mapped = Mapped::new(page_bytes() + data_bytes, libc::MAP_SHARED, event.as_raw_fd())?;
        Ok(Self { mapped, data_bytes })
    }

    /// Size of the data area.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the offset lies in the control page and is a multiple of eight; the kernel reads
        // and writes the field with the same width.
        unsafe { AtomicU64::from_ptr(self.mapped.address.as_ptr().add(offset).cast()) }
    }

    /// `time_zero`, `time_mult` and `time_shift`, which convert a CPU's timer to the perf clock;
    /// `None` where the kernel does not offer it.
    #[must_use]
    pub fn timer(&self) -> Option<(u64, u32, u16)> {
        const USER_TIME_ZERO: u64 = 1 << 4;
        const TRIES: u32 = 1000;
        for _ in 0..TRIES {
            // Lock and index share a word. The lock is odd during a change, and even after it.
            let before = self.position(LOCK).load(Ordering::Acquire);
            let capabilities = self.position(CAPABILITIES).load(Ordering::Acquire);
            let scale = self.position(TIME_SCALE).load(Ordering::Acquire);
            let zero = self.position(TIME_ZERO).load(Ordering::Acquire);
            let [first, second, third, fourth, ..] = before.to_ne_bytes();
            let is_even = u32::from_ne_bytes([first, second, third, fourth]) % 2 == 0;
            if is_even && self.position(LOCK).load(Ordering::Acquire) == before {
                // The width of a counter, the shift and the multiplier.
                let bytes = scale.to_ne_bytes();
                let shift = u16::from_ne_bytes([bytes[2], bytes[3]]);
                let multiplier = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
                let is_given = capabilities & USER_TIME_ZERO != 0 && shift < 64;
                return is_given.then_some((zero, multiplier, shift));
            }
        }
        None
    }

    /// Position to which the kernel has written, in bytes since the beginning.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.position(DATA_HEAD).load(Ordering::Acquire)
    }

    /// Position to which we have read, in bytes since the beginning.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.position(DATA_TAIL).load(Ordering::Relaxed)
    }

    /// Releases all bytes before `tail` to the kernel.
    pub fn set_tail(&self, tail: u64) {
        self.position(DATA_TAIL).store(tail, Ordering::Release);
    }

    /// Appends `bytes` bytes from `offset` of the data area to `into`. The caller asks only for
    /// bytes between tail and head, which the kernel does not touch.
    pub fn copy(&self, offset: usize, bytes: usize, into: &mut Vec<u8>) {
        self.mapped.copy(page_bytes() + offset, bytes, into);
    }

    /// Maps an auxiliary area of `pages` pages behind the data of the same event.
    ///
    /// # Errors
    /// EPERM above the locked-memory limit, EOPNOTSUPP for an event without such an area.
    pub fn map_aux(&self, event: BorrowedFd<'_>, pages: usize) -> io::Result<AuxMemory> {
        assert!(pages.is_power_of_two(), "an auxiliary area of {pages} pages");
        let (start, bytes) = (page_bytes() + self.data_bytes, pages * page_bytes());
        // The kernel reads both at the call and refuses another place or size.
        self.position(AUX_OFFSET).store(start as u64, Ordering::Relaxed);
        self.position(AUX_SIZE).store(bytes as u64, Ordering::Release);
        let mapped = Mapped::from(start, bytes, libc::MAP_SHARED, event.as_raw_fd())?;
        Ok(AuxMemory { mapped })
    }

    /// Releases all bytes of the auxiliary area before `tail` to the kernel.
    pub fn set_aux_tail(&self, tail: u64) {
        self.position(AUX_TAIL).store(tail, Ordering::Release);
    }
}

/// New anonymous memory: the first touch of each page is a page fault.
pub struct Anonymous {
    mapped: Mapped,
}

// SAFETY: all access through a shared reference is by atomics.
unsafe impl Sync for Anonymous {}

impl Anonymous {
    /// Maps `bytes` bytes, untouched.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Ok(Self { mapped: Mapped::new(bytes, flags, -1)? })
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.mapped.address.as_ptr() as u64
    }

    /// Writes one byte in every `stride` bytes.
    pub fn touch_every(&self, stride: usize) {
        for offset in (0..self.mapped.bytes).step_by(stride) {
            // SAFETY: inside the mapping, which only this object knows of, and by an atomic as all
            // access to it.
            let byte = unsafe { AtomicU8::from_ptr(self.mapped.address.as_ptr().add(offset)) };
            byte.store(1, Ordering::Relaxed);
        }
    }

    /// The contents; untouched memory is zero.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.mapped.bytes / size_of::<AtomicU64>();
        // SAFETY: the mapping begins at a page, lives as long as `self` and holds `words` words.
        // Any bits are a number, and all access to it is by atomics.
        unsafe { std::slice::from_raw_parts(self.mapped.address.as_ptr().cast(), words) }
    }

    /// Binds the memory to a node (MPOL_BIND): further pages come from it, or not at all.
    ///
    /// # Errors
    /// EINVAL: the node does not exist or is not allowed. ENOSYS: the kernel has no NUMA.
    pub fn bind(&self, node: u32) -> io::Result<()> {
        mbind(&self.mapped, MPOL_BIND, node)
    }
}

/// Sets a policy on a file in memory: further pages come from this node while it has free memory.
/// The policy belongs to the file and holds for every process that maps it. The kernel's balancing
/// leaves the pages there.
///
/// # Errors
/// EINVAL: the node does not exist or is not allowed. EPERM in containers. ENOSYS: the kernel has
/// no NUMA.
pub fn prefer_node(file: BorrowedFd<'_>, bytes: usize, node: u32) -> io::Result<()> {
    mbind(&Mapped::new(bytes, libc::MAP_SHARED, file.as_raw_fd())?, MPOL_PREFERRED, node)
}

/// Sets the policy of a whole mapping.
fn mbind(mapped: &Mapped, mode: libc::c_int, node: u32) -> io::Result<()> {
    let (mask, bits) = node_mask(&[node]);
    // SAFETY: the range is this mapping and the mask outlives the call. The call reads `bits` - 1
    // bits of the mask and changes only where pages come from.
    let result = unsafe {
        let address = mapped.address.as_ptr();
        libc::syscall(libc::SYS_mbind, address, mapped.bytes, mode, mask.as_ptr(), bits, 0)
    };
    super::check(result).map(drop)
}

/// A memory policy of a thread, for mappings without one of their own. The kernel's NUMA balancing
/// leaves such memory alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// First touch: the node of the thread that touches a page first.
    Local,
    /// These nodes, or not at all.
    Bind(Vec<u32>),
    /// These nodes in turn.
    Interleave(Vec<u32>),
    /// These nodes in turn, in proportion to the kernel's weights (Linux 6.9).
    WeightedInterleave(Vec<u32>),
    /// This node while it has free memory, then the nearest.
    Preferred(u32),
    /// These nodes while they have free memory, then the nearest (Linux 5.15).
    PreferredMany(Vec<u32>),
}

/// The modes of set_mempolicy(2), include/uapi/linux/mempolicy.h.
const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_BIND: libc::c_int = 2;
const MPOL_INTERLEAVE: libc::c_int = 3;
pub(super) const MPOL_LOCAL: libc::c_int = 4;
const MPOL_PREFERRED_MANY: libc::c_int = 5;
const MPOL_WEIGHTED_INTERLEAVE: libc::c_int = 6;

/// Sets the policy of the calling thread. Threads and processes that it starts inherit it.
///
/// # Errors
/// EINVAL: a node does not exist or is not allowed, or the kernel does not have the policy. ENOSYS:
/// the kernel has no NUMA.
pub fn set_memory_policy(policy: &MemoryPolicy) -> io::Result<()> {
    let (mode, nodes): (_, &[u32]) = match policy {
        MemoryPolicy::Local => (MPOL_LOCAL, &[]),
        MemoryPolicy::Bind(nodes) => (MPOL_BIND, nodes),
        MemoryPolicy::Interleave(nodes) => (MPOL_INTERLEAVE, nodes),
        MemoryPolicy::WeightedInterleave(nodes) => (MPOL_WEIGHTED_INTERLEAVE, nodes),
        MemoryPolicy::Preferred(node) => (MPOL_PREFERRED, std::slice::from_ref(node)),
        MemoryPolicy::PreferredMany(nodes) => (MPOL_PREFERRED_MANY, nodes),
    };
    let (mask, bits) = node_mask(nodes);
    // SAFETY: the mask outlives the call, which reads `bits` - 1 bits of it.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), bits) };
    super::check(result).map(drop)
}

/// A set of nodes as a mask, and the number of bits to pass. The kernel reads one bit less
/// (get_nodes, mm/mempolicy.c, Linux 6.12).
fn node_mask(nodes: &[u32]) -> (Vec<u64>, usize) {
    let most = nodes.iter().max().map_or(0, |node| *node as usize);
    let mut mask = vec![0u64; most / 64 + 1];
    nodes.iter().for_each(|node| mask[*node as usize / 64] |= 1 << (node % 64));
    let bits = mask.len() * 64 + 1;
    (mask, bits)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn anonymous_memory_is_touched_and_unmapped() {
        let memory = Anonymous::new(4 * page_bytes()).unwrap();
        assert_eq!(memory.address() % page_bytes() as u64, 0);
        memory.touch_every(page_bytes());
        assert_eq!(memory.words().len(), 4 * page_bytes() / 8);
        assert_eq!(memory.words()[0].load(Ordering::Relaxed), 1);
        assert!(Anonymous::new(usize::MAX / 2).is_err());
    }

    #[test]
    fn memory_comes_from_the_node_that_it_is_bound_to() {
        let memory = Anonymous::new(page_bytes()).unwrap();
        assert!(memory.bind(1000).is_err());
        // A kernel without NUMA knows no policies.
        if memory.bind(0).is_ok() {
            memory.touch_every(page_bytes());
            let found = crate::syscall::pages::locate(0, &[memory.address()]).unwrap();
            assert_eq!(found, [Ok(0)]);
        }
    }

    #[test]
    fn a_file_in_memory_keeps_the_node_that_it_prefers_for_all_that_map_it() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            println!("not tried: no file can be made in /dev/shm");
            return;
        };
        file.set_len(page_bytes() as u64).unwrap();
        // A kernel without NUMA knows no policies, and a container may refuse them.
        if prefer_node(file.as_fd(), page_bytes(), 0).is_ok() {
            let mapped = Mapped::new(page_bytes(), libc::MAP_SHARED, file.as_raw_fd()).unwrap();
            let maps = std::fs::read("/proc/self/numa_maps").unwrap();
            let maps = crate::parse::numa_maps::parse(&maps).unwrap();
            let found = maps.iter().find(|one| one.start == mapped.address.as_ptr() as u64);
            assert_eq!(found.unwrap().policy, "prefer:0");
        }
    }

    #[test]
    fn a_threads_memory_comes_from_where_it_says() {
        let located = |policy: MemoryPolicy| {
            std::thread::spawn(move || {
                set_memory_policy(&policy)?;
                let memory = Anonymous::new(page_bytes())?;
                memory.touch_every(page_bytes());
                crate::syscall::pages::locate(0, &[memory.address()])
            })
            .join()
            .unwrap()
        };
        // A kernel without NUMA knows no policies.
        if located(MemoryPolicy::Local).is_ok() {
            assert_eq!(located(MemoryPolicy::Bind(vec![0])).unwrap(), [Ok(0)]);
            assert_eq!(located(MemoryPolicy::Interleave(vec![0])).unwrap(), [Ok(0)]);
            assert_eq!(located(MemoryPolicy::Preferred(0)).unwrap(), [Ok(0)]);
            assert!(located(MemoryPolicy::Bind(vec![1000])).is_err());
            assert!(located(MemoryPolicy::PreferredMany(vec![])).is_err());
        }
    }

    #[test]
    fn nodes_are_bits_and_the_kernel_is_told_one_more() {
        assert_eq!(node_mask(&[]), (vec![0], 65));
        assert_eq!(node_mask(&[0, 2]), (vec![5], 65));
        assert_eq!(node_mask(&[65]), (vec![0, 2], 129));
    }

    #[test]
    fn a_ring_copies_what_stands_between_tail_and_head() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ring");
        let mut bytes = vec![0u8; 3 * page_bytes()];
        bytes[DATA_HEAD..DATA_HEAD + 8].copy_from_slice(&20u64.to_ne_bytes());
        bytes[page_bytes()..page_bytes() + 4].copy_from_slice(b"data");
        std::fs::write(&path, &bytes).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let ring = RingMemory::new(file.as_fd(), 2).unwrap();
        assert_eq!((ring.head(), ring.tail(), ring.data_bytes()), (20, 0, 2 * page_bytes()));
        let mut copied = b"x".to_vec();
        ring.copy(0, 4, &mut copied);
        assert_eq!(copied, b"xdata");
        ring.set_tail(20);
        assert_eq!(ring.tail(), 20);
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        let directory = File::open("/").unwrap();
        assert!(RingMemory::new(directory.as_fd(), 1).is_err());
    }
}
