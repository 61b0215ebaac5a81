//! Options as C gives them.

#![allow(unsafe_code, reason = "reads structures and arrays of the caller's")]

use std::slice;

use super::text::fail;
use crate::{NodeMap, Options, Place};

/// A node that gets a copy, and the CPUs that read it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct rondpoint_place {
    /// The kernel's number of the node.
    pub node: u32,
    /// Entries of `cpus`.
    pub cpu_count: u32,
    /// The kernel's numbers of its CPUs.
    pub cpus: *const u32,
}

/// Options of copies. All fields zero, except `size`, are the defaults.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(non_camel_case_types, reason = "the name in C")]
pub struct rondpoint_options {
    /// `sizeof(rondpoint_options)` of the program: a later library may have more fields.
    pub size: usize,
    /// Most bytes of all copies; 0: as much as the nodes and the cgroup have.
    pub budget_bytes: u64,
    /// Threads that fill one copy; 0: the library's choice.
    pub threads_per_node: u32,
    /// `RONDPOINT_NO_HUGE_PAGES` or 0.
    pub flags: u32,
    /// The places of copies; null: one for each node.
    pub places: *const rondpoint_place,
    /// Entries of `places`.
    pub place_count: usize,
}

/// `RONDPOINT_NO_HUGE_PAGES` of the header.
const NO_HUGE_PAGES: u32 = 1;

/// The options; the defaults for null. `None`, with an error message, if they are not valid.
///
/// # Safety
/// `options` is null, or a structure of `size` bytes. Its arrays have the given numbers of entries.
pub(super) unsafe fn read(options: *const rondpoint_options) -> Option<Options> {
    let mut read = Options::default();
    // SAFETY: as the caller promises; the size is the first field of every version.
    let Some(size) = (unsafe { options.cast::<usize>().as_ref() }) else { return Some(read) };
    if *size != size_of::<rondpoint_options>() {
        let expected = size_of::<rondpoint_options>();
        return fail(format_args!("options: size {size}; expected {expected}"));
    }
    // SAFETY: the caller's structure is this one, by its size.
    let options = unsafe { &*options };
    if options.flags & !NO_HUGE_PAGES != 0 {
        return fail(format_args!("options: unknown flags {:#x}", options.flags));
    }
    read.huge_pages = options.flags & NO_HUGE_PAGES == 0;
    read.budget_bytes = (options.budget_bytes > 0).then_some(options.budget_bytes);
    if options.threads_per_node > 0 {
        read.threads_per_node = options.threads_per_node as usize;
    }
    if !options.places.is_null() {
        // SAFETY: as the caller promises.
        let places = unsafe { slice::from_raw_parts(options.places, options.place_count) };
        // SAFETY: as the caller promises.
        let places = places.iter().map(|place| unsafe { read_place(place) });
        read.node_map = Some(NodeMap::by_hand(places.collect()).map_or_else(fail, Some)?);
    }
    Some(read)
}

/// # Safety
/// The array has as many entries as the place says, or is null.
unsafe fn read_place(place: &rondpoint_place) -> Place {
    let cpus = match place.cpus.is_null() {
        true => Vec::new(),
        // SAFETY: as the caller promises.
        false => unsafe { slice::from_raw_parts(place.cpus, place.cpu_count as usize) }.to_vec(),
    };
    Place { node: place.node, cpus }
}
