//! Reads a recording into a story.

use std::path::Path;

use rondpoint_trace::{Reader, TraceError};

use super::{Story, Teller};
use crate::replay::caught;

/// The story of a recording. Where today's controller panics, it ends before that look.
///
/// # Errors
/// The file cannot be read or is damaged.
pub(crate) fn read(path: &Path) -> Result<Story, TraceError> {
    let mut reader = Reader::open(path)?;
    let mut teller = Teller::new(reader.header().clone());
    let told = caught(|| -> Result<(), TraceError> {
        while let Some(record) = reader.next().transpose()? {
            teller.take(record);
        }
        Ok(())
    });
    let panicked = match told {
        Ok(read) => {
            read?;
            None
        }
        Err(message) => Some(message),
    };
    Ok(teller.end(reader.truncated(), panicked))
}
