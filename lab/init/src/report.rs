//! The serial ports: events on the second, the program's output on the third and fourth. After the
//! standard output follow the files that the runner requested.

use std::fs::{self, File};
use std::io::{self, Read, Write};

use rondpoint_lab_init::{Event, FILE_LIMIT_BYTES, OUTPUT_LIMIT_BYTES};

use crate::system;

const STDOUT_PORT: &str = "/dev/ttyS2";
const STDERR_PORT: &str = "/dev/ttyS3";

/// The way out of the guest.
pub(crate) struct Report {
    port: Option<File>,
}

impl Report {
    /// Opens the report port. Where there is none, events go to the console.
    pub(crate) fn open() -> Self {
        Self { port: system::open_raw_port("/dev/ttyS1").ok() }
    }

    /// Writes one event. A failure cannot be told.
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
        send(if stream == 1 { STDOUT_PORT } else { STDERR_PORT }, &bytes)
    }

    /// Sends a file that the program left, if it did. After the output, which has the port first.
    pub(crate) fn send_file(&mut self, path: &str) -> Result<(), String> {
        let failed = |error: io::Error| format!("{path}: {error}");
        let mut bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        let written = bytes.len() as u64;
        if written > FILE_LIMIT_BYTES {
            bytes.clear();
        }
        let path = path.to_owned();
        self.say(&Event::File { path, bytes: bytes.len() as u64, written });
        send(STDOUT_PORT, &bytes)
    }
}

fn send(path: &str, bytes: &[u8]) -> Result<(), String> {
    let mut port = system::open_raw_port(path)?;
    port.write_all(bytes).and_then(|()| port.flush()).map_err(|error| format!("{path}: {error}"))
}
