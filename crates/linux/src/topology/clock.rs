//! The nominal clock: the rate of the reference-cycle counter. The present clock of a CPU is no
//! substitute, because governors and boost change it all the time.

use super::Note;
use super::reader::Reader;
use crate::parse::cpuinfo::CpuIdentity;
use crate::parse::fields;

/// Plausible clocks of a processor, kHz: 10 MHz to 100 GHz. Firmware writes 0 for unknown.
const PLAUSIBLE_KHZ: std::ops::RangeInclusive<u64> = 10_000..=100_000_000;

/// Nominal clock in cycles per second; `None` with a note if only a changing clock is known.
pub(super) fn nominal_hz(reader: &mut Reader<'_>, cpu: u32, identity: &CpuIdentity) -> Option<f64> {
    let folder = format!("devices/system/cpu/cpu{cpu}");
    // A CPU's `cpufreq` is a link, which copies of sysfs may lack.
    let policy = format!("devices/system/cpu/cpufreq/policy{cpu}");
    let own = format!("{folder}/cpufreq");
    let governor = if reader.root.in_sys(&own).exists() { own } else { policy };
    let khz = of_driver(reader, &folder, &governor)
        .or(identity.clock_of_name_khz().filter(is_plausible))
        .or_else(|| of_table(reader, &governor));
    let now = identity.clock_khz.filter(is_plausible);
    // Without a governor and counters of cycles, Linux prints the clock that it found at boot
    // (`show_cpuinfo`, arch/x86/kernel/cpu/proc.c).
    let is_steady = !reader.root.in_sys(&governor).exists() && identity.clock_is_of_boot;
    let khz = khz.or(now.filter(|_| is_steady));
    if let (None, Some(now)) = (khz, now) {
        reader.notes.push(Note::NoNominalClock { mhz: now / 1000 });
    }
    khz.map(|khz| khz as f64 * 1e3)
}

fn is_plausible(khz: &u64) -> bool {
    PLAUSIBLE_KHZ.contains(khz)
}

/// The nominal clock of a driver, kHz: `base_frequency` of intel_pstate, `nominal_freq` of ACPI
/// CPPC, `cpuinfo_nominal_freq` of POWER.
fn of_driver(reader: &mut Reader<'_>, folder: &str, governor: &str) -> Option<u64> {
    let files = [
        (format!("{governor}/base_frequency"), 1),
        (format!("{folder}/acpi_cppc/nominal_freq"), 1000),
        (format!("{governor}/cpuinfo_nominal_freq"), 1),
    ];
    files.iter().find_map(|(file, to_khz)| {
        let number = reader.told(file, fields::single_number)?;
        Some(number.saturating_mul(*to_khz)).filter(is_plausible)
    })
}

/// The fastest clock without boost in the list of acpi-cpufreq or cpufreq-dt, kHz.
fn of_table(reader: &mut Reader<'_>, governor: &str) -> Option<u64> {
    let file = format!("{governor}/scaling_available_frequencies");
    reader.told(&file, fields::number_row)?.into_iter().filter(is_plausible).max()
}
