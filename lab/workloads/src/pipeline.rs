//! Pairs of threads, one of which fills buffers that the other reads. What they share moves on all
//! the time, and a pair works best behind one cache.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use clap::Args;

use crate::apart::{Clock, Rounds};
use crate::flags::{Apart, Memory, Seed};
use crate::pages::Pages;
use crate::random::mix;
use crate::report::{Failure, Report};

/// Buffers of a pair: one is filled while the other is read.
const BUFFERS: usize = 2;

#[derive(Debug, Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    apart: Apart,
}

/// A buffer and the number that its values were made from.
type Filled = (u64, Pages<u64>);

/// One end of a pair.
enum End {
    Fills { empty: Receiver<Pages<u64>>, filled: Sender<Filled> },
    Reads { filled: Receiver<Filled>, empty: Sender<Pages<u64>> },
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let threads = flags.apart.threads;
    if !threads.is_multiple_of(2) {
        return Err(Failure(format!("--threads {threads}: expected an even number, for pairs")));
    }
    let bytes = flags.memory.size / BUFFERS / (threads as usize / 2);
    let mut ends = Vec::new();
    for _ in 0..threads / 2 {
        ends.extend(pair(bytes, flags.memory.no_huge_pages)?.map(|end| Mutex::new(Some(end))));
    }
    let clock = Clock::start(&flags.apart);
    clock.run("pipeline", threads, |index| {
        let end = ends[index].lock().expect("a panic ends the process").take();
        Ok(match end.expect("each thread takes its own") {
            End::Fills { empty, filled } => fill(&clock, &empty, &filled, flags.seed.seed),
            End::Reads { filled, empty } => read(&clock, &filled, &empty),
        })
    })
}

fn pair(bytes: usize, small_pages_only: bool) -> Result<[End; 2], Failure> {
    let (to_reader, filled) = channel();
    let (to_filler, empty) = channel();
    for _ in 0..BUFFERS {
        let buffer = Pages::map(bytes, small_pages_only)?;
        to_filler.send(buffer).expect("its receiver is here");
    }
    Ok([End::Fills { empty, filled: to_reader }, End::Reads { filled, empty: to_filler }])
}

/// Fills buffers until the time is over, which ends the reader too. Rounds are the reader's.
fn fill(clock: &Clock, empty: &Receiver<Pages<u64>>, filled: &Sender<Filled>, seed: u64) -> Rounds {
    let mut number = seed;
    for mut buffer in empty {
        if clock.is_over() {
            break;
        }
        number = mix(number);
        let values = buffer.iter_mut().zip(number..);
        values.for_each(|(word, value)| *word = value);
        // A reader that is gone has panicked, which ends the process.
        let _ = filled.send((number, buffer));
    }
    Rounds::default()
}

fn read(clock: &Clock, filled: &Receiver<Filled>, empty: &Sender<Pages<u64>>) -> Rounds {
    let mut rounds = Rounds::default();
    for (number, buffer) in filled {
        let is_right = buffer.iter().zip(number..).all(|(word, value)| *word == value);
        rounds.end(clock, is_right);
        // The thread that fills ends first, and takes no buffer back then.
        let _ = empty.send(buffer);
    }
    rounds
}
