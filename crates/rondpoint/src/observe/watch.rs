//! The course of `observe`: start or join the program, look at each interval, end, summarise.
//!
//! A reader that does not take the report never slows the program: what cannot be written is
//! dropped.

use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd};

use anyhow::{Result, bail};
use rondpoint_core::Model;
use rondpoint_core::model::UpdateSettings;
use rondpoint_linux::Root;
use rondpoint_linux::observe::sampler::Kind;
use rondpoint_linux::observe::{Look, Observer, Settings};
use rondpoint_linux::privileges::{self, Needs};
use rondpoint_linux::syscall::process::{End, Memory};
use serde::Serialize;

use super::Arguments;
use super::history::{History, add_newborn};
use super::machine;
use super::render;
use super::report::{self, Interval, Line, SCHEMA, Sources, Start, Summary};
use crate::machine::Known;
use crate::placement::Placement;
use crate::session::{self, Prepared, Session, Turn, panic_if_told};
use crate::{output, terminal};

/// Runs the command; the result is the exit status.
pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    if arguments.pid.is_none() && arguments.command.is_empty() {
        return machine::run(arguments).map(|()| 0);
    }
    let Known { machine, sampling_period, notes } =
        crate::machine::discover(&Root::live(), arguments.machine.as_deref())?;
    let output = Output::open(arguments)?;
    let settings = Settings {
        period: arguments.sample_period.or(sampling_period),
        metrics: arguments.events.clone(),
        rung: arguments.sensor.map(super::Sensor::rung),
        managing: false,
        ..Settings::default()
    };
    if let Some(pid) = arguments.pid {
        let mut session = Session::join(pid, machine, &settings)?;
        let seen = Seen::first(&mut session.observer, arguments)?;
        let _ = privileges::keep_only(&Needs::to_watch());
        return Watch { arguments, session, output, seen, notes }.finish().map(|_| 0);
    }
    let caller = session::caller()?;
    let prepared = Prepared::fork(
        &arguments.command,
        caller.as_ref(),
        &Placement::default(),
        std::env::vars_os(),
        None,
    )?;
    let program = prepared.program();
    let work = || -> Result<u8> {
        let (prepared, (observer, seen)) = prepared.first(|prepared| {
            let mut observer = prepared.observer(machine, &settings)?;
            let seen = Seen::first(&mut observer, arguments)?;
            Ok((observer, seen))
        })?;
        let session = match prepared.start("rondpoint observe", Memory::Inherited) {
            Ok(program) => Session::of(program, observer),
            Err(status) => return Ok(status),
        };
        let _ = privileges::keep_only(&Needs::to_watch());
        let end = Watch { arguments, session, output, seen, notes }.finish()?;
        let Some(end) = end else { bail!("the program went on without us") };
        Ok(session::status(end))
    };
    // Nothing is changed that would have to be put back.
    program.see_out(work, || Ok(()))
}

/// Bytes that poll(2) promises where a pipe can be written (pipe(7)).
const PIPE_BUF: usize = 4096;

enum Sink {
    File(output::Output),
    Stdout,
    Stderr,
}

/// Where the report goes.
pub(super) struct Output {
    sink: Sink,
    json: bool,
    quiet: bool,
    /// Nothing more is written: its reader has gone, it cannot be written, or a signal came.
    pub(super) is_broken: bool,
    /// Why it cannot be written. A reader that has gone is no failure.
    failure: Option<anyhow::Error>,
}

impl Output {
    pub(super) fn open(arguments: &Arguments) -> Result<Self> {
        let sink = match &arguments.output {
            Some(path) => Sink::File(output::Output::open(path, session::caller()?.as_ref())?),
            // Without a program of ours stdout is free.
            None if arguments.command.is_empty() => Sink::Stdout,
            None => Sink::Stderr,
        };
        let Arguments { json, quiet, .. } = *arguments;
        Ok(Self { sink, json, quiet, is_broken: false, failure: None })
    }

    fn put(&mut self, line: &Line, session: &Session) {
        if self.is_broken || (self.quiet && matches!(line, Line::Interval(_))) {
            return;
        }
        let topology = &session.observer.machine().topology;
        let has_room = |reader: BorrowedFd<'_>| session.wait_for_room(reader);
        self.write(line, || render::text(line, topology), has_room);
    }

    /// Writes a line of the report as JSON or as the text that `shown` makes of it. `has_room`
    /// waits for the reader, and says false to give up.
    pub(super) fn write(
        &mut self,
        line: &impl Serialize,
        shown: impl FnOnce() -> String,
        has_room: impl Fn(BorrowedFd<'_>) -> Result<bool>,
    ) {
        let text = match self.json {
            true => serde_json::to_string(line).expect("the report has only string keys") + "\n",
            false => shown(),
        };
        let text = match self.json {
            true => terminal::clean_json(&text),
            false => terminal::clean_lines(&text),
        };
        match self.sink.put(text.as_bytes(), has_room) {
            Ok(is_written) => self.is_broken = !is_written,
            Err(error) => {
                self.is_broken = true;
                let is_failure = !has_reader_gone(&error);
                self.failure = is_failure.then(|| error.context(self.sink.purpose()));
            }
        }
    }

    /// Says once that the report could not be written.
    ///
    /// # Errors
    /// That it could not.
    pub(super) fn outcome(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

fn has_reader_gone(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::BrokenPipe)
}

impl Sink {
    /// With which an error of writing begins.
    fn purpose(&self) -> String {
        match self {
            Self::File(file) => file.purpose(),
            Self::Stdout => "writing to stdout".to_string(),
            Self::Stderr => "writing to stderr".to_string(),
        }
    }

    /// True where all of it is written. A part fits wherever the reader takes anything, so no write
    /// waits. Lines of the program come in between at most after each part.
    fn put(
        &mut self,
        bytes: &[u8],
        has_room: impl Fn(BorrowedFd<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
        if let Self::File(file) = self {
            // An older file keeps its content until there is something to put in its place.
            file.keep()?;
        }
        for part in bytes.chunks(PIPE_BUF) {
            let reader = match &*self {
                Self::File(file) => file.as_fd(),
                Self::Stdout => stdout.as_fd(),
                Self::Stderr => stderr.as_fd(),
            };
            if !has_room(reader)? {
                return Ok(false);
            }
            let sink: &mut dyn Write = match self {
                Self::File(file) => file,
                Self::Stdout => &mut stdout,
                Self::Stderr => &mut stderr,
            };
            sink.write_all(part).and_then(|()| sink.flush())?;
        }
        Ok(true)
    }
}

struct Watch<'a> {
    arguments: &'a Arguments,
    session: Session,
    output: Output,
    seen: Seen,
    /// What of the machine's files does not fit.
    notes: Vec<String>,
}

/// What was seen so far.
struct Seen {
    history: History,
    first: Look,
    previous: Look,
}

impl Seen {
    fn first(observer: &mut Observer, arguments: &Arguments) -> Result<Self> {
        super::insist(arguments.sensor, observer)?;
        super::insist_on_events(arguments.events.as_deref(), observer)?;
        super::insist_on_period(arguments.sample_period, observer)?;
        let first = observer.observe()?;
        let mut history = History::default();
        history.add(&first.observation);
        Ok(Self { history, previous: first.clone(), first })
    }
}

impl Watch<'_> {
    fn command(&self) -> Vec<String> {
        self.arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    fn start_line(&self) -> Start {
        let machine = self.session.observer.machine();
        Start {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            pid: self.session.pid().0,
            command: self.command(),
            nodes: report::node_lines(&machine.topology),
            processor: machine.identity.name.clone(),
            event_table: self.session.observer.generation().to_string(),
            counted: self.session.observer.metrics().iter().map(|metric| metric.name()).collect(),
            sampled: self.session.observer.sampled().map(|kind| match kind {
                Kind::Accesses => "accesses",
                Kind::Faults => "faults",
            }),
            notes: self.notes(),
        }
    }

    fn notes(&self) -> Vec<String> {
        [&self.notes, self.session.observer.notes()].concat()
    }

    /// Looks at each interval until the program has ended (or, where it was joined, until we are
    /// told to stop), then sums up. How it ended is known only of a child.
    fn finish(mut self) -> Result<Option<End>> {
        let start = Line::Start(self.start_line());
        self.put(&start);
        let mut deadline = self.session.started_at() + self.arguments.interval;
        loop {
            let watched = match self.session.wait(deadline) {
                Ok(Turn::Over) => break,
                Ok(Turn::Interval) => self.interval(),
                Err(error) => Err(error),
            };
            match watched {
                // A program of ours goes on, and so do we.
                Ok(()) if self.output.is_broken && self.is_joined() => break,
                Ok(()) => deadline = session::next(deadline, self.arguments.interval),
                Err(error) if self.is_joined() => return Err(error),
                // A program of ours is waited for, and its status is passed on.
                Err(error) => {
                    let error = error.context("watching has ended early; the program goes on");
                    terminal::fail("observe", &error);
                    self.session.wait_for_end();
                    break;
                }
            }
        }
        let end = self.summary()?;
        self.output.outcome()?;
        Ok(end)
    }

    /// Writes a line. A program of ours runs on where that fails, and its status is what counts.
    fn put(&mut self, line: &Line) {
        self.output.put(line, &self.session);
        if !self.arguments.command.is_empty()
            && let Err(error) = self.output.outcome()
        {
            terminal::fail("observe", &error);
        }
    }

    fn is_joined(&self) -> bool {
        self.arguments.pid.is_some()
    }

    fn interval(&mut self) -> Result<()> {
        panic_if_told("look");
        let look = self.session.observer.observe()?;
        self.seen.history.add(&look.observation);
        add_newborn(&mut self.seen.previous.observation, &look.observation);
        let topology = &self.session.observer.machine().topology;
        let settings = UpdateSettings::default();
        let model =
            Model::update(topology, &self.seen.previous.observation, &look.observation, &settings);
        let sources = Sources {
            observer: &self.session.observer,
            first: &self.seen.first,
            previous: &self.seen.previous,
            look: &look,
            model: &model,
            pid: self.session.pid(),
        };
        let line = Line::Interval(Box::new(Interval::new(&sources)));
        self.put(&line);
        self.seen.previous = look;
        Ok(())
    }

    /// Sums up the run, and returns how it ended. A program of ours may lack the summary.
    fn summary(&mut self) -> Result<Option<End>> {
        // A process that has not been waited for still has its files.
        let look = self.session.observer.observe();
        let end = self.session.end()?;
        panic_if_told("summary");
        match look {
            Ok(look) => self.sum_up(look, end),
            Err(error) if self.is_joined() => return Err(error.into()),
            Err(error) => {
                let error = anyhow::Error::from(error).context("there is no summary");
                terminal::fail("observe", &error);
            }
        }
        Ok(end)
    }

    fn sum_up(&mut self, mut look: Look, end: Option<End>) {
        self.seen.history.add(&look.observation);
        look.observation = self.seen.history.whole(&look.observation);
        add_newborn(&mut self.seen.first.observation, &look.observation);
        let topology = &self.session.observer.machine().topology;
        let settings = UpdateSettings::default();
        let model =
            Model::update(topology, &self.seen.first.observation, &look.observation, &settings);
        let sources = Sources {
            observer: &self.session.observer,
            first: &self.seen.first,
            previous: &self.seen.first,
            look: &look,
            model: &model,
            pid: self.session.pid(),
        };
        let faults = self.session.observer.sampled() == Some(Kind::Faults);
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
            own_cpu_s: session::own_cpu_s(),
            first_touches: faults.then(|| self.session.observer.first_touches()),
            notes: self.notes(),
            whole: Interval::new(&sources),
        };
        self.put(&Line::Summary(Box::new(summary)));
    }
}
