//! Does watching a large process hold its map lock?
//!
//! `cargo run --release -p rondpoint-linux --example large_process -- [GIB[/MAPPINGS][@MS]]…` fills
//! a process with so many GiB of small pages, in one mapping or several of the same size. It maps
//! and unmaps a page all the time, for which it needs its lock. A look may hold the lock for MS
//! milliseconds, as with `--map-lock`.
//! Its longest wait is taken while nobody looks, while it is watched, and while its `numa_maps` is
//! read whole.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rondpoint_core::Pid;
use rondpoint_core::topology::synthetic;
use rondpoint_linux::Root;
use rondpoint_linux::observe::tasks::{Births, Tasks};
use rondpoint_linux::syscall::memory::{Anonymous, page_bytes};

/// Makes this program the one that is watched.
const TARGET: &str = "target";
/// How long each part takes.
const PART: Duration = Duration::from_secs(12);
/// Between two looks, as `run` and `daemon` have it at their fastest.
const BETWEEN: Duration = Duration::from_millis(100);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, size] = &words[..]
        && first == TARGET
    {
        return be_large(size);
    }
    println!("   GiB  longest wait, ms:  alone  watched  read whole   a look, ms: longest   whole");
    let sizes = if words.is_empty() { ["1", "2", "4"].map(String::from).to_vec() } else { words };
    for size in sizes {
        let row = measure(&size)?;
        println!(
            "{size:>6}  {:>24.2}  {:>7.2}  {:>10.2}  {:>20.2}  {:>6.0}  {}",
            row.alone, row.watched, row.read_whole, row.look, row.whole, row.policy_read
        );
    }
    Ok(())
}

/// Milliseconds.
struct Row {
    alone: f64,
    watched: f64,
    read_whole: f64,
    look: f64,
    whole: f64,
    /// Of how much memory the policies were read.
    policy_read: String,
}

fn measure(words: &str) -> Result<Row> {
    let (size, map_lock) = match words.split_once('@') {
        Some((size, ms)) => (size, Some(Duration::from_millis(ms.parse()?))),
        None => (words, None),
    };
    let mut target = Target::start(size)?;
    std::thread::sleep(PART);
    let alone = target.longest_wait()?;

    // Two nodes, as on a machine where it matters; this one may have a single one.
    let machine = synthetic::parse("node:2 core:1").map_err(|error| format!("{error:?}"))?;
    let tasks = Tasks::new(Root::live(), Pid(target.child.id()), None);
    let mut tasks = tasks.with_map_lock(map_lock);
    let (begin, mut look) = (Instant::now(), Duration::ZERO);
    let mut policy_read = String::new();
    while begin.elapsed() < PART {
        let before = Instant::now();
        let found = tasks.observe(&machine, Births::default())?;
        look = look.max(before.elapsed());
        let read = found.first().and_then(|process| process.policy_read.clone());
        policy_read = read.map_or("policies read: all".to_string(), |ranges| {
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            format!("policies read: {} MiB", bytes >> 20)
        });
        std::thread::sleep(BETWEEN);
    }
    let watched = target.longest_wait()?;

    let before = Instant::now();
    std::fs::read(format!("/proc/{}/numa_maps", target.child.id()))?;
    let whole = before.elapsed();
    std::thread::sleep(BETWEEN); // The one that waited says so.
    let read_whole = target.longest_wait()?;
    let ms = |time: Duration| 1e3 * time.as_secs_f64();
    Ok(Row { alone, watched, read_whole, look: ms(look), whole: ms(whole), policy_read })
}

/// The process that is watched; it ends with its input.
struct Target {
    child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Target {
    fn start(size: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([TARGET, size])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = child.stdin.take().ok_or("no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let mut target = Self { child, ask, answers };
        target.longest_wait()?; // Once its memory is there.
        Ok(target)
    }

    /// The longest wait since this was last asked, milliseconds.
    fn longest_wait(&mut self) -> Result<f64> {
        writeln!(self.ask)?;
        let answer = self.answers.next().ok_or("the target has ended")??;
        Ok(answer.parse::<f64>()? / 1e6)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fills memory, maps and unmaps a page, and tells the longest wait for each line of input.
fn be_large(size: &str) -> Result<()> {
    let (gib, mappings) = size.split_once('/').unwrap_or((size, "1"));
    let (gib, mappings): (usize, usize) = (gib.parse()?, mappings.parse()?);
    let mut parts = Vec::new();
    for _ in 0..mappings {
        let memory = Anonymous::new((gib << 30) / mappings)?;
        memory.touch_every(page_bytes());
        // A gap below, else the kernel makes one mapping of two. It is large, for the kernel lays
        // large mappings at borders of huge pages.
        parts.push((memory, Anonymous::new(8 << 20)?));
    }
    let parts: Vec<Anonymous> = parts.into_iter().map(|(memory, _gap)| memory).collect();
    let longest_ns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                let before = Instant::now();
                drop(Anonymous::new(page_bytes()));
                let waited = u64::try_from(before.elapsed().as_nanos()).unwrap_or(u64::MAX);
                longest_ns.fetch_max(waited, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        for _ in std::io::stdin().lines() {
            println!("{}", longest_ns.swap(0, Ordering::Relaxed));
        }
        drop(parts);
        std::process::exit(0)
    })
}
