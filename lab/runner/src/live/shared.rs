//! Memory that several processes have mapped: it is moved for all of them, but only if all of them are managed.

use anyhow::Result;

use super::name;
use super::session::{pages, report, run, told};
use crate::lab::{Lab, cut_machine};
use crate::physics::Finding;

/// Two programs with one table, all of it where the first was filling it. The second time somebody who is not managed has it too.
const TABLES: &str = r#"
two() {
    table="lookup --threads 4 --size 16M --seconds 3 --table /dev/shm/$1"
    rondpoint run --quiet --report /tmp/$1 -- rondpoint-workloads mix "$table" "$table --seed 2" > /tmp/out
    cat /tmp/out
    report $1 /tmp/$1
}
two theirs
rondpoint-workloads lookup --threads 1 --size 16M --seconds 4 --table /dev/shm/everybodys > /dev/null &
sleep 0.5
two everybodys
wait
"#;

/// More are pages of the programs themselves.
const TABLE_PAGES: u64 = 500;

pub(super) fn check(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("carrefour-a", 2)?;
    let record = run(lab, &machine, "a table of two programs, and of a third", TABLES)?;
    let (theirs, everybodys) = (report(&record, "theirs")?, report(&record, "everybodys")?);
    let machine = name(&machine);
    Ok(vec![
        Finding::fact(
            &machine,
            "memory that two managed programs have mapped",
            "moved for both",
            told(&theirs),
            pages(&theirs, "moved") > TABLE_PAGES && theirs["exit_status"] == 0,
        ),
        Finding::fact(
            &machine,
            "the same while somebody else has it mapped, who is not managed",
            "refused, page by page",
            told(&everybodys),
            pages(&everybodys, "failed") > 100
                && pages(&everybodys, "moved") < TABLE_PAGES
                && everybodys["exit_status"] == 0,
        ),
    ])
}
