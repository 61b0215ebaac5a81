//! Read-only data with one copy on each memory node.
//!
//! A thread that reads memory of another node waits longer and shares the link to it. Data that all
//! threads read and none writes can be on every node. [`Replica`] keeps a copy of it on each node
//! and returns the copy nearest to the calling thread. [`Versions`] replaces the data while threads
//! read it.
//!
//! ```
//! use rondpoint_replica::{Options, Replica};
//!
//! let table: Vec<u8> = (0..=255).collect();
//! let replica = Replica::new(table, &Options::default());
//! assert_eq!(replica.nearest()[7], 7);
//! // One node, too little memory, no permission: readers get the original.
//! if let Some(refusal) = replica.refusal() {
//!     println!("no copies: {refusal}");
//! }
//! ```
//!
//! A kernel that runs the process on one node, or a machine that has one, makes no copies, and
//! reading costs nothing. `docs/replication.md` says when copies pay.

pub mod c_interface;
mod copying;
mod cpu;
mod generations;
#[cfg(test)]
mod generations_under_load;
mod mapping;
mod node_map;
mod refusal;
mod replica;
mod room;
mod source;
mod sync;
mod versions;

pub use copying::{Copy, Placement};
pub use node_map::{NodeMap, NodeMapError, Place};
pub use refusal::Refusal;
pub use replica::{Options, Replica};
pub use source::{FileError, Source};
pub use versions::{Pin, TooManyVersions, Version, Versions};
