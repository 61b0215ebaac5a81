//! The policies that move threads, each on the smallest program that it is for: threads end where they belong,
//! the program is faster for it, no trial finds that worse, and every mask is back when the manager has gone.

use anyhow::{Context as _, Result};
use rondpoint_machine::Machine;
use serde_json::Value;

use super::name;
use super::session::{report, run};
use crate::lab::{Lab, cut_machine};
use crate::physics::{Finding, script};
use crate::progress::round_ends;
use crate::vm::Record;

/// Machines of two nodes with two CPUs each: one for the program, one for the manager and whoever comes.
const CPUS_PER_NODE: u32 = 2;

/// Two threads that add to the same lines, begun on different sockets. They stay until the script lets them go: while programs begin,
/// the kernel may take them elsewhere, and there would be nothing left to do.
const SHARERS: &str = "crew --need share --work 50 --start 0,2 --stay --size 4M --no-huge-pages";
/// The least gain that counts as one: half of what they gain on one socket without a manager, which is 1.51 times
/// the speed (emulated, 2026-11-21).
const LEAST_TOGETHER: f64 = 1.25;
/// The same of a program that comes to its memory: it gained 1.42.
const LEAST_AT_HOME: f64 = 1.2;
/// Two threads that load from memory, each of its own node's, where they stay as the sharers do.
const WELL_PLACED: &str = "crew --need own --start 0,2 --stay --size 4M --no-huge-pages";
/// A program that loads from memory, all of it on node 0, begun on node 1; and one on node 0 that has its memory
/// there too and hardly looks at it.
const HOMED_ON_0: [&str; 2] = [
    "crew --need own --start 2 --touch 0 --stay --size 4M --no-huge-pages",
    "crew --need own --work 2000 --start 0 --stay --size 4M --no-huge-pages",
];

/// The program is on its own for a second, then free to run anywhere and managed, then on its own again. Threads are told as
/// process, thread, CPU time, CPU and mask.
const SCRIPT: &str = r#"
tasks() {
    for comm in $(grep -ls rondpoint-workl /proc/[0-9]*/comm); do
        echo ${comm%/comm}/task/*
    done
}
let_go() {
    for task in $(tasks); do
        taskset -p f ${task##*/} > /dev/null
    done
}
threads() {
    for task in $(tasks); do
        process=${task%/task/*}
        echo "$1 ${process#/proc/} $(cut -d' ' -f1,14,39 $task/stat) $(sed -n 's/Cpus_allowed_list:.//p' $task/status)"
    done
}
managed() {
    tag=$1 policy=$2 seconds=$3
    shift 3
    rondpoint-workloads "$@" > /tmp/out &
    program=$!
    sleep 1
    let_go
    threads $tag-before
    rondpoint attach --quiet --policy $policy --report /tmp/report $program &
    manager=$!
    sleep $seconds
    threads $tag-managed
    kill -INT $manager
    wait $manager
    threads $tag-left
    echo "$tag-ledgers $(ls /run/rondpoint | wc -l)"
    wait $program
    sed "s/^/$tag-said /" /tmp/out
    report $tag /tmp/report
}
"#;

/// A thread as the guest shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    process: u32,
    tid: u32,
    /// Clock ticks.
    time: u64,
    cpu: u32,
    mask: String,
}

fn threads(record: &Record, tag: &str) -> Result<Vec<Thread>> {
    let parse = |line: &str| -> Option<Thread> {
        let mut words = line.split(' ');
        Some(Thread {
            process: words.next()?.parse().ok()?,
            tid: words.next()?.parse().ok()?,
            time: words.next()?.parse().ok()?,
            cpu: words.next()?.parse().ok()?,
            mask: words.next()?.to_owned(),
        })
    };
    script::lines(record, &format!("{tag} "))
        .map(|line| parse(line).with_context(|| format!("no thread: {line:?}")))
        .collect()
}

/// What a managed program did, and what was done to it.
struct Managed {
    tag: &'static str,
    /// When the manager came, by process and thread.
    before: Vec<Thread>,
    /// The same at the end of its time.
    managed: Vec<Thread>,
    left: Vec<Thread>,
    ledgers: String,
    report: Value,
    said: String,
}

impl Managed {
    fn of(record: &Record, tag: &'static str) -> Result<Self> {
        let at = |when: &str| -> Result<Vec<Thread>> {
            let mut threads = threads(record, &format!("{tag}-{when}"))?;
            threads.sort_unstable_by_key(|thread| (thread.process, thread.tid));
            Ok(threads)
        };
        let line = |what: &str| script::lines(record, &format!("{tag}-{what} ")).next();
        let said: Vec<&str> = script::lines(record, &format!("{tag}-said ")).collect();
        Ok(Self {
            tag,
            before: at("before")?,
            managed: at("managed")?,
            left: at("left")?,
            ledgers: line("ledgers").context("no count of ledgers")?.to_owned(),
            report: report(record, tag)?,
            said: said.join("\n"),
        })
    }

    /// The nodes on which those ran that work, and do not only wait for the others: before, and at the end of the manager's time.
    fn nodes(&self) -> [Vec<u32>; 2] {
        let most = self.managed.iter().map(|thread| thread.time).max().unwrap_or(0);
        let busy = self.managed.iter().filter(|thread| 2 * thread.time > most);
        let busy: Vec<u32> = busy.map(|thread| thread.tid).collect();
        [&self.before, &self.managed].map(|threads| {
            let is_busy = |thread: &&Thread| busy.contains(&thread.tid);
            threads.iter().filter(is_busy).map(|thread| thread.cpu / CPUS_PER_NODE).collect()
        })
    }

    fn moved(&self) -> u64 {
        self.report["threads"]["moved"].as_u64().unwrap_or(0)
    }

    /// Verdicts in words, and whether one of them is `worse`.
    fn verdicts(&self) -> (String, bool) {
        let trials = self.report["trials"].as_array().into_iter().flatten();
        let verdicts: Vec<&str> = trials.filter_map(|trial| trial["verdict"].as_str()).collect();
        (verdicts.join(", "), verdicts.contains(&"worse"))
    }

    /// Rounds a second in the last half second before the manager left, over those before it came.
    fn gain(&self, rounds: &[f64], seconds: f64) -> f64 {
        let pace = |from: f64, to: f64| {
            let inside = rounds.iter().filter(|end| (from..to).contains(*end)).count();
            inside as f64 / (to - from)
        };
        pace(1.0 + seconds - 0.5, 1.0 + seconds) / pace(0.2, 0.9)
    }

    /// What holds for each of them. `place` says where the busy threads belong, and `gain` the least that counts
    /// and what there was.
    fn findings(&self, machine: &Machine, place: &Place, gain: (f64, f64)) -> Vec<Finding> {
        let Self { tag, .. } = self;
        let name = name(machine);
        let (verdicts, is_worse) = self.verdicts();
        let masks = |threads: &Vec<Thread>| -> Vec<(u32, String)> {
            let mut masks: Vec<_> =
                threads.iter().map(|thread| (thread.tid, thread.mask.clone())).collect();
            masks.sort_unstable();
            masks
        };
        let [before, managed, left] = [&self.before, &self.managed, &self.left].map(masks);
        let [begun, ended] = self.nodes();
        let told = |now: &[(u32, String)]| if *now == before { "as before" } else { "others" };
        vec![
            Finding::fact(
                &name,
                &format!("{tag}: nodes of the busy threads; verdicts"),
                &format!("{}, moved, none worse", place.words),
                format!("{begun:?} to {ended:?}, {} moved; {verdicts}", self.moved()),
                (place.is_right)(&ended) && self.moved() > 0 && !is_worse,
            ),
            Finding::between(
                &name,
                format!("{tag}: rounds a second, managed over alone"),
                (gain.0, f64::INFINITY),
                gain.1,
                "",
            ),
            Finding::fact(
                &name,
                &format!("{tag}: masks while it manages, and when it has gone"),
                "others, as before, no ledger",
                format!("{}, {}, {} ledgers", told(&managed), told(&left), self.ledgers),
                managed != before && left == before && self.ledgers == "0",
            ),
        ]
    }
}

/// Where threads belong, by their nodes.
struct Place {
    words: &'static str,
    is_right: fn(&[u32]) -> bool,
}

/// Two sharers.
const TOGETHER: Place =
    Place { words: "both on one", is_right: |nodes| matches!(nodes, [a, b] if a == b) };
/// A program that uses its memory, and one that hardly does.
const FIRST_AT_HOME: Place =
    Place { words: "the first on 0", is_right: |nodes| matches!(nodes, [0, _]) };

/// Sharers that begin apart come together.
pub(super) fn check_sam(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("sam-2", CPUS_PER_NODE)?;
    let script = format!("{SCRIPT}managed sam sam 1.5 {SHARERS} --seconds 2.8\n");
    let record = run(lab, &machine, "sam: sharers that begin apart", &script)?;
    let sam = Managed::of(&record, "sam")?;
    let rounds = round_ends(&sam.said).context("the program told no rounds")?;
    Ok(sam.findings(&machine, &TOGETHER, (LEAST_TOGETHER, sam.gain(&rounds, 1.5))))
}

/// The same by the policy of all, which leaves a well placed program alone.
pub(super) fn check_auto(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("sam-2", CPUS_PER_NODE)?;
    let script = format!(
        "{SCRIPT}managed auto auto 2.5 {SHARERS} --seconds 3.8\n\
         managed placed auto 2 {WELL_PLACED} --seconds 3.2\n\
         managed again auto 2 {WELL_PLACED} --seconds 3.2\n"
    );
    let record =
        run(lab, &machine, "auto: sharers that begin apart, and a well placed program", &script)?;
    let auto = Managed::of(&record, "auto")?;
    let rounds = round_ends(&auto.said).context("the program told no rounds")?;
    let mut findings =
        auto.findings(&machine, &TOGETHER, (LEAST_TOGETHER, auto.gain(&rounds, 2.5)));
    let placed = [Managed::of(&record, "placed")?, Managed::of(&record, "again")?];
    findings.push(left_alone(&machine, &placed)?);
    Ok(findings)
}

/// Nothing moves in a well placed program: no thread in any of its runs, and no page in one of them at least. In another pages may,
/// where the kernel took a thread elsewhere, so that the program was not well placed any more. If it did so when the threads were let go,
/// before the manager came, the run shows nothing; one has to.
fn left_alone(machine: &Machine, runs: &[Managed]) -> Result<Finding> {
    let (mut told, mut calm, mut holds) = (Vec::new(), 0, true);
    for run in runs {
        let count = |name: &str| run.report[name].as_u64().context("a count is missing");
        let (looks, pages, threads) = (count("looks")?, count("pages_moved")?, run.moved());
        let [begun, ended] = run.nodes();
        let is_placed = matches!(begun[..], [a, b] if a != b);
        calm += u32::from(is_placed && pages == 0);
        holds &= !is_placed || looks > 3 && threads == 0 && (pages == 0 || ended != begun);
        let placed = if is_placed { "" } else { " (not well placed)" };
        told.push(format!(
            "{begun:?}{placed} to {ended:?}, {looks} looks, {threads} threads and {pages} pages moved"
        ));
    }
    Ok(Finding::fact(
        &name(machine),
        "auto: a well placed program is left alone",
        "looked at, nothing moved",
        told.join("; "),
        holds && calm > 0,
    ))
}

/// Of two programs with all memory on node 0, the one that uses it ends there.
pub(super) fn check_nmass(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("nmass-2", CPUS_PER_NODE)?;
    let [heavy, light] = HOMED_ON_0;
    // Left on, the kernel's balancing would bring the memory to the program before the program comes to it.
    let head = format!("{SCRIPT}echo 0 > /proc/sys/kernel/numa_balancing\n");
    let script = format!(
        "{head}managed nmass nmass 3.5 mix '{heavy} --seconds 4.8' '{light} --seconds 4.8'\n"
    );
    let record = run(lab, &machine, "nmass: memory on node 0, begun on node 1", &script)?;
    let nmass = Managed::of(&record, "nmass")?;
    let ends = nmass.said.lines().find_map(|line| line.strip_prefix("program=0 ends_s="));
    let ends =
        ends.and_then(|rest| rest.split(' ').next()).context("the program told no rounds")?;
    let rounds: Vec<f64> = ends.split(',').filter_map(|end| end.parse().ok()).collect();
    let gain = nmass.gain(&rounds, 3.5);
    Ok(nmass.findings(&machine, &FIRST_AT_HOME, (LEAST_AT_HOME, gain)))
}
