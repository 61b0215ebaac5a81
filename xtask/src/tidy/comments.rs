//! A rule about comments of Rust and C: short sentences, as in documents.

use super::prose::long_sentences;
use super::{Complaint, SourceFile};

/// Consecutive comment lines with the same marker, or one comment after code.
#[derive(Debug, PartialEq)]
struct Comment {
    /// Number of its first line, from 1.
    line: usize,
    /// Marker: `//`, `///`, `//!` or `/*`.
    marker: &'static str,
    /// Whether only blanks come before it on its first line.
    is_alone: bool,
    /// Text without markers, one line for each line of the file.
    text: String,
}

impl Comment {
    /// Whether `next` continues this comment on the line below.
    fn continues(&self, next: &Self) -> bool {
        let is_below = self.line + self.text.matches('\n').count() + 1 == next.line;
        is_below && self.is_alone && next.is_alone && self.marker == next.marker
    }
}

/// Sentences of comments have at most 25 words; code and tables in them are left out.
pub(super) fn sentences_of_comments_are_short(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| matches!(file.extension(), "rs" | "c" | "h")) {
        for comment in comments(&file.text) {
            let long = long_sentences(&comment.text);
            complaints.extend(long.map(|sentence| sentence.complaint(file, comment.line - 1)));
        }
    }
    complaints
}

/// The comments of a file in Rust or C, in order. Strings and characters are passed over.
fn comments(text: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = if rest.starts_with("//") || rest.starts_with("/*") {
            let length = comment_length(rest);
            let comment = comment(text, at, length);
            match found.last_mut() {
                Some(last) if last.continues(&comment) => {
                    last.text.push('\n');
                    last.text.push_str(&comment.text);
                }
                _ => found.push(comment),
            }
            length
        } else {
            literal_length(&text[..at], rest).unwrap_or(first.len_utf8())
        };
        at += length;
    }
    found
}

/// Bytes of the comment at the beginning of `rest`: to the end of the line, or with its `*/`.
fn comment_length(rest: &str) -> usize {
    let end = if rest.starts_with("//") {
        rest.find('\n')
    } else {
        rest[2..].find("*/").map(|end| end + "/**/".len())
    };
    end.unwrap_or(rest.len())
}

/// The comment at `at`, of `length` bytes, without its markers.
fn comment(text: &str, at: usize, length: usize) -> Comment {
    let before = &text[..at];
    let whole = &text[at..at + length];
    let marker = ["///", "//!", "//"].into_iter().find(|marker| whole.starts_with(marker));
    let marker = marker.unwrap_or("/*");
    let inner = match marker {
        "/*" => {
            let inner = whole[2..].trim_end_matches("*/").trim_start_matches(['*', '!']);
            let lines = inner.lines().map(|line| {
                let line = line.trim_start();
                line.strip_prefix("* ").unwrap_or(line.trim_start_matches('*')).trim_end()
            });
            lines.collect::<Vec<_>>().join("\n")
        }
        _ => whole[marker.len()..].to_owned(),
    };
    let inner = inner.strip_prefix(' ').unwrap_or(&inner).trim_end_matches([' ', '\r']);
    Comment {
        line: before.matches('\n').count() + 1,
        marker,
        is_alone: before.rsplit('\n').next().is_none_or(|line| line.trim().is_empty()),
        text: inner.to_owned(),
    }
}

/// Bytes of the string or character at the beginning of `rest`; `None` if there is none.
fn literal_length(before: &str, rest: &str) -> Option<usize> {
    let mut letters = rest.char_indices();
    match letters.next()?.1 {
        '"' => Some(quoted_length(rest, '"')),
        // A lifetime has no second quote after one character.
        '\'' => {
            let (_, second) = letters.next()?;
            let is_character = second == '\\' || letters.next().is_some_and(|(_, c)| c == '\'');
            is_character.then(|| quoted_length(rest, '\''))
        }
        'r' => {
            let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
            let is_word = before
                .trim_end_matches('b')
                .ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
            if is_word || !rest[1 + hashes..].starts_with('"') {
                return None;
            }
            let open = 1 + hashes + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            Some(rest[open..].find(&close).map_or(rest.len(), |end| open + end + close.len()))
        }
        _ => None,
    }
}

/// Bytes up to and with the second `mark`. A backslash escapes the next character.
fn quoted_length(rest: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        if letter == mark && !is_escaped {
            return at + letter.len_utf8();
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<Complaint> {
        sentences_of_comments_are_short(&[SourceFile::new(path, text)])
    }

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn a_sentence_over_lines_of_one_comment_is_counted_from_its_own_line() {
        let text = format!("//! Short.\n//! {}\n//! {}.\n", words(20), words(6));
        let found = complaints("a.rs", &text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("a.rs:2: a sentence of 26 words"), "{found:?}");
        let fits = format!("//! {}.\n//! {}.\n", words(25), words(25));
        assert!(complaints("a.rs", &fits).is_empty());
    }

    #[test]
    fn comments_of_every_kind_are_seen() {
        let long = words(26);
        for text in [
            format!("    // {long}\n"),
            format!("/// {long}\n"),
            format!("let a = 1; // {long}\n"),
            format!("/* {long} */\n"),
            format!("/*\n * {}\n * {}\n */\n", words(13), words(13)),
            format!("let a = '\"'; // {long}\n"),
            format!("let a = \"\\\"\"; // {long}\n"),
            format!("fn a<'a>(b: &'a str) {{}} // {long}\n"),
        ] {
            assert_eq!(complaints("a.c", &text).len(), 1, "{text}");
            assert_eq!(complaints("a.rs", &text).len(), 1, "{text}");
        }
        assert!(complaints("a.md", &format!("// {long}\n")).is_empty());
    }

    #[test]
    fn items_end_sentences_and_code_and_tables_have_none() {
        let long = words(40);
        for text in [
            format!("/// - {}\n/// - {}\n", words(20), words(20)),
            format!("/// ```text\n/// {long}\n/// ```\n"),
            format!("/// Text:\n///\n///     {long}\n"),
            format!("/// | {long} |\n"),
            format!("/*\n * name   {}\n *        {}\n */\n", words(20), words(20)),
            format!("/// {}\n// {}\n", words(20), words(20)),
            format!("a // {}\n// {}\n", words(20), words(20)),
            format!("// {}\n\n// {}\n", words(20), words(20)),
        ] {
            assert!(complaints("a.rs", &text).is_empty(), "{text}");
        }
    }

    #[test]
    fn strings_hold_no_comments() {
        let long = words(26);
        for text in [
            format!("let a = \"// {long}\";\n"),
            format!("let a = r#\"\" // {long}\n\"#;\n"),
            format!("let a = br\"/* {long} */\";\n"),
            format!("let a = '/'; let b = \"/* {long}\";\n"),
        ] {
            assert!(complaints("a.rs", &text).is_empty(), "{text}");
        }
    }
}
