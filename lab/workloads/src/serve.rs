//! A server and its clients. Each thread of the server answers one thread of another process, over
//! a socket. The answers come from a table that the main thread filled before it served any client.
//!
//! Both ends sleep between requests. The server has little memory traffic per second of wall time,
//! but waits for memory whenever it runs.

use std::io::{ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;

use crate::apart::{Clock, Rounds};
use crate::flags::{Apart, Memory, Seed};
use crate::own;
use crate::pages::Pages;
use crate::random::Random;
use crate::report::{Failure, Report};

/// Words of a record: four lines of the cache.
pub(crate) const RECORD: usize = 32;
/// Records that one request asks for.
pub(crate) const KEYS: usize = 16;
/// Requests of a round.
pub(crate) const REQUESTS: usize = 100;
/// Bytes of a number in a message.
pub(crate) const NUMBER: usize = size_of::<u64>();

/// Flags of a server and its clients.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) memory: Memory,
    #[command(flatten)]
    pub(crate) seed: Seed,
    #[command(flatten)]
    pub(crate) apart: Apart,
    /// Be the clients of the server with this name
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) ask: Option<String>,
}

/// The keys of a request.
type Keys = [u64; KEYS];

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    if let Some(name) = &flags.ask {
        return ask(flags, name);
    }
    let table = fill(&flags.memory)?;
    let name = format!("rondpoint-serve-{}", std::process::id());
    let listener = UnixListener::bind_addr(&address(&name)?).map_err(broken)?;
    let mut clients = start_clients("serve", flags, &name)?;
    let connected = |_| Ok(Mutex::new(Some(accept(&listener, &mut clients)?)));
    let streams = (0..flags.apart.threads).map(connected).collect::<Result<Vec<_>, Failure>>()?;
    let clock = Clock::start(&flags.apart);
    let report = clock.run("serve", flags.apart.threads, |index| {
        let stream = streams[index].lock().expect("a panic ends the process").take();
        serve(&table, &clock, stream.expect("each thread takes its own"))
    })?;
    let ended = clients.wait().map_err(broken)?;
    Ok(report.pair("records", table.len() / RECORD).check("replies", ended.success()))
}

/// Each word of a record tells the record.
fn fill(memory: &Memory) -> Result<Pages<u64>, Failure> {
    let mut table = Pages::map(memory.size, memory.no_huge_pages)?;
    let words = table.iter_mut().enumerate();
    words.for_each(|(place, word)| *word = (place / RECORD) as u64);
    Ok(table)
}

/// Starts the clients of this workload's server in a process of their own.
pub(crate) fn start_clients(workload: &str, flags: &Flags, name: &str) -> Result<Child, Failure> {
    let mut command = own::workload(workload)?;
    own::add_flags(&mut command, &flags.memory, &flags.seed);
    command.args(["--ask", name, "--threads", &flags.apart.threads.to_string()]);
    command.stdout(std::process::Stdio::null()).spawn().map_err(broken)
}

/// Waits until a client connects; fails if the process of the clients ends first.
fn accept(listener: &UnixListener, clients: &mut Child) -> Result<UnixStream, Failure> {
    listener.set_nonblocking(true).map_err(broken)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(broken)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(broken(error)),
            Err(_) => {}
        }
        if let Some(status) = clients.try_wait().map_err(broken)? {
            return Err(Failure(format!("the clients ended before they connected: {status}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Answers until the time is over, which ends the client too.
fn serve(table: &[u64], clock: &Clock, mut stream: UnixStream) -> Result<Rounds, Failure> {
    let mut rounds = Rounds::default();
    while !clock.is_over() {
        for _ in 0..REQUESTS {
            let mut request = [0; KEYS * NUMBER];
            stream.read_exact(&mut request).map_err(broken)?;
            let record = |key: u64| {
                let first = key as usize * RECORD;
                table[first..first + RECORD].iter().sum::<u64>()
            };
            let reply: u64 = numbers(&request).map(record).sum();
            stream.write_all(&reply.to_le_bytes()).map_err(broken)?;
        }
        rounds.end(clock, true);
    }
    Ok(rounds)
}

/// The clients: as many threads as the server has.
fn ask(flags: &Flags, name: &str) -> Result<Report, Failure> {
    let records = (flags.memory.size / NUMBER / RECORD) as u64;
    let clock = Clock::start(&flags.apart);
    clock.run("ask", flags.apart.threads, |index| {
        let stream = UnixStream::connect_addr(&address(name)?).map_err(broken)?;
        let mut random = Random::new(flags.seed.seed, index as u64);
        let keys = || std::array::from_fn(|_| random.below(records));
        ask_until_closed(&clock, stream, keys)
    })
}

/// Asks until the server closes; a reply is right where it is the sum of the records' words.
fn ask_until_closed(
    clock: &Clock,
    mut stream: UnixStream,
    mut keys: impl FnMut() -> Keys,
) -> Result<Rounds, Failure> {
    let mut rounds = Rounds::default();
    let mut is_right = true;
    for request in 1.. {
        let keys = keys();
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        let mut reply = [0; NUMBER];
        let exchanged = stream.write_all(&bytes).and_then(|()| stream.read_exact(&mut reply));
        match exchanged {
            Ok(()) => is_right &= numbers(&reply).sum::<u64>() == right_reply(&keys),
            Err(error) if is_closed(error.kind()) => break,
            Err(error) => return Err(broken(error)),
        }
        if request % REQUESTS == 0 {
            rounds.end(clock, is_right);
        }
    }
    rounds.check(is_right);
    Ok(rounds)
}

fn right_reply(keys: &Keys) -> u64 {
    keys.iter().sum::<u64>() * RECORD as u64
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let number = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("whole chunks"));
    bytes.chunks_exact(NUMBER).map(number)
}

/// A socket that lives in no folder and ends with its process.
pub(crate) fn address(name: &str) -> Result<SocketAddr, Failure> {
    SocketAddr::from_abstract_name(name).map_err(broken)
}

pub(crate) fn broken(error: std::io::Error) -> Failure {
    Failure(format!("server and clients: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_ends_before_it_connects_ends_the_server() {
        let name = format!("rondpoint-serve-test-{}", std::process::id());
        let listener = UnixListener::bind_addr(&address(&name).expect("a name")).expect("a socket");
        let mut clients = std::process::Command::new("false").spawn().expect("false runs");
        let failure = accept(&listener, &mut clients).expect_err("nobody connects");
        assert!(failure.0.contains("before they connected"), "{}", failure.0);
        let mut asks = std::process::Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let own = UnixStream::connect_addr(&address(&name).expect("a name")).expect("connected");
        let accepted = accept(&listener, &mut asks);
        asks.kill().and_then(|()| asks.wait()).expect("it is ended");
        assert!(accepted.is_ok());
        drop(own);
    }
}
