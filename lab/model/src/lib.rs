//! The lab's hardware model: the cost of each guest access, and the counters that it changes.
//!
//! A plain library: it does no I/O, has no clock, starts no thread and knows nothing of QEMU. The
//! caller runs the vCPUs in any order inside a quantum and calls the model for every access. It
//! advances the vCPU's own time by the returned stall, and ends the quantum:
//!
//! ```text
//! if !hardware.first_level_hit(cpu, vaddr, store) {
//!     let served = hardware.access(cpu, Access { vaddr, paddr, store, loaded, now_ps, instructions });
//!     now_ps += served.stall_ps;
//! }
//! // … when all vCPUs have reached the end of the quantum:
//! hardware.end_quantum(quantum_ps);
//! ```
//!
//! **Modelled**:
//! - private first and second level, a victim last-level cache per cache domain;
//! - an exact directory (MESI);
//! - overlapping misses with dependence on loaded values, stream prefetch, writebacks;
//! - controllers and directed links with limited bandwidth over declared routes.
//!
//! **Not modelled**:
//! - TLB misses and page walks (so huge pages gain nothing here);
//! - instruction fetches, device accesses, write combining and non-temporal stores;
//! - the bandwidth of coherence messages without data;
//! - DRAM banks and refresh;
//! - SMT siblings sharing a core's caches.
//!
//! All time is in picoseconds of guest time, all traffic in lines of [`LINE_BYTES`]; matrices are
//! `[accessing node][holding node]`. The same calls give the same answers, bit for bit.

#![forbid(unsafe_code)]

mod access;
mod cache;
mod coherence;
mod counters;
mod directory;
mod error;
mod event;
mod filter;
mod first_level;
mod hardware;
#[cfg(test)]
mod invariants;
mod memory;
mod misses;
mod network;
mod pipe;
mod prefetch;
mod source;
mod traffic;

pub use counters::Counters;
pub use error::ModelError;
pub use event::{Event, Unit};
pub use hardware::Hardware;
pub use memory::Region;
pub use network::PipeUsage;
pub use rondpoint_machine::LINE_BYTES;
pub use source::{Access, Served, Source};
pub use traffic::{Kind, Traffic};

/// Bits of a byte address below its line number.
pub(crate) const LINE_SHIFT: u32 = LINE_BYTES.trailing_zeros();
/// Bytes of a base page: the reach of a pointer's dependence and of a prefetch stream.
pub(crate) const PAGE_BYTES: u64 = 4096;
