//! Applies the rules: begins and ends to manage processes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use rondpoint_core::{Nanos, Pid};
use rondpoint_linux::act::Identity;
use rondpoint_linux::ledger_file::LedgerFile;
use rondpoint_linux::root;

use super::super::census::{Known, Pace};
use super::super::rules::{Choice, Request};
use super::{Asked, Left, Managed, Station};
use crate::live::trees::Trees;
use crate::{others, session, terminal};

/// Requests that are remembered; each is for a process that lives.
const MOST_REQUESTS: usize = 4_096;

/// A process that is to be managed.
struct Wanted {
    process: Identity,
    why: String,
    /// The more it uses, the sooner it has its turn.
    cpus: f64,
}

/// Why a process is never managed, whatever the rules say.
fn never(known: &Known) -> Option<&'static str> {
    match known.identity.pid.0 {
        _ if known.is_kernel_thread => Some("it is a thread of the kernel"),
        1 => Some("it is the first process"),
        pid if pid == std::process::id() => Some("it is this daemon"),
        _ => None,
    }
}

impl Station {
    /// Looks which processes are there, and gives and takes trees.
    pub(super) fn look_for_processes(&mut self, trees: &mut Trees) {
        self.census.look(&self.from, self.pace());
        let others = others::find(&self.from, self.commands());
        for other in others.iter().filter(|other| !self.others.contains(other)) {
            tracing::info!(kind = other.kind, pid = other.pid, "{}", other.what);
        }
        self.change(trees, |station| station.others = others);
        self.choose(trees);
        match self.parts.server.come_back() {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the control socket had been removed and was made again"),
            Err(error) => {
                self.note(format!("the control socket was removed: {}", terminal::told(&error)));
            }
        }
        self.tell_service_manager();
    }

    fn pace(&self) -> Pace {
        Pace { every: self.parts.config.look_every(), busy: self.parts.rules.min_cpus }
    }

    /// Every process by its command.
    fn commands(&self) -> impl Iterator<Item = (&str, Pid)> {
        self.census.iter().map(|one| (one.facts.command.as_str(), one.identity.pid))
    }

    /// A line for `systemctl status`.
    fn tell_service_manager(&mut self) {
        let does = if self.acts() { "managing" } else { "watching" };
        let (trees, left) = (self.roots.len(), self.left.len());
        let trees = match trees {
            1 => "1 process and what it starts".to_string(),
            several => format!("{several} processes and what they start"),
        };
        let line = format!("{does} {trees}, {left} left alone");
        self.parts.notify.status(line);
    }

    /// Carries out what the rules say of every process.
    pub(super) fn choose(&mut self, trees: &mut Trees) {
        self.drop_ended(trees);
        let refused = self.parts.observer.take_refused();
        let mut left: BTreeMap<Pid, Left> = BTreeMap::new();
        let mut wanted = Vec::new();
        let damons = others::moved_by_damon(&self.from);
        for pid in self.interesting() {
            let Some(known) = self.census.complete(&self.from, pid) else { continue };
            let known = known.clone();
            let process = known.identity;
            if let Some(why) = never(&known) {
                // Told to the client that asked for it.
                if self.requests.contains_key(&pid) {
                    left.insert(pid, Left { process, why: why.to_string() });
                }
                continue;
            }
            if let Some(error) = refused.get(&pid) {
                left.insert(pid, Left { process, why: format!("not readable: {error}") });
                continue;
            }
            if let Some(action) = damons.get(&pid) {
                left.insert(
                    pid,
                    Left { process, why: format!("DAMON moves its memory ({action})") },
                );
                continue;
            }
            let choice = self.parts.rules.choose(&known.facts, self.request_of(&known));
            match choice {
                Choice::Leave(why) => drop(left.insert(pid, Left { process, why })),
                Choice::Take(why) if !self.is_followed(pid) => {
                    let cpus = known.facts.cpus.unwrap_or(0.0);
                    wanted.push(Wanted { process, why, cpus });
                }
                Choice::Take(_) | Choice::Pass => {}
            }
        }
        self.leave(trees, &left);
        wanted.retain(|one| !left.contains_key(&one.process.pid));
        wanted.sort_by(|a, b| b.cpus.total_cmp(&a.cpus).then(a.process.cmp(&b.process)));
        let before = std::mem::replace(&mut self.left, left);
        for one in wanted {
            if let Err(error) = self.take(trees, &one) {
                let (process, why) = (one.process, terminal::told(&error));
                // It is tried again at every look, and said once.
                if before.get(&process.pid).is_none_or(|known| known.why != why) {
                    tracing::warn!(pid = process.pid.0, why, "not managed");
                }
                self.left.insert(process.pid, Left { process, why });
            }
        }
        let roots: BTreeMap<Pid, Nanos> =
            self.roots.values().map(|one| (one.process.pid, one.process.started)).collect();
        self.parts.observer.follow(roots, self.left.keys().copied().collect());
    }

    /// Processes of which the rules could say something: the large, the managed with what they
    /// started, and those that clients asked for.
    fn interesting(&self) -> BTreeSet<Pid> {
        let large = self.census.iter().filter(|one| self.parts.rules.is_large(&one.facts));
        let mut all: BTreeSet<Pid> = large.map(|one| one.identity.pid).collect();
        all.extend(self.parts.observer.origins().keys());
        all.extend(self.roots.keys());
        all.extend(self.requests.keys());
        all.extend(self.left.keys());
        all
    }

    /// What was asked for a process, or for one that it descends from.
    fn request_of(&self, known: &Known) -> Option<Request> {
        if let Some(asked) = self.requests.get(&known.identity.pid)
            && asked.process == known.identity
        {
            return Some(asked.request);
        }
        let is_left = |pid: &Pid| {
            let asked = self.requests.get(pid);
            asked.is_some_and(|asked| asked.request == Request::Leave)
        };
        self.census.ancestors(known.identity.pid).any(|pid| is_left(&pid)).then_some(Request::Leave)
    }

    /// Whether a tree has it already.
    fn is_followed(&self, pid: Pid) -> bool {
        // A tree ends at a process that is left alone: what that process starts is judged by
        // itself.
        let mut above = std::iter::once(pid)
            .chain(self.census.ancestors(pid))
            .take_while(|one| !self.left.contains_key(one));
        self.parts.observer.origins().contains_key(&pid)
            || above.any(|one| self.roots.contains_key(&one))
    }

    /// Trees end when their root has ended and no other process is in them.
    fn drop_ended(&mut self, trees: &mut Trees) {
        let from = self.from.clone();
        self.requests.retain(|_, asked| asked.process.is_there(&from));
        // After exec(2) of a set-user-ID file its user has no say.
        let is_over = |asked: &Asked| {
            asked.owner.is_some_and(|user| root::owner(&from, asked.process.pid) != Some(user))
        };
        let over: Vec<Pid> =
            self.requests.values().filter(|one| is_over(one)).map(|one| one.process.pid).collect();
        for pid in over {
            self.requests.remove(&pid);
            if self.roots.contains_key(&pid) {
                self.drop_tree(trees, pid, "it belongs to another user than the one that asked");
            }
        }
        // In a container whose first process reaps no orphan, ended processes stay in `/proc`.
        let origins = self.parts.observer.origins();
        let lives = |root: Pid| {
            let mut members = origins.iter().filter(|(_, of)| **of == root);
            members.any(|(pid, _)| Identity::of(&from, *pid).is_some())
        };
        let is_over = |one: &&Managed| !one.process.is_there(&from) && !lives(one.process.pid);
        let over: Vec<Pid> =
            self.roots.values().filter(is_over).map(|one| one.process.pid).collect();
        for pid in over {
            self.drop_tree(trees, pid, "it has ended");
        }
        // They are taken again with a new one, if that can be made.
        for pid in trees.without_ledger() {
            self.drop_tree(trees, pid, "its ledger was removed");
        }
    }

    /// Under new rules, trees end that the rules would not begin. The rest is chosen anew.
    pub(super) fn drop_unnamed(&mut self, trees: &mut Trees) {
        let is_asked = |pid: &&Pid| self.requests.contains_key(*pid);
        let roots: Vec<Pid> = self.roots.keys().filter(|pid| !is_asked(pid)).copied().collect();
        for pid in roots {
            let rules = &self.parts.rules;
            let known = self.census.complete(&self.from, pid);
            if known.is_some_and(|known| !rules.keeps(&known.facts)) {
                self.drop_tree(trees, pid, "the configuration does not name it");
            }
        }
    }

    fn leave(&mut self, trees: &mut Trees, left: &BTreeMap<Pid, Left>) {
        for (pid, one) in left {
            if self.roots.contains_key(pid) {
                self.drop_tree(trees, *pid, &one.why);
            } else if self.parts.observer.origins().contains_key(pid) {
                let restored = trees.release(one.process);
                if !self.left.contains_key(pid) {
                    tracing::info!(pid = pid.0, why = one.why, ?restored, "left alone");
                }
            }
        }
    }

    fn drop_tree(&mut self, trees: &mut Trees, root: Pid, why: &str) {
        self.roots.remove(&root);
        match trees.remove(root) {
            Ok(restored) => tracing::info!(pid = root.0, why, ?restored, "no longer managed"),
            Err(error) => {
                self.note(format!("process {root}: its ledger stays: {}", terminal::told(&error)));
            }
        }
    }

    fn take(&mut self, trees: &mut Trees, wanted: &Wanted) -> Result<()> {
        let process = wanted.process;
        if self.roots.len() >= self.parts.config.most_trees() {
            let most = self.parts.config.most_trees();
            anyhow::bail!("{most} processes are managed already ([manage] most)");
        }
        let is_asked = |pid: &Pid| self.requests.get(pid).is_some_and(|one| one.owner.is_some());
        let asked = self.roots.keys().filter(|pid| is_asked(pid)).count();
        // Strangers leave half of the places to others.
        if is_asked(&process.pid) && asked >= self.parts.config.most_trees().div_ceil(2) {
            anyhow::bail!(
                "{asked} processes are managed by request of their users ([manage] most)"
            );
        }
        let claim = session::claim_of(&self.from, process)?;
        if self.parts.config.acts() {
            session::may_move_pages_of(process.pid)?;
        }
        let ledger = LedgerFile::create_for(&self.parts.ledgers, &self.from, process.pid)?;
        trees.add(process.pid, ledger);
        tracing::info!(pid = process.pid.0, why = wanted.why, "managed");
        let managed = Managed { process, why: wanted.why.clone(), _claim: claim };
        self.roots.insert(process.pid, managed);
        Ok(())
    }

    /// Notes what a client asks for processes: for all of them, or for none. `owner` as in
    /// [`Asked`].
    ///
    /// # Errors
    /// There is no such process, it is not the owner's, or too much was asked.
    pub(super) fn request(
        &mut self,
        pids: &[u32],
        request: Request,
        owner: Option<u32>,
    ) -> Result<()> {
        let mut asked = BTreeMap::new();
        for pid in pids.iter().map(|pid| Pid(*pid)) {
            let process = session::process_of(&self.from, pid)?;
            if owner.is_some_and(|user| root::owner(&self.from, pid) != Some(user)) {
                anyhow::bail!("process {pid}: it has ended");
            }
            // What root asked before is more.
            let stays = |one: &Asked| one.process == process && one.owner.is_none();
            if owner.is_none() || !self.requests.get(&pid).is_some_and(stays) {
                asked.insert(pid, Asked { process, request, owner });
            }
        }
        // Strangers leave half of the room to root.
        let most = if owner.is_some() { MOST_REQUESTS / 2 } else { MOST_REQUESTS };
        let new = asked.keys().filter(|pid| !self.requests.contains_key(pid)).count();
        if self.requests.len() + new > most {
            anyhow::bail!("{most} requests are remembered already");
        }
        for pid in asked.keys() {
            self.census.ask(&self.from, *pid, self.pace());
        }
        self.requests.extend(asked);
        Ok(())
    }
}
