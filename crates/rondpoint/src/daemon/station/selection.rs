//! Applies the rules: begins and ends to manage processes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use rondpoint_core::{Nanos, Pid};
use rondpoint_linux::act::Identity;
use rondpoint_linux::ledger_file::LedgerFile;
use rondpoint_linux::root;

use super::super::census::{Known, Pace};
use super::super::rules::{Choice, Facts, Request, Rules};
use super::{Left, Managed, Station};
use crate::live::trees::Trees;
use crate::{others, session, terminal};

/// A process that is to be managed.
struct Wanted {
    process: Identity,
    facts: Facts,
    why: String,
    /// The more it uses, the sooner it has its turn.
    cpus: f64,
    /// CPUs that it would use without waiting for one, as the rules have it.
    wanted_cpus: f64,
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

/// Reasons to leave processes alone that come from outside the configuration.
#[derive(Debug)]
struct Others<'a> {
    /// Processes that could not be read, with the error.
    refused: &'a BTreeMap<Pid, String>,
    /// Processes whose memory DAMON moves, by the action of its scheme.
    damons: &'a BTreeMap<Pid, String>,
}

/// What is to become of a process, by the rules and by what stands against them.
fn judge(known: &Known, rules: &Rules, request: Option<Request>, others: &Others<'_>) -> Choice {
    let pid = known.identity.pid;
    if let Some(why) = never(known) {
        // Told to the client that asked for it.
        return request.map_or(Choice::Pass, |_| Choice::Leave(why.to_string()));
    }
    if let Some(error) = others.refused.get(&pid) {
        return Choice::Leave(format!("not readable: {error}"));
    }
    if let Some(action) = others.damons.get(&pid) {
        return Choice::Leave(format!("DAMON moves its memory ({action})"));
    }
    rules.choose(&known.facts, request)
}

/// Processes that no tree takes along: those that are left, and this daemon.
fn left_out(left: impl Iterator<Item = Pid>) -> BTreeSet<Pid> {
    left.chain([Pid(std::process::id())]).collect()
}

impl Station {
    /// Looks which processes are there, and gives and takes trees.
    pub(super) fn look_for_processes(&mut self, trees: &mut Trees) {
        let parents = self.census.look(&self.from, self.pace());
        self.parts.observer.tell_parents(&parents);
        let others = others::find(&self.from, self.commands());
        for other in others.iter().filter(|other| !self.others.contains(other)) {
            tracing::info!(kind = other.kind, pid = other.pid, "{}", other.what);
        }
        self.change(trees, |station| station.others = others);
        self.count_idle_looks();
        self.parts.board.borrow_mut().keep_tallies(|pid| self.census.get(pid).is_some());
        self.choose(trees);
        match self.parts.server.come_back() {
            Ok(false) => {}
            Ok(true) => tracing::warn!("the control socket had been removed and was made again"),
            Err(error) => {
                self.note(format!("the control socket was removed: {}", terminal::told(&error)));
            }
        }
    }

    pub(super) fn pace(&self) -> Pace {
        Pace { every: self.parts.config.look_every(), busy: self.parts.rules.min_cpus }
    }

    /// Every process by its command.
    fn commands(&self) -> impl Iterator<Item = (&str, Pid)> {
        self.census.iter().map(|one| (one.facts.command.as_str(), one.identity.pid))
    }

    /// A line for `systemctl status`.
    pub(super) fn tell_service_manager(&mut self) {
        let does = match (self.acts(), self.paused) {
            (true, _) => "managing",
            (false, true) => "paused, watching",
            (false, false) => "watching",
        };
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
            let others = Others { refused: &refused, damons: &damons };
            let choice = judge(&known, &self.parts.rules, self.request_of(&known), &others);
            let earlier = self.left.get(&pid).filter(|one| one.process == process);
            let is_followed = self.is_followed(pid);
            let is_of_tree = is_followed || earlier.is_some_and(|one| one.is_of_tree);
            match choice {
                Choice::Leave(why) => drop(left.insert(pid, Left { process, why, is_of_tree })),
                Choice::Take(why) if !is_followed || self.is_strangers(&known) => {
                    let cpus = known.facts.cpus.unwrap_or(0.0);
                    let wanted_cpus = known.facts.wanted_cpus.unwrap_or(0.0);
                    wanted.push(Wanted { process, facts: known.facts, why, cpus, wanted_cpus });
                }
                Choice::Pass if self.is_strangers(&known) => {
                    let why = "it belongs to another user than the one that asked for its tree";
                    left.insert(pid, Left { process, why: why.to_string(), is_of_tree });
                }
                Choice::Take(_) | Choice::Pass => {}
            }
        }
        self.leave(trees, &left);
        wanted.retain(|one| !left.contains_key(&one.process.pid));
        wanted.sort_by(|a, b| b.cpus.total_cmp(&a.cpus).then(a.process.cmp(&b.process)));
        let before = std::mem::replace(&mut self.left, left);
        let gave = self.those_without_place();
        for one in wanted {
            if let Err(error) = self.take(trees, &one) {
                let process = one.process;
                let why = match gave.get(&process) {
                    Some(why) => why.clone(),
                    None => terminal::told(&error),
                };
                // It is tried again at every look, and said once.
                if before.get(&process.pid).is_none_or(|known| known.why != why)
                    && let Some(untold) = self.may_tell(self.asker(process.pid))
                {
                    tracing::warn!(pid = process.pid.0, why, untold, "not managed");
                }
                self.left.insert(process.pid, Left { process, why, is_of_tree: false });
            }
        }
        self.leave_those_without_place();
        let roots: BTreeMap<Pid, Nanos> =
            self.roots.values().map(|one| (one.process.pid, one.process.started)).collect();
        self.parts.observer.follow(roots, left_out(self.left.keys().copied()));
        self.tell_service_manager();
    }

    /// The user without privilege that asked for a process, if one did.
    fn asker(&self, pid: Pid) -> Option<u32> {
        self.requests.get(pid).and_then(|asked| asked.owner)
    }

    /// Processes of which the rules could say something: the large, the managed with what they
    /// started, and those that clients asked for.
    fn interesting(&self) -> BTreeSet<Pid> {
        let large = self.census.iter().filter(|one| self.parts.rules.is_large(&one.facts));
        let mut all: BTreeSet<Pid> = large.map(|one| one.identity.pid).collect();
        all.extend(self.parts.observer.origins().keys());
        all.extend(self.roots.keys());
        all.extend(self.requests.pids());
        all.extend(self.left.keys());
        all
    }

    /// What was asked for a process. A request of root to leave one that it descends from prevails
    /// over what a user asked for it.
    fn request_of(&self, known: &Known) -> Option<Request> {
        let pid = known.identity.pid;
        let own = self.requests.get(pid).filter(|asked| asked.process == known.identity);
        let is_of_root = own.is_some_and(|asked| asked.owner.is_none());
        if !is_of_root && self.requests.is_left(self.census.ancestors(pid)) {
            return Some(Request::Leave);
        }
        own.map(|asked| asked.request)
    }

    /// Whether it is in a tree that a user without privilege asked for, and belongs to another one.
    fn is_strangers(&self, known: &Known) -> bool {
        let mut above = self.census.ancestors(known.identity.pid);
        let root = above.find(|one| self.roots.contains_key(one));
        // An orphan is still in the tree that it was born in.
        let born_in = || self.parts.observer.origins().get(&known.identity.pid).copied();
        let root = root.or_else(born_in);
        let asked = root.and_then(|root| self.requests.get(root));
        asked.and_then(|asked| asked.owner).is_some_and(|owner| owner != known.facts.user)
    }

    /// Whether a tree has it already, or will have it when it is no longer left alone.
    pub(super) fn is_followed(&self, pid: Pid) -> bool {
        self.parts.observer.origins().contains_key(&pid) || self.is_in_tree(pid)
    }

    /// Whether it is a root, or descends from one.
    pub(super) fn is_in_tree(&self, pid: Pid) -> bool {
        // A tree ends at a process that is left alone: what that process starts is judged by
        // itself.
        let ancestors = self.census.ancestors(pid);
        let mut above = ancestors.take_while(|one| !self.left.contains_key(one));
        self.roots.contains_key(&pid) || above.any(|one| self.roots.contains_key(&one))
    }

    /// Trees end when their root has ended and no other process is in them.
    fn drop_ended(&mut self, trees: &mut Trees) {
        let from = self.from.clone();
        // A process that cannot be read is not taken for ended.
        let lives = |process: Identity| process.lives(&from).unwrap_or(true);
        self.requests.keep(lives);
        // The process that a user asked for has ended. What it left may start programs of others,
        // so the rules decide on it.
        let is_over = |one: &&Managed| one.asker.is_some() && !lives(one.process);
        let over: Vec<Pid> =
            self.roots.values().filter(is_over).map(|one| one.process.pid).collect();
        for pid in over {
            self.drop_tree(trees, pid, "the process that its user asked for has ended");
        }
        for pid in self.requests.outlived(|pid| root::owner(&from, pid)) {
            self.requests.remove(pid);
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
        let mut over = Vec::new();
        for (pid, one) in &mut self.roots {
            let listed = self.census.get(*pid).filter(|known| known.identity == one.process);
            let clock = listed.and_then(|_| self.parts.observer.cpu_time(*pid));
            if clock.is_some() && clock == one.alive_at {
                continue;
            }
            if one.process.is_there(&from) {
                one.alive_at = clock;
            } else if !lives(*pid) {
                over.push(*pid);
            }
        }
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
        let is_asked = |pid: &&Pid| self.requests.get(**pid).is_some();
        let roots: Vec<Pid> = self.roots.keys().filter(|pid| !is_asked(pid)).copied().collect();
        for pid in roots {
            self.drop_unless_named(trees, pid, "the configuration does not name it");
        }
    }

    /// Ends a tree that the rules would not begin.
    pub(super) fn drop_unless_named(&mut self, trees: &mut Trees, root: Pid, why: &str) {
        let Some(managed) = self.roots.get(&root) else { return };
        let known = self.census.complete(&self.from, root);
        let known = known.filter(|known| known.identity == managed.process);
        if !self.parts.rules.keeps(known.map_or(&managed.facts, |known| &known.facts)) {
            self.drop_tree(trees, root, why);
        }
    }

    fn leave(&mut self, trees: &mut Trees, left: &BTreeMap<Pid, Left>) {
        for (pid, one) in left {
            if self.roots.contains_key(pid) {
                self.drop_tree(trees, *pid, &one.why);
            } else if let Some(root) = self.parts.observer.origins().get(pid) {
                let asker = self.roots.get(root).and_then(|root| root.asker);
                let restored = trees.release(one.process);
                if !self.left.contains_key(pid)
                    && let Some(untold) = self.may_tell(asker)
                {
                    tracing::info!(pid = pid.0, why = one.why, ?restored, untold, "left alone");
                }
            }
        }
    }

    pub(super) fn drop_tree(&mut self, trees: &mut Trees, root: Pid, why: &str) {
        let asker = self.roots.remove(&root).and_then(|one| one.asker);
        match trees.remove(root) {
            Ok(restored) => {
                if let Some(untold) = self.may_tell(asker) {
                    tracing::info!(pid = root.0, why, ?restored, untold, "no longer managed");
                }
            }
            Err(error) => {
                self.note(format!("process {root}: its ledger stays: {}", terminal::told(&error)));
            }
        }
    }

    fn take(&mut self, trees: &mut Trees, wanted: &Wanted) -> Result<()> {
        let process = wanted.process;
        let asker = self.asker(process.pid);
        // Strangers leave half of the places to others.
        if asker.is_some() {
            let is_asked = |pid: &&Pid| self.requests.is_of_its_owner(**pid);
            let asked = self.roots.keys().filter(is_asked).count();
            if asked >= self.parts.config.most_trees().div_ceil(2) {
                anyhow::bail!(
                    "{asked} processes are managed by request of their users ([manage] most)"
                );
            }
        }
        let giver = self.giver(wanted.wanted_cpus, asker)?;
        if self.parts.config.acts() {
            session::may_manage(&self.from, process.pid)?;
        }
        let claim = session::claim_of(&self.from, process)?;
        let ledger = LedgerFile::create_for(&self.parts.ledgers, &self.from, process.pid)?;
        let below = || self.heirs_below(process);
        let restored = trees.disinherit(below, self.census.ancestors(process.pid));
        if restored.refused > 0 {
            anyhow::bail!("it keeps CPUs that another managed process has been given");
        }
        let had_place = giver.and_then(|giver| self.give_place(trees, giver, process));
        trees.add(process.pid, ledger);
        if let Some(untold) = self.may_tell(asker) {
            tracing::info!(pid = process.pid.0, why = wanted.why, untold, "managed");
        }
        let why = wanted.why.clone();
        let managed = Managed {
            process,
            facts: wanted.facts.clone(),
            why,
            alive_at: None,
            idle_looks: 0,
            had_place,
            asker,
            _claim: claim,
        };
        for other in self.roots.values_mut() {
            other.had_place.take_if(|gave| gave.process == process);
        }
        self.roots.insert(process.pid, managed);
        Ok(())
    }

    /// A process and what descends from it, without what is left and what that started.
    fn heirs_below(&self, process: Identity) -> Vec<Identity> {
        let up_to_it = |pid| self.census.ancestors(pid).take_while(|up| *up != process.pid);
        let is_left = |pid: Pid| self.left.contains_key(&pid);
        let mut below = self.census.with_descendants(process);
        below.retain(|one| {
            one.pid == process.pid || !is_left(one.pid) && !up_to_it(one.pid).any(is_left)
        });
        below
    }

    /// Notes what a client asks for processes: for all of them, or for none. `owner` as in
    /// [`Requests::note`].
    ///
    /// # Errors
    /// There is no such process, it is not the owner's, or too much was asked.
    pub(super) fn request(
        &mut self,
        pids: &[u32],
        request: Request,
        owner: Option<u32>,
    ) -> Result<()> {
        let mut processes = Vec::new();
        for pid in pids.iter().map(|pid| Pid(*pid)) {
            let process = session::process_of(&self.from, pid)?;
            if owner.is_some_and(|user| root::owner(&self.from, pid) != Some(user)) {
                anyhow::bail!("process {pid}: it has ended");
            }
            processes.push(process);
        }
        self.requests.note(&processes, request, owner)?;
        for process in processes {
            if owner.is_none()
                && let Some(managed) = self.roots.get_mut(&process.pid)
            {
                managed.asker = None;
            }
            self.census.ask(&self.from, process.pid, self.pace());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rondpoint_linux::Root;

    use super::*;
    use crate::daemon::census::Census;

    /// `PF_KTHREAD` of include/linux/sched.h.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    const USUAL: u32 = 0;

    /// A process of a captured `/proc`, as the census knows it.
    fn known(pid: u32, flags: u32) -> Known {
        let folder = tempfile::tempdir().unwrap();
        let from = Root::captured(folder.path());
        let process = from.in_proc(pid.to_string());
        fs::create_dir_all(&process).unwrap();
        let line = format!(
            "{pid} (x) S 2 0 0 0 -1 {flags} 7 0 1 0 9 0 0 0 20 0 1 0 100 0 99 \
             0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0\n"
        );
        fs::write(process.join("stat"), line).unwrap();
        let pace = Pace { every: std::time::Duration::from_secs(1), busy: 0.0 };
        Census::default().ask(&from, Pid(pid), pace).unwrap().clone()
    }

    /// The usual rules name every process here.
    fn judged(known: &Known, request: Option<Request>) -> Choice {
        let none = BTreeMap::new();
        judge(known, &Rules::default(), request, &Others { refused: &none, damons: &none })
    }

    #[test]
    fn threads_of_the_kernel_are_never_managed() {
        assert_eq!(judged(&known(70, USUAL), None), Choice::Take("by its size".into()));
        let kernels = known(70, KERNEL_THREAD);
        assert_eq!(judged(&kernels, None), Choice::Pass);
        let why = "it is a thread of the kernel".to_string();
        assert_eq!(judged(&kernels, Some(Request::Manage)), Choice::Leave(why));
    }

    #[test]
    fn the_first_process_and_the_daemon_itself_are_never_managed() {
        for (pid, why) in
            [(1, "it is the first process"), (std::process::id(), "it is this daemon")]
        {
            assert_eq!(judged(&known(pid, USUAL), None), Choice::Pass, "{why}");
            let asked = judged(&known(pid, USUAL), Some(Request::Manage));
            assert_eq!(asked, Choice::Leave(why.into()));
        }
    }

    #[test]
    fn a_process_of_damon_and_one_that_is_not_readable_are_left_even_by_request() {
        let none = BTreeMap::new();
        let some = BTreeMap::from([(Pid(70), "migrate_hot".to_string())]);
        for (others, why) in [
            (Others { refused: &none, damons: &some }, "DAMON moves its memory (migrate_hot)"),
            (Others { refused: &some, damons: &none }, "not readable: migrate_hot"),
        ] {
            for request in [None, Some(Request::Manage)] {
                let choice = |pid| judge(&known(pid, USUAL), &Rules::default(), request, &others);
                assert_eq!(choice(70), Choice::Leave(why.into()));
                assert!(matches!(choice(71), Choice::Take(_)), "it is another process");
            }
        }
    }
}
