//! A daemon that may not act: it is told to pause, or another manager has the process.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rondpoint_core::CpuSet;
use rondpoint_linux::syscall::process::{effective_user, kill};

use crate::executable::install;
use crate::fixture::{self, Daemon, PATIENCE, Program};
use crate::patience::comes;
use crate::{NOBODY, Sleepers, moved, rules};

const SIGTERM: i32 = 15;

/// Looks in which a daemon that acts has moved threads again and again.
const LOOKS: u64 = 20;

/// Waits while the daemon looks many times.
pub(crate) fn wait_for_looks(daemon: &Daemon) {
    let looks = || daemon.json(&["status", "--json"])["totals"]["looks"].as_u64().expect("looks");
    let before = looks();
    daemon.wait_for("looks", || looks() > before + LOOKS);
}

pub(crate) fn paused(own: &CpuSet) {
    let daemon = Daemon::start("act", &rules());
    let wanted = Program::start("wanted-a");
    if !daemon.can_act() {
        return;
    }
    daemon.wait_for("a move", || moved(&daemon, &wanted) > 0);
    assert!(daemon.ask(&["pause"]).success);
    let before = moved(&daemon, &wanted);
    wait_for_looks(&daemon);
    assert_eq!((wanted.worker.narrow_threads(own), moved(&daemon, &wanted)), (1, before));
    assert!(daemon.ask(&["resume"]).success);
    daemon.wait_for("a move", || moved(&daemon, &wanted) > before);
    daemon.end();
}

/// A scheme of DAMON as the kernel shows it (Documentation/admin-guide/mm/damon/usage.rst), in a
/// folder that is mounted over `/sys/kernel/mm`.
fn scheme(folder: &Path, pid: u32) {
    let write = |name: &str, text: &str| {
        let path = folder.join("damon/admin/kdamonds").join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    };
    write("nr_kdamonds", "1\n");
    write("0/state", "on\n");
    write("0/contexts/0/targets/0/pid_target", &format!("{pid}\n"));
    write("0/contexts/0/schemes/0/action", "migrate_hot\n");
}

pub(crate) fn damons(own: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root mounts");
        return;
    }
    let (target, other) = (Program::start("wanted-a"), Program::start("wanted-b"));
    let kernel = fixture::folder();
    scheme(kernel.path(), target.pid());
    let daemon = Daemon::start_beneath(kernel.path(), "act", &rules());
    if !daemon.can_act() {
        return;
    }
    daemon.wait_for("moves", || moved(&daemon, &other) > 2);
    let asked = daemon.ask(&["manage", &target.pid().to_string()]);
    assert!(asked.errors.contains("is left: DAMON moves its memory"), "{asked:?}");
    let left = daemon.process(target.pid()).expect("it is shown");
    assert_eq!(left["why"], "DAMON moves its memory (migrate_hot)");
    assert_eq!((target.worker.narrow_threads(own), moved(&daemon, &target)), (1, 0));
    std::fs::write(kernel.path().join("damon/admin/kdamonds/0/state"), "off\n").expect("ours");
    daemon.wait_for("a move", || moved(&daemon, &target) > 0);
    daemon.end();
}

/// `rondpoint attach`, which ends with the test.
struct Attach(Child);

impl Attach {
    /// Starts it, and waits until it has the process.
    fn to(pid: u32) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(["attach", "--policy", "shuffle", "--quiet", &pid.to_string()]);
        let attach = Self(command.stdin(Stdio::null()).spawn().expect("it starts"));
        let claim = format!("@rondpoint-manager-{pid}-");
        let sockets = || std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        assert!(comes(PATIENCE, || sockets().contains(&claim)), "no {claim}");
        attach
    }

    fn end(mut self) {
        kill(self.0.id() as i32, SIGTERM).expect("ours");
        let status = self.0.wait().expect("ours");
        assert!(status.success(), "{status:?}");
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn attached(own: &CpuSet) {
    let (held, other) = (Program::start("wanted-a"), Program::start("wanted-b"));
    let holder = Attach::to(held.pid());
    let daemon = Daemon::start("act", &rules());
    if !daemon.can_act() {
        return;
    }
    let expected = format!("rondpoint manages it already (process {})", holder.0.id());
    let told = || daemon.process(held.pid()).unwrap_or_default();
    let is_left = || {
        let found = told();
        found["state"] == "left" && found["why"].to_string().contains(&expected)
    };
    daemon.wait_for("the holder's number", is_left);
    let before = moved(&daemon, &other);
    daemon.wait_for("moves of another", || moved(&daemon, &other) > before + 2);
    wait_for_looks(&daemon);
    assert!(is_left(), "{}", told());
    assert_eq!((moved(&daemon, &held), daemon.ledgers()), (0, 1), "only the other is changed");
    assert!(comes(PATIENCE, || held.worker.narrow_threads(own) > 1), "its holder goes on");
    holder.end();
    daemon.wait_for("a move", || moved(&daemon, &held) > 0);
    daemon.end();
    assert_eq!(held.worker.narrow_threads(own), 1);
}

/// A user runs a set-user-ID program by the name of a manager. Root owns its folder in `/proc`, and
/// the kernel has the name that the user chose.
pub(crate) fn by_name(own: &CpuSet) {
    if effective_user() != 0 {
        println!("not tried: only root can become another user");
        return;
    }
    let folder = fixture::folder();
    let at = |name: &str| folder.path().join(name);
    install(fixture::program("sleep"), at("set-user-id"));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(at("set-user-id"), mode).expect("ours");
    std::os::unix::fs::symlink(at("set-user-id"), at("numad")).expect("a link");
    let link = at("numad");
    let named = Sleepers::of(&[link.to_str().expect("text"), "1000"], NOBODY);
    let process = Path::new("/proc").join(named.pid(0));
    let name = || std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    assert!(comes(PATIENCE, || name() == "numad\n"), "{:?}", name());
    assert_eq!(std::fs::metadata(&process).expect("it runs").uid(), 0, "by the set-user-ID");
    let daemon = Daemon::start("act", &rules());
    let wanted = Program::start("wanted-a");
    if !daemon.can_act() {
        return;
    }
    for _ in 0..2 {
        let before = moved(&daemon, &wanted);
        daemon.wait_for("moves", || moved(&daemon, &wanted) > before + 2);
    }
    let others = daemon.json(&["status", "--json"])["others"].to_string();
    assert!(!others.contains("numad"), "{others}");
    daemon.end();
    assert_eq!(wanted.worker.narrow_threads(own), 1);
}
