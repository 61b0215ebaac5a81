//! The metrics, and the sums for them that outlive processes.

use std::time::Instant;

use rondpoint_core::Pid;

use super::super::metrics::{self, Format, Groups, Name, Shown};
use super::Station;

/// What no other part of the daemon keeps.
#[derive(Debug, Default)]
pub(super) struct Measured {
    groups: Groups,
    /// The look after which the sums were made last.
    summed: Option<u64>,
    failed_looks: u64,
}

impl Station {
    /// Adds what was moved since the last call to the sums of the trees. It is called after each
    /// look: trees begin and end in the wait that follows, so each moved process is in its tree.
    pub(super) fn sum_up(&mut self) {
        let name_of = |pid: Pid| {
            let one = self.roots.get(&pid)?;
            let known = self.census.get(pid).filter(|known| known.identity == one.process)?;
            Some(match one.asker {
                // Users choose what they ask for, and its name.
                Some(_) => Name::other(),
                None => Name::of(&known.facts.command, known.facts.cgroup.as_deref()),
            })
        };
        self.measured.groups.follow(self.roots.keys().copied(), name_of, Instant::now());
        let moved = std::mem::take(&mut self.parts.board.borrow_mut().moved);
        for (pid, moved) in moved {
            let root = self.root_of(pid);
            self.measured.groups.add(root, moved);
        }
    }

    /// As [`Station::sum_up`], once for each look. Between two looks the daemon glances ten times a
    /// second, and nothing is moved.
    pub(super) fn sum_up_once(&mut self) {
        let looks = self.parts.board.borrow().looks;
        if self.measured.summed.replace(looks) != Some(looks) {
            self.sum_up();
        }
    }

    fn root_of(&self, pid: Pid) -> Option<Pid> {
        let is_root = self.roots.contains_key(&pid);
        is_root.then_some(pid).or_else(|| self.parts.observer.origins().get(&pid).copied())
    }

    /// One more look failed.
    pub(in super::super) fn count_failed_look(&mut self) {
        self.measured.failed_looks += 1;
    }

    /// The metrics of now.
    pub(super) fn metrics(&mut self, format: Format) -> String {
        self.sum_up();
        let shown = Shown {
            status: &self.status(None),
            groups: &self.measured.groups,
            places: self.parts.config.most_trees(),
            failed_looks: self.measured.failed_looks,
            failed_steps: &self.parts.board.borrow().failed_steps,
        };
        metrics::text(shown, format)
    }

    /// Gives the metrics to the clients of the port.
    pub(super) fn serve_metrics(&mut self) {
        let now = Instant::now();
        while let Some(format) = self.parts.http.as_mut().and_then(|http| http.turn(now)) {
            let text = self.metrics(format);
            self.parts.http.iter_mut().for_each(|http| http.give(format, text.clone(), now));
        }
    }
}
