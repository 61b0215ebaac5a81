//! Clients that count processes otherwise than the daemon does.

use rondpoint_linux::{Root, root};

/// Whether a client is in another PID namespace than this daemon, as in a container: a number that
/// it names is another process here. `pid`: the client's number here; 0 if it has none.
///
/// A client that has ended is taken for one of this namespace.
pub(super) fn counts_otherwise(from: &Root, pid: u32) -> bool {
    let depth = |process: &str| depth(from, process);
    let is_deeper = || Some(depth(&pid.to_string())? > depth("self")?);
    pid == 0 || is_deeper().unwrap_or(false)
}

/// How many numbers a process has: one in each PID namespace from that of `/proc` to its own
/// (`NSpid` of proc_pid_status(5), Linux 4.1). `None` if the kernel does not tell.
fn depth(from: &Root, process: &str) -> Option<usize> {
    let status = root::read_optional(&from.in_proc(process).join("status")).ok()??;
    let status = String::from_utf8_lossy(&status);
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(numbers.split_whitespace().count())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_client_in_a_container_names_other_processes() {
        let folder = tempfile::tempdir().expect("a folder");
        let from = Root::captured(folder.path());
        for (process, status) in [
            ("self", "Name:\tx\nNSpid:\t40\t5\n"),
            ("41", "Name:\tx\nNSpid:\t41\t6\n"),
            ("42", "Name:\tNSpid: 1 1 1\nNSpid:\t42\t7\t1\n"),
            ("43", "Name:\told kernel\n"),
        ] {
            let process = from.in_proc(process);
            fs::create_dir_all(&process).expect("made");
            fs::write(process.join("status"), status).expect("written");
        }
        let found = [0, 41, 42, 43, 44].map(|pid| counts_otherwise(&from, pid));
        assert_eq!(found, [true, false, true, false, false]);
    }
}
