//! The C library's functions that are replaced.
//!
//! Each calls the C library's own function first and then looks at the descriptor that it returned.
//! Functions with a variable number of arguments have a fixed one here. On x86-64 and arm64 Linux
//! both are called alike, and the mode is passed on as it came.

#![allow(unsafe_code, reason = "replaces functions of the C library")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rondpoint_linux::replicas::Identity;

use crate::nearest::{Mask, choose};
use crate::state::{self, Replicated, State};

/// Run by the dynamic linker before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    look_up_all();
    state::read();
}

/// A function of the library that comes after this one.
///
/// All are looked up at the start, because dlsym(3) takes a lock and may allocate. One that is
/// called earlier, by the start of another library, is looked up then.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Null where there is none.
    fn address(&self) -> *mut c_void {
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            // SAFETY: the name ends with 0; a look-up changes nothing.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }
}

/// A failure that the caller of a C function sees.
fn fail(number: c_int) -> c_int {
    // SAFETY: the calling thread's own errno.
    unsafe { *libc::__errno_location() = number };
    -1
}

/// Keeps errno through what the program does not know of.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the calling thread's own errno.
    let before = unsafe { *libc::__errno_location() };
    let result = work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
    result
}

/// Defines functions that open a file: each with its own name, and the parameters before the mode.
macro_rules! opens {
    ($($name:ident($($parameter:ident: $type:ty),*) $next:ident;)*) => {
        /// Looks up all functions of the C library that are replaced by calling them.
        fn look_up_all() {
            for next in [$(&$next,)* &FOPEN, &FOPEN64] {
                next.address();
            }
        }

        $(
        static $next: Next = Next::new(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has one 0, at its end"),
            }
        );

        /// As the C library's, but a replicated file is opened as its nearest copy.
        ///
        /// # Safety
        /// As the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($parameter: $type,)* mode: libc::mode_t) -> c_int {
            let next = $next.address();
            if next.is_null() {
                return fail(libc::ENOSYS);
            }
            type Function = unsafe extern "C" fn($($type,)* libc::mode_t) -> c_int;
            // SAFETY: the C library's function of this name has this signature.
            let next: Function = unsafe { mem::transmute(next) };
            // SAFETY: as the caller promises.
            let descriptor = unsafe { next($($parameter,)* mode) };
            exchange(descriptor);
            descriptor
        }
        )*
    };
}

opens! {
    open(path: *const c_char, flags: c_int) OPEN;
    open64(path: *const c_char, flags: c_int) OPEN64;
    openat(folder: c_int, path: *const c_char, flags: c_int) OPENAT;
    openat64(folder: c_int, path: *const c_char, flags: c_int) OPENAT64;
    // What programs call that were compiled with _FORTIFY_SOURCE; these take no mode.
    __open_2(path: *const c_char, flags: c_int) OPEN_2;
    __open64_2(path: *const c_char, flags: c_int) OPEN64_2;
    __openat_2(folder: c_int, path: *const c_char, flags: c_int) OPENAT_2;
    __openat64_2(folder: c_int, path: *const c_char, flags: c_int) OPENAT64_2;
}

static FOPEN: Next = Next::new(c"fopen");
static FOPEN64: Next = Next::new(c"fopen64");

/// # Safety
/// As fopen(3).
unsafe fn open_stream(next: &Next, path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    let next = next.address();
    if next.is_null() {
        fail(libc::ENOSYS);
        return ptr::null_mut();
    }
    type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut libc::FILE;
    // SAFETY: the C library's function has this signature; arguments as the caller promises.
    let stream = unsafe { mem::transmute::<*mut c_void, Function>(next)(path, mode) };
    if !stream.is_null() {
        // SAFETY: a stream that was opened just now, which has read nothing yet.
        exchange(unsafe { libc::fileno(stream) });
    }
    stream
}

/// As the C library's, but a replicated file is opened as its nearest copy.
///
/// # Safety
/// As fopen(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: as the caller promises.
    unsafe { open_stream(&FOPEN, path, mode) }
}

/// As [`fopen`].
///
/// # Safety
/// As fopen(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: as the caller promises.
    unsafe { open_stream(&FOPEN64, path, mode) }
}

/// As the C library's, but of a replicated file the nearest copy is mapped: also of a descriptor
/// that another process opened. A copy that cannot be mapped in this way leaves the original.
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let is_file = descriptor >= 0 && flags & libc::MAP_ANONYMOUS == 0;
    let map = |descriptor: c_int| {
        // SAFETY: the caller's request; on 64-bit Linux the C library passes it on as it is.
        let mapped = unsafe {
            libc::syscall(libc::SYS_mmap, address, length, protection, flags, descriptor, offset)
        };
        mapped as *mut c_void
    };
    let of_copy = || {
        let copy = open_copy(descriptor)?;
        let mapped = map(copy);
        // SAFETY: a descriptor of our own; the mapping stays.
        unsafe { libc::close(copy) };
        (mapped != libc::MAP_FAILED).then_some(mapped)
    };
    let mapped = if is_file { quietly(of_copy) } else { None };
    mapped.unwrap_or_else(|| map(descriptor))
}

/// As [`mmap`].
///
/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: as the caller promises.
    unsafe { mmap(address, length, protection, flags, descriptor, offset) }
}

/// Makes a descriptor of a replicated file one of its nearest copy. Where anything fails it stays
/// what it is.
fn exchange(descriptor: c_int) {
    if descriptor < 0 || state::get().is_none() {
        return;
    }
    quietly(|| {
        let Some(copy) = open_copy(descriptor) else { return };
        // SAFETY: descriptors only. The caller's was opened just now and is not used by another
        // thread yet.
        unsafe {
            let keeps = libc::fcntl(descriptor, libc::F_GETFD);
            let flags = if keeps & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
            libc::dup3(copy, descriptor, flags);
            libc::close(copy);
        }
    });
}

/// Opens the nearest copy of the file behind a descriptor. That file is replicated, unchanged and
/// open for reading, or is itself a farther copy of such a file.
fn open_copy(descriptor: c_int) -> Option<c_int> {
    let state = state::get()?;
    // SAFETY: the kernel fills the structure or the call fails.
    let mut facts: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstat(descriptor, &raw mut facts) } != 0 {
        return None;
    }
    let identity = Identity { device: facts.st_dev, inode: facts.st_ino };
    let file = state.files.iter().find(|file| {
        let is_original = identity == file.original
            && facts.st_size.cast_unsigned() == file.length
            && (facts.st_mtime, facts.st_mtime_nsec) == file.modified;
        is_original || file.copies.iter().any(|(copy, _)| *copy == identity)
    })?;
    // SAFETY: a descriptor only.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if flags & (libc::O_ACCMODE | libc::O_PATH) != libc::O_RDONLY {
        return None;
    }
    let (node, may_leave) = node_of_caller(state)?;
    if state.watch {
        log(state, file, node, may_leave);
        return None;
    }
    let (nearest, path) = &file.copies[node];
    if *nearest == identity {
        return None;
    }
    let copy = open_checked(path, *nearest, flags)?;
    let is_program = facts.st_mode & 0o111 != 0;
    if is_program && is_noexec(copy) && !is_noexec(descriptor) {
        // SAFETY: a descriptor of our own.
        unsafe { libc::close(copy) };
        return None;
    }
    log(state, file, node, may_leave);
    Some(copy)
}

/// Opens a copy, unless its path has become something else.
fn open_checked(path: &CStr, expected: Identity, flags: c_int) -> Option<c_int> {
    let flags = flags & (libc::O_NONBLOCK | libc::O_DIRECT) | libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a string that ends with 0; the kernel fills the structure.
    unsafe {
        let copy =
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) as c_int;
        if copy < 0 {
            return None;
        }
        let mut facts: libc::stat = mem::zeroed();
        let is_it = libc::fstat(copy, &raw mut facts) == 0
            && expected == Identity { device: facts.st_dev, inode: facts.st_ino };
        if !is_it {
            libc::close(copy);
        }
        is_it.then_some(copy)
    }
}

/// Whether the file system refuses to map the file for execution.
fn is_noexec(descriptor: c_int) -> bool {
    // SAFETY: the kernel fills the structure or the call fails.
    let mut facts: libc::statvfs = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let is_known = unsafe { libc::fstatvfs(descriptor, &raw mut facts) } == 0;
    is_known && facts.f_flag & libc::ST_NOEXEC != 0
}

fn node_of_caller(state: &State) -> Option<(usize, bool)> {
    let mut allowed: Mask = [0; 128];
    // SAFETY: the kernel writes at most the given number of bytes into the array.
    let written = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&allowed), allowed.as_mut_ptr())
    };
    if written <= 0 {
        return None;
    }
    // SAFETY: no memory of ours is involved.
    let current = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
    choose(&state.node_of_cpu, &allowed, current)
}

/// Most bytes of the log (our choice): some 70,000 lines.
const MOST_LOG_BYTES: u64 = 1 << 20;
/// Bytes that stay free below the process's limit of file sizes (our choice). Other processes may
/// write a hundred lines between the look at the log's size and the write.
const LOG_MARGIN: u64 = 4096;

/// Whether the log has room for a line. At the limit of file sizes, a write would end the program
/// by SIGXFSZ (setrlimit(2)).
fn has_room(log: c_int) -> bool {
    // SAFETY: the kernel fills the structures or the calls fail.
    let (mut facts, mut limit): (libc::stat, libc::rlimit) = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let is_known = unsafe {
        libc::fstat(log, &raw mut facts) == 0
            && libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0
    };
    let size = facts.st_size.cast_unsigned();
    is_known && size.saturating_add(LOG_MARGIN) <= limit.rlim_cur.min(MOST_LOG_BYTES)
}

/// Writes a line for `rondpoint run`, while the log has room: process, file by its position, node,
/// and whether the process may use other nodes.
fn log(state: &State, file: &Replicated, node: usize, may_leave: bool) {
    let position = state.files.iter().position(|one| ptr::eq(one, file)).unwrap_or(0);
    let mut line = [0u8; 64];
    // SAFETY: snprintf writes at most the given number of bytes. openat and write get a string that
    // ends with 0 and the bytes that were written. A line is written at once, at the file's end.
    unsafe {
        let length = libc::snprintf(
            line.as_mut_ptr().cast(),
            line.len(),
            c"%d %d %u %d\n".as_ptr(),
            libc::getpid(),
            position as c_int,
            state.nodes[node],
            c_int::from(may_leave),
        );
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let log =
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, state.log.as_ptr(), flags, 0) as c_int;
        if log >= 0 {
            if has_room(log) {
                libc::write(log, line.as_ptr().cast(), length.max(0).cast_unsigned() as usize);
            }
            libc::close(log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program calls none of these two itself.
    #[test]
    fn functions_of_the_c_library_are_known_before_they_are_called() {
        let is_known = |next: &Next| !next.address.load(Ordering::Relaxed).is_null();
        // musl has no checked variants.
        assert!(is_known(&FOPEN) && (is_known(&OPENAT64_2) || cfg!(target_env = "musl")));
    }
}
