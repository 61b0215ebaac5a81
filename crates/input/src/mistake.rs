//! Where a text that a user writes has a mistake, told in one line however long that line is.

use std::ops::Range;

/// The line, counted from one, of a byte offset.
#[must_use]
pub fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// `line N:` and what a parser says, in one line. `span` is what the parser complains of; without
/// it that is the first line.
#[must_use]
pub fn mistake(text: &str, span: Option<Range<usize>>, message: &str) -> String {
    format!("line {}: {}", line_at(text, span.map_or(0, |span| span.start)), in_one_line(message))
}

/// A message of several lines as one.
#[must_use]
pub fn in_one_line(message: &str) -> String {
    message.trim().replace('\n', ", ")
}
