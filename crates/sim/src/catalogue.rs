//! Finds machines and workloads by name: built-in ones and files.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rondpoint_machine::Machine;
use serde::Serialize;

use crate::reproduce;
use crate::workload::{BUILT_IN, MORE, Workload};
use crate::world::Scene;

const MACHINES: &[(&str, &str)] = &[
    ("altra-2", include_str!("../../../machines/altra-2.toml")),
    ("asymsched-8", include_str!("../../../machines/asymsched-8.toml")),
    ("carrefour-a", include_str!("../../../machines/carrefour-a.toml")),
    ("carrefour-b", include_str!("../../../machines/carrefour-b.toml")),
    ("chiplet-cxl", include_str!("../../../machines/chiplet-cxl.toml")),
    ("nmass-2", include_str!("../../../machines/nmass-2.toml")),
    ("sam-2", include_str!("../../../machines/sam-2.toml")),
];

/// Names of the machines that come with the program.
pub fn machine_names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|(name, _)| *name)
}

/// At the end of a machine's name or file: as the lab emulates it, smaller and slower.
const AS_IN_LAB: &str = ":lab";

/// A machine by name, by file, or as one line of text (`nodes=4 cpus=8 …`); with `:lab` behind it,
/// as the lab emulates it.
///
/// # Errors
/// There is none of that name, or its description is refused.
pub fn machine(word: &str) -> Result<Machine> {
    match word.strip_suffix(AS_IN_LAB) {
        Some(word) => Ok(full_size(word)?.for_lab()?),
        None => full_size(word),
    }
}

fn full_size(word: &str) -> Result<Machine> {
    if let Some((name, text)) = MACHINES.iter().find(|(name, _)| *name == word) {
        return Ok(Machine::parse(text, name)?);
    }
    if word.contains('=') {
        return Ok(Machine::synthetic(word)?);
    }
    if !Path::new(word).exists() {
        let known: Vec<&str> = machine_names().collect();
        bail!(
            "--machine {word}: no such file; expected one, a line like \"nodes=4 cpus=8\", or one \
             of {}",
            known.join(", ")
        );
    }
    Ok(Machine::load(Path::new(word))?)
}

/// Workloads by name or file, each with settings behind a colon; joined by `+` they run side by
/// side.
///
/// # Errors
/// There is none of that name, or its description is refused.
pub fn workload(words: &str) -> Result<Workload> {
    let mut all: Option<Workload> = None;
    for word in words.split('+') {
        let one = one_workload(word)?;
        all = Some(match all {
            Some(all) => all.and(one),
            None => one,
        });
    }
    all.context("--workload: expected a name or a file")
}

/// A workload on a machine, both as for [`machine`] and [`workload`], with that machine's sensors
/// and no replication.
///
/// # Errors
/// As [`machine`] and [`workload`].
pub(crate) fn scene(machine: &str, workload: &str, seed: u64) -> Result<Scene> {
    let machine = self::machine(machine)?;
    let workload = self::workload(workload)?;
    workload.check_size(machine.cpu_count())?;
    Ok(Scene::new(machine, workload, seed))
}

fn one_workload(word: &str) -> Result<Workload> {
    if let Some(workload) = without_settings(word)? {
        return Ok(workload);
    }
    let (name, settings) = word.split_once(':').unwrap_or((word, ""));
    match without_settings(name)? {
        Some(workload) => Ok(workload.with(settings, word)?),
        None => {
            let known: Vec<&str> = families().map(|(name, _)| name).collect();
            bail!(
                "--workload {name}: no such file; expected one, a program of a paper (--list has \
                 them), or one of {}",
                known.join(", ")
            )
        }
    }
}

/// A family, a program of a paper or a file; `None` where there is none of that name.
fn without_settings(name: &str) -> Result<Option<Workload>> {
    if let Some((_, text)) = families().find(|(one, _)| *one == name) {
        return Ok(Some(Workload::parse(text, name)?));
    }
    if let Some(workload) = reproduce::programs().find(|workload| workload.name == name) {
        return Ok(Some(workload));
    }
    let is_file = Path::new(name).exists();
    is_file.then(|| Workload::load(Path::new(name)).map_err(Into::into)).transpose()
}

/// Families of workloads and their files.
fn families() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILT_IN.iter().chain(MORE).copied()
}

/// What `--machine` and `--workload` know by name.
#[derive(Debug, Serialize)]
pub(crate) struct Names {
    machines: Vec<&'static str>,
    /// Names and titles.
    families: Vec<(String, String)>,
    /// Programs of papers.
    programs: Vec<(String, String)>,
}

impl Names {
    /// # Errors
    /// A workload that comes along is refused.
    pub(crate) fn all() -> Result<Self> {
        let titled = |workload: Workload| (workload.name, workload.title);
        let families: Result<_> =
            families().map(|(name, text)| Ok(titled(Workload::parse(text, name)?))).collect();
        let programs = reproduce::programs().map(titled).collect();
        Ok(Self { machines: machine_names().collect(), families: families?, programs })
    }

    pub(crate) fn text(&self) -> String {
        let lines = |names: &[(String, String)]| -> String {
            names.iter().map(|(name, title)| format!("  {name:<26} {title}\n")).collect()
        };
        format!(
            "Machines\n  {}\n\nFamilies of workloads, with settings: NAME:key=value,key=value\n{}\n\
             Programs of papers, with the middle of the values that no source gives\n{}",
            self.machines.join(", "),
            lines(&self.families),
            lines(&self.programs),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_comes_along_is_valid_and_has_its_name() {
        for name in machine_names() {
            assert_eq!(machine(name).expect(name).name, name);
        }
        for (name, _) in families() {
            assert_eq!(workload(name).expect(name).name, name);
        }
        for program in reproduce::programs() {
            assert_eq!(workload(&program.name).expect("a program").name, program.name);
        }
    }

    #[test]
    fn a_machine_of_the_lab_is_smaller_and_as_many_times_slower_as_its_file_says() {
        let (full, lab) = (machine("carrefour-a").unwrap(), machine("carrefour-a:lab").unwrap());
        assert_eq!((full.cpu_count(), lab.cpu_count()), (16, 8));
        assert!((lab.cycle_ns() / full.cycle_ns() - full.lab.slow_motion).abs() < 1e-9);
        assert!(machine("nothing:lab").is_err());
    }

    #[test]
    fn the_programs_of_the_lab_are_valid_and_have_the_name_of_their_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads/lab");
        let mut read = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            assert_eq!(Workload::load(&path).unwrap().name, name);
            read += 1;
        }
        assert!(read > 0);
    }

    #[test]
    fn work_without_a_bound_is_refused_by_its_product() {
        for (word, expected) in [
            ("fork-storm:short.every_s=1000,short.instances=101", "every_s × instances: expected"),
            ("private:threads=1000,instances=101,mib=0.004", "threads × instances, with"),
            ("private:threads=0,instances=100000,mib=0.004", "threads × instances, with"),
            ("private:threads=9000,mib=0.004+private:threads=9000,mib=0.004", "got 144000"),
            ("private:threads=1100,mib=1000", "pages × instances, with"),
        ] {
            let told = format!("{:#}", scene("carrefour-a", word, 1).expect_err(word));
            assert!(told.contains(expected), "{told}");
        }
        let whole = scene("carrefour-a", "private:threads=1000,instances=100,mib=0.004", 1);
        assert_eq!(whole.expect("as many as there may be").workload.programs[0].instances, 100);
    }

    #[test]
    fn an_unknown_word_names_what_there_is() {
        let error = machine("carrefour").expect_err("unknown").to_string();
        assert!(error.contains("carrefour-a"), "{error}");
        let error = workload("private+nothing").expect_err("unknown").to_string();
        assert!(error.starts_with("--workload nothing") && error.contains("private"), "{error}");
    }
}
