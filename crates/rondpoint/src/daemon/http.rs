//! Metrics over HTTP on a loopback port: `GET /metrics`, one answer for each connection. Beyond the
//! limit a new connection replaces the oldest.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::control::door::Door;

/// Connections at a time: a few scrapers, and some that never ask.
const MOST: usize = 32;
/// Connections accepted in a row.
const MOST_AT_ONCE: usize = MOST / 2;
/// Longest request that is read.
const LONGEST: usize = 8 << 10;
/// A client has so long to ask and to read.
const PATIENCE: Duration = Duration::from_secs(10);
/// Content type of OpenMetrics text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The listener and the clients that have connected.
pub(super) struct Http {
    listener: TcpListener,
    /// The oldest first.
    connections: Vec<Connection>,
    door: Door,
}

struct Connection {
    stream: TcpStream,
    began: Instant,
    input: Vec<u8>,
    /// Bytes left to be written; `None` before the request is complete.
    output: Option<Vec<u8>>,
    is_over: bool,
}

impl Http {
    /// # Errors
    /// The port is taken or may not be used.
    pub(super) fn listen(address: SocketAddr) -> Result<Self> {
        let told = || format!("[metrics] listen = \"{address}\"");
        let listener = TcpListener::bind(address).with_context(told)?;
        listener.set_nonblocking(true).with_context(told)?;
        Ok(Self { listener, connections: Vec::new(), door: Door::default() })
    }

    /// What to wait for: to read from, and to write to.
    pub(super) fn descriptors(&self) -> (Vec<BorrowedFd<'_>>, Vec<BorrowedFd<'_>>) {
        let listener = self.door.is_open().then(|| self.listener.as_fd());
        let of = |answered: bool| {
            let them = self.connections.iter().filter(move |one| one.output.is_some() == answered);
            them.map(|one| one.stream.as_fd())
        };
        (listener.into_iter().chain(of(false)).collect(), of(true).collect())
    }

    /// Accepts, reads and writes what is possible now. Returns whether a client waits for the
    /// metrics.
    pub(super) fn turn(&mut self) -> bool {
        for _ in 0..MOST_AT_ONCE {
            let Some(stream) = self.door.let_in(self.listener.accept()) else { break };
            if self.connections.len() >= MOST {
                self.connections.remove(0);
            }
            if stream.set_nonblocking(true).is_ok() {
                let began = Instant::now();
                let (input, output) = (Vec::new(), None);
                self.connections.push(Connection { stream, began, input, output, is_over: false });
            }
        }
        self.go_on();
        self.connections.iter().any(Connection::waits)
    }

    /// Answers all clients that wait.
    pub(super) fn answer(&mut self, metrics: &str) {
        for one in self.connections.iter_mut().filter(|one| one.waits()) {
            one.reply("200 OK", OPEN_METRICS, metrics);
        }
        self.go_on();
    }

    /// Reads and writes what is possible now. A connection that is answered is closed at once: some
    /// clients wait for that.
    fn go_on(&mut self) {
        self.connections.iter_mut().for_each(Connection::turn);
        self.connections.retain(|one| !one.is_over && one.began.elapsed() < PATIENCE);
    }
}

impl Connection {
    /// Whether its request is a good one that has no answer yet.
    fn waits(&self) -> bool {
        self.output.is_none() && is_complete(&self.input) && !self.is_over
    }

    fn turn(&mut self) {
        if self.output.is_none() {
            self.read();
            if is_complete(&self.input) && !is_for_metrics(&self.input) {
                let text = "expected GET /metrics\n";
                self.reply("404 Not Found", "text/plain; charset=utf-8", text);
            }
        }
        while let Some(left) = self.output.as_mut().filter(|left| !left.is_empty()) {
            match self.stream.write(left) {
                Ok(count) => drop(left.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => left.clear(),
            }
        }
        self.is_over |= self.output.is_some();
    }

    fn read(&mut self) {
        let mut piece = [0; 1024];
        while !is_complete(&self.input) && !self.is_over {
            match self.stream.read(&mut piece) {
                Ok(0) => self.is_over = true,
                Ok(count) => self.input.extend(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.is_over = true,
            }
            self.is_over |= self.input.len() > LONGEST;
        }
    }

    fn reply(&mut self, status: &str, kind: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        self.output = Some((head + body).into_bytes());
    }
}

fn is_complete(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
}

fn is_for_metrics(request: &[u8]) -> bool {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    line.starts_with(b"GET /metrics ") || line.starts_with(b"GET /metrics?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(request: &str) -> String {
        let mut http = Http::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = TcpStream::connect(http.listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if http.turn() {
                http.answer("# EOF\n");
            }
            match client.read_to_end(&mut text) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn an_answered_connection_is_closed_and_silent_ones_keep_no_scraper_out() {
        let mut http = Http::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = http.listener.local_addr().unwrap();
        let silent: Vec<TcpStream> = (0..3 * MOST)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /met").unwrap();
                assert!(!http.turn());
                stream
            })
            .collect();
        let mut scraper = TcpStream::connect(address).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(http.turn());
        // Larger than what the kernel takes at once: the rest waits for room.
        let long = "x".repeat(64 << 20);
        http.answer(&long);
        assert_eq!(http.descriptors().1.len(), 1);
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            scraper.read_to_end(&mut text).map(|_| text.len())
        });
        while !http.descriptors().1.is_empty() {
            assert!(!http.turn());
        }
        assert!(reader.join().unwrap().unwrap() > long.len(), "the connection was closed");
        drop(silent);
    }

    #[test]
    fn metrics_are_given_and_nothing_else() {
        let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains(OPEN_METRICS) && answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
        for request in ["GET / HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n"] {
            let answer = ask(request);
            assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
        }
        assert_eq!(ask(&"x".repeat(LONGEST + 1024)), "", "too long");
    }
}
