//! A store of records that clients of another process fill and then ask. Any client asks any thread
//! of the store, so no thread of one process belongs to a thread of the other.
//!
//! The thread that stores a record first touches its memory: the records lie on the nodes of all
//! threads of the store. Both ends sleep between requests.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
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
/// The longest wait for a message, before a look whether the other end is still there.
const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    if let Some(name) = &flags.ask {
        return ask(flags, name);
    }
    let table = Pages::<AtomicU64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let name = format!("rondpoint-store-{}", std::process::id());
    let sockets = (0..flags.apart.threads).map(|index| socket(&format!("{name}-{index}")));
    let sockets = sockets.collect::<Result<Vec<_>, Failure>>()?;
    let clients = Mutex::new(start_clients("store", flags, &name)?);
    let clock = Clock::start(&flags.apart);
    let answer = |index: usize| answer(&table, &clock, &sockets[index], &clients);
    let report = clock.run("store", flags.apart.threads, answer)?;
    drop(sockets);
    let ended = clients.into_inner().expect("no thread panics").wait().map_err(broken)?;
    Ok(report.pair("records", table.len() / RECORD).check("replies", ended.success()))
}

/// Answers all clients until the time is over. Clients that end before are a failure.
fn answer(
    table: &[AtomicU64],
    clock: &Clock,
    socket: &UnixDatagram,
    clients: &Mutex<Child>,
) -> Result<Rounds, Failure> {
    let mut rounds = Rounds::default();
    let mut answered = 0;
    let mut request = [0; WORDS * NUMBER];
    while !clock.is_over() {
        let client = match socket.recv_from(&mut request) {
            Ok((_, client)) => client,
            Err(error) if is_over_patience(error.kind()) => match ended(clients)? {
                true => return Err(Failure("the clients ended before the store".into())),
                false => continue,
            },
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

fn ended(clients: &Mutex<Child>) -> Result<bool, Failure> {
    let ended = clients.lock().expect("no thread panics").try_wait();
    Ok(ended.map_err(broken)?.is_some())
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
        let mut rounds = Rounds::default();
        let filled = socket(&format!("{name}-client-{index}")).and_then(|socket| {
            let random = Random::new(flags.seed.seed, own);
            let mut client = Client { name, threads, socket, random };
            let more = client.fill((own..records).step_by(threads as usize), &mut rounds)?;
            Ok((client, more))
        });
        // A thread that failed waits too: the others wait for all.
        is_filled.wait();
        let (mut client, mut more) = filled?;
        while more {
            rounds.end(&clock, true);
            more = client.round(records, &mut rounds)?;
        }
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
    /// Stores each of these records once. Returns false where the store is gone.
    fn fill(
        &mut self,
        mut records: impl Iterator<Item = u64>,
        rounds: &mut Rounds,
    ) -> Result<bool, Failure> {
        while let Some(first) = records.next() {
            let mut last = first;
            let keys = std::array::from_fn(|index| {
                if index > 0 {
                    last = records.next().unwrap_or(last);
                }
                last
            });
            let Some(is_right) = self.exchange(STORE, &keys)? else { return Ok(false) };
            rounds.check(is_right);
        }
        Ok(true)
    }

    /// Requests of a round with keys by chance. Returns false where the store is gone.
    fn round(&mut self, records: u64, rounds: &mut Rounds) -> Result<bool, Failure> {
        for _ in 0..REQUESTS {
            let keys = std::array::from_fn(|_| self.random.below(records));
            let word = u64::from(self.random.below(ONE_STORES_IN) == 0);
            let Some(is_right) = self.exchange(word, &keys)? else { return Ok(false) };
            rounds.check(is_right);
        }
        Ok(true)
    }

    /// Sends a request to any thread of the store. Returns whether the reply was right, or none
    /// where the store is gone.
    fn exchange(&mut self, word: u64, keys: &[u64; KEYS]) -> Result<Option<bool>, Failure> {
        let words = std::iter::once(&word).chain(keys);
        let bytes: Vec<u8> = words.flat_map(|number| number.to_le_bytes()).collect();
        let thread = self.random.below(u64::from(self.threads));
        let to = address(&format!("{}-{thread}", self.name))?;
        let mut reply = [0; NUMBER];
        let mut exchanged =
            self.socket.send_to_addr(&bytes, &to).and_then(|_| self.socket.recv(&mut reply));
        loop {
            exchanged = match exchanged {
                Ok(_) => {
                    let right = keys.iter().sum::<u64>() * RECORD as u64;
                    return Ok(Some(u64::from_le_bytes(reply) == right));
                }
                Err(error) if is_gone(error.kind()) => return Ok(None),
                // A store that is slow still has its sockets.
                Err(error) if is_over_patience(error.kind()) => UnixDatagram::unbound()
                    .and_then(|probe| probe.connect_addr(&to))
                    .and_then(|()| self.socket.recv(&mut reply)),
                Err(error) => return Err(broken(error)),
            };
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

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::flags::{Apart, Memory, Seed};

    const LONG: Duration = Duration::from_secs(60);

    fn name(of: &str) -> String {
        format!("rondpoint-test-{of}-{}", std::process::id())
    }

    fn client(name: &str) -> Client<'_> {
        let socket = socket(&format!("{name}-client")).unwrap();
        Client { name, threads: 1, socket, random: Random::new(1, 1) }
    }

    #[test]
    fn a_client_that_fails_before_the_store_is_full_ends_all_clients() {
        let name = name("filled");
        let _taken = socket(&format!("{name}-client-0")).unwrap();
        let memory = Memory { size: 1 << 16, no_huge_pages: false };
        let apart = Apart { threads: 2, seconds: 1.0 };
        let flags = Flags { memory, seed: Seed { seed: 1 }, apart, ask: Some(name.clone()) };
        let (told, ends) = channel();
        std::thread::spawn(move || told.send(ask(&flags, &name).is_err()));
        assert_eq!(ends.recv_timeout(LONG), Ok(true));
    }

    #[test]
    fn a_client_waits_for_a_slow_store_and_not_for_one_that_is_gone() {
        let name = name("slow");
        let store = socket(&format!("{name}-0")).unwrap();
        let (keys, mut client) = ([3; KEYS], client(&name));
        let right = keys.iter().sum::<u64>() * RECORD as u64;
        let answer = std::thread::spawn(move || {
            let (_, client) = store.recv_from(&mut [0; WORDS * NUMBER]).unwrap();
            // Nothing comes: this waits twice as long as the client has patience.
            (0..2).for_each(|_| assert!(store.recv(&mut [0]).is_err()));
            store.send_to_addr(&right.to_le_bytes(), &client).unwrap();
            store
        });
        assert_eq!(client.exchange(STORE, &keys).unwrap(), Some(true));
        let store = answer.join().unwrap();
        store.set_read_timeout(Some(LONG)).unwrap();
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| client.exchange(STORE, &keys).unwrap());
            store.recv(&mut [0; WORDS * NUMBER]).unwrap();
            drop(store);
            assert_eq!(asks.join().unwrap(), None);
        });
    }

    #[test]
    fn a_store_whose_clients_have_ended_ends_long_before_its_time() {
        let clock = Clock::start(&Apart { threads: 1, seconds: 1e6 });
        let socket = socket(&name("alone")).unwrap();
        let clients = Mutex::new(Command::new("true").spawn().unwrap());
        let (told, ends) = channel();
        std::thread::spawn(move || told.send(answer(&[], &clock, &socket, &clients).is_err()));
        assert_eq!(ends.recv_timeout(LONG), Ok(true));
    }

    #[test]
    fn a_client_counts_whole_rounds_only_and_a_wrong_reply_of_the_last_part() {
        let name = name("rounds");
        let store = socket(&format!("{name}-0")).unwrap();
        store.set_read_timeout(Some(LONG)).unwrap();
        let mut client = client(&name);
        let mut rounds = Rounds::default();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (_, client) = store.recv_from(&mut [0; WORDS * NUMBER]).unwrap();
                store.send_to_addr(&u64::MAX.to_le_bytes(), &client).unwrap();
            });
            assert!(!client.round(64, &mut rounds).unwrap());
        });
        let rounds = Mutex::new(rounds);
        let clock = Clock::start(&Apart { threads: 1, seconds: 0.0 });
        let take = |_| Ok(std::mem::take(&mut *rounds.lock().unwrap()));
        let report = clock.run("ask", 1, take).unwrap();
        assert!(!report.right() && report.to_string().contains("iterations=0 "), "{report}");
    }
}
