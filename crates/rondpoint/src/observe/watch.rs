//! The course of one observation: start or join, look at each interval, end, sum up.
//!
//! One thread. Signals are read, not handled: those that a process sent are passed on to the program,
//! those of the terminal reach it by themselves. The program is never slowed by a full report: where
//! the report cannot be written, it is dropped.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rondpoint_core::model::UpdateSettings;
use rondpoint_core::{Model, Pid, Topology};
use rondpoint_linux::observe::sampler::Kind;
use rondpoint_linux::observe::subject::Start as Begin;
use rondpoint_linux::observe::{Look, Observer, Settings};
use rondpoint_linux::parse::schedstat;
use rondpoint_linux::syscall::process::{self, End, Waiting};
use rondpoint_linux::syscall::signal::{self, Signals};
use rondpoint_linux::topology::{self, Discovered};
use rondpoint_linux::{Root, launch, root};
use rondpoint_machine::Machine;

use super::Arguments;
use super::history::{History, add_newborn};
use super::render;
use super::report::{self, Interval, Line, SCHEMA, Sources, Start, Summary};

// Numbers of signal(7), the same on x86-64 and arm64.
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;
const SIGNALS: [i32; 7] = [SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD];

/// What a shell adds to the number of the signal that killed a program.
const KILLED: i32 = 128;

/// Whom we watch.
enum Subject {
    /// A program of ours.
    Child,
    /// Somebody else's, with a descriptor that tells its end.
    Joined(OwnedFd),
}

/// Runs the command; the result is the exit status.
pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let root = Root::live();
    let machine = machine(&root, arguments)?;
    let output = Output::open(arguments)?;
    let signals = Signals::of(&SIGNALS);
    let mask = signal::block(&signals).context("blocking signals")?;
    let arriving = signal::descriptor(&signals).context("reading signals")?;
    let settings = Settings {
        period: arguments.sample_period,
        metrics: arguments.events.clone(),
        rung: arguments.sensor.map(super::Sensor::rung),
    };
    if let Some(pid) = arguments.pid {
        let end = process::watch_end(pid as i32);
        let end = end.with_context(|| format!("process {pid}"))?;
        raise_limit();
        let observer = Observer::open(root, machine, Pid(pid), Begin::Now, &settings)?;
        let watch = Watch::new(arguments, observer, arriving, Subject::Joined(end), output)?;
        return watch.finish().map(|_| 0);
    }
    let waiting = launch::prepare(&arguments.command, std::env::vars_os(), &mask)
        .context("starting the program")?;
    // Raised after the fork: the program keeps the limits that it was given.
    raise_limit();
    let pid = Pid(waiting.process as u32);
    let opened = Observer::open(root, machine, pid, Begin::OnExec, &settings)
        .map_err(anyhow::Error::from)
        .and_then(|observer| Watch::new(arguments, observer, arriving, Subject::Child, output));
    let watch = match opened {
        Ok(watch) => watch,
        Err(error) => {
            let _ = waiting.cancel();
            return Err(error);
        }
    };
    watch_child(watch, waiting, &arguments.command[0])
}

fn watch_child(mut watch: Watch<'_>, waiting: Waiting, program: &OsString) -> Result<u8> {
    watch.started_at = Instant::now();
    if let Err(error) = waiting.start() {
        eprintln!("rondpoint observe: cannot run {}: {error}", program.display());
        return Ok(launch::exit_status(&error));
    }
    let status = match watch.finish()? {
        Some(End::Exited(status)) => status,
        Some(End::Killed(signal)) => KILLED + signal,
        None => bail!("the program went on without us"),
    };
    Ok(status as u8)
}

/// More descriptors for more events; where that is refused, fewer events are opened.
fn raise_limit() {
    let _ = process::raise_descriptor_limit();
}

/// The machine as found, with links and bandwidths of a machine file where one is given.
fn machine(root: &Root, arguments: &Arguments) -> Result<Discovered> {
    let mut found = topology::discover(root)?;
    let Some(path) = &arguments.machine else { return Ok(found) };
    let written = Machine::load(path)?.topology();
    let sizes = |topology: &Topology| (topology.node_count(), topology.cpu_count());
    if sizes(&written) != sizes(&found.topology) {
        let ((nodes, cpus), (here, cpus_here)) = (sizes(&written), sizes(&found.topology));
        bail!(
            "{}: describes {nodes} nodes and {cpus} CPUs, this machine has {here} and {cpus_here}",
            path.display()
        );
    }
    let mut description = found.topology.description().clone();
    let written = written.description();
    description.links.clone_from(&written.links);
    description.routes.clone_from(&written.routes);
    description.bandwidth_bytes_per_s.clone_from(&written.bandwidth_bytes_per_s);
    description.clock_hz = written.clock_hz.or(description.clock_hz);
    for (node, written) in description.nodes.iter_mut().zip(&written.nodes) {
        node.controller_bytes_per_s = written.controller_bytes_per_s;
    }
    found.topology = Topology::new(description)?;
    Ok(found)
}

/// Where the report goes.
struct Output {
    sink: Box<dyn Write>,
    json: bool,
    quiet: bool,
    is_broken: bool,
}

impl Output {
    fn open(arguments: &Arguments) -> Result<Self> {
        let sink: Box<dyn Write> = match &arguments.output {
            Some(path) => {
                let file = File::create(path);
                Box::new(file.with_context(|| format!("writing {}", path.display()))?)
            }
            None => Box::new(io::stderr()),
        };
        Ok(Self { sink, json: arguments.json, quiet: arguments.quiet, is_broken: false })
    }

    fn put(&mut self, line: &Line, topology: &Topology) {
        if self.is_broken || (self.quiet && matches!(line, Line::Interval(_))) {
            return;
        }
        let text = if self.json {
            serde_json::to_string(line).expect("the report has only string keys") + "\n"
        } else {
            render::text(line, topology)
        };
        // One write, so that lines of the program do not come in between.
        self.is_broken =
            self.sink.write_all(text.as_bytes()).and_then(|()| self.sink.flush()).is_err();
    }
}

struct Watch<'a> {
    arguments: &'a Arguments,
    observer: Observer,
    arriving: OwnedFd,
    subject: Subject,
    output: Output,
    history: History,
    first: Look,
    previous: Look,
    started_at: Instant,
}

/// Why a wait ended.
enum Turn {
    Interval,
    Over,
}

impl<'a> Watch<'a> {
    fn new(
        arguments: &'a Arguments,
        mut observer: Observer,
        arriving: OwnedFd,
        subject: Subject,
        output: Output,
    ) -> Result<Self> {
        let first = observer.observe()?;
        let mut history = History::default();
        history.add(&first.observation);
        Ok(Self {
            arguments,
            observer,
            arriving,
            subject,
            output,
            history,
            previous: first.clone(),
            first,
            started_at: Instant::now(),
        })
    }

    fn pid(&self) -> Pid {
        self.observer.first()
    }

    fn command(&self) -> Vec<String> {
        self.arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    fn start_line(&self) -> Start {
        let machine = self.observer.machine();
        Start {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            pid: self.pid().0,
            command: self.command(),
            nodes: report::node_lines(&machine.topology),
            processor: machine.identity.name.clone(),
            event_table: self.observer.generation().to_string(),
            counted: self.observer.metrics().iter().map(|metric| metric.name()).collect(),
            sampled: self.observer.sampled().map(|kind| match kind {
                Kind::Accesses => "accesses",
                Kind::Faults => "faults",
            }),
            notes: self.observer.notes().to_vec(),
        }
    }

    /// Looks at each interval until the program has ended (or, where it was joined, until we are
    /// told to stop), then sums up. How it ended is known only of a child.
    fn finish(mut self) -> Result<Option<End>> {
        let start = Line::Start(self.start_line());
        self.output.put(&start, &self.observer.machine().topology);
        let mut deadline = self.started_at + self.arguments.interval;
        loop {
            match self.wait(deadline)? {
                Turn::Over => break,
                Turn::Interval => {
                    self.interval()?;
                    deadline = next(deadline, self.arguments.interval);
                }
            }
        }
        self.summary()
    }

    fn wait(&mut self, deadline: Instant) -> Result<Turn> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Turn::Interval);
            }
            let ended = match &self.subject {
                Subject::Child => None,
                Subject::Joined(end) => Some(end.as_fd()),
            };
            let descriptors: Vec<BorrowedFd<'_>> = [Some(self.arriving.as_fd()), ended]
                .into_iter()
                .flatten()
                .chain(self.observer.descriptors())
                .collect();
            let readable = signal::wait_readable(&descriptors, milliseconds(left))?;
            let has_ended = ended.is_some() && readable[1];
            if self.signals()? || has_ended {
                return Ok(Turn::Over);
            }
            self.observer.drain();
        }
    }

    /// Reads what has arrived; true when it is time to stop.
    fn signals(&self) -> Result<bool> {
        let mut over = false;
        while let Some(arrived) = signal::next(self.arriving.as_fd())? {
            over |= match (&self.subject, arrived.number) {
                (Subject::Child, SIGCHLD) => process::has_ended(self.pid().0 as i32)?,
                (Subject::Child, number) if arrived.sent_by_process => {
                    // It may have ended just now: that is not our failure.
                    let _ = process::kill(self.pid().0 as i32, number);
                    false
                }
                (Subject::Joined(_), SIGINT | SIGTERM | SIGHUP | SIGQUIT) => true,
                _ => false,
            };
        }
        Ok(over)
    }

    fn interval(&mut self) -> Result<()> {
        let look = self.observer.observe()?;
        self.history.add(&look.observation);
        add_newborn(&mut self.previous.observation, &look.observation);
        let topology = &self.observer.machine().topology;
        let settings = UpdateSettings::default();
        let model =
            Model::update(topology, &self.previous.observation, &look.observation, &settings);
        let sources = Sources {
            observer: &self.observer,
            first: &self.first,
            previous: &self.previous,
            look: &look,
            model: &model,
            pid: self.pid(),
        };
        let line = Line::Interval(Box::new(Interval::new(&sources)));
        self.output.put(&line, topology);
        self.previous = look;
        Ok(())
    }

    fn summary(mut self) -> Result<Option<End>> {
        let mut look = self.observer.observe()?;
        let end = match self.subject {
            Subject::Child => Some(process::wait(self.pid().0 as i32)?),
            Subject::Joined(_) => None,
        };
        self.history.add(&look.observation);
        look.observation = self.history.whole(&look.observation);
        add_newborn(&mut self.first.observation, &look.observation);
        let topology = &self.observer.machine().topology;
        let settings = UpdateSettings::default();
        let model = Model::update(topology, &self.first.observation, &look.observation, &settings);
        let sources = Sources {
            observer: &self.observer,
            first: &self.first,
            previous: &self.first,
            look: &look,
            model: &model,
            pid: self.pid(),
        };
        let faults = self.observer.sampled() == Some(Kind::Faults);
        let summary = Summary {
            schema: SCHEMA,
            command: self.command(),
            exit_status: match end {
                Some(End::Exited(status)) => Some(status),
                _ => None,
            },
            signal: match end {
                Some(End::Killed(signal)) => Some(signal),
                _ => None,
            },
            own_cpu_s: own_cpu_s(),
            first_touches: faults.then(|| self.observer.first_touches()),
            notes: self.observer.notes().to_vec(),
            whole: Interval::new(&sources),
        };
        self.output.put(&Line::Summary(Box::new(summary)), topology);
        Ok(end)
    }
}

/// The next deadline after one that has passed; those that were missed are skipped.
fn next(passed: Instant, interval: Duration) -> Instant {
    let late = Instant::now().saturating_duration_since(passed);
    let missed = late.as_nanos() / interval.as_nanos().max(1);
    passed + interval * (u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1)
}

/// Rounded up, so that a deadline has passed when the wait is over.
fn milliseconds(left: Duration) -> i32 {
    i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
}

/// CPU time of this process so far: it has one thread.
fn own_cpu_s() -> f64 {
    let bytes = root::read_optional(&Root::live().in_proc("self/schedstat")).ok().flatten();
    let stat = bytes.and_then(|bytes| schedstat::parse(&bytes).ok()).unwrap_or_default();
    stat.running_ns as f64 / 1e9
}
