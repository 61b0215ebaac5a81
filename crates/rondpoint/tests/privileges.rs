//! What running commands keep of their caller's privileges, read from `/proc/PID/status` and
//! compared with the table in `docs/safety.md`.

use std::collections::BTreeMap;
use std::io::Write;
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

fn status_of(pid: u32) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
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
        names.split(", ").fold(0, |mask, name| {
            let known = BITS.iter().find(|(known, _)| *known == name);
            mask | 1 << known.unwrap_or_else(|| panic!("no bit for {name:?}")).1
        })
    };
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            (cells[1].trim_matches('`').to_owned(), mask(cells[2]))
        })
        .collect()
}

/// Starts a command with an output that no process reads, so that it waits before its end. The
/// returned reader lets it end when dropped.
fn start(mut command: Command) -> (Child, std::io::PipeReader) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[b' '; PIPE_BYTES]).expect("room for so much");
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::null());
    (command.spawn().expect("the program starts"), reader)
}

/// The status of a command once its filter stands.
fn filtered_status(name: &str, child: &mut Child) -> BTreeMap<String, String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = status_of(child.id());
        if status.get("Seccomp").is_some_and(|mode| mode == "2") {
            return status;
        }
        let ended = child.try_wait().expect("ours");
        assert!(ended.is_none() && Instant::now() < deadline, "{name}: no filter: {ended:?}");
        std::thread::yield_now();
    }
}

#[test]
fn each_command_keeps_what_the_table_says() {
    let mut target = Command::new("sleep").arg("600").spawn().expect("sleep starts");
    let pid = target.id().to_string();
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
    let daemon = folder.path().join("daemon.toml").display().to_string();
    let socket = folder.path().join("control");
    // It may act, on programs of a name that none has.
    let text = format!(
        "mode = \"act\"\ncontrol.socket = \"{}\"\nmanage.commands = [\"no-such-program\"]\n",
        socket.display()
    );
    std::fs::write(&daemon, text).expect("written");
    let trace = file("fixtures/traces/carrefour.trace");
    let calibration = folder.path().join("calibration.toml").display().to_string();
    // Each with the row that holds for it.
    let commands: [(&str, Vec<&str>); 16] = [
        ("observe", vec!["observe", "--", "sleep", "600"]),
        ("observe", vec!["run", "--dry-run", "--", "sleep", "600"]),
        ("record", vec!["record", "-o", second, "--", "sleep", "600"]),
        ("run", vec!["run", "--", "sleep", "600"]),
        ("calibrate", vec!["calibrate", "-o", &calibration]),
        ("attach", vec!["attach", &pid]),
        ("daemon", vec!["daemon", "--config", &daemon]),
        ("restore", vec!["restore"]),
        ("topology", vec!["topology"]),
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
    let table = table();
    let own = capabilities(&status_of(std::process::id()), "CapEff");
    let named: Vec<&str> = commands.iter().map(|(row, _)| *row).collect();
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
        if *row == "daemon" {
            command.env("RUNTIME_DIRECTORY", folder.path().join("ledgers"));
        }
        let (mut child, reader) = start(command);
        let name = arguments.join(" ");
        let status = filtered_status(&name, &mut child);
        assert_eq!(status["NoNewPrivs"], "1", "{name}");
        for set in ["CapEff", "CapPrm"] {
            assert_eq!(capabilities(&status, set), own & table[*row], "{name}: {set}");
        }
        assert_eq!(capabilities(&status, "CapInh"), 0, "{name}");
        drop(reader);
        kill(child.id() as i32, SIGTERM).expect("ours");
        child.wait().expect("ours");
    }
    target.kill().expect("ours");
    target.wait().expect("it ends");
}
