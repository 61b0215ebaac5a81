//! Preloaded into a program, this library opens the copy of a file that lies on the program's node.
//!
//! `rondpoint run --replicate` makes the copies, writes a table of them and names it in the
//! environment. The library reads the table once, when the program starts. From then on it looks at
//! each file that the program has opened for reading. Where the table lists it, the descriptor
//! becomes one of the copy. Whatever fails on the way, the program has the original.
//!
//! The functions that the program calls are in `hooks`. They allocate nothing and take no lock:
//! a program may call them from its own allocator or from a signal handler.

pub mod hooks;
mod nearest;
mod state;
