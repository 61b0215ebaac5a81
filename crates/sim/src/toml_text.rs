//! Tells a mistake in TOML in one line, however long the line is that has it.

/// The line, counted from one, and what was expected there.
pub(crate) fn mistake(error: &toml::de::Error, text: &str) -> String {
    let offset = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
    format!("line {line}: {}", error.message().trim().replace('\n', ", "))
}
