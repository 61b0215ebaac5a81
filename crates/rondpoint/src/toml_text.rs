//! Reads TOML that a user writes. A mistake gives one line with its place and the expected value.

use anyhow::{Result, anyhow};
use rondpoint_input::mistake;
use serde::de::DeserializeOwned;

/// # Errors
/// The text is not TOML, or a key is unknown, missing or of another type; the line is counted from
/// one.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    toml::from_str(text)
        .map_err(|error| anyhow!("{}", mistake(text, error.span(), error.message())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_one_line_that_names_its_place() {
        let told = |text: &str| parse::<toml::Table>(text).unwrap_err().to_string();
        let broken = told("a = 1\nb = \n");
        assert!(broken.starts_with("line 2: ") && !broken.contains('\n'), "{broken}");
        assert!(told("garbage").starts_with("line 1: key with no value"), "{}", told("garbage"));
    }
}
