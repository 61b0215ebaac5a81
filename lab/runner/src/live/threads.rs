//! The policies that move threads, each on the smallest program that it can help. Threads must end
//! on the right node, the program must become faster, and no trial may find that worse. Every mask
//! is restored after the manager has ended.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use rondpoint_machine::{Machine, Processor};
use serde_json::Value;

use super::name;
use super::processor::{playing_with, unjammed_by_carrefour};
use super::session::{first_that_shows, report, run, verdicts};
use crate::lab::{Lab, cut_machine};
use crate::last_third::{pace, round_ends};
use crate::physics::{Finding, script};
use crate::vm::Record;

/// CPUs of each node: one for the program, one for the manager and newcomers.
const CPUS_PER_NODE: u32 = 2;

/// Two threads that add to the same lines, begun on different sockets. They stay until the script
/// lets them go: while programs begin, the kernel may take them elsewhere, and there would be
/// nothing left to do.
const SHARERS: &str = "crew --need share --work 50 --start 0,2 --stay --size 4M --no-huge-pages";
/// The least gain that counts as one. It is half of what they gain on one socket without a manager,
/// which is 1.51 times the speed (emulated).
const LEAST_TOGETHER: f64 = 1.25;
/// The same of a program that comes to its memory: it gained 1.42.
const LEAST_AT_HOME: f64 = 1.2;
/// The same of a program that leaves the worst pair of nodes: half of the least that it gained in
/// `./x lab experiments asymsched`, which is 1.69.
const LEAST_OFF_THE_WORST: f64 = 1.34;
/// Two threads that load from memory, each of its own node's, where they stay as the sharers do.
const WELL_PLACED: &str = "crew --need own --start 0,2 --stay --size 4M --no-huge-pages";
/// The first program loads from memory, all of it on node 0, and begins on node 1. The second is on
/// node 0, has its memory there too and hardly looks at it.
const HOMED_ON_0: [&str; 2] = [
    "crew --need own --start 2 --touch 0 --stay --size 4M --no-huge-pages",
    "crew --need own --work 2000 --start 0 --stay --size 4M --no-huge-pages",
];

/// The program is on its own for a second, then free to run anywhere and managed, then on its own
/// again. Threads are told as process, thread, CPU time, CPU and mask. The places that the manager
/// saw until it first moved something are told as thread and CPU.
const SCRIPT: &str = r#"
tasks() {
    for comm in $(grep -ls rondpoint-workl /proc/[0-9]*/comm); do
        echo ${comm%/comm}/task/*
    done
}
let_go() {
    for task in $(tasks); do
        taskset -p -c $(cat /sys/devices/system/cpu/online) ${task##*/} > /dev/null
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
    rondpoint attach --quiet --policy $policy --report /tmp/report --record /tmp/trace $program &
    manager=$!
    sleep $seconds
    threads $tag-managed
    kill -INT $manager
    wait $manager
    threads $tag-left
    echo "$tag-ledgers $(ls /run/rondpoint | wc -l)"
    sed '/"steps":\[{[^]]*"do":"\(set-affinity\|move-pages\|move-process-memory\)"/q' /tmp/trace |
        sed 's/"tid":\([0-9]*\),"cpu":\([0-9]*\)/\n'$tag'-seen \1 \2\n/g' | grep "^$tag-seen" | sort -u
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

/// Threads and the CPUs where the manager saw them.
fn seen(record: &Record, tag: &str) -> Result<Vec<(u32, u32)>> {
    let parse = |line: &str| -> Option<(u32, u32)> {
        let (tid, cpu) = line.split_once(' ')?;
        Some((tid.parse().ok()?, cpu.parse().ok()?))
    };
    script::lines(record, &format!("{tag}-seen "))
        .map(|line| parse(line).with_context(|| format!("no thread and CPU: {line:?}")))
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
    /// Threads and the CPUs where the manager saw them before it moved anything.
    seen: Vec<(u32, u32)>,
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
            seen: seen(record, tag)?,
            ledgers: line("ledgers").context("no count of ledgers")?.to_owned(),
            report: report(record, tag)?,
            said: said.join("\n"),
        })
    }

    /// Threads that work, and do not only wait for the others.
    fn busy(&self) -> BTreeSet<u32> {
        let most = self.managed.iter().map(|thread| thread.time).max().unwrap_or(0);
        let busy = self.managed.iter().filter(|thread| 2 * thread.time > most);
        busy.map(|thread| thread.tid).collect()
    }

    /// The nodes on which those ran that work: before, and at the end of the manager's time.
    fn nodes(&self) -> [Vec<u32>; 2] {
        let busy = self.busy();
        [&self.before, &self.managed].map(|threads| {
            let is_busy = |thread: &&Thread| busy.contains(&thread.tid);
            threads.iter().filter(is_busy).map(|thread| thread.cpu / CPUS_PER_NODE).collect()
        })
    }

    /// Whether the kernel took one that works to another node before the manager moved anything.
    fn is_disturbed(&self) -> bool {
        let busy = self.busy();
        let begun = |tid| self.before.iter().find(|thread| thread.tid == tid);
        self.seen.iter().filter(|(tid, _)| busy.contains(tid)).any(|(tid, cpu)| {
            begun(*tid).is_some_and(|thread| thread.cpu / CPUS_PER_NODE != cpu / CPUS_PER_NODE)
        })
    }

    fn moved(&self) -> u64 {
        self.report["threads"]["moved"].as_u64().unwrap_or(0)
    }

    /// Verdicts in words, and whether one of them is `worse`.
    /// Rounds a second in the last half second before the manager left, over those before it came.
    fn gain(&self, rounds: &[f64], seconds: f64) -> f64 {
        pace(rounds, 1.0 + seconds - 0.5, 1.0 + seconds) / pace(rounds, 0.2, 0.9)
    }

    /// What holds for each of them. `place` says where the busy threads belong, and `gain` the
    /// least that counts and what there was.
    fn findings(&self, machine: &Machine, place: &Place, gain: (f64, f64)) -> Vec<Finding> {
        let Self { tag, .. } = self;
        let name = name(machine);
        let (verdicts, is_worse) = verdicts(&self.report);
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

/// Findings on a machine that plays this processor.
fn on(processor: Processor, findings: Vec<Finding>) -> Vec<Finding> {
    let named = |finding: Finding| {
        let check = format!("{}: {}", processor.name(), finding.check);
        Finding { check, ..finding }
    };
    findings.into_iter().map(named).collect()
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

/// Two threads that use each other's memory.
const OFF_THE_WORST: Place = Place {
    words: "not on 0 and 5",
    is_right: |nodes| nodes.len() == 2 && !matches!(nodes, [0, 5] | [5, 0]),
};

/// A program that has to be brought to its place, and what it says about its rounds.
struct Case {
    tag: &'static str,
    what: &'static str,
    /// What comes before the program.
    head: &'static str,
    program: String,
    seconds: f64,
    place: Place,
    least_gain: f64,
    /// The ends of the rounds, in seconds.
    rounds: fn(&str) -> Option<Vec<f64>>,
}

impl Case {
    /// Sharers that begin apart come together.
    fn sharers(policy: &'static str, what: &'static str, seconds: f64) -> Self {
        Self {
            tag: policy,
            what,
            head: "",
            program: format!("{SHARERS} --seconds {:.1}", seconds + 1.3),
            seconds,
            place: TOGETHER,
            least_gain: LEAST_TOGETHER,
            rounds: round_ends,
        }
    }

    fn once(&self, lab: &Lab, machine: &Machine) -> Result<Managed> {
        let Self { tag, what, head, program, seconds, .. } = self;
        let script = format!("{SCRIPT}{head}managed {tag} {tag} {seconds} {program}\n");
        Managed::of(&run(lab, machine, what, &script)?, tag)
    }

    fn findings(&self, lab: &Lab, machine: &Machine) -> Result<Vec<Finding>> {
        let managed = first_that_shows(
            lab,
            |lab| self.once(lab, machine),
            |managed| managed.moved() > 0 || !(self.place.is_right)(&managed.nodes()[1]),
        )?;
        let rounds = (self.rounds)(&managed.said).context("the program told no rounds")?;
        let gain = managed.gain(&rounds, self.seconds);
        Ok(managed.findings(machine, &self.place, (self.least_gain, gain)))
    }
}

/// Sharers under the policy that is for them.
pub(super) fn check_sam(lab: &Lab) -> Result<Vec<Finding>> {
    let case = Case::sharers("sam", "sam: sharers that begin apart", 1.5);
    let mut findings = case.findings(lab, &cut_machine("sam-2", CPUS_PER_NODE)?)?;
    let paper = Processor::IvybridgeEp;
    let machine = playing_with("sam-2", paper, CPUS_PER_NODE)?;
    findings.extend(on(paper, case.findings(lab, &machine)?));
    Ok(findings)
}

/// Policies with the events that a real processor has: N-MASS on Skylake-SP, Carrefour and
/// AsymSched on Zen 4. Its controllers and samples tell all that both ask for.
pub(super) fn check_more(lab: &Lab) -> Result<Vec<Finding>> {
    let (intel, amd) = (Processor::SkylakeSp, Processor::AmdZen4);
    let machine = playing_with("nmass-2", intel, CPUS_PER_NODE)?;
    let mut findings = on(intel, at_home().findings(lab, &machine)?);
    findings.push(unjammed_by_carrefour(lab, amd)?);
    let machine = playing_with("asymsched-8", amd, CPUS_PER_NODE)?;
    findings.extend(on(amd, off_the_worst().findings(lab, &machine)?));
    Ok(findings)
}

/// Two threads that use each other's memory, on the two nodes with the least bandwidth between
/// them: 0 and 5.
fn off_the_worst() -> Case {
    let seconds = 6.0;
    Case {
        tag: "asymsched",
        what: "asymsched: begun on the pair with the least bandwidth",
        head: "echo 0 > /proc/sys/kernel/numa_balancing\n",
        program: format!(
            "crew --need all --start 0,10 --touch 0,10 --stay --size 4M --no-huge-pages --seconds {:.1}",
            seconds + 1.3
        ),
        seconds,
        place: OFF_THE_WORST,
        least_gain: LEAST_OFF_THE_WORST,
        rounds: round_ends,
    }
}

/// The same by the policy of all, which leaves a well placed program alone.
pub(super) fn check_auto(lab: &Lab) -> Result<Vec<Finding>> {
    let machine = cut_machine("sam-2", CPUS_PER_NODE)?;
    let sharers = Case::sharers("auto", "auto: sharers that begin apart", 2.5);
    let mut findings = sharers.findings(lab, &machine)?;
    let alone = first_that_shows(
        lab,
        |lab| LeftAlone::once(lab, &machine),
        |alone| alone.is_calm || !alone.holds,
    )?;
    findings.push(alone.finding(&machine));
    Ok(findings)
}

/// What a program is left that is well placed.
struct LeftAlone {
    told: Vec<String>,
    /// There was a run that was well placed as long as it was looked at, and nothing moved in it.
    is_calm: bool,
    /// Nothing was seen that may not be.
    holds: bool,
}

impl LeftAlone {
    /// Two runs in one guest.
    fn once(lab: &Lab, machine: &Machine) -> Result<Self> {
        let script = format!(
            "{SCRIPT}managed placed auto 2 {WELL_PLACED} --seconds 3.2\n\
             managed again auto 2 {WELL_PLACED} --seconds 3.2\n"
        );
        let record = run(lab, machine, "auto: a well placed program", &script)?;
        let mut alone = Self { told: Vec::new(), is_calm: false, holds: true };
        for tag in ["placed", "again"] {
            alone.add(&Managed::of(&record, tag)?)?;
        }
        Ok(alone)
    }

    /// Nothing moves in a well placed program. Where the kernel moves a thread, the program is
    /// badly placed from then on. Then a thread may be brought home, or to its pages where the
    /// kernel has moved them meanwhile. A trial that finds that worse may bring it back. Such a run
    /// shows nothing, nor does a run in which the kernel did so before the manager came. One run
    /// has to show it.
    fn add(&mut self, run: &Managed) -> Result<()> {
        let count = |name: &str| run.report[name].as_u64().context("a count is missing");
        let (looks, pages, threads) = (count("looks")?, count("pages_moved")?, run.moved());
        let [begun, ended] = run.nodes();
        let begins_well = matches!(begun[..], [a, b] if a != b);
        let is_disturbed = run.is_disturbed();
        if begins_well && !is_disturbed {
            let is_untouched = threads == 0 && pages == 0;
            self.is_calm |= is_untouched;
            self.holds &= is_untouched && looks > 3;
        }
        let by_kernel = match (begins_well, is_disturbed) {
            (false, _) => " (not well placed)",
            (true, true) => " (the kernel took one elsewhere)",
            (true, false) => "",
        };
        self.told.push(format!(
            "{begun:?} to {ended:?}{by_kernel}, {looks} looks, {threads} threads and {pages} pages moved"
        ));
        Ok(())
    }

    fn finding(&self, machine: &Machine) -> Finding {
        Finding::fact(
            &name(machine),
            "auto: a well placed program is left alone",
            "looked at, nothing moved",
            self.told.join("; "),
            self.holds && self.is_calm,
        )
    }
}

/// Of two programs with all memory on node 0, the one that uses it ends there.
pub(super) fn check_nmass(lab: &Lab) -> Result<Vec<Finding>> {
    at_home().findings(lab, &cut_machine("nmass-2", CPUS_PER_NODE)?)
}

/// The first of two programs comes to its memory.
fn at_home() -> Case {
    let [heavy, light] = HOMED_ON_0.map(|program| format!("'{program} --seconds 4.8'"));
    Case {
        tag: "nmass",
        what: "nmass: memory on node 0, begun on node 1",
        // Left on, the kernel's balancing would bring the memory to the program before the program
        // comes to it.
        head: "echo 0 > /proc/sys/kernel/numa_balancing\n",
        program: format!("mix {heavy} {light}"),
        seconds: 3.5,
        place: FIRST_AT_HOME,
        least_gain: LEAST_AT_HOME,
        rounds: rounds_of_first,
    }
}

/// The ends of the rounds of the first program of a mix, in seconds.
fn rounds_of_first(said: &str) -> Option<Vec<f64>> {
    let ends = said.lines().find_map(|line| line.strip_prefix("program=0 ends_s="))?;
    ends.split(' ').next()?.split(',').map(|end| end.parse().ok()).collect()
}
