//! The daemon's wait between two looks. Meanwhile it scans for processes, answers requests, and
//! begins or ends to manage process trees.

mod answers;
mod factor;
mod losses;
mod measured;
mod namespace;
mod places;
mod remembered;
mod requests;
mod selection;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU64;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use rondpoint_core::{Nanos, Pid, Topology};
use rondpoint_linux::Root;
use rondpoint_linux::act::Identity;
use rondpoint_linux::claim::Claim;
use rondpoint_linux::observe::Observer;
use rondpoint_linux::syscall::signal;

use self::measured::Measured;
use self::remembered::{Memory, Remembered};
use self::requests::Requests;
use super::board::Shared;
use super::census::{self, Census};
use super::config::Config;
use super::http::Http;
use super::notify::Notify;
use super::own::Own;
use super::rules::{Choice, Facts, Request, Rules};
use crate::control::protocol::Other;
use crate::control::seldom::SeldomByUser;
use crate::control::server::Server;
use crate::live::Watched;
use crate::live::trees::Trees;
use crate::session::{self, Turn};
use crate::terminal;

/// Clients that watch get an answer no more often.
const BETWEEN_ANSWERS: Duration = Duration::from_millis(250);
/// Sentences that are kept for clients: some name a process, and processes come without end.
const MOST_PROBLEMS: usize = 32;
// Numbers of signal(7), the same on x86-64 and arm64.
const SIGHUP: i32 = 1;

/// A managed root.
struct Managed {
    process: Identity,
    /// What the rules knew when it was taken: it may end before its tree.
    facts: Facts,
    why: String,
    /// CPU time at which it was last found alive. A process that ends takes some.
    alive_at: Option<Nanos>,
    /// Looks in a row at which the tree was idle.
    idle_looks: u32,
    /// The process that gave its place to this one.
    had_place: Option<Left>,
    /// The user without privilege that asked for it.
    asker: Option<u32>,
    _claim: Claim,
}

/// A process that is left alone.
#[derive(Debug, Clone)]
struct Left {
    process: Identity,
    why: String,
    /// It was in a tree when it was left. What it had started may be in that tree still.
    is_of_tree: bool,
}

/// What the station is made of.
pub(super) struct Parts {
    pub(super) observer: Observer,
    pub(super) arriving: OwnedFd,
    pub(super) server: Server,
    pub(super) http: Option<Http>,
    pub(super) config: Config,
    pub(super) rules: Rules,
    pub(super) file: Option<PathBuf>,
    pub(super) ledgers: PathBuf,
    pub(super) board: Shared,
    pub(super) notify: Notify,
}

/// See the module.
pub(super) struct Station {
    parts: Parts,
    from: Root,
    topology: Topology,
    census: Census,
    roots: BTreeMap<Pid, Managed>,
    left: BTreeMap<Pid, Left>,
    requests: Requests,
    others: Vec<Other>,
    paused: bool,
    /// It was started to act: else it has given up what that needs.
    may_ever_act: bool,
    /// The group that may do what root may.
    group: Option<u32>,
    /// The decisions so far are not those of the settings of now.
    is_stale: bool,
    is_over: bool,
    next_look: Instant,
    /// The look that watching clients have seen, and when they were told.
    told: (u64, Instant),
    own: Own,
    measured: Measured,
    /// The last ones.
    problems: VecDeque<String>,
    /// The configuration of the start: some of it holds until the end.
    begun_with: Config,
    /// What is wrong in the file that was read last.
    mistake: Option<String>,
    /// Lines of the log that users cause.
    lines: SeldomByUser,
    memory: Memory,
    /// Why it began paused although nobody asked for that.
    damage: Option<String>,
}

impl Station {
    pub(super) fn new(parts: Parts, mut problems: Vec<String>) -> Self {
        let now = Instant::now();
        let (from, mut memory) = (Root::live(), Memory::new(&parts.ledgers));
        // Where that fails, writing fails later, and says why.
        let is_anothers = memory.own().is_ok_and(|is_own| !is_own);
        let mut read = memory.read();
        if is_anothers && let Ok(found) = &mut read {
            // A pause may be meant for this daemon, requests are the other's.
            found.requests.clear();
        }
        let (remembered, damage) = match read {
            Ok(remembered) => (remembered, None),
            Err(error) => {
                let told = terminal::told(&error);
                tracing::error!("the daemon begins paused, for it lost what was asked: {told}");
                (Remembered { paused: true, ..Remembered::default() }, Some(told))
            }
        };
        if is_anothers {
            let folder = parts.ledgers.display();
            problems.push(format!(
                "another daemon keeps its requests in {folder}: a pause and requests of this one \
                 end with it"
            ));
        }
        if remembered.paused && damage.is_none() {
            tracing::info!("the daemon begins paused, as it was told before: rondpoint resume");
        }
        Self {
            topology: parts.observer.machine().topology.clone(),
            census: Census::default(),
            roots: BTreeMap::new(),
            left: BTreeMap::new(),
            requests: Requests::of(remembered.requests, |one| one.lives(&from).unwrap_or(true)),
            from,
            others: Vec::new(),
            paused: remembered.paused,
            may_ever_act: parts.config.acts(),
            group: parts.config.control.group_number(),
            is_stale: false,
            is_over: false,
            next_look: now,
            told: (0, now),
            own: Own::new(),
            measured: Measured::default(),
            problems: problems.into(),
            begun_with: parts.config.clone(),
            mistake: None,
            lines: SeldomByUser::default(),
            memory,
            damage,
            parts,
        }
    }

    /// What watches.
    pub(super) fn observer_ref(&self) -> &Observer {
        &self.parts.observer
    }

    /// The configuration of now.
    pub(super) fn config(&self) -> &Config {
        &self.parts.config
    }

    /// Whether anything may be changed now.
    pub(super) fn acts(&self) -> bool {
        self.parts.config.acts() && self.may_ever_act && !self.paused && !self.has_rival()
    }

    fn has_rival(&self) -> bool {
        self.others.iter().any(crate::others::is_rival)
    }

    /// Whether the decisions so far are not those of the settings of now; asked once.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// A sentence for clients that ask for the state.
    pub(super) fn note(&mut self, text: String) {
        if !self.problems.contains(&text) {
            tracing::warn!("{text}");
            self.problems.push_back(text);
            if self.problems.len() > MOST_PROBLEMS {
                self.problems.pop_front();
            }
        }
    }

    /// Says to the service manager that all is ready, or that it ends.
    pub(super) fn notify(&mut self) -> &mut Notify {
        &mut self.parts.notify
    }

    /// Applies `change`. Where the daemon then begins or ceases to act, the masks that were given
    /// are taken back, and decisions begin anew.
    fn change(&mut self, trees: &mut Trees, change: impl FnOnce(&mut Self)) {
        let before = self.acts();
        change(self);
        if self.acts() != before {
            self.begin_anew(trees);
        }
        self.tell_service_manager();
    }

    /// Whether one more line of the log is told that this user causes, and how many were not told
    /// before it. `None` causes none at will.
    fn may_tell(&mut self, asker: Option<u32>) -> Option<Option<NonZeroU64>> {
        match asker {
            Some(user) => self.lines.tell(user, Instant::now()),
            None => Some(None),
        }
    }

    /// Writes a pause and the requests down for the next daemon. Returns a sentence where that
    /// fails.
    ///
    /// A damaged file stays as it is until somebody pauses or resumes: a later daemon begins paused
    /// for the same reason.
    fn remember(&mut self) -> Option<String> {
        if let Some(damage) = &self.damage {
            return Some(format!(
                "the next daemon will not know what was asked of this one: {damage}"
            ));
        }
        let requests = self.requests.all().copied().collect();
        let error = self.memory.write(Remembered { paused: self.paused, requests }).err()?;
        let why = terminal::told(&error);
        let text = format!("the next daemon will not know what was asked of this one: {why}");
        self.note(text.clone());
        Some(text)
    }

    pub(super) fn begin_anew(&mut self, trees: &mut Trees) {
        let restored = trees.begin_anew();
        tracing::info!(?restored, acts = self.acts(), "masks are taken back, decisions begin anew");
        self.parts.board.borrow_mut().forget_trials();
        self.is_stale = true;
    }

    /// What was asked by signal.
    fn signals(&mut self, trees: &mut Trees) -> Result<()> {
        while let Some(arrived) = signal::next(self.parts.arriving.as_fd())? {
            if arrived.number == SIGHUP {
                if let Err(error) = self.reload(trees) {
                    tracing::error!(
                        "the configuration stays as it was: {}",
                        terminal::told(&error)
                    );
                }
                continue;
            }
            tracing::info!(signal = arrived.number, "told to end");
            self.is_over = true;
        }
        Ok(())
    }

    /// How long no process needs us.
    fn nap(&self, deadline: Instant) -> Duration {
        let (looks, told) = self.told;
        if self.parts.server.has_work() {
            return Duration::ZERO;
        }
        let mut until = deadline.min(self.next_look);
        if self.parts.board.borrow().looks > looks && self.parts.server.has_watchers() {
            until = until.min(told + BETWEEN_ANSWERS);
        }
        let left = until.saturating_duration_since(Instant::now());
        self.parts.notify.patience().map_or(left, |patience| left.min(patience / 2))
    }

    /// Sleeps until a client or a process needs attention.
    fn sleep(&self, nap: Duration) -> Result<()> {
        let (mut readable, mut writable) = self.parts.server.descriptors();
        readable.push(self.parts.arriving.as_fd());
        if let Some((asking, answered)) = self.parts.http.as_ref().map(Http::descriptors) {
            readable.extend(asking);
            writable.extend(answered);
        }
        readable.extend(self.parts.observer.descriptors());
        let readable: Vec<BorrowedFd<'_>> = readable;
        signal::wait_ready(&readable, &writable, session::milliseconds(nap))?;
        Ok(())
    }
}

impl Watched for Station {
    fn observer(&mut self) -> &mut Observer {
        &mut self.parts.observer
    }

    fn wait(&mut self, trees: &mut Trees, deadline: Instant) -> Result<Turn> {
        self.sum_up_once();
        loop {
            // Even where no time is left to sleep: a daemon without CPU time can be ended too.
            self.signals(trees)?;
            self.parts.notify.alive();
            self.own.look();
            if Instant::now() >= self.next_look {
                self.look_for_processes(trees);
                self.next_look = Instant::now() + self.parts.config.look_every();
            }
            self.serve(trees);
            if self.is_over {
                return Ok(Turn::Over);
            }
            if Instant::now() >= deadline {
                return Ok(Turn::Interval);
            }
            self.sleep(self.nap(deadline))?;
            self.parts.observer.drain();
        }
    }

    fn may_act(&self) -> bool {
        self.acts()
    }

    /// The service manager ends a daemon that it does not hear of.
    fn is_called(&mut self) -> bool {
        self.parts.notify.alive();
        let arriving = signal::wait_readable(&[self.parts.arriving.as_fd()], 0);
        arriving.is_ok_and(|ready| ready.contains(&true))
    }

    /// A process may be new, or have another name, cgroup or owner, since the last look.
    fn may_change(&mut self, pid: Pid) -> bool {
        let mut one = pid;
        let mut users = BTreeSet::new();
        // An orphan is still in the tree that it was born in.
        let born_in = self.parts.observer.origins().get(&pid);
        let asker = born_in.and_then(|root| self.requests.get(*root)).and_then(|asked| asked.owner);
        for _ in 0..census::DEEPEST {
            let Ok(found) = self.census.names_now(&self.from, one) else { return false };
            let Some((parent, facts)) = found else { break };
            let is_root = self.roots.contains_key(&one);
            // A user may ask for trees of processes, and gets none of another user in them.
            users.extend((one == pid || is_root).then_some(facts.user));
            let owner = self.requests.get(one).filter(|_| is_root).and_then(|asked| asked.owner);
            let is_strangers =
                owner.or(asker).is_some_and(|owner| users.iter().any(|user| *user != owner));
            let asked = self.requests.is_left([one].into_iter()).then_some(Request::Leave);
            let is_left = matches!(self.parts.rules.choose(&facts, asked), Choice::Leave(_));
            if is_left || is_strangers {
                self.census.forget(if is_left { one } else { pid });
                self.next_look = Instant::now();
                return false;
            }
            // What started a managed program is none of its tree, nor is what takes in orphans.
            let is_of_tree = self.left.get(&parent).is_some_and(|left| left.is_of_tree);
            if is_root || !(is_of_tree || self.is_followed(parent)) {
                break;
            }
            one = parent;
        }
        true
    }
}
