//! The C interface; `include/rondpoint_replica.h` describes it for C. From Rust use the crate.
//!
//! Functions that can fail return null or 0 and leave a message for [`rondpoint_last_error`]. A
//! panic ends the process: it does not unwind into C.

#![allow(unsafe_code, reason = "takes and gives what C has: pointers and lengths")]

mod options;
mod text;

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

pub use self::options::{rondpoint_options, rondpoint_place};
pub use self::text::rondpoint_last_error;
use self::text::{fail, write};
use crate::{Options, Refusal, Replica, Source, Versions};

/// Read-only data.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct rondpoint_slice {
    /// Address of the first byte. Not null; without meaning if the length is 0.
    pub address: *const c_void,
    /// Number of bytes.
    pub length: usize,
}

impl From<&[u8]> for rondpoint_slice {
    fn from(bytes: &[u8]) -> Self {
        Self { address: bytes.as_ptr().cast(), length: bytes.len() }
    }
}

/// A pinned version.
#[repr(C)]
#[derive(Debug)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct rondpoint_pin {
    /// The copy nearest to the thread that pinned it.
    pub data: rondpoint_slice,
    /// 1 for the first version, one more for each that is published.
    pub generation: u64,
    /// Private to the library; null if nothing is pinned.
    pub versions: *const Versions,
    /// Private to the library.
    pub internal: [usize; 2],
}

/// Function that releases the caller's data. Any thread may call it, once, with its context.
type Release = Option<unsafe extern "C" fn(*mut c_void)>;

/// Memory of the caller. Dropping this releases it.
struct Foreign {
    bytes: *const u8,
    length: usize,
    release: Release,
    context: *mut c_void,
}

// SAFETY: the caller of the functions that make one promises that any thread may read the memory
// and release it.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the caller promises `length` readable bytes that nothing writes to until they are
        // released, which happens when this is dropped.
        unsafe { std::slice::from_raw_parts(self.bytes, self.length) }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: called once, with the context that belongs to it.
            unsafe { release(self.context) };
        }
    }
}

/// # Safety
/// `path` is null or a string that ends with 0; of the file see [`Source::of_file`].
unsafe fn file(path: *const c_char) -> Option<Source<'static>> {
    if path.is_null() {
        return fail("path: null; expected the name of a file");
    }
    // SAFETY: as the caller promises.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    // SAFETY: as the caller promises.
    unsafe { Source::of_file(path) }.map_or_else(fail, Some)
}

/// # Safety
/// `bytes` has `length` readable bytes, which nothing writes to until `release` is called.
unsafe fn memory(
    bytes: *const c_void,
    length: usize,
    release: Release,
    context: *mut c_void,
) -> Option<Source<'static>> {
    if bytes.is_null() && length > 0 {
        return fail("bytes: null; expected an address");
    }
    if isize::try_from(length).is_err() {
        return fail("length: more than the address space has");
    }
    Some(Source::owned(Foreign { bytes: bytes.cast(), length, release, context }))
}

fn handle<T>(made: Option<T>) -> *mut T {
    made.map_or(ptr::null_mut(), |made| Box::into_raw(Box::new(made)))
}

/// Copies a file to every node.
///
/// # Safety
/// `path` ends with 0, and `options` is null or as the header says. Nothing writes to the file or
/// truncates it while the result is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_replica_of_file(
    path: *const c_char,
    options: *const rondpoint_options,
) -> *mut Replica<'static> {
    // SAFETY: as the caller promises.
    let made = unsafe { options::read(options) }.and_then(|options| {
        // SAFETY: as the caller promises.
        Some(Replica::new(unsafe { file(path) }?, &options))
    });
    handle(made)
}

/// Copies memory to every node. `release`, which may be null, is called when the memory is not
/// needed any more. If copies were made, that is before this returns. It is not called if this
/// fails.
///
/// # Safety
/// `bytes` has `length` readable bytes, which nothing writes to until `release` is called or, where
/// it is null, the result is freed. `options` is null or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_replica_of_memory(
    bytes: *const c_void,
    length: usize,
    release: Release,
    context: *mut c_void,
    options: *const rondpoint_options,
) -> *mut Replica<'static> {
    // SAFETY: as the caller promises.
    let made = unsafe { options::read(options) }.and_then(|options| {
        // SAFETY: as the caller promises.
        Some(Replica::new(unsafe { memory(bytes, length, release, context) }?, &options))
    });
    handle(made)
}

/// The copy nearest to the calling thread, valid until the replica is freed.
///
/// # Safety
/// `replica` is valid and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_replica_nearest(
    replica: *const Replica<'static>,
) -> rondpoint_slice {
    // SAFETY: as the caller promises.
    unsafe { &*replica }.nearest().into()
}

/// Why there are no copies: one of the header's `RONDPOINT_…`, 0 if there are copies.
///
/// # Safety
/// `replica` is valid and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_replica_refusal(replica: *const Replica<'static>) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { &*replica }.refusal().map_or(0, Refusal::number)
}

/// Writes a line about the copies, or why there are none, as snprintf does: cut to `capacity` bytes
/// with the 0 at its end. Returns the length of the whole line.
///
/// # Safety
/// `replica` is valid and was not freed; `buffer` has `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_replica_describe(
    replica: *const Replica<'static>,
    buffer: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: as the caller promises.
    unsafe { write(&*replica, buffer, capacity) }
}

/// Frees the copies. Null does nothing.
///
/// # Safety
/// `replica` was not freed, and nothing reads what it returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_replica_free(replica: *mut Replica<'static>) {
    if !replica.is_null() {
        // SAFETY: made by `handle`, and not freed before.
        drop(unsafe { Box::from_raw(replica) });
    }
}

fn begin(source: Option<Source<'static>>, options: Options) -> *mut Versions {
    handle(source.map(|first| Versions::new(first, options)))
}

/// Makes a file the first version.
///
/// # Safety
/// As [`rondpoint_replica_of_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_of_file(
    path: *const c_char,
    options: *const rondpoint_options,
) -> *mut Versions {
    // SAFETY: as the caller promises.
    let Some(options) = (unsafe { options::read(options) }) else { return ptr::null_mut() };
    // SAFETY: as the caller promises.
    begin(unsafe { file(path) }, options)
}

/// Makes memory the first version.
///
/// # Safety
/// As [`rondpoint_replica_of_memory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_of_memory(
    bytes: *const c_void,
    length: usize,
    release: Release,
    context: *mut c_void,
    options: *const rondpoint_options,
) -> *mut Versions {
    // SAFETY: as the caller promises.
    let Some(options) = (unsafe { options::read(options) }) else { return ptr::null_mut() };
    // SAFETY: as the caller promises.
    begin(unsafe { memory(bytes, length, release, context) }, options)
}

fn publish(versions: &Versions, source: Option<Source<'static>>) -> u64 {
    let published = source.and_then(|source| versions.publish(source).map_or_else(fail, Some));
    published.unwrap_or(0)
}

/// Makes a file the newest version and returns its generation, or 0 if it fails.
///
/// # Safety
/// `versions` was not freed; of the file see [`rondpoint_replica_of_file`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_publish_file(
    versions: *const Versions,
    path: *const c_char,
) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { publish(&*versions, file(path)) }
}

/// Makes memory the newest version and returns its generation, or 0 if it fails. The memory is
/// released in both cases, unless its address or length is not valid.
///
/// # Safety
/// `versions` was not freed; of the memory see [`rondpoint_replica_of_memory`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_publish_memory(
    versions: *const Versions,
    bytes: *const c_void,
    length: usize,
    release: Release,
    context: *mut c_void,
) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { publish(&*versions, memory(bytes, length, release, context)) }
}

/// Pins the newest version until the pin is passed to [`rondpoint_versions_unpin`].
///
/// # Safety
/// `versions` was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_pin(versions: *const Versions) -> rondpoint_pin {
    // SAFETY: as the caller promises.
    let pin = unsafe { &*versions }.pin();
    let (data, generation) = ((*pin).into(), pin.version().generation());
    rondpoint_pin { data, generation, versions, internal: pin.into_parts() }
}

/// Ends a pin, from any thread. The pin is then empty, and ending it again does nothing.
///
/// # Safety
/// `pin` came from [`rondpoint_versions_pin`] and no copy of it is passed. Its versions were not
/// freed, and nothing reads its data any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_unpin(pin: *mut rondpoint_pin) {
    // SAFETY: as the caller promises.
    let pin = unsafe { &mut *pin };
    // SAFETY: null, or the versions that were pinned, which are there still.
    if let Some(versions) = unsafe { pin.versions.as_ref() } {
        // SAFETY: the parts are of a pin of these versions that is given back once.
        unsafe { versions.generations().unpin(pin.internal) };
        pin.versions = ptr::null();
    }
}

/// Bytes of the copies of all versions.
///
/// # Safety
/// `versions` was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_copied_bytes(versions: *const Versions) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { &*versions }.copied_bytes()
}

/// As [`rondpoint_replica_describe`], of the newest version.
///
/// # Safety
/// `versions` was not freed; `buffer` has `capacity` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_describe(
    versions: *const Versions,
    buffer: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: as the caller promises.
    unsafe { write((*versions).pin().version().replica(), buffer, capacity) }
}

/// Frees all versions. Null does nothing.
///
/// # Safety
/// `versions` was not freed, and no version is pinned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rondpoint_versions_free(versions: *mut Versions) {
    if !versions.is_null() {
        // SAFETY: made by `handle`, and not freed before.
        drop(unsafe { Box::from_raw(versions) });
    }
}
