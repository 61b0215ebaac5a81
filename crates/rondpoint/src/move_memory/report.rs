//! The report of `rondpoint move`: text, or one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use rondpoint_core::plan::PageCounts;
use rondpoint_core::{Bytes, Nanos, Pid};
use rondpoint_linux::bulk::{End, Moved, Order};
use rondpoint_linux::freeze::{Means, Stood};
use serde::Serialize;

use crate::terminal;

const SCHEMA: u32 = 1;

/// What became of a target's processes. Of a unit or a cgroup all of it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Done {
    schema: u32,
    pub(super) processes: Vec<Report>,
    /// Processes whose memory could not be moved, which was said.
    failed: Vec<Failure>,
}

/// A process whose memory could not be moved.
#[derive(Debug, Serialize)]
struct Failure {
    pid: u32,
    error: String,
}

impl Default for Done {
    fn default() -> Self {
        Self { schema: SCHEMA, processes: Vec::new(), failed: Vec::new() }
    }
}

impl Done {
    /// Notes a process whose memory could not be moved.
    pub(super) fn fail(&mut self, pid: Pid, error: &anyhow::Error) {
        self.failed.push(Failure { pid: pid.0, error: terminal::told(error) });
    }

    /// One process as its report, a set in any case as an object with a list.
    ///
    /// # Errors
    /// None is known.
    pub(super) fn json(&self, is_set: bool) -> Result<String> {
        let text = match &self.processes[..] {
            [one] if !is_set => serde_json::to_string_pretty(one),
            _ => serde_json::to_string_pretty(self),
        };
        Ok(text? + "\n")
    }

    /// Whether all processes have their memory where it should be.
    pub(super) fn is_good(&self) -> bool {
        self.failed.is_empty() && self.processes.iter().all(Report::is_good)
    }
}

/// The report of one process. Pages are base pages of 4 KiB.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    pid: u32,
    /// From node to node, as the kernel numbers them.
    ways: BTreeMap<u32, u32>,
    /// Memory by node before, bytes.
    before: BTreeMap<u32, Bytes>,
    workers: usize,
    /// What lay on the source nodes, bytes.
    on_sources: Bytes,
    /// `complete`, `gone`, `stopped`, `refused`; `planned` where nothing was to be moved.
    end: &'static str,
    errno: Option<i32>,
    pages: PageCounts,
    /// Of those that failed: pages that other processes have mapped too.
    shared_pages: u64,
    /// Pages on nodes that are neither source nor target.
    elsewhere_pages: u64,
    untried_pages: u64,
    /// Of those that moved.
    huge_pages: u64,
    passes: u32,
    calls: u64,
    /// Of all workers together.
    in_calls_s: f64,
    longest_call_s: f64,
    elapsed_s: f64,
    bytes_per_s: Option<f64>,
    /// How long the process stood still for it.
    frozen_s: f64,
    /// `cgroup` or `signal`.
    frozen_by: Option<&'static str>,
    note: Option<String>,
    /// It could not be resumed, which the note says.
    #[serde(skip)]
    is_left: bool,
}

impl Report {
    pub(super) fn new(order: &Order, before: BTreeMap<u32, Bytes>, moved: &Moved) -> Self {
        let tally = &moved.tally;
        let (end, errno) = match moved.end {
            End::Complete => ("complete", None),
            End::Gone => ("gone", None),
            End::Cancelled => ("stopped", None),
            End::Refused { errno } => ("refused", Some(errno)),
        };
        let on_sources = order.ways.keys().filter_map(|node| before.get(node));
        let on_sources = on_sources.fold(Bytes(0), |sum, bytes| sum + *bytes);
        let bytes = tally.counts.moved as f64 * 4096.0;
        let elapsed_s = moved.elapsed.seconds();
        Self {
            schema: SCHEMA,
            pid: order.process.pid.0,
            ways: order.ways.clone(),
            before,
            on_sources,
            workers: order.workers.get(),
            end,
            errno,
            pages: tally.counts,
            shared_pages: tally.shared,
            elsewhere_pages: tally.elsewhere,
            untried_pages: tally.untried,
            huge_pages: tally.huge,
            passes: moved.passes,
            calls: tally.calls,
            in_calls_s: tally.in_calls.seconds(),
            longest_call_s: tally.longest_call.seconds(),
            elapsed_s,
            bytes_per_s: (elapsed_s > 0.0).then(|| bytes / elapsed_s),
            frozen_s: 0.0,
            frozen_by: None,
            note: None,
            is_left: false,
        }
    }

    /// Of a process that stood still meanwhile.
    pub(super) fn with(self, stood: Stood) -> Self {
        let by = |means| match means {
            Means::Cgroup => "cgroup",
            Means::Signal => "signal",
        };
        let (frozen_by, frozen_s) = (stood.means.map(by), stood.frozen.as_secs_f64());
        Self { frozen_s, frozen_by, note: stood.note, is_left: stood.is_left, ..self }
    }

    /// Of a move that was not begun: only planned, or stopped before.
    pub(super) fn planned(order: &Order, before: BTreeMap<u32, Bytes>, stopped: bool) -> Self {
        let end = if stopped { "stopped" } else { "planned" };
        Self { end, ..Self::new(order, before, &Moved::default()) }
    }

    /// What lay on the source nodes.
    pub(super) fn on_sources(&self) -> Bytes {
        self.on_sources
    }

    /// Whether everything lies where it should, or that was not asked for, and the process goes on.
    /// What others have mapped too (every program has such pages: its libraries) stays unless asked
    /// for.
    pub(super) fn is_good(&self) -> bool {
        let PageCounts { busy, no_memory, .. } = self.pages;
        let is_moved = self.end == "complete" && busy + no_memory + self.refused() == 0;
        !self.is_left && (self.end == "planned" || is_moved)
    }

    /// Pages that the kernel refused to move for another cause than that others have them too.
    fn refused(&self) -> u64 {
        self.pages.failed.saturating_sub(self.shared_pages)
    }

    pub(super) fn text(&self) -> String {
        let pages = &self.pages;
        let size = |pages: u64| Bytes(pages << 12);
        let mut text = String::new();
        let ways: Vec<String> = self.ways.iter().map(|(a, b)| format!("{a}→{b}")).collect();
        if self.end == "planned" {
            return format!("{}: {} would move {}\n", self.pid, self.on_sources, ways.join(" "));
        }
        let _ = write!(
            text,
            "{}: {} moved {} in {}",
            Pid(self.pid),
            size(pages.moved),
            ways.join(" "),
            seconds(self.elapsed_s)
        );
        if let Some(rate) = self.bytes_per_s.filter(|_| pages.moved > 0) {
            let _ = write!(text, ", {}/s", Bytes(rate as u64));
        }
        let _ = writeln!(
            text,
            " ({} workers, {} calls, {} in them, the longest {}; {} huge pages)",
            self.workers,
            self.calls,
            seconds(self.in_calls_s),
            seconds(self.longest_call_s),
            self.huge_pages
        );
        let parts = [
            (pages.in_place, "on the target nodes already"),
            (self.elsewhere_pages, "on other nodes, left there"),
            (pages.busy, "busy (pinned or being written)"),
            (pages.no_memory, "without memory on their target"),
            (self.shared_pages, "shared with other processes (--shared moves them)"),
            (self.refused(), "refused by the kernel"),
            (self.untried_pages, "not tried"),
        ];
        for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
            let _ = writeln!(text, "  {} {what}", size(count));
        }
        if let Some(by) = self.frozen_by {
            let _ = writeln!(text, "  stopped for {} (by {by})", seconds(self.frozen_s));
        }
        if let Some(note) = &self.note {
            let _ = writeln!(text, "  {note}");
        }
        let end = match self.end {
            "gone" => "  the process ended during the move".to_string(),
            "stopped" => "  stopped before the end".to_string(),
            "refused" => {
                let error = std::io::Error::from_raw_os_error(self.errno.unwrap_or(0));
                format!("  the kernel would not go on: {error}")
            }
            _ => return text,
        };
        text + &end + "\n"
    }
}

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * 1e9) as u64)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use expect_test::expect;
    use rondpoint_linux::act::Identity;
    use rondpoint_linux::bulk::Tally;
    use rondpoint_linux::syscall::pages::Reach;

    use super::*;

    fn report(end: End, failed: u64, shared: u64) -> Report {
        let order = Order {
            process: Identity { pid: Pid(7), started: Nanos(1) },
            ways: [(0, 1), (2, 3)].into(),
            reach: Reach::Own,
            workers: NonZeroUsize::new(4).expect("not 0"),
            limit: None,
            passes: 4,
        };
        let counts = PageCounts { moved: 25_600, in_place: 3, failed, ..PageCounts::default() };
        let tally = Tally {
            counts,
            shared,
            huge: 2,
            calls: 9,
            in_calls: Nanos(90_000_000),
            longest_call: Nanos(12_000_000),
            ..Tally::default()
        };
        let moved = Moved { tally, passes: 2, elapsed: Nanos(50_000_000), end };
        Report::new(&order, [(0, Bytes(104_857_600))].into(), &moved)
    }

    #[test]
    fn the_json_of_a_set_has_one_shape_and_that_of_one_process_is_its_report() {
        let shape = |processes: usize, failed: &[u32], is_set| {
            let mut done = Done::default();
            done.processes.extend((0..processes).map(|_| report(End::Complete, 0, 0)));
            failed.iter().for_each(|pid| done.fail(Pid(*pid), &anyhow::anyhow!("it is gone")));
            let json = done.json(is_set).expect("JSON");
            serde_json::from_str::<serde_json::Value>(&json).expect("JSON")
        };
        for processes in 0..3 {
            let found = shape(processes, &[8], true);
            assert_eq!(found["processes"].as_array().map(Vec::len), Some(processes));
            let expected = serde_json::json!([{"pid": 8, "error": "it is gone"}]);
            assert_eq!((&found["failed"], &found["schema"]), (&expected, &SCHEMA.into()));
        }
        let one = shape(1, &[], false);
        assert_eq!((&one["pid"], one.get("processes")), (&7.into(), None));
    }

    #[test]
    fn the_text_says_what_moved_and_what_did_not() {
        let good = report(End::Complete, 0, 0);
        assert!(good.is_good());
        expect![[r#"
            7: 100.0 MiB moved 0→1 2→3 in 50.0 ms, 2.0 GiB/s (4 workers, 9 calls, 90.0 ms in them, the longest 12.0 ms; 2 huge pages)
              12.0 KiB on the target nodes already
        "#]]
        .assert_eq(&good.text());
        assert!(report(End::Complete, 5, 5).is_good() && !report(End::Complete, 5, 4).is_good());
        let left = Stood { is_left: true, ..Stood::default() };
        assert!(!report(End::Complete, 0, 0).with(left).is_good(), "it stands still");
        let bad = report(End::Refused { errno: 1 }, 5, 5);
        assert!(!bad.is_good());
        expect![[r#"
            7: 100.0 MiB moved 0→1 2→3 in 50.0 ms, 2.0 GiB/s (4 workers, 9 calls, 90.0 ms in them, the longest 12.0 ms; 2 huge pages)
              12.0 KiB on the target nodes already
              20.0 KiB shared with other processes (--shared moves them)
              the kernel would not go on: Operation not permitted (os error 1)
        "#]]
        .assert_eq(&bad.text());
    }

    #[test]
    fn time_that_the_process_stood_still_is_told() {
        let stood = Stood {
            means: Some(Means::Signal),
            frozen: std::time::Duration::from_millis(48),
            note: Some("it went on before the end: why".to_string()),
            is_left: false,
        };
        expect![[r#"
            7: 100.0 MiB moved 0→1 2→3 in 50.0 ms, 2.0 GiB/s (4 workers, 9 calls, 90.0 ms in them, the longest 12.0 ms; 2 huge pages)
              12.0 KiB on the target nodes already
              stopped for 48.0 ms (by signal)
              it went on before the end: why
        "#]]
        .assert_eq(&report(End::Complete, 0, 0).with(stood).text());
    }

    #[test]
    fn the_object_has_every_outcome() {
        let value = serde_json::to_value(report(End::Gone, 0, 0)).expect("string keys");
        assert_eq!((&value["end"], &value["errno"]), (&"gone".into(), &().into()));
        assert_eq!(value["ways"]["0"], 1);
        assert_eq!(value["before"]["0"], 104_857_600);
        assert_eq!(value["pages"]["moved"], 25_600);
        assert_eq!(value["in_calls_s"], 0.09);
    }
}
