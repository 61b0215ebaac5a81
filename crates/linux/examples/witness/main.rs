//! `cargo run --example witness -- FOLDER`: compares every line of the event tables with the
//! kernel's own event lists.
//!
//! FOLDER is `tools/perf/pmu-events/arch` of a kernel's sources; `./x setup --witness` fetches it.
//! A line that differs, or that no list knows, fails unless `reasons.toml` says why. Each field
//! that differs needs a reason with its two values. A reason that no line needs fails as well.

mod compare;
mod lists;

use std::path::Path;
use std::process::ExitCode;

use compare::{Reason, Verdict};
use rondpoint_linux::perf::processors;

const REASONS: &str = include_str!("reasons.toml");

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: witness FOLDER, the folder tools/perf/pmu-events/arch of a kernel");
        return ExitCode::from(2);
    };
    match check(Path::new(&folder)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("witness: {error}");
            ExitCode::from(2)
        }
    }
}

/// Prints what does not agree and the counts; false where anything is left unexplained.
fn check(folder: &Path) -> Result<bool, String> {
    let reasons = compare::reasons(REASONS)?;
    let mut counts = Counts::default();
    let mut used = vec![false; reasons.len()];
    for entry in processors::all() {
        let lists = entry.witness.iter().map(|name| lists::read(folder, name));
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        for line in compare::lines(&entry) {
            for verdict in compare::line(&line, &lists) {
                let why = compare::explained(&reasons, &line, &verdict);
                counts.add(&verdict, why.is_some());
                if why.is_none() {
                    println!("{}: {}: {}: {verdict}", line.generation, line.metric, line.text);
                }
                why.into_iter().flatten().for_each(|place| used[place] = true);
            }
        }
    }
    let stale: Vec<&Reason> =
        reasons.iter().zip(&used).filter(|(_, used)| !**used).map(|(reason, _)| reason).collect();
    for reason in &stale {
        println!("reasons.toml: no line needs this reason any more: {}", reason.why);
    }
    println!("{}", counts.sentence());
    Ok(counts.unexplained == 0 && stale.is_empty())
}

/// How often each verdict came.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    equal: usize,
    differ: usize,
    unknown: usize,
    unexplained: usize,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict, explained: bool) {
        match verdict {
            Verdict::Equal => self.equal += 1,
            _ if !explained => self.unexplained += 1,
            Verdict::Differs(_) => self.differ += 1,
            Verdict::Unknown(_) => self.unknown += 1,
        }
    }

    fn sentence(&self) -> String {
        format!(
            "{} event lines equal the kernel's lists, {} differ and {} are unknown there for a \
             listed reason, {} are unexplained",
            self.equal, self.differ, self.unknown, self.unexplained
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with one event, in the form of the kernel's lists.
    fn folder(event: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("x")).unwrap();
        std::fs::write(folder.path().join("x/memory.json"), format!("[{event}]")).unwrap();
        folder
    }

    fn line(text: &str) -> compare::Line {
        compare::Line {
            generation: "g".to_string(),
            metric: "m".to_string(),
            text: text.to_string(),
        }
    }

    fn verdicts(event: &str, text: &str) -> Vec<Verdict> {
        let folder = folder(event);
        let lists = [lists::read(folder.path(), "x").unwrap()];
        compare::line(&line(text), &lists)
    }

    const READS: &str =
        r#"{"EventName": "READS", "EventCode": "0x4", "UMask": "0x3", "Unit": "iMC"}"#;

    #[test]
    fn code_mask_and_unit_must_all_be_equal() {
        let check = |text: &str| verdicts(READS, text).remove(0);
        assert_eq!(check("uncore_imc/event=0x04,umask=0x03,name=READS/"), Verdict::Equal);
        let differs = |text: &str, what: &str| {
            let verdict = check(text);
            assert!(matches!(verdict, Verdict::Differs(_)), "{verdict}");
            assert_eq!(verdict.to_string(), what);
        };
        differs("uncore_imc/event=0x05,umask=0x03,name=READS/", "event is 0x4 in x, 0x5 here");
        differs("uncore_imc/event=0x04,umask=0x0c,name=READS/", "umask is 0x3 in x, 0xc here");
        differs(
            "uncore_imc/event=0x05,umask=0x03,config1=0x1,name=READS/",
            "config1 is 0x0 in x, 0x1 here; event is 0x4 in x, 0x5 here",
        );
        let Verdict::Unknown(what) = check("uncore_cha/event=0x04,umask=0x03,name=READS/") else {
            panic!("another unit's list knows nothing of it");
        };
        assert_eq!(what, "no list has events of `uncore_cha`");
        assert_eq!(
            check("uncore_imc/event=0x04,umask=0x03,name=WRITES/"),
            Verdict::Unknown("x has no `WRITES`".to_string())
        );
    }

    #[test]
    fn a_line_without_a_name_is_unknown() {
        let Verdict::Unknown(what) = verdicts(READS, "uncore_imc/event=0x04/").remove(0) else {
            panic!("a line without a name cannot be compared");
        };
        assert_eq!(what, "the line has no name=");
    }

    #[test]
    fn shared_names_of_an_architecture_are_followed() {
        let folder = folder(r#"{"ArchStdEvent": "REMOTE_ACCESS"}"#);
        let common = r#"[{"EventName": "REMOTE_ACCESS", "EventCode": "0x31"}]"#;
        std::fs::write(folder.path().join("common.json"), common).unwrap();
        std::fs::rename(folder.path().join("x"), folder.path().join("y")).unwrap();
        std::fs::create_dir(folder.path().join("x")).unwrap();
        std::fs::rename(folder.path().join("y"), folder.path().join("x/y")).unwrap();
        std::fs::rename(folder.path().join("common.json"), folder.path().join("x/common.json"))
            .unwrap();
        let lists = [lists::read(folder.path(), "x/y").unwrap()];
        let line = line("core/event=0x31,name=REMOTE_ACCESS/");
        assert_eq!(compare::line(&line, &lists), [Verdict::Equal]);
    }

    /// The reasons that explain all of an event string's verdict; `None` if something is left.
    fn explained(reasons: &str, text: &str) -> Option<Vec<usize>> {
        let reasons = compare::reasons(reasons).unwrap();
        compare::explained(&reasons, &line(text), &verdicts(READS, text)[0])
    }

    const BOTH_MASKS: &str = r#"
[[reason]]
event = "READS"
differs = { field = "umask", there = 0x3, here = 0xf }
why = "reads and writes together"
"#;

    #[test]
    fn a_reason_explains_the_values_that_it_names_and_no_others() {
        let explained = |text| explained(BOTH_MASKS, text);
        assert_eq!(explained("uncore_imc/event=0x04,umask=0x0f,name=READS/"), Some(vec![0]));
        assert_eq!(explained("uncore_imc/event=0x04,umask=0x0c,name=READS/"), None);
        assert_eq!(explained("uncore_imc/event=0x05,umask=0x03,name=READS/"), None);
        assert_eq!(explained("uncore_imc/event=0x04,umask=0x0f,name=READS_TOO/"), None);
    }

    #[test]
    fn each_field_that_differs_needs_a_reason() {
        let text = "uncore_imc/event=0x04,umask=0x0f,config1=0x7,name=READS/";
        assert_eq!(explained(BOTH_MASKS, text), None);
        let filter = "[[reason]]\ndiffers = { field = \"config1\", there = 0, here = 7 }\nwhy = \"a filter\"\n";
        assert_eq!(explained(&[BOTH_MASKS, filter].concat(), text), Some(vec![1, 0]));
    }

    #[test]
    fn the_reasons_are_understood() {
        assert!(!compare::reasons(REASONS).unwrap().is_empty());
        assert!(compare::reasons("[[reason]]\nunit = \"x\"\n").is_err(), "without why");
    }
}
