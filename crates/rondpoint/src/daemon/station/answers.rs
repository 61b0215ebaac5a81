//! Answers to requests, by the rights of the user. Root and the configured group may do everything.
//! Other users see the machine and their own processes.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Result;
use rondpoint_core::Pid;
use rondpoint_linux::root;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::config::Config;
use super::super::metrics::Format;
use super::super::rules::Request;
use super::{BETWEEN_ANSWERS, Station, namespace};
use crate::control::protocol::{
    Call, INTERFACE, MetricsReply, Mode, NotesReply, PidRequest, PidsRequest, StatusReply,
    WatchReply, WatchRequest, WithdrawRequest, Withdrawn, method,
};
use crate::control::server::{Answer, Id, Peer, Refused, parameters};
use crate::live::trees::Trees;
use crate::{policies, terminal};

/// What the interface is, for `varlinkctl introspect`.
const DESCRIPTION: &str = include_str!("../../control/interface.varlink");
/// Processes that a user without privilege may have managed at a time. A user who asks for more
/// must not use up the places of others ([manage] most).
const MOST_OF_A_USER: usize = 8;
/// Characters of a client's words in one line of the log (our choice).
const MOST_TOLD: usize = 200;
/// Of every Varlink service.
const SERVICE: &str = "org.varlink.service";

/// The beginning of a text of a client, for the log.
fn cut(text: &str) -> &str {
    text.char_indices().nth(MOST_TOLD).map_or(text, |(end, _)| &text[..end])
}

impl Station {
    /// Answers all clients that have asked, and those that watch.
    pub(super) fn serve(&mut self, trees: &mut Trees) {
        for (id, peer, call) in self.parts.server.turn() {
            let method = cut(&call.method);
            tracing::debug!(user = peer.user, pid = peer.pid, method, "called");
            match self.parts.config_method(&call) {
                Some(method::WATCH) if call.more && !call.oneway => {
                    self.begin_watch(id, &peer, &call);
                }
                _ => {
                    let answer = self.answer(trees, &peer, &call);
                    if let Err(refused) = &answer
                        && let Some(untold) = self.may_tell(Some(peer.user))
                    {
                        let (user, pid, error) = (peer.user, peer.pid, &refused.error);
                        let why = cut(&refused.message);
                        tracing::warn!(user, pid, method, error, why, untold);
                    }
                    self.parts.server.answer(id, &call, answer);
                }
            }
        }
        self.tell_watchers();
        self.serve_metrics();
    }

    fn answer(&mut self, trees: &mut Trees, peer: &Peer, call: &Call) -> Answer {
        let (interface, name) = call.method.rsplit_once('.').unwrap_or(("", &call.method));
        if interface == SERVICE {
            return service(name, &call.parameters);
        }
        if interface != INTERFACE {
            let message = format!("there is no interface {interface} here");
            return Err(Refused::of_service("InterfaceNotFound", message));
        }
        match name {
            method::STATUS => {
                let status = self.status(self.only(peer));
                Ok(parameters(&StatusReply { status }))
            }
            method::WATCH => Ok(parameters(&self.watched(peer, read(call)?))),
            method::EXPLAIN => {
                let PidRequest { pid } = read(call)?;
                self.check_numbers(peer)?;
                Ok(parameters(&self.explain(Pid(pid), self.only(peer))?))
            }
            method::METRICS => {
                self.insist(peer, "read the metrics of all processes")?;
                let text = self.metrics(Format::OpenMetrics);
                Ok(parameters(&MetricsReply { text }))
            }
            method::PAUSE | method::RESUME => {
                self.insist(peer, "pause or resume the daemon")?;
                let pauses = name == method::PAUSE;
                tracing::info!(
                    user = peer.user,
                    pid = peer.pid,
                    pauses,
                    "asked to pause or resume"
                );
                self.change(trees, |station| station.paused = pauses);
                self.damage = None;
                let resting = self.why_not_acting().filter(|_| !pauses);
                let resting = resting.map(|why| format!("resumed, but nothing is changed {why}"));
                let notes = resting.into_iter().chain(self.remember()).collect();
                Ok(parameters(&NotesReply { notes }))
            }
            method::LEAVE => self.requested(trees, peer, call, Request::Leave),
            method::MANAGE => self.requested(trees, peer, call, Request::Manage),
            method::WITHDRAW => self.withdrawn(trees, peer, call),
            method::RELOAD => {
                self.insist(peer, "reload the configuration")?;
                let notes = self.reload(trees);
                let failed = |error| {
                    Refused::new(
                        "InvalidConfiguration",
                        format!("it stays as it was: {}", terminal::told(&error)),
                    )
                };
                Ok(parameters(&NotesReply { notes: notes.map_err(failed)? }))
            }
            _ => {
                let message = format!("there is no method {name} here");
                Err(Refused::of_service("MethodNotFound", message))
            }
        }
    }

    /// Why a daemon that is not paused changes nothing: `while numad (process 7) runs`. All that
    /// stands against it, for one reason may end before another.
    fn why_not_acting(&self) -> Option<String> {
        let config = &self.parts.config;
        let mut reasons = Vec::new();
        if config.mode == Mode::Observe {
            reasons.push("while the configuration says mode = \"observe\"".to_string());
        } else if !config.acts() {
            reasons.push("while the only policy is observe".to_string());
        } else if !self.may_ever_act {
            reasons
                .push("until the daemon is started anew: it began without mode = \"act\"".into());
        }
        for rival in self.others.iter().filter(|other| crate::others::is_rival(other)) {
            let process = rival.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
            reasons.push(format!("while {}{process} runs", rival.kind));
        }
        (!reasons.is_empty()).then(|| reasons.join(", and "))
    }

    fn requested(
        &mut self,
        trees: &mut Trees,
        peer: &Peer,
        call: &Call,
        request: Request,
    ) -> Answer {
        let PidsRequest { pids } = read(call)?;
        self.check_numbers(peer)?;
        let pids: BTreeSet<u32> = pids.into_iter().collect();
        let pids: Vec<u32> = pids.into_iter().collect();
        let owner = match request {
            Request::Manage if !self.is_privileged(peer) => {
                self.check_own(peer, &pids)?;
                Some(peer.user)
            }
            _ => {
                self.insist(peer, "say which processes are managed")?;
                None
            }
        };
        let refused = |error| Refused::new("NoSuchProcess", terminal::told(&error));
        let is_known =
            |pid: &u32| self.requests.get(Pid(*pid)).is_some_and(|asked| asked.request == request);
        let is_news = !pids.iter().all(is_known);
        self.request(&pids, request, owner).map_err(refused)?;
        // A user who asks the same again and again must not fill the log.
        if is_news && let Some(untold) = self.may_tell(owner) {
            tracing::info!(user = peer.user, by = peer.pid, ?pids, ?request, untold, "asked");
        }
        let unkept = self.remember();
        self.choose(trees);
        let left = |pid: &u32| Some((*pid, self.left.get(&Pid(*pid))?));
        let told =
            |(pid, left): (u32, &super::Left)| format!("process {pid} is left: {}", left.why);
        // `rondpoint run` takes a note on what it has managed for a refusal.
        let notes = match request {
            Request::Manage => pids.iter().filter_map(left).map(told).collect(),
            Request::Leave => unkept.into_iter().collect(),
        };
        Ok(parameters(&NotesReply { notes }))
    }

    /// Takes requests back. The rules then decide on the processes, as after a reload.
    fn withdrawn(&mut self, trees: &mut Trees, peer: &Peer, call: &Call) -> Answer {
        let WithdrawRequest { pids, request } = read(call)?;
        self.check_numbers(peer)?;
        let pids: BTreeSet<Pid> = pids.into_iter().map(Pid).collect();
        let request = match request {
            Withdrawn::Leave => Request::Leave,
            Withdrawn::Manage => Request::Manage,
        };
        let user = self.only(peer);
        let withdrawn = self.requests.withdraw(&pids, request, user);
        withdrawn.map_err(|error| Refused::new("NoSuchRequest", terminal::told(&error)))?;
        if let Some(untold) = self.may_tell(user) {
            tracing::info!(user = peer.user, by = peer.pid, ?pids, ?request, untold, "withdrawn");
        }
        for pid in pids.into_iter().filter(|_| request == Request::Manage) {
            self.drop_unless_named(trees, pid, "its request was withdrawn");
            self.keep_by_rules(pid);
        }
        let notes = self.remember().into_iter().collect();
        self.choose(trees);
        Ok(parameters(&NotesReply { notes }))
    }

    /// A tree that stays without its request follows the rules. It has their reason, and does not
    /// end with the process that a user asked for.
    fn keep_by_rules(&mut self, root: Pid) {
        let Some(managed) = self.roots.get_mut(&root) else { return };
        let known = self.census.get(root).filter(|known| known.identity == managed.process);
        let facts = known.map_or(&managed.facts, |known| &known.facts);
        if let Some(why) = self.parts.rules.reason(facts) {
            (managed.why, managed.asker) = (why, None);
        }
    }

    /// Numbers of processes are those of the daemon's PID namespace.
    fn check_numbers(&self, peer: &Peer) -> Result<(), Refused> {
        if !namespace::counts_otherwise(&self.from, peer.pid) {
            return Ok(());
        }
        let message = "this request comes from another PID namespace, where a number means another \
                       process: ask from outside of the container";
        Err(Refused::new("NotAllowed", message))
    }

    /// Every user may have a few processes managed, unless they were told to leave.
    fn check_own(&self, peer: &Peer, pids: &[u32]) -> Result<(), Refused> {
        let refused = |message| Err(Refused::new("NotAllowed", message));
        let (user, own) = (peer.user, |pid| root::owner(&self.from, pid) == Some(peer.user));
        let most = format!("user {user} may not have more than {MOST_OF_A_USER} processes managed");
        // Before any process is looked at, which takes time.
        if pids.len() > MOST_OF_A_USER {
            return refused(most);
        }
        if let Some(pid) = pids.iter().find(|pid| !own(Pid(**pid))) {
            return refused(format!(
                "user {user} may not have process {pid} managed: it is not his"
            ));
        }
        let with_ancestors = |pid: Pid| std::iter::once(pid).chain(self.census.ancestors(pid));
        let is_left = |pid: &&u32| self.requests.is_left(with_ancestors(Pid(**pid)));
        if let Some(pid) = pids.iter().find(is_left) {
            return refused(format!(
                "user {user} may not have process {pid} managed: it is to be left"
            ));
        }
        // What others asked for processes of this user is none of the user's requests.
        if self.requests.of_user_with(user, pids) > MOST_OF_A_USER {
            return refused(most);
        }
        Ok(())
    }

    /// Root, the daemon's own user and the group may do it.
    fn insist(&self, peer: &Peer, what: &str) -> Result<(), Refused> {
        if self.is_privileged(peer) {
            return Ok(());
        }
        let group = match self.parts.config.control.group.as_ref().filter(|_| self.group.is_some())
        {
            Some(group) => format!(" and the group {group}"),
            None => String::new(),
        };
        let message = format!("user {} may not {what}: only root{group} may", peer.user);
        Err(Refused::new("NotAllowed", message))
    }

    fn is_privileged(&self, peer: &Peer) -> bool {
        may_act(peer, rondpoint_linux::syscall::process::effective_user(), self.group)
    }

    /// A caller sees only this user's processes; `None` = all.
    fn only(&self, peer: &Peer) -> Option<u32> {
        (!self.is_privileged(peer)).then_some(peer.user)
    }

    fn watched(&self, peer: &Peer, request: WatchRequest) -> WatchReply {
        let only = self.only(peer);
        let status = self.status(only);
        let decisions = self.decisions(request.after.unwrap_or(0), only);
        WatchReply { status, decisions }
    }

    fn begin_watch(&mut self, id: Id, peer: &Peer, call: &Call) {
        match read(call) {
            Ok(request) => {
                let reply = self.watched(peer, request);
                let last = self.parts.board.borrow().last();
                self.parts.server.go_on(id, parameters(&reply), last);
            }
            Err(refused) => self.parts.server.answer(id, call, Err(refused)),
        }
    }

    /// Clients that watch are told of a new look, a few at a time.
    fn tell_watchers(&mut self) {
        let (looks, told) = self.told;
        let now = self.parts.board.borrow().looks;
        let is_due = now != looks && told.elapsed() >= BETWEEN_ANSWERS;
        // A new round would leave out those at the end of this one.
        if is_due && !self.parts.server.is_telling() {
            self.told = (now, Instant::now());
            self.parts.server.begin_to_tell();
        }
        for (id, peer, after) in self.parts.server.next_untold() {
            let reply = self.watched(&peer, WatchRequest { after: Some(after) });
            let last = self.parts.board.borrow().last();
            self.parts.server.go_on(id, parameters(&reply), last);
        }
    }

    /// Reads the configuration anew. What is managed and what was decided stays, unless policies,
    /// budgets or the mode are others now.
    ///
    /// # Errors
    /// The file is wrong: all stays as it was.
    pub(super) fn reload(&mut self, trees: &mut Trees) -> Result<Vec<String>> {
        self.parts.notify.reloading();
        let loaded = Config::load(self.parts.file.as_deref());
        let loaded = loaded.and_then(|config| Ok((config.rules()?, config)));
        self.parts.notify.ready();
        self.mistake = loaded.as_ref().err().map(terminal::told);
        let (rules, config) = loaded?;
        let old = std::mem::replace(&mut self.parts.config, config);
        let (new, begun) = (&self.parts.config, &self.begun_with);
        let mut notes = Vec::new();
        for (is_other, what) in [
            (begun.control.socket != new.control.socket, "[control] socket"),
            (begun.metrics != new.metrics, "[metrics] listen"),
            (begun.log != new.log, "[log] level"),
            (begun.map_lock() != new.map_lock(), "[budget] map_lock_ms"),
            (begun.policy.sensor != new.policy.sensor, "[policy] sensor"),
            (begun.policy.machine != new.policy.machine, "[policy] machine"),
            (begun.policy.calibration != new.policy.calibration, "[policy] calibration"),
        ] {
            if is_other {
                notes.push(format!("{what} takes effect when the daemon is started anew"));
            }
        }
        if new.acts() && !self.may_ever_act {
            notes.push("mode = \"act\" takes effect when the daemon is started anew".to_string());
        }
        let counted = |config: &Config| policies::thread_metrics(&config.policies());
        if counted(new) != counted(begun) {
            notes.push("the counters of threads change only when the daemon is restarted".into());
        }
        if new.freezes() && !begun.freezes() {
            notes.push("[budget] freeze takes effect when the daemon is started anew".to_string());
        }
        let decides_otherwise = old.budget != new.budget
            || old.policy.policies != new.policy.policies
            || old.policy.seed != new.policy.seed
            || old.acts() != new.acts();
        self.group = self.parts.config.control.group_number();
        self.parts.rules = rules;
        // Processes are due by the new pace too.
        let every = self.parts.config.look_every();
        self.next_look = self.next_look.min(Instant::now() + every);
        self.census.hurry(every);
        self.drop_unnamed(trees);
        tracing::info!(decides_otherwise, ?notes, "the configuration was read anew");
        if decides_otherwise {
            self.begin_anew(trees);
        }
        self.choose(trees);
        Ok(notes)
    }
}

/// Whether a client may do everything: root, the daemon's own user, and members of the group.
fn may_act(peer: &Peer, own: u32, group: Option<u32>) -> bool {
    let is_member = group.is_some_and(|group| peer.groups.contains(&group));
    peer.user == 0 || peer.user == own || is_member
}

impl super::Parts {
    /// The method that a call of our interface names.
    fn config_method<'a>(&self, call: &'a Call) -> Option<&'a str> {
        call.method.strip_prefix(INTERFACE)?.strip_prefix('.')
    }
}

fn read<T: DeserializeOwned>(call: &Call) -> Result<T, Refused> {
    let value = Value::Object(call.parameters.clone());
    serde_path_to_error::deserialize(value)
        .map_err(|error| Refused::of_service("InvalidParameter", error.to_string()))
}

/// The interface that every Varlink service has.
fn service(name: &str, given: &Map<String, Value>) -> Answer {
    let value = match name {
        "GetInfo" => serde_json::json!({
            "vendor": "Rondpoint",
            "product": "rondpoint daemon",
            "version": env!("CARGO_PKG_VERSION"),
            "url": "",
            "interfaces": [SERVICE, INTERFACE],
        }),
        "GetInterfaceDescription" if given.get("interface") == Some(&Value::from(INTERFACE)) => {
            serde_json::json!({ "description": DESCRIPTION })
        }
        "GetInterfaceDescription" => {
            let message = "only org.rondpoint.Daemon is described here";
            return Err(Refused::of_service("InterfaceNotFound", message));
        }
        _ => {
            let message = format!("there is no method {name} here");
            return Err(Refused::of_service("MethodNotFound", message));
        }
    };
    Ok(parameters(&value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_daemons_user_and_the_group_may_act_and_nobody_else() {
        const OWN: u32 = 990;
        let asks = |user, groups: &[u32], group| {
            let peer = Peer { pid: 1, user, groups: groups.to_vec() };
            may_act(&peer, OWN, group)
        };
        assert!(asks(0, &[], None) && asks(OWN, &[], None));
        assert!(asks(1000, &[1000, 27], Some(27)));
        assert!(!asks(1000, &[1000, 27], None), "without a group in the configuration");
        assert!(!asks(1000, &[1000], Some(27)));
        assert!(!asks(1000, &[0, OWN], Some(27)), "groups are no users");
        assert!(!asks(27, &[], Some(27)), "a user is no group");
    }
}
