//! `rondpoint-lab physics`: compares the emulated machine with its machine file.
//!
//! Each check runs a program in the guest and compares the *guest's* clock and PMU with the machine
//! file. The checks themselves are in `physics/`, one file per machine.

mod asymsched;
mod carrefour;
pub(crate) mod document;
pub(crate) mod script;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::lab::{Lab, Start};

/// What `physics` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these machines; default: all
    #[arg(value_name = "MACHINE", value_parser = ["carrefour-a", "asymsched-8"])]
    machines: Vec<String>,
    #[command(flatten)]
    start: Start,
    /// Print one JSON object instead of a table
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print docs/lab.md, which is generated from these checks
    #[arg(long)]
    markdown: bool,
}

/// One comparison.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    pub(crate) machine: String,
    pub(crate) check: String,
    /// What the machine file or the paper says.
    pub(crate) target: String,
    /// What was measured in the guest.
    pub(crate) measured: String,
    pub(crate) holds: bool,
}

impl Finding {
    /// A value that should be `target`, within a relative tolerance.
    pub(crate) fn near(
        machine: &str,
        check: String,
        (target, measured): (f64, f64),
        tolerance_percent: f64,
        unit: &str,
    ) -> Self {
        let off = 100.0 * (measured / target - 1.0);
        Self {
            machine: machine.to_owned(),
            check,
            target: format!("{} {unit} ± {tolerance_percent} %", rounded(target)),
            measured: format!("{} {unit} ({off:+.1} %)", rounded(measured)),
            holds: off.abs() <= tolerance_percent,
        }
    }

    /// A value that should lie between two others.
    pub(crate) fn between(
        machine: &str,
        check: String,
        (low, high): (f64, f64),
        measured: f64,
        unit: &str,
    ) -> Self {
        Self {
            machine: machine.to_owned(),
            check,
            target: format!(
                "{} to {} {}",
                rounded(low),
                rounded(high),
                if unit.len() > 8 { "" } else { unit }
            ),
            measured: format!("{} {unit}", rounded(measured)),
            holds: (low..=high).contains(&measured),
        }
    }

    /// Something that should be so.
    pub(crate) fn fact(
        machine: &str,
        check: &str,
        target: &str,
        measured: String,
        holds: bool,
    ) -> Self {
        Self {
            machine: machine.to_owned(),
            check: check.to_owned(),
            target: target.to_owned(),
            measured,
            holds,
        }
    }
}

/// Four digits, or three behind the point for small values.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// Runs all checks and prints them; exit status 1 when one does not hold.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = Lab::open_at(&arguments.start)?;
    let asked = |name: &str| {
        arguments.machines.is_empty() || arguments.machines.iter().any(|asked| asked == name)
    };
    let mut findings = Vec::new();
    if asked(carrefour::NAME) {
        findings.extend(carrefour::check(&lab)?);
    }
    if asked(asymsched::NAME) {
        findings.extend(asymsched::check(&lab)?);
    }
    let holds = findings.iter().all(|finding| finding.holds);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else if arguments.markdown {
        print!("{}", document::markdown(&findings)?);
    } else {
        print!("{}", document::table(&findings));
    }
    Ok(ExitCode::from(u8::from(!holds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerances_are_two_sided() {
        let holds =
            |measured| Finding::near("m", "c".to_owned(), (200.0, measured), 5.0, "ns").holds;
        assert!(holds(190.1) && holds(209.9));
        assert!(!holds(189.9) && !holds(210.1) && !holds(f64::NAN));
        assert!(!Finding::between("m", "c".to_owned(), (1.0, 2.0), f64::NAN, "").holds);
    }
}
