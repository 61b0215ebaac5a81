//! The serial ports: events on the second, the program's output on the third and fourth.

use std::fs::File;
use std::io::{Read, Write};

use rondpoint_lab_init::{Event, OUTPUT_LIMIT_BYTES};

use crate::system;

/// The way out of the guest.
pub(crate) struct Report {
    port: Option<File>,
}

impl Report {
    /// Opens the report port. Where there is none, events go to the console.
    pub(crate) fn open() -> Self {
        Self { port: system::open_raw_port("/dev/ttyS1").ok() }
    }

    /// Writes one event. There is nobody to tell if that fails.
    pub(crate) fn say(&mut self, event: &Event) {
        let line = serde_json::to_string(event).expect("events have string keys only");
        match &mut self.port {
            Some(port) => {
                let _ = writeln!(port, "{line}");
                let _ = port.flush();
            }
            None => eprintln!("{line}"),
        }
    }

    /// Sends a captured stream of the program: 1 is stdout, 2 is stderr.
    pub(crate) fn send_output(&mut self, stream: u8, captured: &mut File) -> Result<(), String> {
        let written =
            captured.metadata().map_err(|error| format!("output {stream}: {error}"))?.len();
        let mut bytes = Vec::new();
        system::rewind(captured)?;
        captured
            .take(OUTPUT_LIMIT_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("output {stream}: {error}"))?;
        self.say(&Event::Output { stream, bytes: bytes.len() as u64, written });
        let path = if stream == 1 { "/dev/ttyS2" } else { "/dev/ttyS3" };
        let mut port = system::open_raw_port(path)?;
        port.write_all(&bytes)
            .and_then(|()| port.flush())
            .map_err(|error| format!("{path}: {error}"))
    }
}
