// SPDX-License-Identifier: GPL-2.0-or-later
//! The plugin's arguments: `machine=FILE,memory=START:BYTES:NODE,…[,shared=FILE][,report=FILE]`.
//!
//! `machine` is a machine file that is used as it is, already scaled for the lab. `memory` comes
//! once for each region of guest-physical memory. All numbers are decimal.

use std::path::PathBuf;

use rondpoint_lab_model::Region;

/// What the runner told the plugin.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) machine: PathBuf,
    pub(crate) memory: Vec<Region>,
    /// The memory behind the guest's PMU; without it the guest has none.
    pub(crate) shared: Option<PathBuf>,
    /// Where the measurement goes.
    pub(crate) report: Option<PathBuf>,
}

impl Settings {
    pub(crate) fn read(arguments: &[(String, String)]) -> Result<Self, String> {
        let mut machine = None;
        let mut memory = Vec::new();
        let mut shared = None;
        let mut report = None;
        for (key, value) in arguments {
            match key.as_str() {
                "machine" => machine = Some(PathBuf::from(value)),
                "memory" => memory.push(region(value)?),
                "shared" => shared = Some(PathBuf::from(value)),
                "report" => report = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown argument {key}={value}")),
            }
        }
        let machine = machine.ok_or("machine=FILE is missing")?;
        Ok(Self { machine, memory, shared, report })
    }
}

fn region(text: &str) -> Result<Region, String> {
    let numbers: Vec<u64> = text.split(':').filter_map(|part| part.parse().ok()).collect();
    match numbers[..] {
        [start, bytes, node] if text.matches(':').count() == 2 => {
            Ok(Region { start, bytes, node: node as usize })
        }
        _ => Err(format!("memory={text}: expected START:BYTES:NODE in decimal")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Settings::read(&pairs.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn regions_and_files_are_read() {
        let settings =
            read(&[("machine", "m.toml"), ("memory", "0:4096:0"), ("memory", "4096:8192:1")]);
        let settings = settings.unwrap();
        assert_eq!(settings.memory[1], Region { start: 4096, bytes: 8192, node: 1 });
        assert!(settings.shared.is_none());
    }

    #[test]
    fn bad_arguments_are_named() {
        assert_eq!(read(&[]).unwrap_err(), "machine=FILE is missing");
        assert_eq!(read(&[("colour", "red")]).unwrap_err(), "unknown argument colour=red");
        let error = read(&[("machine", "m"), ("memory", "0:x:1")]).unwrap_err();
        assert_eq!(error, "memory=0:x:1: expected START:BYTES:NODE in decimal");
    }
}
