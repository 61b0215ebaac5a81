//! Tells systemd the daemon's state: sd_notify(3), a datagram to `$NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::{Duration, Instant};

/// A service manager that listens, or none.
pub(super) struct Notify {
    socket: Option<UnixDatagram>,
    /// Half of what the watchdog waits.
    every: Option<Duration>,
    last: Instant,
    told: String,
}

impl Notify {
    /// From the variables that systemd sets for a service.
    pub(super) fn from_environment() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET");
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|_| is_ours).map(Duration::from_micros);
        Self::new(address.as_deref().map(OsStrExt::as_bytes), limit)
    }

    fn new(address: Option<&[u8]>, limit: Option<Duration>) -> Self {
        let socket = address.and_then(|address| connected(address).ok());
        Self {
            socket,
            every: limit.map(|limit| limit / 2),
            last: Instant::now(),
            told: String::new(),
        }
    }

    /// We are ready, or have read the configuration anew.
    pub(super) fn ready(&self) {
        let told = if self.told.is_empty() { "watching" } else { &self.told };
        self.send(&format!("READY=1\nSTATUS={told}\n"));
    }

    /// We end.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// The configuration is read anew; [`Notify::ready`] ends that.
    pub(super) fn reloading(&self) {
        let now_us = rondpoint_linux::syscall::time::monotonic_ns() / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
    }

    /// A line for `systemctl status`; said once.
    pub(super) fn status(&mut self, text: String) {
        if text != self.told {
            self.send(&format!("STATUS={text}\n"));
            self.told = text;
        }
    }

    /// We live; said no more often than the watchdog needs.
    pub(super) fn alive(&mut self) {
        if self.every.is_some_and(|every| self.last.elapsed() >= every / 2) {
            self.send("WATCHDOG=1\n");
            self.last = Instant::now();
        }
    }

    /// How long a wait may be without [`Notify::alive`].
    pub(super) fn patience(&self) -> Option<Duration> {
        self.every
    }

    fn send(&self, text: &str) {
        // A service manager that does not listen misses it.
        let _ = self.socket.as_ref().map(|socket| socket.send(text.as_bytes()));
    }
}

/// A path, or an abstract name after `@`.
fn connected(address: &[u8]) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    let address = match address.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(address)))?,
    };
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 200];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn a_service_manager_is_told_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::new(Some(path.as_os_str().as_bytes()), None);
        notify.ready();
        notify.stopping();
        assert!(told(&by_path).starts_with("READY=1\n"));
        assert_eq!(told(&by_path), "STOPPING=1\n");
        let name = format!("rondpoint-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let abstract_one = UnixDatagram::bind_addr(&address).unwrap();
        let mut notify = Notify::new(Some(format!("@{name}").as_bytes()), Some(Duration::ZERO));
        notify.alive();
        assert_eq!(told(&abstract_one), "WATCHDOG=1\n");
        Notify::new(None, None).ready();
    }
}
