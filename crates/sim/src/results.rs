//! A file of results, one line of JSON each. An interrupted run continues from this file.
//!
//! Lines are in the order in which results were computed. An incomplete last line is dropped, and
//! its job is done again. The first error ends the run, so no line follows an incomplete one.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use rondpoint_input::Budget;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::parallel::{self, caught};

/// Format of the lines. Lines of another one are refused.
const FORMAT: u32 = 2;

/// Most results that a file holds.
pub(crate) const MOST_RESULTS: u64 = 1_000_000;

/// Longest file that is read, bytes: [`MOST_RESULTS`] lines of a kilobyte. A line names its machine
/// and its workload, which may be long.
const FILE_BYTES: u64 = 1 << 30;

/// A result that a line holds.
pub(crate) trait Kept: Serialize + DeserializeOwned + Send {
    /// Its job.
    fn number(&self) -> u64;
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<R> {
    format: u32,
    /// Names the input that the results follow from, apart from their numbers. `./x sim` compares
    /// the build.
    of: String,
    result: R,
}

/// The part of a line that tells whether the rest can be read. Lines of the first format lack it.
#[derive(Deserialize)]
struct Stamp {
    #[serde(default = "first_format")]
    format: u32,
    #[serde(default)]
    of: String,
}

fn first_format() -> u32 {
    1
}

impl Stamp {
    /// Refuses lines of another format, and results of something else.
    fn check(&self, of: &str) -> Result<()> {
        if self.format != FORMAT {
            bail!("format {}, expected {FORMAT}; name a new file", self.format);
        }
        if self.of != of {
            bail!("result of {}, expected {of}; name a new file", self.of);
        }
        Ok(())
    }
}

/// The first twelve digits of a text's SHA-256, in groups of four.
pub(crate) fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let group = |pair: &[u8]| format!("{:02x}{:02x}", pair[0], pair[1]);
    digest[..6].chunks_exact(2).map(group).collect::<Vec<String>>().join("-")
}

/// Results of the jobs, in their order, and how many of them came from the file.
pub(crate) struct Found<R> {
    pub(crate) results: Vec<R>,
    pub(crate) kept: usize,
}

/// Does every job whose result the file does not hold, on all cores, and writes each result at
/// once. `of` names everything that the results follow from. `progress` hears how many are over.
/// After an error or a panic, no further job begins and no further line is written.
///
/// # Errors
/// The file cannot be read, written or understood, it is of something else, or a job fails.
pub(crate) fn each<R: Kept>(
    jobs: &[u64],
    path: Option<&Path>,
    of: &str,
    work: impl Fn(u64) -> Result<R> + Sync,
    progress: impl Fn(usize) + Sync,
) -> Result<Found<R>> {
    let (mut done, file) = match path {
        None => (BTreeMap::new(), None),
        Some(path) => {
            let opened = open::<R>(path, of).with_context(|| path.display().to_string())?;
            (opened.0, Some(Mutex::new(opened.1)))
        }
    };
    let mut found: BTreeMap<u64, R> = BTreeMap::new();
    for job in jobs {
        found.extend(done.remove(job).map(|result| (*job, result)));
    }
    let kept = found.len();
    let left: Vec<u64> = jobs.iter().copied().filter(|job| !found.contains_key(job)).collect();
    let failed = AtomicBool::new(false);
    let done = |job: u64| -> Result<R> {
        let result = caught(|| work(job)).map_err(|what| anyhow!("number {job}: {what}"))??;
        if let Some(file) = &file {
            let line = Line { format: FORMAT, of: of.to_string(), result: &result };
            let line = serde_json::to_string(&line)? + "\n";
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            if !failed.load(Ordering::SeqCst) {
                let written = file.write_all(line.as_bytes());
                // Under the lock, so that no other line is added to a part of this one.
                failed.fetch_or(written.is_err(), Ordering::SeqCst);
                written.context("cannot write a result")?;
            }
        }
        Ok(result)
    };
    // `None` for a job that another one's error left out.
    let one = |job: &u64| -> Option<Result<R>> {
        if failed.load(Ordering::SeqCst) {
            return None;
        }
        let result = done(*job);
        failed.fetch_or(result.is_err(), Ordering::SeqCst);
        Some(result)
    };
    for result in parallel::map(&left, one, |over| progress(kept + over)).into_iter().flatten() {
        let result = result?;
        found.insert(result.number(), result);
    }
    let results = jobs.iter().filter_map(|job| found.remove(job)).collect();
    Ok(Found { results, kept })
}

/// The whole lines of a file, which is made where there is none, and the file at its end.
fn open<R: Kept>(path: &Path, of: &str) -> Result<(BTreeMap<u64, R>, File)> {
    let bytes = match path.exists() {
        true => rondpoint_input::read(path, &mut Budget::new(FILE_BYTES, 0))?,
        false => Vec::new(),
    };
    // The incomplete last line may end within a character.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = std::str::from_utf8(&bytes[..whole]).context("it is not UTF-8 text")?;
    let mut results = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let result: R = read(line, of).with_context(|| format!("line {}", number + 1))?;
        results.insert(result.number(), result);
    }
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    if whole < bytes.len() {
        file.set_len(whole as u64)?;
    }
    Ok((results, file))
}

/// The result of a line.
fn read<R: Kept>(line: &str, of: &str) -> Result<R> {
    let stamp: Stamp = serde_json::from_str(line).context("no result of this kind")?;
    stamp.check(of)?;
    let line: Line<R> = serde_json::from_str(line).context("no result of this kind")?;
    Ok(line.result)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Square {
        of: u64,
        is: u64,
    }

    impl Kept for Square {
        fn number(&self) -> u64 {
            self.of
        }
    }

    #[test]
    fn only_what_the_file_lacks_is_done_and_a_line_that_was_cut_off_is_lacking() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("squares");
        let jobs: Vec<u64> = (0..6).collect();
        let ran = AtomicUsize::new(0);
        let run = || {
            let work = |of| {
                ran.fetch_add(1, Ordering::Relaxed);
                Ok(Square { of, is: of * of })
            };
            each(&jobs, Some(&path), "squares", work, |_| {}).unwrap()
        };
        let whole = run();
        assert_eq!((ran.swap(0, Ordering::Relaxed), whole.kept), (6, 0));
        let text = std::fs::read_to_string(&path).unwrap();
        let third = text.match_indices('\n').nth(2).unwrap().0;
        std::fs::write(&path, &text[..third - 1]).unwrap();
        let again = run();
        assert_eq!((ran.swap(0, Ordering::Relaxed), again.kept), (4, 2));
        assert_eq!(again.results, whole.results);
        assert_eq!(run().kept, 6, "the file is whole again");
    }

    #[test]
    fn a_last_line_that_ends_within_a_character_is_lacking() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("squares");
        let run = || {
            let work = |of| Ok(Square { of, is: of * of });
            each(&[1, 2], Some(&path), "squarés", work, |_| {}).unwrap()
        };
        run();
        let text = std::fs::read(&path).unwrap();
        let within = text.iter().rposition(|byte| *byte == "é".as_bytes()[0]).unwrap() + 1;
        std::fs::write(&path, &text[..within]).unwrap();
        assert_eq!((run().kept, run().kept), (1, 2));
    }

    #[test]
    fn no_job_begins_after_an_error_and_the_file_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("squares");
        let jobs: Vec<u64> = (0..1000).collect();
        let ran = AtomicUsize::new(0);
        let work = |job: u64| -> Result<Square> {
            ran.fetch_add(1, Ordering::Relaxed);
            bail!("job {job} fails")
        };
        let told = each(&jobs, Some(&path), "squares", work, |_| {}).err().unwrap().to_string();
        assert!(told.ends_with(" fails"), "{told}");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=cores).contains(&ran.load(Ordering::Relaxed)), "{ran:?} on {cores} cores");
        let work = |of| Ok(Square { of, is: of * of });
        assert_eq!(each(&jobs, Some(&path), "squares", work, |_| {}).unwrap().kept, 0);
        assert_eq!(each(&jobs, Some(&path), "squares", work, |_| {}).unwrap().kept, 1000);
    }

    #[test]
    fn a_job_that_panics_is_an_error_with_its_number() {
        let work = |of: u64| -> Result<Square> {
            assert!(of != 3, "three is too much");
            Ok(Square { of, is: of * of })
        };
        let told = each(&[2, 3], None, "squares", work, |_| {}).err().unwrap().to_string();
        assert_eq!(told, "number 3: three is too much");
    }

    #[test]
    fn a_line_of_something_else_is_refused_and_nothing_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("squares");
        let good = r#"{"format":2,"of":"squares","result":{"of":2,"is":4}}"#;
        for (text, expected) in [
            (format!("{good}\nnonsense\n"), "line 2: no result of this kind"),
            (good.replace("is", "was") + "\n", "line 1: no result of this kind"),
            (good.replace(":2,\"of", ":3,\"of") + "\n", "line 1: format 3, expected 2"),
            ("{\"of\":\"squares\"}\n".to_string(), "line 1: format 1, expected 2"),
            (
                good.replace("squares", "cubes") + "\n",
                "line 1: result of cubes, expected squares; name a new file",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let work = |_| panic!("no job may run");
            let error = each::<Square>(&[1], Some(&path), "squares", work, |_| {});
            let error = format!("{:#}", error.err().expect("refused"));
            assert!(error.contains("squares: ") && error.contains(expected), "{error}");
        }
    }
}
