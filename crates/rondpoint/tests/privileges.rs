//! What running commands keep of their caller's privileges, read from `/proc/PID/status` and
//! compared with the table in `docs/safety.md`.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rondpoint_linux::syscall::process::kill;

#[path = "harness/nodes.rs"]
mod nodes;

const SIGTERM: i32 = 15;

/// Bits of the capabilities that the table names (include/uapi/linux/capability.h).
const BITS: [(&str, u32); 8] = [
    ("CHOWN", 0),
    ("DAC_OVERRIDE", 1),
    ("DAC_READ_SEARCH", 2),
    ("KILL", 5),
    ("IPC_LOCK", 14),
    ("SYS_PTRACE", 19),
    ("SYS_NICE", 23),
    ("PERFMON", 38),
];

/// Bytes that fill a pipe (pipe(7)): a process that writes one more waits.
const PIPE_BYTES: usize = 65_536;

/// Rows about a screen, which only a command in a terminal has.
const SCREENS: [&str; 2] = ["top", "top --replay"];
/// The row of all clients of the daemon.
const CLIENTS: &str = "status";

/// How long a command may take to its filter, and to its end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(60);

/// The fields of a file as `/proc/PID/status`; none of a process or thread that has ended.
fn status_of(path: &str) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn capabilities(status: &BTreeMap<String, String>, set: &str) -> u64 {
    u64::from_str_radix(&status[set], 16).expect("a mask in hexadecimal digits")
}

/// The rows of the table: a command and the mask of what it keeps.
fn table() -> BTreeMap<String, u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/safety.md");
    let text = std::fs::read_to_string(path).expect("docs/safety.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| command |")).skip(2);
    let mask = |names: &str| {
        names.split(", ").filter(|name| *name != "none").fold(0, |mask, name| {
            let known = BITS.iter().find(|(known, _)| *known == name);
            mask | 1 << known.unwrap_or_else(|| panic!("no bit for {name:?}")).1
        })
    };
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].replace('`', ""), mask(cells[2]))
        })
        .collect()
}

/// A command that waits before its end, because no process reads its output or writes its input.
/// When dropped it ends, and so does the program that it started.
struct Waiting {
    child: Child,
    output: Option<std::io::PipeReader>,
}

impl Waiting {
    fn start(mut command: Command) -> Self {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(&[b' '; PIPE_BYTES]).expect("room for so much");
        command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::null());
        Self { child: command.spawn().expect("the program starts"), output: Some(reader) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.output.take());
        // SIGTERM, as `run` passes no SIGKILL on to its program.
        let _ = kill(self.child.id() as i32, SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            std::thread::yield_now();
        }
    }
}

/// Waits until the filter of a command stands, then compares what each of its threads keeps.
fn check(name: &str, pid: u32, expected: u64) {
    let deadline = Instant::now() + PATIENCE;
    let has = |field: Option<&String>, value: &str| field.is_some_and(|found| found == value);
    // A container's filter is inherited: a command's own is one more.
    let filters = |status: &BTreeMap<String, String>| {
        status.get("Seccomp_filters").and_then(|count| count.parse::<u32>().ok())
    };
    let inherited = filters(&status_of("/proc/self/status"));
    loop {
        let status = status_of(&format!("/proc/{pid}/status"));
        let is_own = inherited.is_none() || filters(&status) > inherited;
        if has(status.get("Seccomp"), "2") && is_own {
            break;
        }
        let is_there = !status.is_empty() && !status["State"].starts_with('Z');
        assert!(is_there && Instant::now() < deadline, "{name}: no filter: {status:?}");
        std::thread::yield_now();
    }
    let mut threads = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).expect("it waits") {
        let path = thread.expect("listed").path().join("status");
        let status = status_of(path.to_str().expect("text"));
        // A thread may have ended meanwhile.
        if status.is_empty() {
            continue;
        }
        threads += 1;
        let one = format!("{name}, thread {}", status["Pid"]);
        let modes = (status["NoNewPrivs"].as_str(), status["Seccomp"].as_str());
        assert_eq!(modes, ("1", "2"), "{one}");
        for (set, wanted) in [("CapEff", expected), ("CapPrm", expected), ("CapInh", 0)] {
            assert_eq!(capabilities(&status, set), wanted, "{one}: {set}");
        }
    }
    assert!(threads > 0, "{name}: no thread");
}

/// Writes the configuration of a daemon that may act, on programs of a name that none has. Returns
/// its path.
fn of_daemon(folder: &Path, name: &str, more: &str) -> String {
    let (file, socket) = (folder.join(name), folder.join("control"));
    let (socket, commands) = (socket.display(), "manage.commands = [\"no-such-program\"]");
    let text = format!("mode = \"act\"\ncontrol.socket = \"{socket}\"\n{commands}\n{more}");
    std::fs::write(&file, text).expect("written");
    file.display().to_string()
}

/// Capabilities of this test, of which no command has more.
fn own() -> u64 {
    capabilities(&status_of("/proc/self/status"), "CapEff")
}

#[test]
fn each_command_keeps_what_the_table_says() {
    let mut sleep = Command::new("sleep");
    sleep.arg("600");
    let target = Waiting::start(sleep);
    let pid = target.child.id().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    let record = record.to_str().expect("text");
    let recorded = Command::new(env!("CARGO_BIN_EXE_rondpoint"))
        .args(["record", "-o", record, "--", "sleep", "0.3"])
        .output()
        .expect("it starts");
    assert!(recorded.status.success(), "{recorded:?}");
    let second = folder.path().join("second");
    let second = second.to_str().expect("text");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = |name: &str| manifest.join("../..").join(name).display().to_string();
    let model = file("fixtures/models/read-shared.json");
    let machine = file("machines/carrefour-a.toml");
    let daemon = of_daemon(folder.path(), "daemon.toml", "");
    let freezing = of_daemon(folder.path(), "freezing.toml", "budget.freeze = true\n");
    let trace = file("fixtures/traces/carrefour.trace");
    let calibration = folder.path().join("calibration.toml").display().to_string();
    // Each with the row that holds for it.
    let commands: [(&str, Vec<&str>); 20] = [
        ("observe", vec!["observe", "--", "sleep", "600"]),
        ("observe", vec!["run", "--dry-run", "--", "sleep", "600"]),
        ("record", vec!["record", "-o", second, "--", "sleep", "600"]),
        ("run", vec!["run", "--", "sleep", "600"]),
        ("calibrate", vec!["calibrate", "-o", &calibration]),
        ("attach", vec!["attach", &pid]),
        ("daemon", vec!["daemon", "--config", &daemon]),
        ("daemon with freeze = true", vec!["daemon", "--config", &freezing]),
        ("restore", vec!["restore"]),
        ("topology", vec!["topology"]),
        ("topology --measure", vec!["topology", "--measure"]),
        ("weights", vec!["weights", "--calibration", "-"]),
        ("weights", vec!["weights", "--apply", "--calibration", "-"]),
        (
            "decide",
            vec!["decide", "--machine", &machine, "--model", &model, "--policy", "carrefour"],
        ),
        ("decide", vec!["whatif", &trace, "--place", "interleave"]),
        ("decide", vec!["advise", "-w", "1"]),
        ("replay", vec!["replay", record]),
        ("explain", vec!["explain", record]),
        ("report", vec!["report", record, "--json"]),
        ("move", vec!["move", "--pid", &pid, "--from", "1", "--to", "0", "--dry-run"]),
    ];
    let (table, own) = (table(), own());
    let named: Vec<&str> = commands.iter().map(|(row, _)| *row).collect();
    let others = [CLIENTS].into_iter().chain(SCREENS);
    let named = [named, others.collect()].concat();
    assert!(table.keys().all(|row| named.contains(&row.as_str())), "{table:?}");
    let nodes = nodes::two_nodes();
    for (row, arguments) in &commands {
        let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
        let mut command = match (&nodes, *row) {
            (Some(nodes), "move") => nodes::namespace(nodes.path()),
            (None, "move") => continue,
            _ => Command::new("env"),
        };
        command.arg(rondpoint).args(arguments);
        if row.starts_with("daemon") {
            command.env("RUNTIME_DIRECTORY", folder.path().join("ledgers"));
        }
        let waiting = Waiting::start(command);
        check(&arguments.join(" "), waiting.child.id(), own & table[*row]);
    }
}

#[test]
fn a_client_of_the_daemon_keeps_nothing_when_it_reads_the_answer() {
    let table = table();
    let folder = tempfile::tempdir().expect("a folder");
    // Takes connections and never answers.
    let socket = folder.path().join("control");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    let commands: [&[&str]; 8] = [
        &["status"],
        &["pause"],
        &["resume"],
        &["reload"],
        &["leave", "1"],
        &["leave", "--withdraw", "1"],
        &["manage", "1"],
        &["explain", "1"],
    ];
    for arguments in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rondpoint"));
        // No file there has a number as its name.
        command.current_dir(folder.path()).args(arguments).arg("--socket").arg(&socket);
        let waiting = Waiting::start(command);
        check(&arguments.join(" "), waiting.child.id(), own() & table[CLIENTS]);
    }
}

/// A tmux of this test, whose terminals end with it.
struct Tmux(tempfile::TempDir);

impl Tmux {
    /// What tmux says to a command; `None` where there is no tmux.
    fn say(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").args(["-u", "-f", "/dev/null", "-S"]);
        command.arg(self.0.path().join("tmux"));
        let output = command.args(arguments).stdin(Stdio::null()).output().ok()?;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        Some(String::from_utf8(output.stdout).expect("text").trim().to_string())
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let socket = self.0.path().join("tmux");
        let _ = Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output();
    }
}

#[test]
fn a_screen_keeps_what_the_table_says() {
    let table = table();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/carrefour.trace");
    let rondpoint = env!("CARGO_BIN_EXE_rondpoint");
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("control");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    let named = vec!["top", "--socket", socket.to_str().expect("text")];
    let recording = vec!["top", "--replay", trace];
    let [live, with_file] = SCREENS;
    for (row, arguments) in [(live, vec!["top"]), (with_file, recording), (with_file, named)] {
        let tmux = Tmux(tempfile::tempdir().expect("a folder"));
        // Without a shell, so that the terminal's process is the command.
        let begin = ["new-session", "-d", "-x", "80", "-y", "24", "-P", "-F", "#{pane_pid}"];
        let Some(pid) = tmux.say(&[&begin[..], &[rondpoint], arguments.as_slice()].concat()) else {
            println!("not tried: no tmux here");
            return;
        };
        check(row, pid.parse().expect("a number"), own() & table[row]);
    }
}
