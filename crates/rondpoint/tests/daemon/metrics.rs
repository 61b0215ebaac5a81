//! The metrics of a daemon, by its socket and by its port.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use rondpoint_core::CpuSet;

use crate::fixture::{Daemon, Program, mark};
use crate::rules;

/// Values of the samples whose name and labels contain all of these words.
fn values(text: &str, words: &[&str]) -> Vec<f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let named = lines.filter(|line| words.iter().all(|word| line.contains(word)));
    named.map(|line| line.rsplit(' ').next().expect("a value").parse().expect("a number")).collect()
}

fn sum(text: &str, words: &[&str]) -> f64 {
    values(text, words).iter().sum()
}

/// A port of this machine that nothing listens at.
pub(crate) fn free_port() -> u16 {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    port.expect("a port").port()
}

/// What a server answers: its head and its text. HTTP/1.0 has no chunks, and the server closes.
///
/// # Errors
/// Nothing listens at the port.
pub(crate) fn get(port: u16, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Programs of one name are one series however many have come, and what was done for those that
/// have ended stays in it.
pub(crate) fn of_trees(_: &CpuSet) {
    const MOVED: &str = "tree_moved_threads_total{";
    let port = free_port();
    let rules = format!("{}[metrics]\nlisten = \"127.0.0.1:{port}\"\n", rules());
    let daemon = Daemon::start("act", &rules);
    let command = format!("command=\"wanted-m{}\"", mark());
    let metrics = || daemon.ask(&["status", "--metrics"]).output;
    let trees = || sum(&metrics(), &["rondpoint_trees{", &command]);
    let moved = || sum(&metrics(), &[MOVED, &command]);
    assert_eq!(values(&metrics(), &["rondpoint_numa_lost"]), Vec::<f64>::new(), "not measured");
    let mut before = 0.0;
    for count in 1..=3 {
        let program = Program::start("wanted-m");
        daemon.wait_for("its tree", || trees() == 1.0);
        if daemon.can_act() {
            daemon.wait_for("a move", || moved() > before);
        }
        drop(program);
        daemon.wait_for("its end", || trees() == 0.0);
        let text = metrics();
        assert_eq!(values(&text, &[MOVED, &command]).len(), 1, "after {count} programs: {text}");
        assert!(moved() >= before, "a counter went down: {text}");
        let all = sum(&text, &["rondpoint_thread_steps_total"]);
        assert_eq!(sum(&text, &[MOVED]), all, "sums of trees are the sum of all: {text}");
        before = moved();
    }
    let text = metrics();
    assert!(text.ends_with("\n# EOF\n") && !text.contains("pid="), "{text}");
    let answer = get(port, "/metrics").expect("an open port");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for name in ["rondpoint_looks_total ", "rondpoint_own_cpu_seconds_total ", "rondpoint_places "]
    {
        assert!(sum(&answer, &[name]) > 0.0, "{name}: {answer}");
    }
    daemon.end();
}
