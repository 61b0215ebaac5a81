//! Speed in the last third of the work.
//!
//! A manager that moves pages at run time first has to observe. The whole run includes this cost;
//! the last third shows the gain afterwards. The third is one of the *work*, not of the time, so
//! all placements are timed over the same work.
//!
//! Work is counted in rounds if the program prints a line `round_ends_s=0.10,0.21,…`: the end of
//! each round, in seconds from the start of the first. With a line `rounds_each=4` each end stands
//! for four rounds. For other programs work is the instructions of all vCPUs without a manager's,
//! and the report says so, because a spinning thread executes instructions too.

use rondpoint_lab_init::Measurement;
use serde::{Deserialize, Serialize};

/// Fewer rounds than this have no last third worth the name.
const FEWEST_ROUNDS: usize = 3;
/// Head of the line of round ends.
const ROUND_ENDS: &str = "round_ends_s=";
/// Head of the line with the rounds for each of these ends; without that line it is one.
const ROUNDS_EACH: &str = "rounds_each=";

/// The unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorkUnit {
    /// Rounds that the program finished, by its own account.
    Rounds,
    /// Instructions of all vCPUs: the program's and the kernel's, without a manager's.
    Instructions,
}

/// Work done per guest second in the last third of the work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastThird {
    pub(crate) unit: WorkUnit,
    pub(crate) per_s: f64,
}

impl LastThird {
    /// From what the program printed, else from what the plugin measured.
    pub(crate) fn of(stdout: &str, measurement: &Measurement) -> Option<Self> {
        let rounds = round_ends(stdout).filter(|ends| ends.len() >= FEWEST_ROUNDS);
        let (unit, points) = match rounds.zip(rounds_each(stdout)) {
            Some((ends, each)) => {
                let point = |(index, end)| ((index + 1) as f64 * each, end);
                (WorkUnit::Rounds, ends.into_iter().enumerate().map(point).collect())
            }
            None => (WorkUnit::Instructions, instructions(measurement)),
        };
        Some(Self { unit, per_s: rate(&points)? })
    }

    /// Speed relative to another run of the same program, if both count the same kind of work.
    pub(crate) fn relative_to(&self, base: &Self) -> Option<f64> {
        (self.unit == base.unit).then(|| self.per_s / base.per_s)
    }
}

/// The numbers of the last line of round ends, if they rise. Rounds of two threads may end in the
/// same microsecond.
pub(crate) fn round_ends(stdout: &str) -> Option<Vec<f64>> {
    let line = last(stdout, ROUND_ENDS)?;
    let ends: Vec<f64> =
        line.trim().split(',').map(|end| end.parse().ok()).collect::<Option<_>>()?;
    let rise = ends.windows(2).all(|pair| pair[0] <= pair[1]) && ends.first() > Some(&0.0);
    rise.then_some(ends)
}

/// How many rounds each end stands for, unless that is no number.
fn rounds_each(stdout: &str) -> Option<f64> {
    let Some(number) = last(stdout, ROUNDS_EACH) else { return Some(1.0) };
    number.trim().parse::<u32>().ok().filter(|each| *each > 0).map(f64::from)
}

/// What the last line says that begins so.
fn last<'a>(stdout: &'a str, head: &str) -> Option<&'a str> {
    stdout.lines().rev().find_map(|line| line.strip_prefix(head))
}

/// Rounds a second between two times, by the ends of the rounds.
pub(crate) fn pace(ends: &[f64], from: f64, to: f64) -> f64 {
    ends.iter().filter(|end| (from..to).contains(*end)).count() as f64 / (to - from)
}

/// Work done and seconds gone at the end of each slice.
fn instructions(measurement: &Measurement) -> Vec<(f64, f64)> {
    let mut sum = 0;
    let mut point = |slice: &rondpoint_lab_init::Slice| {
        sum += slice.instructions.saturating_sub(slice.manager_instructions);
        (sum as f64, slice.end_ns.saturating_sub(measurement.begin_ns) as f64 / 1e9)
    };
    measurement.slices.iter().map(&mut point).collect()
}

/// Work per second in the last third of the work, from points of (work done, seconds gone) that
/// rise. Between two points work goes on evenly.
fn rate(points: &[(f64, f64)]) -> Option<f64> {
    let &(work, end) = points.last()?;
    let from = work * 2.0 / 3.0;
    let after = points.iter().position(|(done, _)| *done >= from)?;
    let (done, time) = if after == 0 { (0.0, 0.0) } else { points[after - 1] };
    let (next_done, next_time) = points[after];
    let begin = time + (next_time - time) * (from - done) / (next_done - done);
    let rate = (work - from) / (end - begin);
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use rondpoint_lab_init::Slice;

    use super::*;

    fn measured(slices: &[(u64, u64)]) -> Measurement {
        let slice = |&(end_ns, instructions)| Slice { end_ns, instructions, ..Slice::default() };
        Measurement {
            begin_ns: 1_000_000_000,
            slices: slices.iter().map(slice).collect(),
            ..Measurement::default()
        }
    }

    #[test]
    fn the_last_third_of_the_rounds_is_timed() {
        let of = |stdout: &str| LastThird::of(stdout, &measured(&[])).expect("rounds").per_s;
        // Four rounds of a second each, then two of half a second.
        assert_eq!(of("round_ends_s=1,2,3,4,4.5,5\nresult=ok"), 2.0);
        // Four rounds: the third begins a third before the third round's end, at 3 - 1/3.
        let per_s = of("round_ends_s=1,2,3,5\n");
        assert!((per_s - (4.0 / 3.0) / (2.0 + 1.0 / 3.0)).abs() < 1e-12, "{per_s}");
        // The same pace, told in steps, and two ends in one microsecond.
        assert_eq!(of("rounds_each=4\nround_ends_s=1,2,3\nrounds_each=4\n"), 4.0);
        assert_eq!(of("round_ends_s=1,1,2,2,3,3"), 2.0);
    }

    #[test]
    fn without_rounds_it_is_instructions_and_says_so() {
        let slices = [(2_000_000_000, 200), (3_000_000_000, 50), (4_000_000_000, 50)];
        let unclear = ["1,2", "2,1,3", "now", "1,2,3\nrounds_each=0", "1,2,3\nrounds_each=few"];
        let unclear = unclear.map(|ends| format!("round_ends_s={ends}\n"));
        for stdout in unclear.iter().map(String::as_str).chain([""]) {
            let third = LastThird::of(stdout, &measured(&slices)).expect("instructions");
            assert_eq!(third, LastThird { unit: WorkUnit::Instructions, per_s: 50.0 });
        }
        assert_eq!(LastThird::of("", &measured(&[])), None);
    }

    #[test]
    fn a_managers_instructions_are_no_work() {
        let mut measurement = measured(&[(2_000_000_000, 200), (3_000_000_000, 90)]);
        measurement.slices[1].manager_instructions = 40;
        let third = LastThird::of("", &measurement).expect("instructions");
        // The last third of 250 instructions begins at 166.7 of the first second's 200.
        let expected = (250.0 / 3.0) / (1.0 + 1.0 / 6.0);
        assert!((third.per_s - expected).abs() < 1e-9, "{}", third.per_s);
    }

    #[test]
    fn rounds_and_instructions_do_not_compare() {
        let third = |unit, per_s| LastThird { unit, per_s };
        let base = third(WorkUnit::Rounds, 2.0);
        assert_eq!(third(WorkUnit::Rounds, 3.0).relative_to(&base), Some(1.5));
        assert_eq!(third(WorkUnit::Instructions, 3.0).relative_to(&base), None);
    }
}
