//! Metrics over HTTP on a loopback port: `GET /metrics`, one answer for each connection.
//!
//! Every client is bounded: in number, in time, and in the bytes that are read from it. Clients
//! share one text, which is made at most once in [`FRESH`] for each format.

mod request;

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::request::{Asked, Refusal, end, parse};
use super::metrics::Format;
use crate::control::door::Door;

/// Connections at a time: a few scrapers, and some that never ask.
const MOST: usize = 32;
/// Connections accepted in a row.
const MOST_AT_ONCE: usize = MOST / 2;
/// Longest request that is answered.
const LONGEST: usize = 8 << 10;
/// Bytes that are read from a client, with those after its request.
const MOST_READ: usize = 64 << 10;
/// A client has so long from its connection to the end of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A text is given to other clients for so long. No scraper asks more often.
const FRESH: Duration = Duration::from_secs(1);

/// The listener and the clients that have connected.
pub(super) struct Http {
    listener: TcpListener,
    /// The oldest first.
    connections: Vec<Connection>,
    door: Door,
    /// The last text in each format, and when it was made.
    texts: Vec<(Format, Instant, Rc<[u8]>)>,
}

struct Connection {
    stream: TcpStream,
    began: Instant,
    input: Vec<u8>,
    /// Bytes read so far.
    read: usize,
    state: State,
}

enum State {
    /// The request is not complete.
    Asking,
    /// The request is a good one.
    Waiting(Asked),
    Answering(Answer),
    Over,
}

struct Answer {
    head: Vec<u8>,
    body: Rc<[u8]>,
    /// Bytes of both.
    written: usize,
}

impl Http {
    /// # Errors
    /// The port is taken or may not be used.
    pub(super) fn listen(address: SocketAddr) -> Result<Self> {
        let told = || format!("[metrics] listen = \"{address}\"");
        let listener = TcpListener::bind(address).with_context(told)?;
        listener.set_nonblocking(true).with_context(told)?;
        let (connections, texts) = (Vec::new(), Vec::new());
        Ok(Self { listener, connections, door: Door::default(), texts })
    }

    /// What to wait for: to read from, and to write to.
    pub(super) fn descriptors(&self) -> (Vec<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        let listener = self.door.is_open().then(|| self.listener.as_fd());
        let of = |is_it: fn(&State) -> bool| {
            let them = self.connections.iter().filter(move |one| is_it(&one.state));
            them.map(|one| one.stream.as_fd())
        };
        let reads = of(|state| matches!(state, State::Asking));
        let writes = of(|state| matches!(state, State::Answering(_)));
        (listener.into_iter().chain(reads).collect(), writes.collect())
    }

    /// Accepts, reads and writes what is possible now. Returns the format of a text that a client
    /// waits for: [`Http::give`] is to be called with it.
    pub(super) fn turn(&mut self, now: Instant) -> Option<Format> {
        for _ in 0..MOST_AT_ONCE {
            let Some(stream) = self.door.let_in(self.listener.accept()) else { break };
            if self.connections.len() >= MOST {
                self.connections.remove(0);
            }
            if stream.set_nonblocking(true).is_ok() {
                let (input, state) = (Vec::new(), State::Asking);
                self.connections.push(Connection { stream, began: now, input, read: 0, state });
            }
        }
        self.texts.retain(|(_, made, _)| now.duration_since(*made) < FRESH);
        for one in &mut self.connections {
            one.turn(&self.texts);
        }
        let is_kept = |one: &Connection| now.duration_since(one.began) < PATIENCE;
        self.connections.retain(|one| !matches!(one.state, State::Over) && is_kept(one));
        self.connections.iter().find_map(|one| match &one.state {
            State::Waiting(asked) => Some(asked.format),
            _ => None,
        })
    }

    /// The text of now, for all clients that wait for this format and those of the next second.
    pub(super) fn give(&mut self, format: Format, text: String, now: Instant) {
        self.texts.push((format, now, text.into_bytes().into()));
    }
}

impl Connection {
    /// Goes as far as it can without waiting.
    fn turn(&mut self, texts: &[(Format, Instant, Rc<[u8]>)]) {
        if matches!(self.state, State::Asking) {
            self.ask();
        }
        if let State::Waiting(asked) = &self.state
            && let Some((format, _, text)) = texts.iter().find(|one| one.0 == asked.format)
        {
            let kind = format.content_type();
            self.state = State::Answering(Answer::new("200 OK", kind, text, asked.is_head));
        }
        if let State::Answering(answer) = &mut self.state {
            match answer.write(&mut self.stream) {
                Ok(true) => self.end(),
                Ok(false) => {}
                Err(_) => self.state = State::Over,
            }
        }
    }

    /// An answered connection is closed at once: some clients wait for that. It is read empty
    /// first, for the kernel resets a connection with unread bytes, and the client may then lose
    /// the end of the answer.
    fn end(&mut self) {
        while self.read().is_some() {
            self.input.clear();
        }
        self.state = State::Over;
    }

    /// Reads the request.
    fn ask(&mut self) {
        while matches!(self.state, State::Asking) {
            let begin = self.input.len().saturating_sub(request::END);
            if self.read().is_none() {
                return;
            }
            // Nothing is searched twice, however small the pieces are.
            let end = end(&self.input[begin..]).map(|end| begin + end);
            let parsed = match end {
                Some(end) if end <= LONGEST => parse(&self.input[..end]),
                None if self.input.len() < LONGEST => continue,
                _ => Err(Refusal::too_long()),
            };
            self.input = Vec::new();
            self.state = match parsed {
                Ok(asked) => State::Waiting(asked),
                Err(refusal) => State::Answering(Answer::refuse(&refusal)),
            };
        }
    }

    /// Reads one piece; `None` where there is nothing to read now, or never again.
    fn read(&mut self) -> Option<()> {
        let mut piece = [0; 1024];
        match self.stream.read(&mut piece) {
            Ok(count) if count > 0 && self.read < MOST_READ => {
                self.read += count;
                self.input.extend(&piece[..count]);
                Some(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            _ => {
                self.state = State::Over;
                None
            }
        }
    }
}

impl Answer {
    fn new(head: &str, kind: &str, body: &Rc<[u8]>, is_head: bool) -> Self {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {head}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let body = if is_head { Rc::default() } else { body.clone() };
        Self { head: head.into_bytes(), body, written: 0 }
    }

    fn refuse(refusal: &Refusal) -> Self {
        let body = "expected GET /metrics\n".as_bytes().into();
        Self::new(refusal.head, "text/plain; charset=utf-8", &body, refusal.is_head)
    }

    /// Writes what the kernel takes now. Returns whether that was all.
    fn write(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        loop {
            let head = &self.head[self.written.min(self.head.len())..];
            let body = &self.body[self.written.saturating_sub(self.head.len())..];
            if head.is_empty() && body.is_empty() {
                return Ok(true);
            }
            match stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
