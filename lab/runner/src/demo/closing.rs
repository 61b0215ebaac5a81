//! The last sentences of the demonstration: which placement is fastest, Rondpoint or not.
//!
//! Speeds are compared as the table shows them, in hundredths, so that sentence and table agree.

use std::cmp::{Ordering, Reverse};

use serde::Serialize;

use super::{Mean, ProgramReport};
use crate::comparison::{Speed, median};
use crate::configuration::Configuration;

/// What came of it, computed from the figures.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Closing {
    /// Names, fastest first, of the placements that acted on every program.
    pub(super) by_whole_run: Vec<String>,
    /// The same by the speed in the last third of the work.
    pub(super) by_last_third: Vec<String>,
    /// Programs that Rondpoint slows down.
    pub(super) slower: Vec<&'static str>,
    /// Programs that jam under first touch.
    pub(super) jams: usize,
    /// Programs with a jam that Rondpoint relieves.
    pub(super) relieved: usize,
    /// Median over the relieved programs, guest seconds.
    pub(super) relief_s: Option<f64>,
    /// All of it for people.
    pub(super) sentences: Vec<String>,
}

/// A placement and its mean speed.
type Entry<'a> = (&'a str, Speed);

impl Closing {
    /// From the means and the tables.
    pub(super) fn of(programs: &[ProgramReport], means: &[Mean], failures: usize) -> Self {
        let whole = entries(programs.len(), means, |mean| mean.speed);
        let third = entries(programs.len(), means, |mean| mean.last_third);
        let names = |entries: &[Entry<'_>]| {
            entries.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>()
        };
        let mut closing = Self {
            by_whole_run: names(&whole),
            by_last_third: names(&third),
            slower: programs.iter().filter(|one| is_slower(one)).map(|one| one.title).collect(),
            jams: programs.iter().filter(|one| jams(one)).count(),
            relieved: programs.iter().filter(|one| jams(one) && relief_s(one).is_some()).count(),
            relief_s: overall_relief_s(programs),
            sentences: Vec::new(),
        };
        closing.sentences = match failures {
            0 => closing.told(&whole, &third),
            1 => vec!["One run failed, so the speeds prove nothing.".to_owned()],
            some => vec![format!("{some} runs failed, so the speeds prove nothing.")],
        };
        closing
    }

    fn told(&self, whole: &[Entry<'_>], third: &[Entry<'_>]) -> Vec<String> {
        let mut sentences = Vec::new();
        for (when, entries) in
            [("Over the whole run", whole), ("In the last third of the work", third)]
        {
            sentences.extend(standing(entries).map(|standing| format!("{when} {standing}.")));
        }
        sentences.extend(self.relief_sentence());
        if !self.slower.is_empty() {
            sentences.push(format!("Rondpoint slows down {}.", self.slower.join(" and ")));
        }
        sentences
    }

    fn relief_sentence(&self) -> Option<String> {
        let of = match self.jams {
            0 => return None,
            1 => "the jam".to_owned(),
            jams => format!("{} of {jams} jams", self.relieved),
        };
        Some(match self.relief_s {
            None => "Rondpoint relieves no jam.".to_owned(),
            Some(relief_s) => format!(
                "Rondpoint relieves {of}; its first right action comes {relief_s:.2} s after the \
                 start of the jam{}.",
                if self.relieved > 1 { ", in the median" } else { "" }
            ),
        })
    }
}

/// The placements that acted on all `programs`, fastest first. A mean without some of the programs
/// compares with no other.
fn entries(
    programs: usize,
    means: &[Mean],
    speed: impl Fn(&Mean) -> Option<Speed>,
) -> Vec<Entry<'_>> {
    let acted = means.iter().filter(|mean| mean.programs == programs);
    let mut entries: Vec<Entry<'_>> =
        acted.filter_map(|mean| Some((mean.configuration.as_str(), speed(mean)?))).collect();
    entries.sort_by_key(|(_, speed)| Reverse(hundredths(*speed)));
    entries
}

/// Where Rondpoint stands among `entries`, which are sorted, fastest first.
fn standing(entries: &[Entry<'_>]) -> Option<String> {
    let (name, our_speed) = entries.iter().find(|(name, _)| *name == rondpoint())?;
    // The first of the others: the fastest, or one that is as fast as Rondpoint.
    let (rival, rival_speed) = entries.iter().find(|(other, _)| other != name)?;
    let [ours, theirs] = [our_speed, rival_speed].map(|speed| format!("{:.2}", speed.median));
    let doubt = match ranges_overlap(*our_speed, *rival_speed) {
        true => "; their ranges over the seeds overlap",
        false => "",
    };
    Some(match hundredths(*our_speed).cmp(&hundredths(*rival_speed)) {
        Ordering::Greater => {
            format!("{name} is fastest ({ours}); {rival} follows ({theirs}){doubt}")
        }
        Ordering::Equal => format!("{name} and {rival} are equally fast ({ours})"),
        Ordering::Less => {
            let faster = |entry: &&Entry<'_>| hundredths(entry.1) > hundredths(*our_speed);
            let place = entries.iter().filter(faster).count() + 1;
            let all = entries.len();
            format!(
                "{rival} is fastest ({theirs}); {name} is number {place} of {all} ({ours}){doubt}"
            )
        }
    })
}

/// Whether one seed's figure of the slower placement reaches one of the faster. A single seed has
/// no range.
fn ranges_overlap(one: Speed, other: Speed) -> bool {
    let has_range = one.least < one.most || other.least < other.most;
    has_range && one.least <= other.most && other.least <= one.most
}

fn rondpoint() -> String {
    Configuration::Rondpoint.name()
}

/// A speed as the table shows it.
fn hundredths(speed: Speed) -> i64 {
    (speed.median * 100.0).round() as i64
}

fn is_slower(program: &ProgramReport) -> bool {
    let ours = program.configurations.iter().find(|one| one.name == rondpoint());
    ours.and_then(|one| one.speed).is_some_and(|speed| hundredths(speed) < 100)
}

/// Whether the traffic jams under first touch, in at least half of the runs.
fn jams(program: &ProgramReport) -> bool {
    let first_touch = &program.configurations[0].runs;
    let jammed = first_touch.iter().filter(|run| run.jam_s.is_some()).count();
    jammed > 0 && 2 * jammed >= first_touch.len()
}

/// Median over the program's runs under Rondpoint, guest seconds.
fn relief_s(program: &ProgramReport) -> Option<f64> {
    let ours = program.configurations.iter().find(|one| one.name == rondpoint())?;
    sorted_median(ours.runs.iter().filter_map(|run| run.relief_s).collect())
}

fn overall_relief_s(programs: &[ProgramReport]) -> Option<f64> {
    sorted_median(programs.iter().filter(|one| jams(one)).filter_map(relief_s).collect())
}

fn sorted_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    median(&values)
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    fn speed(median: f64) -> Speed {
        Speed { median, least: median, most: median }
    }

    #[track_caller]
    fn check(entries: &[(&str, f64)], expected: &str) {
        let mean = |(name, median): &(&str, f64)| Mean {
            configuration: (*name).to_owned(),
            speed: Some(speed(*median)),
            last_third: None,
            programs: 4,
        };
        let means: Vec<Mean> = entries.iter().map(mean).collect();
        let entries = super::entries(4, &means, |mean| mean.speed);
        assert_eq!(standing(&entries).as_deref(), Some(expected));
    }

    #[test]
    fn the_fastest_is_named_whichever_it_is() {
        let rest = [("first-touch", 1.0), ("autonuma", 1.4)];
        let with =
            |ours, rival| [&rest[..], &[("rondpoint", ours), ("interleave", rival)]].concat();
        check(
            &with(1.466, 1.553),
            "interleave is fastest (1.55); rondpoint is number 2 of 4 (1.47)",
        );
        check(&with(1.76, 1.57), "rondpoint is fastest (1.76); interleave follows (1.57)");
        check(&with(1.2, 1.1), "autonuma is fastest (1.40); rondpoint is number 2 of 4 (1.20)");
        check(&with(0.9, 0.8), "autonuma is fastest (1.40); rondpoint is number 3 of 4 (0.90)");
        // Equal in the table, so equal in the sentence.
        check(&with(1.551, 1.554), "rondpoint and interleave are equally fast (1.55)");
    }

    #[test]
    fn a_placement_that_idled_on_a_program_is_not_compared() {
        let closing = sample(1).closing;
        assert_eq!(closing.by_whole_run, ["rondpoint", "interleave", "first-touch", "autonuma"]);
    }

    #[test]
    fn ranges_that_overlap_are_told() {
        let entries = [
            ("rondpoint", Speed { median: 2.0, least: 1.0, most: 3.0 }),
            ("interleave", Speed { median: 1.5, least: 1.4, most: 1.6 }),
        ];
        let told = standing(&entries).expect("two placements");
        assert!(told.ends_with("follows (1.50); their ranges over the seeds overlap"), "{told}");
        assert!(!ranges_overlap(speed(1.0), speed(1.0)));
    }

    /// Changes the four programs' runs under Rondpoint, then closes.
    fn closing(change: impl Fn(usize, &mut crate::result::RunResult)) -> Closing {
        let mut report = sample(1);
        for (index, program) in report.programs.iter_mut().enumerate() {
            for configuration in &mut program.configurations {
                configuration.runs.iter_mut().for_each(|run| change(index, run));
            }
        }
        Closing::of(&report.programs, &report.means, 0)
    }

    #[test]
    fn relief_is_the_median_over_the_jams_that_end() {
        let one = closing(|index, run| {
            run.jam_s = (index < 3).then_some(0.1);
            run.relief_s = [Some(0.9), Some(0.5), None, Some(7.0)][index];
        });
        assert_eq!((one.jams, one.relieved, one.relief_s), (3, 2, Some(0.7)));
        let told = "Rondpoint relieves 2 of 3 jams; its first right action comes 0.70 s after the \
                    start of the jam, in the median.";
        assert!(one.sentences.iter().any(|sentence| sentence == told), "{:?}", one.sentences);
        let none = closing(|_, run| run.jam_s = Some(0.1));
        let told = "Rondpoint relieves no jam.";
        assert!(none.sentences.iter().any(|sentence| sentence == told), "{:?}", none.sentences);
        assert_eq!(sample(1).closing.sentences.len(), 2, "no jam, nothing to say of one");
    }

    #[test]
    fn losses_and_failures_are_told() {
        let mut report = sample(1);
        report.programs[2].configurations[4].speed = Some(speed(0.97));
        let closing = Closing::of(&report.programs, &report.means, 0);
        assert_eq!(
            closing.sentences.last().map(String::as_str),
            Some("Rondpoint slows down well placed.")
        );
        let failed = Closing::of(&report.programs, &report.means, 2);
        assert_eq!(failed.sentences, ["2 runs failed, so the speeds prove nothing."]);
    }
}
