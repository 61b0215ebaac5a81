//! What clients asked for processes. A request of root prevails over one of the process's owner,
//! and users leave half of the room to root.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use rondpoint_core::Pid;
use rondpoint_linux::act::Identity;

use super::super::rules::Request;

/// Requests that are remembered; each is for a process that lives.
const MOST: usize = 4_096;
/// With so many requests remembered, users without privilege get no more.
const MOST_OF_USERS: usize = MOST / 2;

/// What a client asked for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) process: Identity,
    pub(super) request: Request,
    /// The client's user, if only its owner may ask this. The request ends with this right.
    pub(super) owner: Option<u32>,
}

/// All requests, one for each process.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_pid: BTreeMap<Pid, Asked>,
}

impl Requests {
    /// Those of an earlier daemon, as far as their processes live.
    pub(super) fn of(asked: Vec<Asked>, lives: impl Fn(Identity) -> bool) -> Self {
        let living = asked.into_iter().filter(|asked| lives(asked.process)).take(MOST);
        Self { by_pid: living.map(|asked| (asked.process.pid, asked)).collect() }
    }

    /// All of them, by number of the process.
    pub(super) fn all(&self) -> impl Iterator<Item = &Asked> {
        self.by_pid.values()
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&Asked> {
        self.by_pid.get(&pid)
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.by_pid.keys().copied()
    }

    /// Whether one of these processes is to be left.
    pub(super) fn is_left(&self, mut pids: impl Iterator<Item = Pid>) -> bool {
        pids.any(|pid| self.get(pid).is_some_and(|asked| asked.request == Request::Leave))
    }

    /// Whether a user without privilege asked for a process.
    pub(super) fn is_of_its_owner(&self, pid: Pid) -> bool {
        self.get(pid).is_some_and(|asked| asked.owner.is_some())
    }

    /// The processes that a user without privilege would have asked for together with `more`.
    pub(super) fn of_user_with(&self, user: u32, more: &[u32]) -> usize {
        let is_held = |pid: &Pid| self.get(*pid).is_some_and(|asked| asked.owner == Some(user));
        let held = self.pids().filter(is_held);
        held.chain(more.iter().copied().map(Pid)).collect::<BTreeSet<_>>().len()
    }

    /// Notes a request for all of these processes, or for none. A request of an `owner` leaves
    /// those of root as they are.
    ///
    /// # Errors
    /// Too much was asked.
    pub(super) fn note(
        &mut self,
        processes: &[Identity],
        request: Request,
        owner: Option<u32>,
    ) -> Result<()> {
        let is_roots = |process: Identity| {
            let known = self.get(process.pid);
            known.is_some_and(|known| known.process == process && known.owner.is_none())
        };
        let free = processes.iter().filter(|process| owner.is_none() || !is_roots(**process));
        let asked: BTreeMap<Pid, Asked> = free
            .map(|process| (process.pid, Asked { process: *process, request, owner }))
            .collect();
        let most = if owner.is_some() { MOST_OF_USERS } else { MOST };
        let new = asked.keys().filter(|pid| self.get(**pid).is_none()).count();
        if new > 0 && self.by_pid.len() + new > most {
            bail!("{most} requests are remembered already");
        }
        self.by_pid.extend(asked);
        Ok(())
    }

    /// Takes the requests of one kind for all of these processes back, or none. A user takes back
    /// only what this user asked.
    ///
    /// # Errors
    /// There is no such request for one of them.
    pub(super) fn withdraw(
        &mut self,
        pids: &BTreeSet<Pid>,
        request: Request,
        user: Option<u32>,
    ) -> Result<()> {
        let is_there = |pid: &&Pid| {
            let known = self.get(**pid).filter(|known| known.request == request);
            known.is_some_and(|known| user.is_none() || known.owner == user)
        };
        if let Some(pid) = pids.iter().find(|pid| !is_there(pid)) {
            let verb = match request {
                Request::Leave => "leave",
                Request::Manage => "manage",
            };
            let by = user.map_or(String::new(), |user| format!(" by user {user}"));
            bail!("process {pid}: no request to {verb} it was made{by}");
        }
        pids.iter().for_each(|pid| self.remove(*pid));
        Ok(())
    }

    pub(super) fn remove(&mut self, pid: Pid) {
        self.by_pid.remove(&pid);
    }

    /// Forgets the requests for processes that are gone.
    pub(super) fn keep(&mut self, lives: impl Fn(Identity) -> bool) {
        self.by_pid.retain(|_, asked| lives(asked.process));
    }

    /// Requests of users whose processes now have another owner. After exec(2) of a set-user-ID
    /// file the user has no say.
    pub(super) fn outlived(&self, owner_of: impl Fn(Pid) -> Option<u32>) -> Vec<Pid> {
        let is_over = |asked: &&Asked| {
            asked.owner.is_some_and(|user| owner_of(asked.process.pid) != Some(user))
        };
        self.by_pid.values().filter(is_over).map(|asked| asked.process.pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use rondpoint_core::Nanos;

    use super::*;

    const USER: u32 = 1000;

    fn processes(pids: std::ops::Range<u32>) -> Vec<Identity> {
        pids.map(|pid| Identity { pid: Pid(pid), started: Nanos(1) }).collect()
    }

    #[test]
    fn users_have_half_of_the_room_for_requests_and_root_has_all_of_it() {
        let mut requests = Requests::default();
        let full = "2048 requests are remembered already";
        for user in 0..256 {
            let pids = 10 + 8 * user..10 + 8 * (user + 1);
            requests.note(&processes(pids), Request::Manage, Some(USER + user)).unwrap();
        }
        let error = requests.note(&processes(9000..9001), Request::Manage, Some(7)).unwrap_err();
        assert_eq!(error.to_string(), full);
        requests.note(&processes(10..12), Request::Manage, Some(USER)).expect("they have places");
        requests.note(&processes(9000..9000 + 2047), Request::Leave, None).expect("root has room");
        let error = requests.note(&processes(20_000..20_002), Request::Leave, None).unwrap_err();
        assert_eq!(error.to_string(), "4096 requests are remembered already");
        assert_eq!(requests.pids().count(), 4095, "none of the two");
        requests.note(&processes(11..12), Request::Manage, Some(USER)).expect("it has a place");
        requests.note(&processes(20_000..20_001), Request::Leave, None).expect("the last place");
        requests.note(&processes(10..20), Request::Leave, None).expect("they have places");
        let error = requests.note(&processes(30_000..30_001), Request::Manage, None).unwrap_err();
        assert_eq!(error.to_string(), "4096 requests are remembered already");
        requests.keep(|process| process.pid != Pid(10));
        requests.note(&processes(30_000..30_001), Request::Manage, None).expect("one has ended");
    }

    #[test]
    fn a_request_of_a_user_never_replaces_one_of_root() {
        for of_root in [Request::Leave, Request::Manage] {
            let mut requests = Requests::default();
            requests.note(&processes(7..8), of_root, None).unwrap();
            requests.note(&processes(7..9), Request::Manage, Some(USER)).unwrap();
            let known = requests.get(Pid(7)).unwrap();
            assert_eq!((known.request, known.owner), (of_root, None));
            assert_eq!(requests.get(Pid(8)).unwrap().owner, Some(USER), "it is free");
            assert_eq!(requests.of_user_with(USER, &[]), 1, "root's is none of his eight");
            assert_eq!(requests.outlived(|_| None), [Pid(8)], "root's does not end");
            let later = Identity { pid: Pid(7), started: Nanos(2) };
            requests.note(&[later], Request::Manage, Some(USER)).unwrap();
            assert_eq!(requests.get(Pid(7)).unwrap().owner, Some(USER), "another process");
        }
    }

    #[test]
    fn a_request_is_withdrawn_by_its_kind_and_by_those_who_may() {
        let mut requests = Requests::default();
        requests.note(&processes(7..9), Request::Leave, None).unwrap();
        requests.note(&processes(9..10), Request::Manage, Some(USER)).unwrap();
        let mut withdraw = |pids: &[u32], request, user| {
            let pids = pids.iter().copied().map(Pid).collect();
            let told = requests.withdraw(&pids, request, user).map_err(|error| error.to_string());
            (told, requests.pids().map(|pid| pid.0).collect::<Vec<_>>())
        };
        let refused = |text: &str| (Err(format!("process {text}")), vec![7, 8, 9]);
        let none = "9: no request to leave it was made";
        assert_eq!(withdraw(&[7, 9], Request::Leave, None), refused(none), "none of the two");
        let none = "7: no request to leave it was made by user 1000";
        assert_eq!(withdraw(&[7], Request::Leave, Some(USER)), refused(none));
        let none = "9: no request to manage it was made by user 1001";
        assert_eq!(withdraw(&[9], Request::Manage, Some(USER + 1)), refused(none));
        assert_eq!(withdraw(&[9], Request::Manage, Some(USER)), (Ok(()), vec![7, 8]));
        assert_eq!(withdraw(&[7, 8], Request::Leave, None), (Ok(()), vec![]));
    }

    #[test]
    fn root_replaces_requests_of_users() {
        let mut requests = Requests::default();
        requests.note(&processes(7..8), Request::Manage, Some(USER)).unwrap();
        assert!(requests.is_of_its_owner(Pid(7)) && !requests.is_left([Pid(7)].into_iter()));
        requests.note(&processes(7..8), Request::Leave, None).unwrap();
        assert!(
            !requests.is_of_its_owner(Pid(7)) && requests.is_left([Pid(6), Pid(7)].into_iter())
        );
    }
}
