//! A daemon with a folder of its own, and programs with names of their own.

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;
use std::time::Duration;

use rondpoint_linux::syscall::process::kill;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use serde_json::Value;
use tempfile::TempDir;

use crate::executable::install;
use crate::patience::comes;
use crate::worker::Worker;

const SIGHUP: i32 = 1;
const SIGTERM: i32 = 15;
/// Long enough for a machine that does ten other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A folder that other users may pass through.
pub(crate) fn folder() -> Rc<TempDir> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("ours");
    Rc::new(folder)
}

/// Ledgers in a folder.
pub(crate) fn ledgers_in(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder.join("ledgers")).into_iter().flatten().flatten();
    names.filter(|name| name.file_name().to_string_lossy().ends_with(".ledger")).count()
}

/// What names of this process's programs end with: the tests of another tree may run beside these.
pub(crate) fn mark() -> String {
    format!(".{:x}", std::process::id())
}

/// A program of this machine, by its name.
pub(crate) fn program(name: &str) -> PathBuf {
    let folders = std::env::var_os("PATH").expect("a path");
    let places = std::env::split_paths(&folders).map(|folder| folder.join(name));
    places.into_iter().find(|place| place.is_file()).expect("a usual program")
}

/// A program to be managed, by the name under which it is started; killed when dropped.
pub(crate) struct Program {
    child: Child,
    pub(crate) worker: Worker,
    _folder: TempDir,
}

impl Program {
    pub(crate) fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, ready) =
            (folder.path().join(format!("{name}{}", mark())), folder.path().join("ready"));
        std::os::unix::fs::symlink(std::env::current_exe().expect("this program"), &path)
            .expect("a link");
        let mut command = Command::new(path);
        command.arg("as-worker").arg(&ready).stdin(Stdio::null());
        let child = command.spawn().expect("it starts");
        let worker = Worker::named_in(ready);
        assert!(comes(PATIENCE, || worker.is_ready()), "the program does not begin");
        Self { child, worker, _folder: folder }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) success: bool,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// A program under `rondpoint run`.
pub(crate) struct Run {
    child: Child,
    pub(crate) worker: Worker,
    folder: TempDir,
}

impl Run {
    /// Kills the program, and its child that holds the output open. Returns what `run` says and
    /// reports.
    pub(crate) fn end(self) -> (Asked, String) {
        let Self { child, worker, folder } = self;
        drop(worker);
        let asked = Asked::of(child.wait_with_output().expect("ours"));
        let report = std::fs::read_to_string(folder.path().join("report"));
        (asked, report.expect("a report"))
    }
}

/// Becomes another program, which is refused perf_event_open(2).
pub(crate) fn without_counters(command: &[&str]) {
    const EACCES: u32 = 13;
    let arch = std::env::consts::ARCH.try_into().expect("an architecture of seccomp");
    let calls = [(perf_event_open(), Vec::new())].into_iter().collect();
    let (usual, refused) = (SeccompAction::Allow, SeccompAction::Errno(EACCES));
    let filter = SeccompFilter::new(calls, usual, refused, arch).expect("a filter");
    seccompiler::apply_filter(&BpfProgram::try_from(filter).expect("small")).expect("allowed");
    let error = Command::new(command[0]).args(&command[1..]).exec();
    panic!("{}: {error}", command[0]);
}

/// Number of perf_event_open(2).
fn perf_event_open() -> i64 {
    if cfg!(target_arch = "x86_64") { 298 } else { 241 }
}

/// Sends calls, and prints the reply in this place.
pub(crate) fn call(socket: &str, place: &str, calls: &[&str]) {
    let mut stream = UnixStream::connect(socket).expect("a daemon");
    let text: String = calls.iter().map(|call| format!("{call}\0")).collect();
    stream.write_all(text.as_bytes()).expect("it reads");
    let place = place.parse().expect("a number");
    let reply = std::io::BufReader::new(stream).split(0).nth(place).expect("it replies");
    println!("{}", String::from_utf8_lossy(&reply.expect("it replies")));
}

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    folder: Rc<TempDir>,
    notified: UnixDatagram,
}

impl Daemon {
    pub(crate) fn start(mode: &str, rules: &str) -> Self {
        Self::start_in(folder(), mode, rules)
    }

    /// Starts one, and waits until it says that it is ready.
    pub(crate) fn start_in(folder: Rc<TempDir>, mode: &str, rules: &str) -> Self {
        Self::start_as(Command::new(env!("CARGO_BIN_EXE_rondpoint")), folder, mode, rules)
    }

    /// The same, with this folder in the place of `/sys/kernel/mm`.
    pub(crate) fn start_beneath(kernel: &Path, mode: &str, rules: &str) -> Self {
        const MOUNT: &str = "mount --bind \"$0\" /sys/kernel/mm && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MOUNT]).arg(kernel);
        command.arg(env!("CARGO_BIN_EXE_rondpoint"));
        Self::start_as(command, folder(), mode, rules)
    }

    /// The same in a cgroup namespace of its own, as in a container that has the machine's tree of
    /// cgroups at `/sys/fs/cgroup`.
    pub(crate) fn start_contained(tree: &Path, group: &Path, mode: &str, rules: &str) -> Self {
        const CONTAIN: &str = "echo $$ > \"$1/cgroup.procs\" && shift \
             && mount --bind \"$0\" /sys/fs/cgroup && exec unshare --cgroup \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", CONTAIN]).args([tree, group]);
        command.arg(env!("CARGO_BIN_EXE_rondpoint"));
        Self::start_as(command, folder(), mode, rules)
    }

    fn start_as(mut command: Command, folder: Rc<TempDir>, mode: &str, rules: &str) -> Self {
        let at = |name: &str| folder.path().join(name);
        let _ = std::fs::remove_file(at("notify"));
        let notified = UnixDatagram::bind(at("notify")).expect("a socket");
        notified.set_read_timeout(Some(PATIENCE)).expect("ours");
        configure(folder.path(), mode, rules);
        let log = std::fs::File::create(at("log")).expect("a file");
        command.args(["daemon", "--config"]).arg(at("rondpoint.toml"));
        command.env("RUNTIME_DIRECTORY", at("ledgers")).env("NOTIFY_SOCKET", at("notify"));
        // The log is read from the file.
        command.env_remove("JOURNAL_STREAM");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("it starts");
        let daemon = Self { child, folder, notified };
        daemon.wait_until("READY=1");
        daemon
    }

    /// Waits until something holds.
    pub(crate) fn wait_for(&self, what: &str, holds: impl Fn() -> bool) {
        if !comes(PATIENCE, holds) {
            let status = self.ask(&["status", "--json"]);
            panic!("no sign of {what}; its log:\n{}\nits state:\n{status:?}", self.log());
        }
    }

    /// Waits for news of the daemon with this word, and returns them.
    pub(crate) fn wait_until(&self, word: &str) -> String {
        let mut bytes = [0; 1024];
        loop {
            let count = self.notified.recv(&mut bytes);
            let count = count.unwrap_or_else(|error| panic!("no {word}: {error}\n{}", self.log()));
            let news = String::from_utf8_lossy(&bytes[..count]);
            if news.contains(word) {
                return news.into_owned();
            }
        }
    }

    /// Makes room for the last word: the kernel keeps ten unread ones, and a daemon waits for no
    /// reader.
    fn read_old_news(&self) {
        self.notified.set_nonblocking(true).expect("ours");
        while self.notified.recv(&mut [0; 1024]).is_ok() {}
        self.notified.set_nonblocking(false).expect("ours");
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    pub(crate) fn log(&self) -> String {
        let mut text = String::new();
        let file = std::fs::File::open(self.folder.path().join("log"));
        file.and_then(|mut file| file.read_to_string(&mut text)).expect("a log");
        text
    }

    /// Its folder, to be looked at after its end.
    pub(crate) fn folder(&self) -> Rc<TempDir> {
        self.folder.clone()
    }

    /// What the daemon says of a process: `managed`, `watched` or `left`; `None` if nothing.
    pub(crate) fn state(&self, pid: u32) -> Option<String> {
        let found = self.process(pid)?;
        Some(found["state"].as_str().unwrap_or_default().to_string())
    }

    pub(crate) fn configure(&self, mode: &str, rules: &str) {
        configure(self.folder.path(), mode, rules);
    }

    pub(crate) fn ledgers(&self) -> usize {
        ledgers_in(self.folder.path())
    }

    /// What `rondpoint` says with these words.
    pub(crate) fn ask(&self, words: &[&str]) -> Asked {
        asked(self.command(words))
    }

    /// The same in a PID namespace of its own, as in a container. Only root may make one.
    pub(crate) fn ask_in_namespace(&self, words: &[&str]) -> Asked {
        let command = self.command(words);
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child"]).arg(command.get_program());
        unshare.args(command.get_args());
        asked(unshare)
    }

    /// A copy of a program: the build's folder may be closed to other users.
    fn copy(&self, program: &Path, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        if !copy.exists() {
            install(program, &copy);
        }
        copy
    }

    /// `rondpoint run` of a program by this name, as a user without the right to count.
    pub(crate) fn run_as(&self, user: u32, name: &str) -> Run {
        let own = std::env::current_exe().expect("this program");
        let test = self.copy(&own, "test");
        let worker = self.copy(&own, &format!("{name}{}", mark()));
        let rondpoint = self.copy(Path::new(env!("CARGO_BIN_EXE_rondpoint")), "rondpoint");
        let folder = tempfile::tempdir().expect("a folder");
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), all).expect("ours");
        let ready = folder.path().join("ready");
        let mut command = Command::new(test);
        command.arg("without-counters").arg(rondpoint).args(["run", "--socket"]);
        command.arg(self.socket()).arg("--report").arg(folder.path().join("report"));
        command.arg("--").arg(worker).arg("as-worker").arg(&ready);
        command.uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let worker = Worker::named_in(ready);
        self.wait_for("the program", || worker.is_ready());
        Run { child, worker, folder }
    }

    /// The same as another user.
    pub(crate) fn ask_as(&self, user: u32, words: &[&str]) -> Asked {
        self.ask_of((user, user), words)
    }

    /// The first reply to these calls, sent at once by a user.
    pub(crate) fn call_as(&self, user: u32, calls: &[Value]) -> Value {
        self.reply_to(user, calls, 0)
    }

    /// The reply in this place to a user's calls.
    pub(crate) fn reply_to(&self, user: u32, calls: &[Value], place: usize) -> Value {
        let own = std::env::current_exe().expect("this program");
        let mut command = Command::new(self.copy(&own, "test"));
        command.arg("call").arg(self.socket()).arg(place.to_string());
        command.args(calls.iter().map(Value::to_string));
        command.uid(user).gid(user);
        let asked = asked(command);
        serde_json::from_str(&asked.output).unwrap_or_else(|error| panic!("{error}: {asked:?}"))
    }

    /// As [`Self::ask_as`], of another group.
    pub(crate) fn ask_of(&self, (user, group): (u32, u32), words: &[&str]) -> Asked {
        let mut command =
            Command::new(self.copy(Path::new(env!("CARGO_BIN_EXE_rondpoint")), "rondpoint"));
        command.args(words).arg("--socket").arg(self.socket());
        command.uid(user).gid(group);
        asked(command)
    }

    /// As [`Self::ask_of`], with another group beside the user's own.
    pub(crate) fn ask_with(&self, (user, group): (u32, u32), words: &[&str]) -> Asked {
        let rondpoint = self.copy(Path::new(env!("CARGO_BIN_EXE_rondpoint")), "rondpoint");
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={user}")]);
        command.arg(format!("--groups={group}")).arg(rondpoint).args(words);
        command.arg("--socket").arg(self.socket());
        asked(command)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        command.args(words).arg("--socket").arg(self.socket());
        command
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let asked = self.ask(words);
        assert!(asked.success, "{asked:?}\n{}", self.log());
        serde_json::from_str(&asked.output).expect("JSON")
    }

    /// Whether it senses enough to act, by its first look. A user who may not count has a daemon
    /// that says why it changes nothing: that is tried instead.
    pub(crate) fn can_act(&self) -> bool {
        let sensor = || self.json(&["status", "--json"])["sensor"].clone();
        self.wait_for("a look", || sensor()["confidence"].as_f64() > Some(0.0));
        if sensor()["rung"] != "statistics" {
            return true;
        }
        println!("not tried further: this user may not count or sample here");
        let told = self.ask(&["status"]).output;
        let why = match self.json(&["status", "--json"])["paused"] == true {
            true => "is paused and changes nothing",
            false => "changes nothing, for it senses by kernel statistics",
        };
        assert!(told.contains(why), "{told}");
        assert!(told.contains("note: the kernel refuses performance events"), "{told}");
        false
    }

    /// What its state says of a process.
    pub(crate) fn process(&self, pid: u32) -> Option<Value> {
        let status = self.json(&["status", "--json"]);
        let processes = status["processes"].as_array().expect("a list").clone();
        processes.into_iter().find(|process| process["pid"] == pid)
    }

    pub(crate) fn hang_up(&self) {
        kill(self.child.id() as i32, SIGHUP).expect("ours");
    }

    /// Ends it in good order; its log.
    pub(crate) fn end(mut self) -> String {
        self.read_old_news();
        kill(self.child.id() as i32, SIGTERM).expect("ours");
        // News is read while the daemon ends: a full queue takes no more.
        self.wait_until("STOPPING=1");
        let status = self.child.wait().expect("ours");
        assert!(status.success(), "{status:?}\n{}", self.log());
        assert!(!self.socket().exists());
        self.log()
    }

    /// Ends it in no order.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("ours");
        self.child.wait().expect("ours");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configure(folder: &Path, mode: &str, rules: &str) {
    let socket = folder.join("control");
    let text =
        format!("mode = \"{mode}\"\n[control]\nsocket = \"{}\"\n\n\n\n{rules}", socket.display());
    std::fs::write(folder.join("rondpoint.toml"), text).expect("written");
}

fn asked(mut command: Command) -> Asked {
    Asked::of(command.stdin(Stdio::null()).output().expect("it starts"))
}

impl Asked {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            success: output.status.success(),
            output: text(output.stdout),
            errors: text(output.stderr),
        }
    }
}
