//! The daemon's side of the control socket. It never blocks: a client that does not read, or sends
//! half a call, delays no other client. Beyond the limit, a new connection replaces the one that
//! was idle longest.

mod order;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_linux::syscall::peer;
use rondpoint_linux::syscall::process::effective_user;
use serde::Serialize;
use serde_json::{Map, Value};

use self::order::{Standing, next_in_turn, note_taken};
use super::door::Door;
use super::protocol::{Call, INTERFACE, Reply};
use super::seldom::Seldom;
use super::wire;

/// Connections at a time, and those of one user but root.
const MOST: usize = 128;
const MOST_OF_A_USER: usize = 32;
/// Connections accepted in a row. A client that connects without end must not keep out the others.
/// A new client's call is read before as many newer ones could take its place.
const MOST_AT_ONCE: usize = MOST_OF_A_USER / 2;
/// Clients answered in a row. More of them would delay a look, and a client that asks once.
const MOST_ANSWERED_AT_ONCE: usize = 4;
/// How long a daemon that begins waits for another that does.
const ALONE_WITHIN: Duration = Duration::from_secs(5);
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
    /// Device and number of the socket's file.
    file: Option<(u64, u64)>,
    connections: BTreeMap<Id, Connection>,
    next: u64,
    door: Door,
    /// Calls that arrived or were taken so far. It orders both.
    events: u64,
    /// Number of the event when the last call of a user was taken, for users without connections.
    taken: BTreeMap<u32, u64>,
    /// Clients that watch and have not been told of the last look yet.
    untold: VecDeque<Id>,
    /// Connections that were closed for newer ones.
    crowded: Seldom,
}

struct Connection {
    stream: UnixStream,
    peer: Peer,
    input: Vec<u8>,
    output: Vec<u8>,
    /// It is answered again after each look: the number of the last decision that it has.
    watching: Option<u64>,
    is_over: bool,
    /// Number of the event when its waiting call was first seen.
    arrived: Option<u64>,
    /// Number of the event when its last call was taken; 0 before the first.
    taken: u64,
    /// When it last sent or read something.
    active: Instant,
}

/// A refusal: an error of the interface, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) error: String,
    pub(crate) message: String,
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
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(told)?;
        }
        let _alone = alone_in(path)?;
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                bail!("{}: expected a socket or nothing", told());
            }
            let address = SocketAddr::from_pathname(path).with_context(told)?;
            let asked = peer::connect_within(&address, Duration::ZERO);
            // A full queue is one of a daemon that is stopped or has much to do.
            if asked.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |_| true) {
                bail!("{}: another daemon listens there", told());
            }
            std::fs::remove_file(path).with_context(told)?;
        }
        open_folder(path);
        let listener = listen_at(path).with_context(told)?;
        let file = file_of(path);
        Ok(Self {
            listener,
            file,
            path: path.to_path_buf(),
            connections: BTreeMap::new(),
            next: 0,
            door: Door::default(),
            events: 0,
            taken: BTreeMap::new(),
            untold: VecDeque::new(),
            crowded: Seldom::default(),
        })
    }

    /// Listens anew where somebody has removed the socket's file: no client could come any more.
    /// Returns whether that was so.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub(crate) fn come_back(&mut self) -> Result<bool> {
        match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Ok(false),
        }
        let told = || self.path.display().to_string();
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).with_context(told)?;
        }
        self.listener = listen_at(&self.path).with_context(told)?;
        self.file = file_of(&self.path);
        Ok(true)
    }

    /// What to wait for: to read from, and to write to.
    pub(crate) fn descriptors(&self) -> (Vec<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        let listener = self.door.is_open().then_some(self.listener.as_fd());
        let open = self.connections.values();
        let read = open.clone().filter(|one| one.output.is_empty()).map(|one| one.stream.as_fd());
        let write = open.filter(|one| !one.output.is_empty()).map(|one| one.stream.as_fd());
        (listener.into_iter().chain(read).collect(), write.collect())
    }

    /// Accepts, reads and writes what is possible now. Returns some of the complete calls, from
    /// clients in turn. The others wait, see [`Server::has_work`].
    pub(crate) fn turn(&mut self) -> Vec<(Id, Peer, Call)> {
        self.accept();
        for connection in self.connections.values_mut() {
            connection.write();
            if connection.output.is_empty() {
                connection.read();
            }
        }
        for connection in self.connections.values_mut().filter(|one| one.has_call()) {
            if connection.arrived.is_none() {
                self.events += 1;
                connection.arrived = Some(self.events);
            }
        }
        let mut calls = Vec::new();
        for _ in 0..MOST_ANSWERED_AT_ONCE {
            let standings = self.connections.iter().map(|(id, one)| one.standing(*id));
            let Some(id) = next_in_turn(&standings.collect::<Vec<_>>(), &self.taken) else { break };
            let Some(connection) = self.connections.get_mut(&id) else { break };
            self.events += 1;
            (connection.taken, connection.arrived) = (self.events, None);
            note_taken(&mut self.taken, connection.peer.user, self.events);
            calls.extend(connection.take().map(|call| (id, connection.peer.clone(), call)));
        }
        self.connections.retain(|_, one| !one.is_over || !one.output.is_empty());
        calls
    }

    /// Whether a client waits that [`Server::turn`] or [`Server::next_untold`] has not returned:
    /// nothing else tells of it.
    pub(crate) fn has_work(&self) -> bool {
        self.is_telling() || self.connections.values().any(Connection::has_call)
    }

    fn accept(&mut self) {
        for _ in 0..MOST_AT_ONCE {
            let Some(stream) = self.door.let_in(self.listener.accept()) else { return };
            let Ok(peer) = peer_of(&stream) else { continue };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.make_room(&peer);
            self.next += 1;
            self.connections.insert(Id(self.next), Connection::of(stream, peer));
        }
    }

    /// Closes the connection that has been idle longest: of the same user where that has too many,
    /// of any where all together are too many. One of root only where there is no other. A client
    /// whose call waits for its turn is closed only where all wait.
    fn make_room(&mut self, peer: &Peer) {
        let is_same = |one: &Connection| one.peer.user == peer.user;
        let of_user = self.connections.values().filter(|one| is_same(one)).count();
        let longest = |of: &dyn Fn(&Connection) -> bool| {
            let them = self.connections.iter().filter(|(_, one)| of(one));
            them.min_by_key(|(id, one)| (one.has_call(), one.active, **id))
                .map(|(id, one)| (*id, one.peer.clone()))
        };
        let closed = if peer.user != 0 && of_user >= MOST_OF_A_USER {
            longest(&is_same)
        } else if self.connections.len() >= MOST {
            longest(&|one| one.peer.user != 0).or_else(|| longest(&|_| true))
        } else {
            None
        };
        if let Some((id, Peer { user, pid, .. })) = closed {
            self.connections.remove(&id);
            if let Some(untold) = self.crowded.tell(Instant::now()) {
                tracing::warn!(user, pid, untold, "too many connections: the idlest was closed");
            }
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

    /// Whether a client waits for the next look and has read the last answer.
    pub(crate) fn has_watchers(&self) -> bool {
        self.connections.values().any(|one| one.watches().is_some())
    }

    /// Whether not all have been told since [`Server::begin_to_tell`].
    pub(crate) fn is_telling(&self) -> bool {
        !self.untold.is_empty()
    }

    /// From now on [`Server::next_untold`] returns the clients that wait for a look.
    pub(crate) fn begin_to_tell(&mut self) {
        let watch = self.connections.iter().filter(|(_, one)| one.watches().is_some());
        self.untold = watch.map(|(id, _)| *id).collect();
    }

    /// Some of the clients that are to be told of the last look, each with the number of the last
    /// decision that it has.
    pub(crate) fn next_untold(&mut self) -> Vec<(Id, Peer, u64)> {
        let next = self.untold.drain(..MOST_ANSWERED_AT_ONCE.min(self.untold.len()));
        let known = next.filter_map(|id| Some((id, self.connections.get(&id)?)));
        known.filter_map(|(id, one)| Some((id, one.peer.clone(), one.watches()?))).collect()
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

/// While the file is open, no other daemon looks whether a socket in that folder is a dead one's.
fn alone_in(path: &Path) -> Result<File> {
    let told = || path.display().to_string();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new("."))).with_context(told)?;
    let deadline = Instant::now() + ALONE_WITHIN;
    while let Err(error) = folder.try_lock() {
        if Instant::now() >= deadline {
            return Err(error).with_context(|| format!("{}: locking its folder", told()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(folder)
}

/// A listener that every user may connect to.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let listener = peer::listen_for_all(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

impl Drop for Server {
    fn drop(&mut self) {
        // Not one of a later daemon.
        if self.file.is_some() && file_of(&self.path) == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    let (pid, user) = peer::credentials(stream.as_fd())?;
    Ok(Peer { pid, user, groups: peer::groups(stream.as_fd())? })
}

impl Connection {
    fn of(stream: UnixStream, peer: Peer) -> Self {
        Self {
            stream,
            peer,
            input: Vec::new(),
            output: Vec::new(),
            watching: None,
            is_over: false,
            arrived: None,
            taken: 0,
            active: Instant::now(),
        }
    }

    fn standing(&self, id: Id) -> Standing {
        let (user, pid) = (self.peer.user, self.peer.pid);
        Standing { id, user, pid, arrived: self.arrived, taken: self.taken }
    }

    /// Reads until there is a call.
    fn read(&mut self) {
        let mut piece = [0; PIECE];
        while !self.input.contains(&0) && !self.is_over {
            match self.stream.read(&mut piece) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    self.active = Instant::now();
                    self.input.extend(&piece[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_over = true,
            }
            self.is_over |= self.input.len() > wire::MAX_CALL;
        }
    }

    /// The number of the last decision that it has, if it can be told of a look now.
    fn watches(&self) -> Option<u64> {
        self.watching.filter(|_| self.output.is_empty())
    }

    /// Whether its next call is complete and may be answered now.
    fn has_call(&self) -> bool {
        self.output.is_empty() && self.input.contains(&0)
    }

    /// The next call, if it is complete.
    fn take(&mut self) -> Option<Call> {
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
                Ok(count) => {
                    self.active = Instant::now();
                    self.output.drain(..count);
                }
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
mod tests;
