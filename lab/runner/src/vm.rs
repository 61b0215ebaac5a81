//! One boot of the emulated machine, from power-on to power-off.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rondpoint_lab_init::{Event, FILE_LIMIT_BYTES, MIDR_VARIABLE, Measurement};
use rondpoint_machine::{Machine, Processor, Vendor};

use crate::built::Built;
use crate::installed::Installed;
use crate::leash;
use crate::machine_arguments::{arguments, memory_map};
use crate::scratch::Scratch;

/// Size of the memory that plugin and guest driver share (`lab/driver/layout.h`, `RP_BAR_BYTES`).
const SHARED_BYTES: u64 = 16 << 20;
/// How often we look whether QEMU has ended, and what a watcher's times are good to.
const POLL: Duration = Duration::from_millis(5);
/// Lines of the console that an error quotes.
const CONSOLE_LINES: usize = 12;

/// What is needed to boot: programs, the machine as the lab scales it, and its file system.
pub(crate) struct Boot<'a> {
    pub(crate) installed: &'a Installed,
    pub(crate) built: &'a Built,
    /// Already scaled: [`Machine::for_lab`].
    pub(crate) machine: &'a Machine,
    pub(crate) initramfs: &'a [u8],
    /// Seeds the guest's random numbers: address layout, hash seeds.
    pub(crate) seed: u64,
    /// Host time after which the run is given up.
    pub(crate) limit: Duration,
}

/// What stands between QEMU and the guest. Everything but [`Emulation::Modelled`] is for comparison
/// of speed: the guest then sees the host's time, and nothing is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emulation<'a> {
    /// Our plugin and the full hardware model.
    Modelled,
    /// QEMU alone, all vCPUs on one host thread.
    Plain,
    /// QEMU alone, a host thread for each vCPU.
    PlainThreads,
    /// A plugin that is not ours, with its options, all vCPUs on one host thread.
    Plugin(&'a Path, &'a str),
}

/// What came out of a boot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    pub(crate) events: Vec<Event>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// What the program left of the files that its job wants, by path in the guest.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// `None` when the modelled part never began.
    pub(crate) measurement: Option<Measurement>,
}

impl Boot<'_> {
    /// Boots, waits for power-off, and collects what the guest and the plugin left.
    pub(crate) fn run(&self) -> Result<Record> {
        self.watched(Emulation::Modelled, |_, _| ())
    }

    /// The same under any emulation. `look` is called again and again while QEMU runs, with QEMU's
    /// process id and the file that holds what the guest has reported so far.
    pub(crate) fn watched(
        &self,
        emulation: Emulation<'_>,
        mut look: impl FnMut(u32, &Path),
    ) -> Result<Record> {
        let folder = Scratch::new()?;
        let mut command = self.command(folder.path(), emulation)?;
        for (port, name) in ["console", "report", "stdout", "stderr"].iter().enumerate() {
            let path = folder.path().join(name);
            command.args(["-chardev", &format!("file,id=port{port},path={}", escaped(&path))]);
            command.args(["-serial", &format!("chardev:port{port}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(folder.path().join("qemu"))?);
        let started = Instant::now();
        let mut child = Running(command.spawn().context("cannot start QEMU")?);
        let status = loop {
            if let Some(status) = child.0.try_wait()? {
                break status;
            }
            look(child.0.id(), &folder.path().join("report"));
            if started.elapsed() > self.limit {
                bail!(
                    "gave up after {} s of host time{}",
                    self.limit.as_secs(),
                    quote(folder.path())
                );
            }
            std::thread::sleep(POLL);
        };
        if !status.success() {
            bail!("QEMU ended with {status}{}", quote(folder.path()));
        }
        collect(folder.path())
    }

    /// Boots with the guest's console on this terminal.
    pub(crate) fn interactive(&self) -> Result<()> {
        let folder = Scratch::new()?;
        let mut command = self.command(folder.path(), Emulation::Modelled)?;
        command.args([
            "-chardev",
            "stdio,id=terminal,mux=on,signal=off",
            "-serial",
            "chardev:terminal",
        ]);
        let status = command.status().context("cannot start QEMU")?;
        if !status.success() {
            bail!("QEMU ended with {status}");
        }
        Ok(())
    }

    fn command(&self, folder: &Path, emulation: Emulation<'_>) -> Result<Command> {
        let initramfs = folder.join("initramfs");
        fs::write(&initramfs, self.initramfs)?;
        let machine = folder.join("machine.toml");
        fs::write(&machine, self.machine.to_toml())?;
        let shared = folder.join("shared");
        File::create(&shared)?.set_len(SHARED_BYTES)?;

        // Killed, this process could not end it.
        let mut command = leash::command(&self.installed.host.qemu);
        let text = |name| std::env::var(name).unwrap_or_default();
        command.envs(self.installed.environment(&text("PATH"), &text("LD_LIBRARY_PATH")));
        for firmware in &self.installed.host.firmware {
            command.arg("-L").arg(firmware);
        }
        let threads = if emulation == Emulation::PlainThreads { "multi" } else { "single" };
        command.args(["-M", "q35,hpet=on", "-cpu", identity(self.machine)]);
        command.args(["-accel", &format!("tcg,thread={threads},tb-size=512")]);
        command.args(arguments(self.machine));
        command.arg("-kernel").arg(&self.installed.kernel.image);
        command.arg("-initrd").arg(&initramfs);
        command.args(["-append", &format!("{KERNEL_LINE}{}", midr(self.machine))]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-seed", &self.seed.to_string(), "-rtc", "clock=vm,base=2026-01-01"]);
        let backend =
            format!("memory-backend-file,id=shared,share=on,size={SHARED_BYTES},mem-path=");
        command.args(["-object", &format!("{backend}{}", escaped(&shared))]);
        command.args(["-device", "ivshmem-plain,memdev=shared"]);
        match emulation {
            Emulation::Modelled => {
                command.args(["-plugin", &self.plugin(folder, &machine, &shared)]);
            }
            Emulation::Plugin(path, options) => {
                command.args(["-plugin", &format!("{}{options}", escaped(path))]);
            }
            Emulation::Plain | Emulation::PlainThreads => {}
        }
        Ok(command)
    }

    /// Our plugin with its options.
    fn plugin(&self, folder: &Path, machine: &Path, shared: &Path) -> String {
        let mut plugin = escaped(&self.built.plugin);
        plugin.push_str(&format!(",machine={},shared={}", escaped(machine), escaped(shared)));
        plugin.push_str(&format!(",report={}", escaped(&folder.join("measurement"))));
        for region in memory_map(self.machine) {
            plugin.push_str(&format!(",memory={}:{}:{}", region.start, region.bytes, region.node));
        }
        plugin
    }
}

/// Which processor the guest finds in `/proc/cpuinfo`: the one whose units the driver shows. The
/// product and perf's tools choose their events by it. QEMU's own processor calls itself AMD.
fn identity(machine: &Machine) -> &'static str {
    match (machine.pmu.processor, machine.pmu.vendor) {
        (Some(Processor::NehalemEp), _) => {
            "max,vendor=GenuineIntel,family=6,model=26,stepping=5,model-id=Nehalem-EP of the lab"
        }
        (Some(Processor::IvybridgeEp), _) => {
            "max,vendor=GenuineIntel,family=6,model=62,stepping=4,\
             model-id=Ivy Bridge-EP of the lab"
        }
        (Some(Processor::SkylakeSp), _) => {
            "max,vendor=GenuineIntel,family=6,model=85,stepping=4,\
             model-id=Skylake-SP of the lab"
        }
        (Some(Processor::AmdZen1), _) => {
            "max,vendor=AuthenticAMD,family=23,model=1,stepping=2,model-id=Zen 1 of the lab"
        }
        (Some(Processor::AmdZen4), _) => {
            "max,vendor=AuthenticAMD,family=25,model=17,stepping=1,model-id=Zen 4 of the lab"
        }
        // No x86 processor can have Arm's numbers: see [`midr`].
        (Some(Processor::NeoverseN1), _) => "max",
        (None, Vendor::Intel) => "max,vendor=GenuineIntel",
        (None, Vendor::Amd | Vendor::Arm) => "max",
    }
}

/// A parameter that the kernel passes on to PID 1 as an environment variable. It is the main
/// identification register of the Arm processor that the machine plays.
fn midr(machine: &Machine) -> String {
    match machine.pmu.processor {
        // Implementer 0x41, part 0xd0c, r3p1.
        Some(Processor::NeoverseN1) => format!(" {MIDR_VARIABLE}=413fd0c1"),
        _ => String::new(),
    }
}

/// `tsc=reliable`: modelled time is the same on all vCPUs, which the kernel cannot find out by
/// itself. `mitigations=off`: emulation has no speculation to defend against, and the defences
/// flush the first-level filter at each system call. `nowatchdog`: the watchdogs would take a PMU
/// counter. `cryptomgr.notests`: the self-tests of its ciphers would share the CPUs with the
/// program for its first seconds, one after the other.
const KERNEL_LINE: &str = "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off nowatchdog \
                           cryptomgr.notests rdinit=/init";

/// QEMU that is ended when we give up on it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended by itself; then both do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// QEMU's option syntax doubles commas.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

fn collect(folder: &Path) -> Result<Record> {
    let read = |name: &str| fs::read(folder.join(name)).unwrap_or_default();
    let mut events = Vec::new();
    for line in String::from_utf8_lossy(&read("report")).lines().filter(|line| !line.is_empty()) {
        let event = serde_json::from_str(line)
            .with_context(|| format!("the guest reported {line:?}{}", quote(folder)))?;
        events.push(event);
    }
    if events.last() != Some(&Event::Done) {
        bail!("the guest went down before its job was done{}", quote(folder));
    }
    let measurement = match fs::read(folder.join("measurement")) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).context("the plugin's measurement")?),
        Err(_) => None,
    };
    let mut stdout = read("stdout");
    let files = files_behind(&mut stdout, &events)?;
    Ok(Record { events, stdout, stderr: read("stderr"), files, measurement })
}

/// Cuts the files off the end of what came through the port of standard output. The guest says how
/// many bytes of each follow the output.
fn files_behind(port: &mut Vec<u8>, events: &[Event]) -> Result<BTreeMap<String, Vec<u8>>> {
    let output = events.iter().find_map(|event| match event {
        Event::Output { stream: 1, bytes, .. } => Some(*bytes),
        _ => None,
    });
    let Some(output) = output else { return Ok(BTreeMap::new()) };
    let output = usize::try_from(output)?;
    let mut rest = port.get(output..).context("the guest's output was cut off")?;
    let mut files = BTreeMap::new();
    for event in events {
        let Event::File { path, bytes, written } = event else { continue };
        if bytes < written {
            bail!(
                "{path} in the guest has {} MiB, more than the {} MiB that can be brought back",
                written >> 20,
                FILE_LIMIT_BYTES >> 20
            );
        }
        let (file, others) = rest
            .split_at_checked(usize::try_from(*bytes)?)
            .with_context(|| format!("{path} did not come out of the guest whole"))?;
        files.insert(path.clone(), file.to_vec());
        rest = others;
    }
    port.truncate(output);
    Ok(files)
}

/// The end of the console and what QEMU said, for an error message.
fn quote(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["console", "qemu"] {
        let bytes = fs::read(folder.join(name)).unwrap_or_default();
        let shown = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = shown.lines().filter(|line| !line.trim().is_empty()).collect();
        for line in &lines[lines.len().saturating_sub(CONSOLE_LINES)..] {
            text.push_str(&format!("\n  {name}: {}", line.trim_end()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_cut_off_behind_the_output() {
        let file = |path: &str, bytes, written| Event::File { path: path.into(), bytes, written };
        let output = Event::Output { stream: 1, bytes: 3, written: 3 };
        let events = [output.clone(), file("/a", 2, 2), file("/b", 1, 1)];
        let mut port = b"outaab".to_vec();
        let files = files_behind(&mut port, &events).expect("whole");
        assert_eq!(port, b"out");
        assert_eq!(files["/a"], b"aa");
        assert_eq!(files["/b"], b"b");
        let error = files_behind(&mut b"outa".to_vec(), &events).expect_err("cut");
        assert_eq!(error.to_string(), "/a did not come out of the guest whole");
        let events = [output, file("/a", 0, 70 << 20)];
        let error = files_behind(&mut b"out".to_vec(), &events).expect_err("too large").to_string();
        assert!(error.starts_with("/a in the guest has 70 MiB, more than the 64 MiB"), "{error}");
    }
}
