//! Progress of a long step on standard error: a bar on a terminal, a line every few seconds in a
//! log.
//!
//! Standard output stays free for results. `xtask` shares this file.
//!
//! ```text
//! fetching packages  [========>               ] 57 of 142 MB, about 12 s left
//! ```

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Pause between two lines in a log.
const LOG_PAUSE: Duration = Duration::from_secs(15);
/// Pause between two drawings of the bar.
const BAR_PAUSE: Duration = Duration::from_millis(200);
/// Columns of the bar itself.
const BAR_COLUMNS: u64 = 24;
/// A forecast is shown after this time and this share of the work.
const FORECAST_AFTER: Duration = Duration::from_secs(3);
const FORECAST_SHARE: f64 = 0.03;
/// Shorter steps end without a line.
const WORTH_A_LINE: Duration = Duration::from_secs(2);

/// What the work is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes, shown as MB.
    Bytes,
    /// Things with a name in the plural, such as `crates`.
    Pieces(&'static str),
}

/// One long step.
#[derive(Debug)]
pub(crate) struct Progress {
    title: String,
    unit: Unit,
    /// The whole of the work in units; 0 where it is not known.
    total: u64,
    done: u64,
    started: Instant,
    /// When `done` last changed, from the start.
    advanced: Duration,
    shown: Instant,
    bar: bool,
    /// Time goes with this power of the share that is done.
    power: i32,
}

impl Progress {
    /// A step that begins now. `total` is 0 where it is not known yet.
    pub(crate) fn new(title: &str, unit: Unit, total: u64) -> Self {
        let draws = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        let now = Instant::now();
        Self {
            title: title.to_owned(),
            unit,
            total,
            done: 0,
            started: now,
            advanced: Duration::ZERO,
            shown: now,
            bar: draws && std::io::stderr().is_terminal(),
            power: 1,
        }
    }

    /// The same step with pieces that grow: the last ones take most of the time, as the last crates
    /// of a build do. With the fourth power, forecasts of our builds were right within a factor of
    /// two.
    pub(crate) fn growing(self) -> Self {
        Self { power: 4, ..self }
    }

    /// The same step as lines only, for one of several that share the terminal.
    pub(crate) fn without_bar(self) -> Self {
        Self { bar: false, ..self }
    }

    /// Takes note of `done` of `total` units, and shows nothing.
    pub(crate) fn advance(&mut self, done: u64, total: u64) {
        if self.done != done {
            self.advanced = self.started.elapsed();
        }
        (self.done, self.total) = (done, total);
    }

    /// Takes note of `done` of `total` units, and shows them if the last line is old enough.
    pub(crate) fn at(&mut self, done: u64, total: u64) {
        self.advance(done, total);
        let pause = if self.bar { BAR_PAUSE } else { LOG_PAUSE };
        if self.shown.elapsed() >= pause {
            self.show();
        }
    }

    /// Shows the passing of time where the work itself reports nothing.
    pub(crate) fn tick(&mut self) {
        self.at(self.done, self.total);
    }

    /// Prints a line that stays above the bar.
    pub(crate) fn tell(&mut self, line: &str) {
        self.clear();
        // Progress is for people: a closed terminal stops no work.
        let _ = writeln!(std::io::stderr(), "{line}");
        self.shown = Instant::now();
        if self.bar {
            self.show();
        }
    }

    /// Ends the step with one line that says what it took, unless it took a moment only.
    pub(crate) fn finish(self) {
        self.clear();
        let elapsed = self.started.elapsed();
        if elapsed >= WORTH_A_LINE {
            let _ = writeln!(std::io::stderr(), "{}", self.last_line(elapsed));
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        if self.bar {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// The time that is left, if the rest of the work goes on at the mean speed so far.
    pub(crate) fn forecast(&self) -> Option<String> {
        self.forecast_at(self.started.elapsed())
    }

    fn forecast_at(&self, elapsed: Duration) -> Option<String> {
        let waited = elapsed.saturating_sub(self.advanced).as_secs_f64();
        let share = (self.done as f64 / self.total as f64).powi(self.power);
        let seconds = seconds_left(share, self.advanced)? - waited;
        // A piece that takes longer than the forecast proves the forecast wrong.
        (seconds > 0.0).then(|| format!("about {} left", rough(seconds)))
    }

    fn show(&mut self) {
        let line = self.line(self.started.elapsed());
        let _ = match self.bar {
            true => write!(std::io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(std::io::stderr(), "{line}"),
        };
        let _ = std::io::stderr().flush();
        self.shown = Instant::now();
    }

    /// The line to show after `elapsed`.
    fn line(&self, elapsed: Duration) -> String {
        let mut line = self.title.clone();
        if self.bar && self.total > 0 {
            let filled = (BAR_COLUMNS * self.done.min(self.total) / self.total) as usize;
            let _ = write!(line, "  [{:<24}] ", "=".repeat(filled));
        } else {
            line.push_str(": ");
        }
        if self.done > 0 || self.total > 0 {
            let total = Some(self.total).filter(|total| *total > 0);
            line.push_str(&amount(self.unit, self.done, total));
            line.push_str(", ");
        }
        let so_far = || format!("{} so far", rough(elapsed.as_secs_f64()));
        line.push_str(&self.forecast_at(elapsed).unwrap_or_else(so_far));
        line
    }

    fn last_line(&self, elapsed: Duration) -> String {
        let took = rough(elapsed.as_secs_f64());
        match self.done {
            0 => format!("{}: {took}", self.title),
            done => format!("{}: {} in {took}", self.title, amount(self.unit, done, None)),
        }
    }
}

/// `57 of 142 MB`, `3 of 20 runs`, or without the whole where that is not known.
fn amount(unit: Unit, done: u64, total: Option<u64>) -> String {
    let (scale, name) = match unit {
        Unit::Bytes => (1e6, "MB"),
        Unit::Pieces(name) => (1.0, name),
    };
    let scaled = |number: u64| format!("{:.0}", number as f64 / scale);
    let of = total.map(|total| format!(" of {}", scaled(total))).unwrap_or_default();
    format!("{}{of} {name}", scaled(done))
}

/// Seconds that the rest takes where `elapsed` went into a share of the work. `None` where it is
/// too early to say, and without a share.
fn seconds_left(share: f64, elapsed: Duration) -> Option<f64> {
    let known = share.is_finite() && share >= FORECAST_SHARE && elapsed >= FORECAST_AFTER;
    known.then(|| (elapsed.as_secs_f64() * (1.0 - share) / share).max(0.0))
}

/// A duration as people say it: seconds below 90, then minutes.
pub(crate) fn rough(seconds: f64) -> String {
    if seconds < 90.0 {
        format!("{:.0} s", seconds.max(1.0))
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(bar: bool, unit: Unit, done: u64, total: u64) -> Progress {
        let mut step = Progress::new("fetching", unit, total).without_bar();
        step.advance(done, total);
        Progress { bar, ..step }
    }

    #[track_caller]
    fn check(step: Progress, seconds: u64, expected: &str) {
        let now = Duration::from_secs(seconds);
        assert_eq!(Progress { advanced: now, ..step }.line(now), expected);
    }

    #[test]
    fn a_log_line_says_what_how_far_and_how_long() {
        let half = step(false, Unit::Bytes, 71_000_000, 142_000_000);
        check(half, 20, "fetching: 71 of 142 MB, about 20 s left");
        let runs = step(false, Unit::Pieces("runs"), 4, 20);
        check(runs, 60, "fetching: 4 of 20 runs, about 4 min left");
    }

    #[test]
    fn a_forecast_needs_time_and_work() {
        let crates = |done, total| step(false, Unit::Pieces("crates"), done, total);
        check(crates(1, 100), 60, "fetching: 1 of 100 crates, 60 s so far");
        check(crates(50, 100), 2, "fetching: 50 of 100 crates, 2 s so far");
        check(crates(7, 0), 60, "fetching: 7 crates, 60 s so far");
        check(crates(0, 0), 60, "fetching: 60 s so far");
        assert_eq!(crates(1, 100).forecast(), None);
    }

    #[test]
    fn growing_pieces_leave_most_of_the_time_to_the_last() {
        let crates = |done| step(false, Unit::Pieces("crates"), done, 100).growing();
        check(crates(40), 60, "fetching: 40 of 100 crates, 60 s so far");
        check(crates(50), 60, "fetching: 50 of 100 crates, about 15 min left");
        check(crates(90), 60, "fetching: 90 of 100 crates, about 31 s left");
    }

    #[test]
    fn a_forecast_that_has_passed_is_not_repeated() {
        let crates = step(false, Unit::Pieces("crates"), 80, 100);
        let crates = Progress { advanced: Duration::from_secs(40), ..crates };
        let line = |seconds| crates.line(Duration::from_secs(seconds));
        assert_eq!(line(46), "fetching: 80 of 100 crates, about 4 s left");
        assert_eq!(line(60), "fetching: 80 of 100 crates, 60 s so far");
    }

    #[test]
    fn a_bar_is_never_longer_than_its_frame() {
        let half = step(true, Unit::Pieces("crates"), 50, 100);
        let bar = format!("{}{}", "=".repeat(12), " ".repeat(12));
        check(half, 10, &format!("fetching  [{bar}] 50 of 100 crates, about 10 s left"));
        let over = step(true, Unit::Pieces("crates"), 120, 100).line(Duration::from_secs(9));
        assert!(over.contains(&format!("[{}]", "=".repeat(24))), "{over}");
    }

    #[test]
    fn the_last_line_says_what_it_took() {
        let crates = step(false, Unit::Pieces("crates"), 7, 7);
        assert_eq!(crates.last_line(Duration::from_secs(100)), "fetching: 7 crates in 2 min");
        let nothing = step(false, Unit::Pieces("crates"), 0, 0);
        assert_eq!(nothing.last_line(Duration::from_secs(5)), "fetching: 5 s");
    }
}
