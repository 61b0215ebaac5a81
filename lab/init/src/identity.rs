//! The identity of an Arm processor, in the place of the x86 processor's `/proc/cpuinfo`.

use std::fmt::Write as _;
use std::{env, fs};

use rondpoint_lab_init::MIDR_VARIABLE;

use crate::system;

/// The file that programs identify the processor by.
const CPUINFO: &str = "/proc/cpuinfo";
/// The file that is shown in its place.
const PLAYED: &str = "/run/cpuinfo";

/// Shows the identity of the Arm processor that the machine plays, if it plays one.
pub(crate) fn play() -> Result<(), String> {
    let Ok(midr) = env::var(MIDR_VARIABLE) else { return Ok(()) };
    let midr = u32::from_str_radix(&midr, 16)
        .map_err(|error| format!("{MIDR_VARIABLE}={midr}: {error}"))?;
    let own = fs::read_to_string(CPUINFO).map_err(|error| format!("{CPUINFO}: {error}"))?;
    let cpus = own.lines().filter(|line| line.starts_with("processor")).count();
    fs::write(PLAYED, cpuinfo(midr, cpus)).map_err(|error| format!("{PLAYED}: {error}"))?;
    system::mount_over(PLAYED, CPUINFO)
}

/// The file as arm64's kernel writes it (`c_show`, arch/arm64/kernel/cpuinfo.c, Linux 6.12).
fn cpuinfo(midr: u32, cpus: usize) -> String {
    let mut text = String::new();
    for cpu in 0..cpus {
        let _ = write!(
            text,
            "processor\t: {cpu}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm crc32 atomics\n\
             CPU implementer\t: {:#04x}\nCPU architecture: 8\nCPU variant\t: {:#x}\n\
             CPU part\t: {:#05x}\nCPU revision\t: {}\n\n",
            midr >> 24,
            midr >> 20 & 0xf,
            midr >> 4 & 0xfff,
            midr & 0xf
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::cpuinfo;

    #[test]
    fn a_neoverse_n1_is_known_by_its_implementer_and_part() {
        let text = cpuinfo(0x413f_d0c1, 2);
        assert!(text.contains("CPU implementer\t: 0x41\n") && text.contains("CPU part\t: 0xd0c\n"));
        assert!(text.contains("CPU variant\t: 0x3\n") && text.contains("CPU revision\t: 1\n"));
        assert_eq!(text.lines().filter(|line| line.starts_with("processor")).count(), 2);
    }
}
