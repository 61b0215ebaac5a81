//! A claim on a process: while it is held, no other Rondpoint of the machine manages it.
//!
//! A claim is a local socket with an abstract name (unix(7)) made of the process's number and start
//! time. The kernel removes it when its holder ends for any reason. All users can see it. A claim
//! counts only if root, this user or the owner of the process holds it. Each claim has several
//! names, so that another user who takes one prevents no claim. If the queue of a socket is full,
//! its holder is unknown; the claim then counts, and the process is left alone.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rondpoint_core::Pid;

use crate::act::Identity;
use crate::parse::stat;
use crate::root::{self, Root};
use crate::syscall::peer;
use crate::syscall::process::effective_user;

/// Most ancestors whose claims are checked: several times the depth of real process trees.
const ANCESTORS: usize = 64;

/// Names of a claim (our choice). A process of another user or in another PID namespace may have
/// bound some of them.
const NAMES: usize = 8;

/// A claim on a process. Dropping it ends the claim.
#[derive(Debug)]
pub struct Claim {
    _socket: Option<UnixListener>,
}

/// The manager of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The managed process: the one in question, or an ancestor of it.
    pub managed: Pid,
    /// Process number of the manager; `None` if it is not known.
    pub manager: Option<u32>,
}

/// Claims a process.
///
/// # Errors
/// Another Rondpoint manages it or one of its ancestors. Or other users have all names of the
/// claim.
pub fn claim(root: &Root, process: Identity) -> Result<Claim, Holder> {
    // The claim is made before the check, so that of two managers that begin together at least one
    // finds the other.
    let (mut socket, mut are_all_taken) = (None, true);
    for number in 0..NAMES {
        let bound = name(process, number).and_then(|name| UnixListener::bind_addr(&name));
        match bound {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if let Some(manager) = holder_of(root, process, number) {
                    return Err(Holder { managed: process.pid, manager });
                }
            }
            // Without sockets, as in some sandboxes, there are no claims.
            other => {
                are_all_taken = false;
                socket = other.ok().map(|listener| (number, listener));
                break;
            }
        }
    }
    let own = socket.as_ref().map(|(number, _)| *number);
    if let Some(manager) = holder(root, process, own) {
        return Err(Holder { managed: process.pid, manager });
    }
    for ancestor in ancestors(root, process.pid) {
        if let Some(manager) = holder(root, ancestor, None) {
            return Err(Holder { managed: ancestor.pid, manager });
        }
    }
    match are_all_taken {
        true => Err(Holder { managed: process.pid, manager: None }),
        false => Ok(Claim { _socket: socket.map(|(_, socket)| socket) }),
    }
}

fn name(process: Identity, number: usize) -> io::Result<SocketAddr> {
    let name = format!("rondpoint-manager-{}-{}", process.pid, process.started.0);
    SocketAddr::from_abstract_name(match number {
        0 => name,
        _ => format!("{name}-{number}"),
    })
}

/// The manager that holds a valid claim on a process, by any name except `own`.
fn holder(root: &Root, process: Identity, own: Option<usize>) -> Option<Option<u32>> {
    let names = (0..NAMES).filter(|number| Some(*number) != own);
    names.filter_map(|number| holder_of(root, process, number)).next()
}

/// The manager that holds a valid claim by one name; `Some(None)` if its number is not known. It
/// connects without waiting, because every user may make a socket of this name and fill its queue.
fn holder_of(root: &Root, process: Identity, number: usize) -> Option<Option<u32>> {
    let stream = match peer::connect_within(&name(process, number).ok()?, Duration::ZERO) {
        Ok(stream) => stream,
        Err(error) => return (error.kind() == io::ErrorKind::WouldBlock).then_some(None),
    };
    let (manager, user) = peer::credentials(stream.as_fd()).ok()?;
    let owner = root::owner(root, process.pid)?;
    // The kernel reports 0 for a manager in another PID namespace.
    let is_here = manager != 0;
    let counts = is_here && (user == 0 || user == owner || user == effective_user());
    counts.then_some(Some(manager))
}

/// The ancestors of a process, its parent first.
fn ancestors(root: &Root, pid: Pid) -> impl Iterator<Item = Identity> {
    let parent = |pid: Pid| {
        let bytes = root::read_optional(&root.in_proc(format!("{pid}/stat"))).ok()??;
        let parent = Pid(stat::parse(&bytes).ok()?.parent);
        Identity::of(root, parent)
    };
    let first = parent(pid);
    std::iter::successors(first, move |process| parent(process.pid)).take(ANCESTORS)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::sleeper::Sleeper;

    #[test]
    fn a_process_is_claimed_once_until_the_claim_ends() {
        let sleeper = Sleeper::start();
        let process = sleeper.identity();
        let root = Root::live();
        let held = claim(&root, process).expect("nobody manages it");
        let own = std::process::id();
        let refused = claim(&root, process).expect_err("it is managed");
        assert_eq!(refused, Holder { managed: process.pid, manager: Some(own) });
        drop(held);
        claim(&root, process).expect("the claim has ended");
    }

    #[test]
    fn a_claim_that_was_asked_about_often_holds_nobody_up_and_counts() {
        let sleeper = Sleeper::start();
        let process = sleeper.identity();
        let root = Root::live();
        let held = claim(&root, process).expect("nobody manages it");
        // Each question stays in the queue: somaxconn of them fit, 4,096 by default.
        let last = (0..1 << 17).find_map(|_| {
            let refused = claim(&root, process).expect_err("it is managed");
            refused.manager.is_none().then_some(refused)
        });
        assert_eq!(last, Some(Holder { managed: process.pid, manager: None }));
        drop(held);
    }

    #[test]
    fn what_a_managed_process_has_started_is_managed_with_it() {
        let root = Root::live();
        let own = Identity::of(&root, Pid(std::process::id())).expect("this process lives");
        let _held = claim(&root, own).expect("nobody manages it");
        let sleeper = Sleeper::start();
        let refused = claim(&root, sleeper.identity()).expect_err("its parent is managed");
        assert_eq!(refused.managed, own.pid);
    }

    /// No socket counts for a process without an owner, as none of another user does.
    #[test]
    fn a_stranger_with_the_name_of_a_claim_prevents_none() {
        let sleeper = Sleeper::start();
        let process = sleeper.identity();
        let folder = tempfile::tempdir().expect("a folder");
        let (strangers, root) = (Root::captured(folder.path()), Root::live());
        let taken = UnixListener::bind_addr(&name(process, 0).expect("short")).expect("free");
        let held = claim(&strangers, process).expect("the name counts for nothing");
        drop(taken);
        let own = std::process::id();
        let refused = claim(&root, process).expect_err("it is managed");
        assert_eq!(refused, Holder { managed: process.pid, manager: Some(own) });
        drop(held);
        let all: Vec<Claim> = (0..NAMES).filter_map(|_| claim(&strangers, process).ok()).collect();
        assert_eq!(all.len(), NAMES);
        let refused = claim(&strangers, process).expect_err("no name is left for a claim");
        assert_eq!(refused.manager, None);
    }

    /// What the test process in another PID namespace prints before the name of its socket.
    const NAMED: &str = "claims ";
    const IS_INSIDE: &str = "RONDPOINT_CLAIMS_INSIDE";

    /// Inside a PID namespace: waits until a process outside has bound the name, then claims.
    fn claim_a_taken_name() {
        let root = Root::live();
        let process = Identity::of(&root, Pid(std::process::id())).expect("this process lives");
        println!("\n{NAMED}rondpoint-manager-{}-{}", process.pid, process.started.0);
        io::stdin().read_line(&mut String::new()).expect("the outer process writes a line");
        let name = name(process, 0).expect("it is short");
        let taken = UnixListener::bind_addr(&name).expect_err("the outer process has it");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(claim(&root, process).is_ok(), "a manager outside names another process");
    }

    /// Process numbers and start times of two namespaces may be equal.
    #[test]
    fn a_claim_from_another_pid_namespace_is_about_another_process() {
        if std::env::var_os(IS_INSIDE).is_some() {
            return claim_a_taken_name();
        }
        let own = std::thread::current().name().expect("libtest names it").to_string();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--mount-proc", "--fork"]);
        command.arg("--kill-child").arg(std::env::current_exe().expect("this test"));
        command.args([own.as_str(), "--exact", "--nocapture"]).env(IS_INSIDE, "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut inside = command.spawn().expect("util-linux has unshare");
        let output = BufReader::new(inside.stdout.take().expect("piped"));
        let mut lines = output.lines().map_while(Result::ok);
        let Some(name) = lines.find_map(|line| line.strip_prefix(NAMED).map(str::to_owned)) else {
            let refused = !inside.wait().expect("ours").success();
            println!("not tried: this user may not make namespaces");
            return assert!(refused);
        };
        let address = SocketAddr::from_abstract_name(name).expect("it is short");
        let _held = UnixListener::bind_addr(&address).expect("the name is free");
        writeln!(inside.stdin.take().expect("piped")).expect("it reads");
        let said: Vec<String> = lines.collect();
        assert!(inside.wait().expect("ours").success(), "{said:#?}");
    }
}
