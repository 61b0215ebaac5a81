//! Debian's Prometheus reads the metrics of a daemon and answers what the dashboard asks.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rondpoint_core::CpuSet;
use serde_json::Value;

use crate::fixture::{self, Daemon, PATIENCE, Program};
use crate::metrics::{free_port, get};
use crate::patience::comes;
use crate::rules;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// A server with its data in a folder; killed when dropped.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    /// Starts one that reads the metrics at a port once a second.
    fn start(folder: &Path, target: u16) -> Self {
        let (port, at) = (free_port(), |name: &str| folder.join(name));
        let scrapes = format!(
            "scrape_configs:\n  - job_name: rondpoint\n    scrape_interval: 1s\n    \
             static_configs:\n      - targets: [\"127.0.0.1:{target}\"]\n"
        );
        fs::write(at("prometheus.yml"), scrapes).expect("ours");
        let log = File::create(at("prometheus.log")).expect("ours");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", at("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", at("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { child: command.spawn().expect("it starts"), port }
    }

    /// Its whole answer to a query; `None` while it does not listen.
    fn ask(&self, query: &str) -> Option<Value> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
        let escaped: String = query
            .bytes()
            .map(|byte| match is_plain(&byte) {
                true => char::from(byte).to_string(),
                false => format!("%{byte:02X}"),
            })
            .collect();
        let answer = get(self.port, &format!("/api/v1/query?query={escaped}")).ok()?;
        let (_, text) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(text).ok()
    }

    /// Waits until its answer to a query has a series.
    fn comes_to_have(&self, query: &str) -> bool {
        comes(PATIENCE, || {
            // Each question is a connection.
            thread::sleep(PAUSE);
            let answer = self.ask(query).unwrap_or_default();
            answer["data"]["result"].as_array().is_some_and(|series| !series.is_empty())
        })
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the panels of the dashboard ask, of every instance.
fn dashboard() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana.json");
    let text = fs::read_to_string(path).expect("packaging/grafana.json");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions = targets.map(|target| target["expr"].as_str().expect("an expression"));
    expressions.map(|one| one.replace("$instance", ".*")).collect()
}

/// `promtool` finds nothing to say against the names, types and units. It reads the format of
/// Prometheus only, which the port gives to a scraper that does not ask for OpenMetrics.
fn check_names(port: u16) {
    let answer = get(port, "/metrics").expect("an open port");
    let (_, text) = answer.split_once("\r\n\r\n").expect("a head and a text");
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut check = command.stdout(Stdio::piped()).spawn().expect("it is beside prometheus");
    check.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = check.wait_with_output().expect("ours");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

pub(crate) fn reads_and_answers(_: &CpuSet) {
    if Command::new("prometheus").arg("--version").output().is_err() {
        println!("not tried: no prometheus here");
        return;
    }
    let port = free_port();
    let rules = format!("{}[metrics]\nlisten = \"127.0.0.1:{port}\"\n", rules());
    let daemon = Daemon::start("observe", &rules);
    let program = Program::start("wanted-p");
    daemon.wait_for("the program", || daemon.state(program.pid()).is_some());
    check_names(port);

    let folder = fixture::folder();
    let server = Prometheus::start(folder.path(), port);
    let log = || fs::read_to_string(folder.path().join("prometheus.log")).unwrap_or_default();
    assert!(server.comes_to_have("up == 1"), "{}", log());
    let expressions = dashboard();
    assert!(expressions.len() >= 25, "{expressions:?}");
    for expression in &expressions {
        let answer = server.ask(expression).expect("it runs");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
    }
    // What a daemon has on every machine. A rate takes two readings.
    let has_values = |expression: &&String| {
        let names = ["processes_watched{", "node_free_bytes{", "own_cpu_seconds_total{", "acts{"];
        names.iter().any(|name| expression.contains(&format!("rondpoint_{name}")))
    };
    let known: Vec<&String> = expressions.iter().filter(has_values).collect();
    assert_eq!(known.len(), 4, "{known:?}");
    for expression in known {
        assert!(server.comes_to_have(expression), "{expression}: no series\n{}", log());
    }
    daemon.end();
}
