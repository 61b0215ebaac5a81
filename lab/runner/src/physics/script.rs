//! A shell script in the guest, with perf, the lab's workloads and the product beside it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_lab_init::{Ending, Event};
use rondpoint_machine::Machine;

use crate::configuration::{self, Configuration, Order};
use crate::initramfs::Initramfs;
use crate::lab::Lab;
use crate::program;
use crate::vm::{Boot, Record};

/// No physics check takes longer than this in host time.
const LIMIT: Duration = Duration::from_secs(1200);

/// `say TAG COMMAND…` prints the command's output behind a tag, and ends the script if it fails.
///
/// `daemon LOG` starts a daemon that acts on programs as small as the lab's, and waits until it
/// answers. More settings come from its standard input. `$daemon` is its process.
const HEAD: &str = r#"#!/bin/sh
set -e
say() { tag=$1; shift; line=$("$@"); echo "$tag $line"; }
daemon() {
    more=$(cat)
    cat > /tmp/rondpoint.toml << END
mode = "act"
[manage]
min_memory_mib = 4
min_cpus = 0.3
look_every_s = 0.25
$more
END
    rondpoint daemon --config /tmp/rondpoint.toml 2> $1 &
    daemon=$!
    until rondpoint status > /dev/null 2>&1; do sleep 0.1; done
}"#;

/// Runs `text` with busybox's shell on `machine` (already scaled) and returns the run's record.
/// The script's exit status must be 0.
pub(crate) fn run(lab: &Lab, machine: &Machine, what: &str, text: &str) -> Result<Record> {
    run_with(lab, machine, what, text, |_| Ok(()))
}

/// The same with more in the guest.
pub(crate) fn run_with(
    lab: &Lab,
    machine: &Machine,
    what: &str,
    text: &str,
    bring: impl FnOnce(&mut Initramfs) -> Result<()>,
) -> Result<Record> {
    let mut guest = configuration::base(&lab.installed, &lab.built)?;
    guest.add_file(&lab.built.workloads, "/bin/rondpoint-workloads")?;
    configuration::add_product(&mut guest, &lab.built, machine)?;
    let perf = program::bring_tool(configuration::tool(&lab.installed, "perf")?, &mut guest)?;
    guest.add_script(format!("#!/bin/sh\nexec {} \"$@\"\n", perf.join(" ")), "/bin/perf");
    guest.add_script(format!("{HEAD}\n{text}\n"), "/root/script");
    bring(&mut guest)?;
    let command = ["/bin/sh", "/root/script"].map(str::to_owned);
    let order = Order {
        configuration: Configuration::FirstTouch,
        command: &command,
        replicated: &[],
        seed: lab.seed,
    };
    let guest = configuration::with_job(guest, &lab.installed, &order)?;
    boot(lab, machine, what, &guest)
}

/// Boots a guest that holds its job and says on stderr how long it took.
pub(crate) fn boot(lab: &Lab, machine: &Machine, what: &str, guest: &Initramfs) -> Result<Record> {
    let started = Instant::now();
    eprint!("{}: {what} … ", machine.name);
    let context = || format!("{}: {what}", machine.name);
    let boot = Boot {
        installed: &lab.installed,
        built: &lab.built,
        machine,
        initramfs: &guest.archive()?,
        seed: lab.seed,
        limit: LIMIT,
    };
    let record = boot.run().with_context(context)?;
    eprintln!("{:.0} s", started.elapsed().as_secs_f64());
    let ended_well =
        |event: &Event| matches!(event, Event::Finished { ending: Ending::Exit(0), .. });
    if !record.events.iter().any(ended_well) {
        let said = String::from_utf8_lossy(&record.stderr).into_owned();
        bail!("{}: {:?}\n{said}", context(), record.events);
    }
    Ok(record)
}

/// The lines of the script's output that begin with `tag`, without it.
pub(crate) fn lines<'r>(record: &'r Record, tag: &str) -> impl Iterator<Item = &'r str> {
    let text = std::str::from_utf8(&record.stdout).unwrap_or("");
    text.lines().filter_map(move |line| line.strip_prefix(tag)).map(str::trim)
}

/// The number behind `key=` in a line of key=value pairs.
pub(crate) fn value(line: &str, key: &str) -> Result<f64> {
    let pair = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let text = pair.with_context(|| format!("no {key}= in {line:?}"))?;
    text.parse().with_context(|| format!("{key}={text}: not a number"))
}

/// The count of an event in lines of `perf stat -x,`.
pub(crate) fn perf_count<'a>(mut lines: impl Iterator<Item = &'a str>, event: &str) -> Result<f64> {
    let line = lines
        .find(|line| line.split(',').nth(2).is_some_and(|name| name.contains(event)))
        .with_context(|| format!("perf stat did not say {event}"))?;
    let count = line.split(',').next().unwrap_or("");
    count.parse().with_context(|| format!("perf stat says {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_counts_are_found() {
        let line = "workload=chase ns_per_access=87.5 result=ok";
        assert_eq!(value(line, "ns_per_access").expect("there"), 87.5);
        assert!(value(line, "ns").is_err());
        let perf = ["123,,cpu/dram_node1/u,100,100.00,,", "<not counted>,,cycles,0,0.00,,"];
        assert_eq!(perf_count(perf.into_iter(), "dram_node1").expect("there"), 123.0);
        assert!(perf_count(perf.into_iter(), "cycles").is_err());
    }
}
