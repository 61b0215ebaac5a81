//! `/proc/cpuinfo`: which processor this is.
//!
//! The first value of each field counts. Rondpoint does not manage machines with different
//! processors in one box, and hybrid cores differ in fields that it does not read.

use super::ParseError;
use super::fields::{decimal, lines, trim, words};

/// The processor's identity by its vendor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuIdentity {
    /// Vendor: `GenuineIntel`, `AuthenticAMD`, or on Arm the implementer's number, `0x41`.
    pub vendor: String,
    /// Family number; `None` on Arm.
    pub family: Option<u32>,
    /// Model number; on Arm the part's number.
    pub model: Option<u32>,
    /// Marketing name, or empty. Bytes that are not UTF-8 are U+FFFD.
    pub name: String,
    /// The value of `cpu MHz` in kHz; `None` without this line.
    pub clock_khz: Option<u64>,
    /// Whether `cpu MHz` is the clock that Linux found at boot: the file has `flags` and they lack
    /// `aperfmperf`, a counter of cycles.
    pub clock_is_of_boot: bool,
}

impl CpuIdentity {
    /// The key in event tables, such as `GenuineIntel-6-6A`: vendor, family in decimal, model in at
    /// least two hexadecimal digits.
    #[must_use]
    pub fn key(&self) -> String {
        let family = self.family.map_or(String::new(), |family| format!("-{family}"));
        let model = self.model.map_or(String::new(), |model| format!("-{model:02X}"));
        format!("{}{family}{model}", self.vendor)
    }

    /// The nominal clock in the name, kHz: `… @ 2.00GHz`, `… CPU 3.20 GHz`, `… 800MHz`.
    #[must_use]
    pub fn clock_of_name_khz(&self) -> Option<u64> {
        let name = self.name.trim_end();
        let units = [("GHz", 1e6), ("MHz", 1e3)];
        let (rest, factor) = units.iter().find_map(|(unit, factor)| {
            let start = name.len().checked_sub(unit.len())?;
            let end = name.get(start..)?;
            end.eq_ignore_ascii_case(unit).then(|| (&name[..start], factor))
        })?;
        let is_of_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let rest = rest.trim_end();
        let number = &rest[rest.trim_end_matches(is_of_number).len()..];
        let clock: f64 = number.parse().ok()?;
        (clock > 0.0).then_some((clock * factor).round() as u64)
    }
}

/// A parser of the file line by line. With thousands of CPUs the file has megabytes, and only the
/// first CPU's block is needed.
#[derive(Debug, Default)]
pub struct Scan {
    identity: CpuIdentity,
    is_complete: bool,
}

impl Scan {
    /// Parses the next line, empty ones included. True if no more lines are needed.
    pub fn take(&mut self, line: &[u8]) -> bool {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            // An empty line ends a CPU's block. Some kernels have a block without a vendor first.
            self.is_complete |= trim(line).is_empty() && !self.identity.vendor.is_empty();
            return self.is_complete;
        };
        let (name, value) = (trim(&line[..colon]), trim(&line[colon + 1..]));
        let found = &mut self.identity;
        let small = || decimal(value).and_then(|number| u32::try_from(number).ok());
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"vendor_id" | b"CPU implementer" if found.vendor.is_empty() => found.vendor = text(),
            b"cpu family" => found.family = found.family.or_else(small),
            b"model" => found.model = found.model.or_else(small),
            b"CPU part" => found.model = found.model.or_else(|| part(value)),
            // `cpu` is the key on POWER.
            b"model name" | b"cpu" if found.name.is_empty() => found.name = text(),
            b"cpu MHz" => found.clock_khz = found.clock_khz.or_else(|| khz(value)),
            b"flags" => found.clock_is_of_boot = !words(value).any(|word| word == b"aperfmperf"),
            _ => {}
        }
        false
    }

    /// The identity in the lines so far.
    #[must_use]
    pub fn identity(self) -> CpuIdentity {
        self.identity
    }
}

/// Parses the file.
///
/// # Errors
/// None. Lines differ between architectures, so absent or malformed values are `None`.
pub fn parse(bytes: &[u8]) -> Result<CpuIdentity, ParseError> {
    let mut scan = Scan::default();
    let _ = lines(bytes).find(|(_, line)| scan.take(line));
    Ok(scan.identity())
}

/// Parses a part's number such as `0xd40`.
fn part(value: &[u8]) -> Option<u32> {
    let digits = value.strip_prefix(b"0x").unwrap_or(value);
    super::fields::hexadecimal(digits)?.try_into().ok()
}

/// Parses MHz such as `2000.500` into kHz.
fn khz(value: &[u8]) -> Option<u64> {
    let is_plain = value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let mhz: f64 = std::str::from_utf8(value).ok().filter(|_| is_plain)?.parse().ok()?;
    (mhz > 0.0).then_some((mhz * 1e3) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn x86_arm_and_power_are_identified() {
        let x86 = b"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
            model name\t: Xeon\ncpu MHz\t\t: 2000.500\n\nprocessor : 1\nmodel : 1\n";
        let identity = parse(x86).unwrap();
        assert_eq!(identity.key(), "GenuineIntel-6-6A");
        assert_eq!((identity.name.as_str(), identity.clock_khz), ("Xeon", Some(2_000_500)));
        let arm = b"processor : 0\nBogoMIPS : 50\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        assert_eq!(parse(arm).unwrap().key(), "0x41-D40");
        let power = b"processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2300.0MHz\n\n\
            processor\t: 1\ncpu\t\t: POWER9 (raw)\n";
        assert_eq!(parse(power).unwrap().name, "POWER9, altivec supported");
    }

    #[test]
    fn no_line_needs_to_be_utf8_or_a_number() {
        assert_eq!(parse(b"").unwrap().key(), "");
        let text =
            b"flags : \xff\xfe aperfmperf\nbug\xae : x\nmodel name : CPU \xae X\ncpu MHz : \xff\n\
            vendor_id : A\xff\nmodel : +5\n";
        let found = parse(text).unwrap();
        assert_eq!((found.name.as_str(), found.vendor.as_str()), ("CPU \u{fffd} X", "A\u{fffd}"));
        assert_eq!((found.clock_khz, found.model), (None, None));
        assert!(!found.clock_is_of_boot && parse(b"flags : fpu\n").unwrap().clock_is_of_boot);
    }

    #[test]
    fn a_name_may_tell_the_nominal_clock() {
        let clock = |name: &str| {
            let name = name.to_string();
            CpuIdentity { name, ..CpuIdentity::default() }.clock_of_name_khz()
        };
        assert_eq!(clock("CPU  X  @ 2.00GHz"), Some(2_000_000));
        assert_eq!(clock("Xeon(TM) CPU 3.20 GHz "), Some(3_200_000));
        assert_eq!(clock("KaiSheng KH-30000@2.7GHz"), Some(2_700_000));
        assert_eq!(clock("Pentium III 800Mhz"), Some(800_000));
        for none in
            ["", "EPYC 7451 24-Core Processor", "Genuine CPU 0000%@", "GHz", "@ .GHz", "0GHz"]
        {
            assert_eq!(clock(none), None, "{none}");
        }
    }

    #[test]
    fn nothing_behind_the_first_block_is_read() {
        let mut scan = Scan::default();
        let text = b"\nvendor_id : A\n\nmodel : 5\n";
        let read = lines(text).take_while(|(_, line)| !scan.take(line)).count();
        assert_eq!((read, scan.identity().model), (2, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_identity(bytes: Vec<u8>, name in "\\PC{0,30}[GM]Hz") {
            prop_assert!(parse(&bytes).is_ok());
            let _ = CpuIdentity { name, ..CpuIdentity::default() }.clock_of_name_khz();
        }
    }
}
