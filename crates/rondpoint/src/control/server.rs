//! The daemon's side of the control socket. Nothing here blocks: a client that does not read, or
//! sends half a call, waits by itself.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::syscall::peer;
use rondpoint_linux::syscall::process::effective_user;
use serde::Serialize;
use serde_json::{Map, Value};

use super::protocol::{Call, INTERFACE, Reply};
use super::wire;

/// Connections at a time, and those of one user. More wait in the kernel's queue.
const MOST: usize = 64;
const MOST_OF_A_USER: usize = 16;
/// Bytes read from a client at a time.
const PIECE: usize = 16 << 10;

/// The client that asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Process that connected.
    pub(crate) pid: u32,
    pub(crate) user: u32,
    /// All its groups.
    pub(crate) groups: Vec<u32>,
}

/// A connection's number; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(u64);

/// The listening socket and all clients that have connected.
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    connections: BTreeMap<Id, Connection>,
    next: u64,
}

struct Connection {
    stream: UnixStream,
    peer: Peer,
    input: Vec<u8>,
    output: Vec<u8>,
    /// It is answered again after each look: the number of the last decision that it has.
    watching: Option<u64>,
    is_over: bool,
}

/// A refusal: an error of the interface, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    error: String,
    message: String,
}

impl Refused {
    /// One of ours.
    pub(crate) fn new(error: &str, message: impl Into<String>) -> Self {
        Self { error: format!("{INTERFACE}.{error}"), message: message.into() }
    }

    /// An error that every Varlink service knows.
    pub(crate) fn of_service(error: &str, message: impl Into<String>) -> Self {
        Self { error: format!("org.varlink.service.{error}"), message: message.into() }
    }
}

/// What is answered to a call.
pub(crate) type Answer = Result<Map<String, Value>, Refused>;

/// A value as the parameters of a reply.
pub(crate) fn parameters(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(parameters)) => parameters,
        _ => Map::new(),
    }
}

impl Server {
    /// Listens at `path`, where every user may connect: each call checks what its user may do. A
    /// socket that a dead daemon left is replaced.
    ///
    /// # Errors
    /// Another daemon listens there, something else than a socket is there, or the folder cannot
    /// be written.
    pub(crate) fn listen(path: &Path) -> Result<Self> {
        let told = || path.display().to_string();
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                bail!("{}: expected a socket or nothing", told());
            }
            if UnixStream::connect(path).is_ok() {
                bail!("{}: another daemon listens there", told());
            }
            std::fs::remove_file(path).with_context(told)?;
        } else if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(told)?;
        }
        open_folder(path);
        let listener = UnixListener::bind(path).with_context(told)?;
        listener.set_nonblocking(true).with_context(told)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
            .with_context(told)?;
        Ok(Self { listener, path: path.to_path_buf(), connections: BTreeMap::new(), next: 0 })
    }

    /// What to wait for: to read from, and to write to.
    pub(crate) fn descriptors(&self) -> (Vec<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        let has_room = self.connections.len() < MOST;
        let listener = has_room.then_some(self.listener.as_fd());
        let open = self.connections.values();
        let read = open.clone().filter(|one| one.output.is_empty()).map(|one| one.stream.as_fd());
        let write = open.filter(|one| !one.output.is_empty()).map(|one| one.stream.as_fd());
        (listener.into_iter().chain(read).collect(), write.collect())
    }

    /// Accepts, reads and writes what is possible now; the calls that are complete.
    pub(crate) fn turn(&mut self) -> Vec<(Id, Peer, Call)> {
        self.accept();
        let mut calls = Vec::new();
        for (id, connection) in &mut self.connections {
            connection.write();
            if connection.output.is_empty()
                && let Some(call) = connection.read()
            {
                calls.push((*id, connection.peer.clone(), call));
            }
        }
        self.connections.retain(|_, one| !one.is_over || !one.output.is_empty());
        calls
    }

    fn accept(&mut self) {
        while self.connections.len() < MOST {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let Ok(peer) = peer_of(&stream) else { continue };
            let of_user = self.connections.values().filter(|one| one.peer.user == peer.user);
            if of_user.count() >= MOST_OF_A_USER || stream.set_nonblocking(true).is_err() {
                tracing::warn!(user = peer.user, pid = peer.pid, "too many connections of a user");
                continue;
            }
            self.next += 1;
            let (input, output) = (Vec::new(), Vec::new());
            let connection =
                Connection { stream, peer, input, output, watching: None, is_over: false };
            self.connections.insert(Id(self.next), connection);
        }
    }

    /// Answers a call, as far as the client is still there.
    pub(crate) fn answer(&mut self, id: Id, call: &Call, answer: Answer) {
        if call.oneway {
            return;
        }
        let reply = match answer {
            Ok(parameters) => Reply { parameters, ..Reply::default() },
            Err(refused) => {
                let message = [("message".to_string(), Value::String(refused.message))];
                let parameters = message.into_iter().collect();
                Reply { parameters, error: Some(refused.error), continues: false }
            }
        };
        self.send(id, &reply);
    }

    /// Answers a call that is answered again after each look; `last` is the number of the last
    /// decision that the client then has.
    pub(crate) fn go_on(&mut self, id: Id, parameters: Map<String, Value>, last: u64) {
        self.send(id, &Reply { parameters, error: None, continues: true });
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.watching = Some(last);
        }
    }

    /// Clients that wait for the next look and have read the last answer, each with the number of
    /// the last decision that it has.
    pub(crate) fn watchers(&self) -> Vec<(Id, Peer, u64)> {
        let ready = |one: &Connection| one.watching.filter(|_| one.output.is_empty());
        let of = |(id, one): (&Id, &Connection)| Some((*id, one.peer.clone(), ready(one)?));
        self.connections.iter().filter_map(of).collect()
    }

    fn send(&mut self, id: Id, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Ok(bytes) = wire::message(reply) {
            connection.output.extend(bytes);
            connection.write();
        }
    }
}

/// Others may pass through our own folder, which a ledger made private; they read and write nothing
/// there but the socket.
fn open_folder(path: &Path) {
    let Some(folder) = path.parent() else { return };
    let Ok(found) = std::fs::metadata(folder) else { return };
    let (mode, pass) = (found.permissions().mode(), 0o111);
    if mode & pass != pass && found.uid() == effective_user() {
        let _ = std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode | pass));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    let (pid, user) = peer::credentials(stream.as_fd())?;
    Ok(Peer { pid, user, groups: peer::groups(stream.as_fd())? })
}

impl Connection {
    /// The next call, if it is complete.
    fn read(&mut self) -> Option<Call> {
        let mut piece = [0; PIECE];
        while !self.input.contains(&0) && !self.is_over {
            match self.stream.read(&mut piece) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.input.extend(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
            self.is_over |= self.input.len() > wire::MAX_CALL;
        }
        let end = self.input.iter().position(|byte| *byte == 0)?;
        let rest = self.input.split_off(end + 1);
        let message = std::mem::replace(&mut self.input, rest);
        match serde_json::from_slice(&message[..end]) {
            Ok(call) => Some(call),
            Err(_) => {
                // Varlink has no answer to what is no call.
                self.is_over = true;
                None
            }
        }
    }

    fn write(&mut self) {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.output.clear();
                    self.is_over = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str) -> Vec<u8> {
        let call =
            Call { method: method.to_string(), parameters: Map::new(), more: false, oneway: false };
        wire::message(&call).unwrap()
    }

    #[test]
    fn calls_come_in_pieces_and_are_answered_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/control");
        let mut server = Server::listen(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        let both = [call("a.B"), call("a.C")].concat();
        client.write_all(&both[..5]).unwrap();
        assert!(server.turn().is_empty());
        client.write_all(&both[5..]).unwrap();
        let mut names = Vec::new();
        for _ in 0..2 {
            let calls = server.turn();
            let [(id, peer, call)] = &calls[..] else { panic!("{calls:?}") };
            assert_eq!(peer.pid, std::process::id());
            names.push(call.method.clone());
            server.answer(*id, call, Ok(Map::new()));
        }
        assert_eq!(names, ["a.B", "a.C"]);
        let mut reader = io::BufReader::new(client);
        let replies: Vec<_> = (0..2).map(|_| wire::read(&mut reader, 100).unwrap()).collect();
        assert_eq!(replies, vec![Some(b"{\"parameters\":{}}".to_vec()); 2]);
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_call_or_too_long_ends_its_connection_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let mut server = Server::listen(&path).unwrap();
        let mut good = UnixStream::connect(&path).unwrap();
        let mut bad = UnixStream::connect(&path).unwrap();
        let mut long = UnixStream::connect(&path).unwrap();
        bad.write_all(b"hello\0").unwrap();
        long.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while sent <= 2 * wire::MAX_CALL {
            match long.write(&[b' '; 4096]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            assert!(server.turn().is_empty());
        }
        good.write_all(&call("a.B")).unwrap();
        assert_eq!(server.turn().len(), 1);
        assert_eq!(server.connections.len(), 1);
    }

    #[test]
    fn a_second_daemon_is_refused_and_a_dead_ones_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let first = Server::listen(&path).unwrap();
        let error = Server::listen(&path).err().unwrap();
        assert!(error.to_string().contains("another daemon listens there"), "{error}");
        std::mem::forget(first);
        // Its descriptor is open in this process still: a listener without a way to it.
        std::fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        Server::listen(&path).unwrap();
        std::fs::write(&path, "text").unwrap();
        let error = Server::listen(&path).err().unwrap();
        assert!(error.to_string().contains("expected a socket or nothing"), "{error}");
    }
}
