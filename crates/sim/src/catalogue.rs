//! Machines and workloads by name: those that come with the program, and files.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rondpoint_machine::Machine;

use crate::sensors::Pmu;
use crate::workload::Workload;
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

/// A machine by name, by file, or as one line of text (`nodes=4 cpus=8 …`).
///
/// # Errors
/// There is none of that name, or its description is refused.
pub fn machine(word: &str) -> Result<Machine> {
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

/// Workloads by name or file; joined by `+` they run side by side.
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
    Ok(Scene {
        pmu: Pmu::of(&machine),
        machine,
        workload: self::workload(workload)?,
        replication: false,
        truth: None,
        seed,
    })
}

fn one_workload(word: &str) -> Result<Workload> {
    if let Some((name, text)) = crate::workload::BUILT_IN.iter().find(|(name, _)| *name == word) {
        return Ok(Workload::parse(text, name)?);
    }
    if !Path::new(word).exists() {
        let known: Vec<&str> = crate::workload::BUILT_IN.iter().map(|(name, _)| *name).collect();
        bail!("--workload {word}: no such file; expected one, or one of {}", known.join(", "));
    }
    Ok(Workload::load(Path::new(word))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_comes_along_is_valid_and_has_its_name() {
        for name in machine_names() {
            assert_eq!(machine(name).expect(name).name, name);
        }
        for (name, _) in crate::workload::BUILT_IN {
            assert_eq!(workload(name).expect(name).name, *name);
        }
    }

    #[test]
    fn an_unknown_word_names_what_there_is() {
        let error = machine("carrefour").expect_err("unknown").to_string();
        assert!(error.contains("carrefour-a"), "{error}");
        let error = workload("private+nothing").expect_err("unknown").to_string();
        assert!(error.starts_with("--workload nothing") && error.contains("private"), "{error}");
    }
}
