//! `/proc/cpuinfo`: which processor this is. Only its first block is read: Rondpoint does not
//! manage machines with different processors in one box.

use super::ParseError;
use super::fields::lines;

/// Which processor, in the words of its vendor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuIdentity {
    /// `GenuineIntel`, `AuthenticAMD`, or on Arm the implementer's number, `0x41`.
    pub vendor: String,
    /// Family in decimal; on Arm absent.
    pub family: Option<u32>,
    /// Model in decimal; on Arm the part's number.
    pub model: Option<u32>,
    /// The marketing name, where there is one.
    pub name: String,
    /// Current clock, kHz, where it is told.
    pub clock_khz: Option<u64>,
}

impl CpuIdentity {
    /// `GenuineIntel-6-6A`, as event tables write it: vendor, family in decimal, model in
    /// hexadecimal of at least two digits.
    #[must_use]
    pub fn key(&self) -> String {
        let family = self.family.map_or(String::new(), |family| format!("-{family}"));
        let model = self.model.map_or(String::new(), |model| format!("-{model:02X}"));
        format!("{}{family}{model}", self.vendor)
    }
}

/// Parses the file.
///
/// # Errors
/// Never for want of a line, because architectures differ; only for text that is not UTF-8.
pub fn parse(bytes: &[u8]) -> Result<CpuIdentity, ParseError> {
    let mut identity = CpuIdentity::default();
    for (number, line) in lines(bytes) {
        let text = std::str::from_utf8(line).map_err(|_| ParseError::new(number, "UTF-8", line))?;
        let Some((name, value)) = text.split_once(':') else {
            // An empty line ends the first block.
            if text.is_empty() && !identity.vendor.is_empty() {
                break;
            }
            continue;
        };
        let value = value.trim();
        let hexadecimal = || u32::from_str_radix(value.trim_start_matches("0x"), 16).ok();
        match name.trim() {
            "vendor_id" | "CPU implementer" => identity.vendor = value.to_string(),
            "cpu family" => identity.family = value.parse().ok(),
            "model" => identity.model = value.parse().ok(),
            "CPU part" => identity.model = hexadecimal(),
            "model name" => identity.name = value.to_string(),
            "cpu MHz" => {
                let mhz: Option<f64> = value.parse().ok();
                identity.clock_khz = mhz.filter(|mhz| *mhz > 0.0).map(|mhz| (mhz * 1e3) as u64);
            }
            _ => {}
        }
    }
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_and_arm_are_identified() {
        let x86 = b"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\n\
            model name\t: Xeon\ncpu MHz\t\t: 2000.500\n\nprocessor : 1\nmodel : 1\n";
        let identity = parse(x86).unwrap();
        assert_eq!(identity.key(), "GenuineIntel-6-6A");
        assert_eq!((identity.name.as_str(), identity.clock_khz), ("Xeon", Some(2_000_500)));
        let arm = b"processor : 0\nBogoMIPS : 50\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        assert_eq!(parse(arm).unwrap().key(), "0x41-D40");
    }

    #[test]
    fn nothing_is_an_identity_without_a_name() {
        assert_eq!(parse(b"").unwrap().key(), "");
        assert!(parse(b"model name : \xff\n").is_err());
    }
}
