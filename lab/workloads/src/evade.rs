//! A program that disturbs a move of its pages at the moment of the move.
//!
//! All threads read one region that the main thread has filled, so a policy spreads it. The main
//! thread polls the kernel for the nodes of the pages, and acts when the first page has moved. A
//! region is moved node by node, so other pages still have to move.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::flags::{Memory, Seed};
use crate::nodes;
use crate::own;
use crate::pages::{Pages, page_bytes};
use crate::random::mix;
use crate::report::{Failure, Report};
use crate::system;

/// Between two looks at where the pages are.
const LOOK: Duration = Duration::from_millis(1);
/// How long it is stopped, or two, or idle without its memory: until a mover of its pages must be
/// through.
const PAUSE: Duration = Duration::from_millis(1500);
/// How long it does something else: until its manager must have judged the effect of the moves.
const OTHER_PHASE: Duration = Duration::from_secs(3);

/// What it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    /// Leaves, with all its threads at work
    Exit,
    /// Becomes itself anew
    Exec,
    /// Has a child that shares its memory until one of them writes
    Fork,
    /// Gives the memory back
    Unmap,
    /// Is stopped, and goes on
    Stop,
    /// Goes on with the first of its threads alone
    Rest,
    /// The same, but the others wait by spinning, as at a barrier
    Spin,
}

#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// What to do when the pages move
    #[arg(long)]
    how: How,
    #[command(flatten)]
    memory: Memory,
    #[command(flatten)]
    seed: Seed,
    /// Threads; thread i runs on the i-th CPU that this process may use
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Give up when no page has moved for so many seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    /// It has become itself anew
    #[arg(long, hide = true)]
    again: bool,
}

pub(crate) fn run(flags: &Flags) -> Result<Report, Failure> {
    let begin = Instant::now();
    if flags.again {
        std::thread::sleep(PAUSE);
        return Ok(report(flags, begin, true));
    }
    let cpus = system::allowed_cpus()?;
    system::run_on(&cpus[..1])?;
    let home = nodes::node_of_cpu(cpus[0])?;
    let mut words = Pages::<u64>::map(flags.memory.size, flags.memory.no_huge_pages)?;
    let value = |index: usize| mix(flags.seed.seed ^ index as u64);
    words.iter_mut().enumerate().for_each(|(index, word)| *word = value(index));
    let over = AtomicBool::new(false);
    let alone = AtomicBool::new(false);
    let read = |index: usize| -> Result<(), Failure> {
        system::run_on(&[cpus[index % cpus.len()]])?;
        let is_through =
            || over.load(Ordering::Relaxed) || index > 0 && alone.load(Ordering::Relaxed);
        while !is_through() {
            for page in words.chunks(page_bytes() / 8) {
                std::hint::black_box(page.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
                if is_through() {
                    break;
                }
            }
        }
        // Without a hint to the processor, which would slow it down: as the barriers do that
        // mislead.
        while flags.how == How::Spin && !over.load(Ordering::Relaxed) {
            std::hint::black_box(());
        }
        Ok(())
    };
    let moved = std::thread::scope(|scope| -> Result<bool, Failure> {
        let read = &read;
        let threads: Vec<_> =
            (0..flags.threads as usize).map(|index| scope.spawn(move || read(index))).collect();
        let acted = wait_for_a_move(&words, home, flags).and_then(|moved| {
            if moved {
                act_amid_threads(flags, begin, &alone)?;
            }
            Ok(moved)
        });
        over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a panic ends the process")?;
        }
        acted
    })?;
    if moved && flags.how == How::Unmap {
        drop(words);
        std::thread::sleep(PAUSE);
        return Ok(report(flags, begin, moved));
    }
    let whole = words.iter().enumerate().all(|(index, word)| *word == value(index));
    Ok(report(flags, begin, moved).check("kept", whole))
}

fn report(flags: &Flags, begin: Instant, moved: bool) -> Report {
    let how = flags.how.to_possible_value().expect("none is skipped");
    let report = Report::new("evade").pair("how", how.get_name()).pair("threads", flags.threads);
    let seconds = begin.elapsed().as_secs_f64();
    report.pair("seconds", format!("{seconds:.6}")).check("moved", moved)
}

/// Whether another node has got a page, before the patience is over.
fn wait_for_a_move(words: &Pages<u64>, home: u32, flags: &Flags) -> Result<bool, Failure> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(flags.patience) {
        if words.pages_of_others(home)? > 0 {
            return Ok(true);
        }
        std::thread::sleep(LOOK);
    }
    Ok(false)
}

/// What is done while all threads are at work.
fn act_amid_threads(flags: &Flags, begin: Instant, alone: &AtomicBool) -> Result<(), Failure> {
    match flags.how {
        How::Exit => {
            println!("{}", report(flags, begin, true));
            std::process::exit(0)
        }
        How::Exec => {
            let mut command = own::workload("evade")?;
            command.args(["--how", "exec", "--again"]);
            command.args(["--threads", &flags.threads.to_string()]);
            Err(Failure(format!("cannot become this program anew: {}", command.exec())))
        }
        How::Fork => system::fork_for(PAUSE),
        How::Stop => stop(),
        How::Rest | How::Spin => {
            alone.store(true, Ordering::Relaxed);
            std::thread::sleep(OTHER_PHASE);
            Ok(())
        }
        // The threads must have let go of it first.
        How::Unmap => Ok(()),
    }
}

/// Stops until another program, /bin/sh, wakes this one. A forked child would share its pages.
fn stop() -> Result<(), Failure> {
    let wake = format!("sleep {}; kill -CONT {}", PAUSE.as_secs_f64(), std::process::id());
    let waker = Command::new("/bin/sh").args(["-c", &wake]).spawn();
    let mut waker = waker.map_err(|error| Failure(format!("cannot start /bin/sh: {error}")))?;
    system::stop();
    waker.wait().map(drop).map_err(|error| Failure(format!("cannot wait for /bin/sh: {error}")))
}
