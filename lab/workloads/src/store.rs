//! A store of records that clients of another process fill and then ask. Any client asks any thread
//! of the store, so no thread of one process belongs to a thread of the other.
//!
//! The thread that stores a record first touches its memory: the records lie on the nodes of all
//! threads of the store. Both ends sleep between requests.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::apart::{Clock, Rounds};
use crate::pages::Pages;
use crate::random::Random;
use crate::report::{Failure, Report};
use crate::serve::{
    Flags, KEYS, NUMBER, RECORD, REQUESTS, address, broken, numbers, start_clients,
};

/// Words of a request: what to do, and the keys.
const WORDS: usize = KEYS + 1;
/// The first word of a request that stores; another one asks.
const STORE: u64 = 1;
/// Of so many requests of a client one stores.
const ONE_STORES_IN: u64 = 10;
/// The longest wait for a message. Longer means that the other end is gone.
const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    if let Some(name) = &flags.ask {
        return ask(flags, name);
    }
    let table = Pages::<AtomicU64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let name = format!("rondpoint-store-{}", std::process::id());
    let sockets = (0..flags.apart.threads).map(|index| socket(&format!("{name}-{index}")));
    let sockets = sockets.collect::<Result<Vec<_>, Failure>>()?;
    let mut clients = start_clients("store", flags, &name)?;
    let clock = Clock::start(&flags.apart);
    let report =
        clock.run("store", flags.apart.threads, |index| answer(&table, &clock, &sockets[index]))?;
    drop(sockets);
    let ended = clients.wait().map_err(broken)?;
    Ok(report.pair("records", table.len() / RECORD).check("replies", ended.success()))
}

/// Answers whoever asks until the time is over.
fn answer(table: &[AtomicU64], clock: &Clock, socket: &UnixDatagram) -> Result<Rounds, Failure> {
    let mut rounds = Rounds::default();
    let mut answered = 0;
    let mut request = [0; WORDS * NUMBER];
    while !clock.is_over() {
        let client = match socket.recv_from(&mut request) {
            Ok((_, client)) => client,
            Err(error) if is_over_patience(error.kind()) => continue,
            Err(error) => return Err(broken(error)),
        };
        let mut words = numbers(&request);
        let stores = words.next() == Some(STORE);
        let reply: u64 =
            words.map(|key| if stores { store(table, key) } else { load(table, key) }).sum();
        match socket.send_to_addr(&reply.to_le_bytes(), &client) {
            Ok(_) => {
                answered += 1;
                if answered % REQUESTS == 0 {
                    rounds.end(clock, true);
                }
            }
            // A client that has ended has asked before.
            Err(error) if is_gone(error.kind()) => {}
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(rounds)
}

fn record(table: &[AtomicU64], key: u64) -> &[AtomicU64] {
    let first = key as usize * RECORD;
    &table[first..first + RECORD]
}

/// Each word of a record tells the record.
fn store(table: &[AtomicU64], key: u64) -> u64 {
    record(table, key).iter().for_each(|word| word.store(key, Relaxed));
    key * RECORD as u64
}

fn load(table: &[AtomicU64], key: u64) -> u64 {
    record(table, key).iter().map(|word| word.load(Relaxed)).sum()
}

/// The clients: as many threads as the store has. They fill it together before they ask.
fn ask(flags: &Flags, name: &str) -> Result<Report, Failure> {
    let threads = flags.apart.threads;
    let records = (flags.memory.size / NUMBER / RECORD) as u64;
    let is_filled = Barrier::new(threads as usize);
    let clock = Clock::start(&flags.apart);
    clock.run("ask", threads, |index| {
        let own = u64::from(index as u32);
        let socket = socket(&format!("{name}-client-{index}"))?;
        let mut client =
            Client { name, threads, socket, random: Random::new(flags.seed.seed, own) };
        let mut rounds = Rounds::default();
        let mut reply = client.fill((own..records).step_by(threads as usize))?;
        is_filled.wait();
        while let Some(is_right) = reply {
            rounds.end(&clock, is_right);
            reply = client.round(records)?;
        }
        rounds.end(&clock, true);
        Ok(rounds)
    })
}

/// One thread that asks, and where its replies come.
struct Client<'a> {
    name: &'a str,
    threads: u32,
    socket: UnixDatagram,
    random: Random,
}

impl Client<'_> {
    /// Stores each of these records once. Returns whether all replies were right, or none where the
    /// store is gone.
    fn fill(&mut self, mut records: impl Iterator<Item = u64>) -> Result<Option<bool>, Failure> {
        let mut is_right = true;
        while let Some(first) = records.next() {
            let mut last = first;
            let keys = std::array::from_fn(|index| {
                if index > 0 {
                    last = records.next().unwrap_or(last);
                }
                last
            });
            let Some(reply) = self.exchange(STORE, &keys)? else { return Ok(None) };
            is_right &= reply;
        }
        Ok(Some(is_right))
    }

    /// Requests of a round with keys by chance.
    fn round(&mut self, records: u64) -> Result<Option<bool>, Failure> {
        let mut is_right = true;
        for _ in 0..REQUESTS {
            let keys = std::array::from_fn(|_| self.random.below(records));
            let word = u64::from(self.random.below(ONE_STORES_IN) == 0);
            let Some(reply) = self.exchange(word, &keys)? else { return Ok(None) };
            is_right &= reply;
        }
        Ok(Some(is_right))
    }

    /// Sends a request to any thread of the store. Returns whether the reply was right, or none
    /// where the store is gone.
    fn exchange(&mut self, word: u64, keys: &[u64; KEYS]) -> Result<Option<bool>, Failure> {
        let words = std::iter::once(&word).chain(keys);
        let bytes: Vec<u8> = words.flat_map(|number| number.to_le_bytes()).collect();
        let thread = self.random.below(u64::from(self.threads));
        let to = address(&format!("{}-{thread}", self.name))?;
        let mut reply = [0; NUMBER];
        let exchanged =
            self.socket.send_to_addr(&bytes, &to).and_then(|_| self.socket.recv(&mut reply));
        match exchanged {
            Ok(_) => {
                let right = keys.iter().sum::<u64>() * RECORD as u64;
                Ok(Some(u64::from_le_bytes(reply) == right))
            }
            Err(error) if is_gone(error.kind()) || is_over_patience(error.kind()) => Ok(None),
            Err(error) => Err(broken(error)),
        }
    }
}

/// A socket that waits for messages with patience, under a name that ends with its process.
fn socket(name: &str) -> Result<UnixDatagram, Failure> {
    let socket = UnixDatagram::bind_addr(&address(name)?).map_err(broken)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    Ok(socket)
}

fn is_over_patience(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn is_gone(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::NotConnected | ErrorKind::NotFound)
}
