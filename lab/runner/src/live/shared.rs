//! Memory that several processes have mapped: it is moved for all of them, but only if all of them
//! are managed.

use anyhow::{Result, ensure};
use rondpoint_machine::Machine;
use serde_json::Value;

use super::name;
use super::session::{first_that_shows, pages, report, run, told};
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// Two programs with one table, all of it where the first was filling it. The second time a process
/// that is not managed has it too.
const TABLES: &str = r#"
two() {
    table="lookup --threads 4 --size 16M --seconds 3 --table /dev/shm/$1"
    rondpoint run --quiet --report /tmp/$1 -- rondpoint-workloads mix "$table" "$table --seed 2" > /tmp/out
    cat /tmp/out
    report $1 /tmp/$1
}
two theirs
rondpoint-workloads lookup --threads 1 --size 16M --seconds 4 --table /dev/shm/shared > /dev/null &
sleep 0.5
two shared
wait
"#;

/// More are pages of the programs themselves.
const TABLE_PAGES: u64 = 500;

/// The reports on both.
struct Tables {
    theirs: Value,
    shared: Value,
}

impl Tables {
    fn once(lab: &Lab, machine: &Machine) -> Result<Self> {
        let record = run(lab, machine, "a table of two programs, and of a third", TABLES)?;
        let tables =
            Self { theirs: report(&record, "theirs")?, shared: report(&record, "shared")? };
        for report in [&tables.theirs, &tables.shared] {
            ensure!(
                report["exit_status"] == 0,
                "the programs ended with {}",
                report["exit_status"]
            );
        }
        Ok(tables)
    }

    /// There was something to do for both: the kernel spreads what it has found on one node,
    /// sometimes before Rondpoint has looked.
    fn shows(&self) -> bool {
        let asked = |report| ["moved", "failed"].map(|outcome| pages(report, outcome)) != [0, 0];
        asked(&self.theirs) && asked(&self.shared)
    }
}

pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 2)?;
    let tables = first_that_shows(lab, |lab| Tables::once(lab, &machine), Tables::shows)?;
    let Tables { theirs, shared } = &tables;
    let machine = name(&machine);
    let told =
        |report| format!("{}; by the kernel {}", told(report), report["pages_moved_by_kernel"]);
    Ok(vec![
        Finding::fact(
            &machine,
            "memory that two managed programs have mapped",
            "moved for both",
            told(theirs),
            pages(theirs, "moved") > TABLE_PAGES,
        ),
        Finding::fact(
            &machine,
            "the same while a process that is not managed has it mapped",
            "refused, page by page",
            told(shared),
            pages(shared, "failed") > 100 && pages(shared, "moved") < TABLE_PAGES,
        ),
    ])
}
