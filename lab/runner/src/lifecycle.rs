//! `rondpoint-lab lifecycle`: a package of the product in a real Debian, from its installation to
//! its purge.
//!
//! The guest has Debian's systemd as process 1 and its dpkg, on QEMU's plain machine of two nodes.
//! The checks are in `packaging/lifecycle.sh`; this module makes the guest and reads the result.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::fetched::{Asked, Fetched};
use crate::initramfs::Initramfs;
use crate::lab::{Lab, cut_machine};
use crate::programs::guest::add_package;
use crate::vm::{Boot, Emulation};

/// Host time after which the guest is given up. On two free CPUs it takes four to six minutes.
const LIMIT: Duration = Duration::from_secs(900);
const MACHINE: &str = "nmass-2";
const CPUS_PER_NODE: u32 = 2;
/// Enough for Debian in the memory of the guest: it has no disc.
const NODE_BYTES: u64 = 512 << 20;

const PACKAGE_PATH: &str = "/root/rondpoint.deb";
const SCRIPT_PATH: &str = "/root/lifecycle.sh";
/// The lab's workloads. No name with `rondpoint`: the script looks for files that the purge left.
const JAM_PATH: &str = "/usr/local/bin/jam";
const SERVICE_PATH: &str = "/root/check";
/// Runs the script, then says on the report's port that all is done, and powers off.
const SERVICE: &str = r#"#!/bin/sh
/root/lifecycle.sh /root/rondpoint.deb $(cat /root/parts)
echo "ended $?"
journalctl --unit=rondpoint.service --no-pager --lines=80 | sed 's/^/journal /'
echo '{"event":"done"}' > /dev/ttyS1
sleep 1
systemctl poweroff --force --force > /dev/null 2>&1
"#;
/// The ports are those of lab/runner/src/vm.rs.
const UNIT: &str = "\
[Unit]
Description=A package of Rondpoint from installation to purge
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/root/check
StandardOutput=file:/dev/ttyS2
StandardError=file:/dev/ttyS2
";
const UNITS: &str = "/etc/systemd/system";
/// They wait for a terminal and for D-Bus, which the guest has not.
const MASKED: [&str; 2] = ["getty.target", "systemd-logind.service"];
/// Else systemd takes this for the first start of a new machine, and asks.
const MACHINE_ID: &str = "0123456789abcdef0123456789abcdef\n";

/// What `lifecycle` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The package
    #[arg(value_name = "DEB")]
    package: PathBuf,
    /// The script that tries it
    #[arg(long, value_name = "FILE")]
    script: PathBuf,
    /// The file that names Debian's packages in the guest
    #[arg(long, value_name = "FILE")]
    system: PathBuf,
    /// Only these parts of the script; default: all
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    parts: Vec<String>,
}

/// Boots, prints each check, and ends with status 1 where one failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = Lab::open()?;
    let guest = guest(&lab, arguments)?;
    let mut machine = cut_machine(MACHINE, CPUS_PER_NODE)?;
    for node in &mut machine.nodes {
        node.memory_bytes = NODE_BYTES;
    }
    let boot = Boot {
        installed: &lab.installed,
        built: &lab.built,
        machine: &machine,
        initramfs: &guest.archive()?,
        seed: lab.seed,
        limit: LIMIT,
    };
    eprintln!("Debian with systemd, {} MB, in the guest …", guest.size() / 1_000_000);
    let began = Instant::now();
    let record = boot.watched(Emulation::Plain, |_, _| ())?;
    let said = String::from_utf8_lossy(&record.stdout).replace('\r', "");
    let outcome = Outcome::of(&said)?;
    print!("{}", outcome.text());
    println!("in {:.0} s of host time", began.elapsed().as_secs_f64());
    Ok(ExitCode::from(u8::from(!outcome.is_good())))
}

/// Debian, the package and the script.
fn guest(lab: &Lab, arguments: &Arguments) -> Result<Initramfs> {
    let shown = arguments.system.display();
    let text = fs::read_to_string(&arguments.system).with_context(|| shown.to_string())?;
    let asked: Asked =
        toml::from_str(&text).map_err(|error| anyhow::anyhow!("{shown}: {}", error.message()))?;
    let name = arguments.system.file_stem().unwrap_or_default().to_string_lossy();
    let fetched = Fetched::load(&lab.cache);
    let folders = fetched.folders(&lab.cache, &name, &asked).with_context(|| {
        format!("the packages of {shown} are not in the cache; ./x lab lifecycle fetches them")
    })?;
    let mut guest = Initramfs::new();
    for folder in &folders {
        add_package(&mut guest, folder, &[])?;
    }
    guest.merge_usr();
    // What the scripts of Debian's packages would have made.
    let masters = folders.iter().map(|folder| folder.join("usr/share/base-passwd"));
    let masters = masters.into_iter().find(|folder| folder.is_dir());
    let masters = masters.with_context(|| format!("{shown}: expected base-passwd"))?;
    guest.add_file(&masters.join("passwd.master"), "/etc/passwd")?;
    guest.add_file(&masters.join("group.master"), "/etc/group")?;
    guest.add_link("mawk", "/usr/bin/awk");
    guest.add_bytes(status(&fetched, &name).into_bytes(), "/var/lib/dpkg/status");
    for folder in ["/var/lib/dpkg/info", "/var/lib/dpkg/updates", "/home", "/root", "/tmp"] {
        guest.add_folder(folder);
    }
    guest.add_bytes(MACHINE_ID.into(), "/etc/machine-id");
    guest.add_link("/usr/lib/systemd/systemd", "/init");
    guest.add_link("/lib/systemd/system/multi-user.target", &format!("{UNITS}/default.target"));
    for unit in MASKED {
        guest.add_link("/dev/null", &format!("{UNITS}/{unit}"));
    }
    guest.add_bytes(UNIT.into(), &format!("{UNITS}/check.service"));
    guest.add_link("../check.service", &format!("{UNITS}/multi-user.target.wants/check.service"));
    guest.add_script(SERVICE.to_owned(), SERVICE_PATH);
    guest.add_bytes(arguments.parts.join(" ").into_bytes(), "/root/parts");
    let script = fs::read_to_string(&arguments.script)
        .with_context(|| arguments.script.display().to_string())?;
    guest.add_script(script, SCRIPT_PATH);
    guest.add_file(&lab.built.workloads, JAM_PATH)?;
    guest.add_file(&arguments.package, PACKAGE_PATH)?;
    Ok(guest)
}

/// dpkg's list of what is installed, so that it knows what the package may depend on.
fn status(fetched: &Fetched, name: &str) -> String {
    let mut text = String::new();
    for package in fetched.programs.get(name).into_iter().flat_map(|closure| &closure.packages) {
        let _ = write!(
            text,
            "Package: {}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {}\n\
             Maintainer: Debian\nDescription: one of Debian's\n\n",
            package.name, package.version
        );
    }
    text
}

/// What the script said.
#[derive(Debug, PartialEq, Eq)]
struct Outcome<'a> {
    /// Each check, and the parts that they belong to, as the script printed them.
    lines: Vec<&'a str>,
    /// The end of the service's journal.
    journal: Vec<&'a str>,
    /// Exit status of the script.
    status: &'a str,
}

impl<'a> Outcome<'a> {
    /// # Errors
    /// The script did not come to its end.
    fn of(said: &'a str) -> Result<Self> {
        let with = |tag: &'static str| said.lines().filter_map(move |line| line.strip_prefix(tag));
        let Some(status) = with("ended ").next() else {
            bail!("the script did not come to its end; it said:\n{said}");
        };
        let is_told = |line: &&str| !line.starts_with("journal ") && !line.starts_with("ended ");
        let lines = said.lines().filter(is_told).collect();
        Ok(Self { lines, journal: with("journal ").collect(), status })
    }

    fn count(&self, tag: &str) -> usize {
        self.lines.iter().filter(|line| line.starts_with(tag)).count()
    }

    /// A script that checked nothing shows nothing. The guest has all that a part needs, so a part
    /// that was not tried shows a fault of the guest.
    fn is_good(&self) -> bool {
        let missed = self.count("FAILED ") + self.count("not tried");
        self.status == "0" && missed == 0 && self.count("ok ") > 0
    }

    /// The checks; the journal too where one failed.
    fn text(&self) -> String {
        let mut text = String::new();
        let journal = self.journal.iter().filter(|_| !self.is_good());
        for line in self.lines.iter().chain(journal) {
            let _ = writeln!(text, "{line}");
        }
        let _ = write!(text, "{} checks held, ", self.count("ok "));
        let _ = writeln!(text, "{} failed", self.count("FAILED "));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_a_bad_end_and_no_check_at_all_are_told() {
        let good = Outcome::of("part one\nok a\nok b\nended 0\njournal x\n").expect("an end");
        assert!(good.is_good());
        assert_eq!(good.text(), "part one\nok a\nok b\n2 checks held, 0 failed\n");
        let bad = Outcome::of("ok a\nFAILED b: c\nended 1\njournal x\n").expect("an end");
        assert!(!bad.is_good());
        assert_eq!(bad.text(), "ok a\nFAILED b: c\nx\n1 checks held, 1 failed\n");
        assert!(!Outcome::of("ok a\nended 127\n").expect("an end").is_good());
        assert!(!Outcome::of("ended 0\n").expect("an end").is_good());
        assert!(Outcome::of("ok a\n").is_err());
        let left_out = Outcome::of("ok a\nnot tried: placed\nended 0\n").expect("an end");
        assert!(!left_out.is_good());
    }

    /// The text of a function of the script.
    fn of_script(name: &str) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/lifecycle.sh");
        let script = fs::read_to_string(path).expect("the script");
        let head = format!("{name}() {{");
        let mut text = String::new();
        for line in script.lines().skip_while(|line| !line.starts_with(&head)) {
            let _ = writeln!(text, "{line}");
            if line.ends_with('}') && (line == "}" || line.starts_with(&head)) {
                return text;
            }
        }
        panic!("the script has no function {name}")
    }

    /// Whether a shell with these functions ends well.
    fn succeeds(name: &str, others: &str) -> bool {
        let text = format!("{others}\n{}{name}", of_script(name));
        let output = std::process::Command::new("sh").arg("-uc").arg(&text).output();
        output.expect("a shell").status.success()
    }

    #[test]
    fn a_program_that_has_ended_has_no_narrow_mask() {
        // A process that was waited for, then the shell itself.
        for (pid, mask, expected) in
            [("$ended", "", false), ("$$", "0-3", false), ("$$", "0-1", true)]
        {
            let own = format!(
                "true & ended=$!; wait $ended; all=0-3; jammed={pid}; busy={pid}\n\
                 masks_of_jam() {{ echo '{mask}'; }}\ncpus_of() {{ echo '{mask}'; }}"
            );
            assert_eq!(succeeds("jam_is_narrow", &own), expected, "{pid} {mask}");
            assert_eq!(succeeds("is_narrow", &own), expected, "{pid} {mask}");
        }
    }

    #[test]
    fn the_kernel_confirms_what_the_daemon_says_that_it_moved() {
        let confirmed = |pages: u32, said: &str| {
            let own = format!(
                "before=7\nof_jam() {{ echo {said}; }}\nmigrated() {{ echo {}; }}",
                7 + pages
            );
            succeeds("kernel_has_moved", &own)
        };
        assert!(confirmed(100, "409600") && confirmed(900, "4096000"));
        assert!(!confirmed(99, "4096") && !confirmed(1, ""), "below a hundred");
        assert!(!confirmed(899, "4096000"), "the daemon says that there were a thousand");
    }
}
