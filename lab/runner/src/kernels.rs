//! `rondpoint-lab kernels`: runs the product's first commands on kernels other than the lab's own.
//!
//! The guest has QEMU's plain machine of two nodes, no hardware model and no PMU, so any kernel
//! boots. It tests the product with the kernel's interfaces; it does not measure speed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rondpoint_lab_init::{Ending, Event, JOB_PATH, Job};
use serde::Serialize;
use serde_json::Value;

use crate::configuration;
use crate::initramfs::Initramfs;
use crate::lab::{Lab, cut_machine};
use crate::physics::script::lines;
use crate::vm::{Boot, Emulation, Record};

/// Host time after which a kernel is given up.
const LIMIT: Duration = Duration::from_secs(600);
const MACHINE: &str = "nmass-2";
const CPUS_PER_NODE: u32 = 2;

/// What an operator does first. A command that fails is told and ends nothing.
const SCRIPT: &str = r#"#!/bin/sh
try() { name=$1; shift; "$@" > /tmp/out 2> /tmp/error; echo "status $name $?"; }
doctor() { rondpoint doctor --json; [ $? -lt 2 ]; }
daemon() {
  printf 'mode = "act"\n[manage]\nmin_memory_mib = 4\nmin_cpus = 0.3\n' > /tmp/rondpoint.toml
  rondpoint daemon --config /tmp/rondpoint.toml & daemon=$!
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    rondpoint status > /dev/null 2>&1 && break; sleep 0.5
  done
  rondpoint status; answered=$?
  kill -TERM $daemon; wait $daemon && return $answered
}
work="rondpoint-workloads kmeans --rotate --pin --no-huge-pages --size 32M --iterations"
mount -t debugfs debugfs /sys/kernel/debug || true
try doctor doctor
echo "doctor $(tr -d '\n' < /tmp/out)"
try topology rondpoint topology
try observe rondpoint observe -- $work 20
try record rondpoint record --output /tmp/trace -- $work 20
try replay rondpoint replay /tmp/trace
try run rondpoint run --report /tmp/report -- $work 200
echo "report $(tr -d '\n' < /tmp/report)"
try daemon daemon
try restore rondpoint restore --dry-run
"#;
/// What [`SCRIPT`] tries, in its order.
const COMMANDS: [&str; 8] =
    ["doctor", "topology", "observe", "record", "replay", "run", "daemon", "restore"];

/// What stands above the table of docs/kernels.md.
const HEAD: &str = include_str!("kernels/head.md");

/// What `kernels` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Kernels to boot, each a bzImage such as /boot/vmlinuz-*; default: the lab's own
    #[arg(value_name = "IMAGE")]
    images: Vec<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print docs/kernels.md, which is generated from this
    #[arg(long)]
    markdown: bool,
}

/// What one kernel did.
#[derive(Debug, Serialize)]
struct Tried {
    /// What `uname -r` says there.
    kernel: String,
    /// Exit status of each command; `null` where it did not come to it.
    statuses: Vec<(&'static str, Option<i64>)>,
    /// What the managed run saw accesses with.
    sensor: Option<String>,
    /// Pages that it moved.
    pages_moved: u64,
    /// Pages that the kernel's NUMA balancing moved meanwhile.
    pages_moved_by_kernel: u64,
    /// Whether the doctor finds the machine fit.
    fit: bool,
    /// Each feature of the kernel that `doctor --kernel` names, and its state.
    features: Vec<(String, String)>,
}

/// Boots each kernel and prints what went well; exit status 1 where a command failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = Lab::open()?;
    let images = match &arguments.images[..] {
        [] => vec![lab.installed.kernel.image.clone()],
        images => images.to_vec(),
    };
    let mut all_were = true;
    let mut tried = Vec::new();
    for image in images {
        let shown = image.display().to_string();
        eprint!("{shown} … ");
        let begin = Instant::now();
        match try_kernel(&lab, image) {
            Ok(one) => tried.push(one),
            Err(error) => {
                eprint!("not tried: {error:#}; ");
                all_were = false;
            }
        }
        eprintln!("{:.0} s", begin.elapsed().as_secs_f64());
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&tried)?);
    } else {
        let head = if arguments.markdown { HEAD } else { "" };
        print!("{head}{}", table(&tried));
    }
    let is_good = |tried: &Tried| tried.statuses.iter().all(|(_, status)| *status == Some(0));
    Ok(ExitCode::from(u8::from(!all_were || !tried.iter().all(is_good))))
}

fn try_kernel(lab: &Lab, image: PathBuf) -> Result<Tried> {
    if !image.is_file() {
        anyhow::bail!("no such file; expected a kernel's bzImage");
    }
    let machine = cut_machine(MACHINE, CPUS_PER_NODE)?;
    let mut installed = lab.installed.clone();
    installed.kernel.image = image;
    let mut guest = Initramfs::new();
    guest.add_file(&lab.built.init, "/init")?;
    let busybox = configuration::tool(&installed, "busybox")?;
    guest.add_file(&busybox.path, "/bin/busybox")?;
    guest.add_link("busybox", "/bin/sh");
    guest.add_file(&lab.built.workloads, "/bin/rondpoint-workloads")?;
    guest.add_file(&lab.built.product, "/bin/rondpoint")?;
    guest.add_script(SCRIPT.to_owned(), "/root/script");
    let job = Job {
        command: ["/bin/sh", "/root/script"].map(str::to_owned).to_vec(),
        environment: [("PATH", "/bin"), ("HOME", "/root")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        numa_balancing: true,
        ..Job::default()
    };
    guest.add_bytes(serde_json::to_vec(&job)?, JOB_PATH);
    let archive = guest.archive()?;
    let boot = Boot {
        installed: &installed,
        built: &lab.built,
        machine: &machine,
        initramfs: &archive,
        seed: lab.seed,
        limit: LIMIT,
    };
    told(&boot.watched(Emulation::Plain, |_, _| ())?)
}

/// What a boot's record says.
fn told(record: &Record) -> Result<Tried> {
    let kernel = record.events.iter().find_map(|event| match event {
        Event::Started { kernel, .. } => Some(kernel.clone()),
        _ => None,
    });
    let ended = record
        .events
        .iter()
        .any(|event| matches!(event, Event::Finished { ending: Ending::Exit(0), .. }));
    if !ended {
        anyhow::bail!("the script did not end: {:?}", record.events);
    }
    let status = |name: &str| {
        let tag = format!("status {name} ");
        lines(record, &tag).next().and_then(|status| status.parse().ok())
    };
    let json = |tag: &str| {
        let line = lines(record, tag).next().unwrap_or_default();
        serde_json::from_str::<Value>(line).unwrap_or_default()
    };
    let (doctor, report) = (json("doctor "), json("report "));
    let count = |name: &str| report[name].as_u64().unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let features = doctor["kernel"].as_array().into_iter().flatten();
    Ok(Tried {
        kernel: kernel.context("the guest did not say its kernel")?,
        statuses: COMMANDS.map(|name| (name, status(name))).to_vec(),
        sensor: report["sensor"].as_str().map(str::to_owned),
        pages_moved: count("pages_moved"),
        pages_moved_by_kernel: count("pages_moved_by_kernel"),
        fit: doctor["fit"] == true,
        features: features.map(|one| (text(&one["name"]), text(&one["state"]))).collect(),
    })
}

/// Kernels side by side, a line for each thing, in Markdown.
fn table(tried: &[Tried]) -> String {
    let mut text = String::new();
    let mut row = |title: &str, cell: &dyn Fn(&Tried) -> String| {
        let cells: Vec<String> = tried.iter().map(cell).collect();
        text.push_str(&format!("| {title} | {} |\n", cells.join(" | ")));
    };
    row("", &|tried| tried.kernel.clone());
    row("---", &|_| "---".to_owned());
    for (index, name) in COMMANDS.iter().enumerate() {
        row(name, &|tried| match tried.statuses[index].1 {
            Some(0) => "good".to_owned(),
            Some(status) => format!("status {status}"),
            None => "not reached".to_owned(),
        });
    }
    row("doctor: fit", &|tried| if tried.fit { "yes" } else { "no" }.to_owned());
    row("run sees accesses by", &|tried| tried.sensor.clone().unwrap_or_default());
    row("pages moved by Rondpoint", &|tried| tried.pages_moved.to_string());
    row("pages moved by NUMA balancing", &|tried| tried.pages_moved_by_kernel.to_string());
    let names = tried.iter().map(|one| &one.features).max_by_key(|features| features.len());
    for (index, (name, _)) in names.into_iter().flatten().enumerate() {
        row(name, &|tried| {
            tried.features.get(index).map(|(_, state)| state.clone()).unwrap_or_default()
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_stand_side_by_side() {
        let one = |kernel: &str, status| Tried {
            kernel: kernel.to_owned(),
            statuses: COMMANDS.map(|name| (name, status)).to_vec(),
            sensor: Some("faults".to_owned()),
            pages_moved: 7,
            pages_moved_by_kernel: 9,
            fit: true,
            features: vec![("damon".to_owned(), "absent".to_owned())],
        };
        let text = table(&[one("5.10", Some(0)), one("7.3", None)]);
        let shown: Vec<&str> = text.lines().collect();
        assert_eq!(shown[0], "|  | 5.10 | 7.3 |");
        assert_eq!(shown[2], "| doctor | good | not reached |");
        assert_eq!(shown[shown.len() - 1], "| damon | absent | absent |");
    }
}
