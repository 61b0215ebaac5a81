//! The daemon's control socket: its protocol, the client of it, and the commands that use it.
//!
//! The protocol is Varlink: JSON objects, each ended by a zero byte, over a local stream socket.
//! `docs/daemon.md` describes it; `control/interface.varlink` is the description that the daemon
//! returns.

pub(crate) mod client;
pub(crate) mod commands;
pub(crate) mod door;
pub(crate) mod protocol;
pub(crate) mod seldom;
pub(crate) mod server;
pub(crate) mod text;
mod wire;

/// Where the daemon listens unless its configuration says otherwise.
pub(crate) const SOCKET: &str = "/run/rondpoint/control";
