//! Rules about documents: short sentences, no commit hashes, links that lead somewhere, tests that
//! are there.

use super::{Complaint, SourceFile};

/// Most words of a sentence, for readers of a second language (CONTRIBUTING.md).
const MOST_WORDS: usize = 25;
/// Gap between the columns of a table set with blanks. Indented lines below belong to its last
/// column.
const COLUMN_GAP: &str = "   ";
/// Lengths of a commit's hash. A shorter run of hexadecimal digits is a word or a number.
const SHORTEST_HASH: usize = 7;
const LONGEST_HASH: usize = 40;

/// The documents at the top and in docs. Generated results have rules of their own.
fn documents(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| {
        let is_top = !file.path.contains('/') && file.extension() == "md";
        let is_docs = file.path.starts_with("docs/") && file.path.matches('/').count() == 1;
        (is_top && file.path != "CHANGELOG.md") || (is_docs && file.extension() == "md")
    })
}

/// Sentences of README and docs have at most 25 words; tables and code are left out.
pub(super) fn sentences_are_short(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in documents(files) {
        complaints.extend(long_sentences(&file.text).map(|sentence| sentence.complaint(file, 0)));
    }
    complaints
}

/// A sentence of a text.
pub(super) struct Sentence {
    /// Line on which it begins, from 1.
    line: usize,
    text: String,
}

impl Sentence {
    /// Number of words with a letter or a digit. The address of a link does not count.
    fn words(&self) -> usize {
        let counts = |word: &&str| word.chars().any(char::is_alphanumeric);
        self.text.split_whitespace().filter(counts).count()
    }

    /// The complaint about this sentence. `above`: lines of `file` before its text.
    pub(super) fn complaint(&self, file: &SourceFile, above: usize) -> Complaint {
        let begin: String = self.text.chars().take(40).collect();
        format!(
            "{}:{}: a sentence of {} words, at most {MOST_WORDS}: {begin}…",
            file.path,
            self.line + above,
            self.words()
        )
    }
}

/// Sentences of a Markdown text with more than [`MOST_WORDS`].
pub(super) fn long_sentences(text: &str) -> impl Iterator<Item = Sentence> {
    sentences(text).into_iter().filter(|sentence| sentence.words() > MOST_WORDS)
}

/// Documents name no commits, which belong to the history.
pub(super) fn documents_name_no_commit(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in documents(files) {
        for (number, line) in file.lines() {
            let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric());
            if let Some(hash) = words.find(|word| is_hash(word)) {
                complaints.push(format!("{}:{number}: `{hash}` looks like a commit", file.path));
            }
        }
    }
    complaints
}

/// Relative links name a file or a folder of the repository.
pub(super) fn links_lead_somewhere(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.extension() == "md") {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in file.lines() {
            for target in links(line) {
                let path = resolved(folder, target);
                let inside = format!("{path}/");
                let is_there =
                    files.iter().any(|other| other.path == path || other.path.starts_with(&inside));
                if !is_there {
                    complaints.push(format!("{}:{number}: {target}: no such file", file.path));
                }
            }
        }
    }
    complaints
}

/// Tables with a last column `test` name existing tests, or files of tests in `crates`.
pub(super) fn named_tests_are_there(files: &[SourceFile]) -> Vec<Complaint> {
    let sources = || files.iter().filter(|file| file.extension() == "rs");
    // A function, or the name that a test program without a harness gives to a test.
    let is_there = |name: &str| {
        let path = format!("crates/{name}");
        if name.contains('/') && files.iter().any(|file| file.path.starts_with(&path)) {
            return true;
        }
        let forms = [format!("fn {name}("), format!("\"{name}\""), format!("::{name}\"")];
        sources().any(|file| forms.iter().any(|form| file.text.contains(form)))
    };
    let mut complaints = Vec::new();
    for file in documents(files) {
        let mut is_of_tests = false;
        for (number, line) in file.lines() {
            let last = line.trim().strip_suffix('|').and_then(|row| row.rsplit('|').next());
            let Some(last) = last.map(str::trim) else {
                is_of_tests = false;
                continue;
            };
            is_of_tests = is_of_tests || last == "test";
            for name in last.split('`').skip(1).step_by(2).filter(|_| is_of_tests) {
                if !is_there(name) {
                    complaints.push(format!("{}:{number}: no test is named `{name}`", file.path));
                }
            }
        }
    }
    complaints
}

/// The targets of a line's links within the repository, without the place on the page.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

/// The path of a target relative to a folder, without `..`.
fn resolved(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Whether a word looks like a commit's hash: hexadecimal digits, with at least one letter and one
/// number.
fn is_hash(word: &str) -> bool {
    (SHORTEST_HASH..=LONGEST_HASH).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// The sentences of a text in Markdown.
fn sentences(text: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut paragraph: Option<(usize, String)> = None;
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            is_code = !is_code;
        }
        let is_item = trimmed.starts_with("- ") || starts_with_number(trimmed);
        // An indented line after an item continues it; elsewhere it is code.
        let is_indented = line.starts_with("    ") && paragraph.is_none() && !is_item;
        let is_prose = !is_code
            && !is_indented
            && !trimmed.contains(COLUMN_GAP)
            && !trimmed.is_empty()
            && !["```", "|", "#", "<!--", "!["].iter().any(|mark| trimmed.starts_with(mark));
        if !is_prose || is_item {
            found.extend(paragraph.take().into_iter().flat_map(split));
        }
        if is_prose {
            let (_, text) = paragraph.get_or_insert((index + 1, String::new()));
            text.push_str(trimmed.trim_start_matches("- "));
            text.push('\n');
        }
    }
    found.extend(paragraph.into_iter().flat_map(split));
    found
}

/// `1. text`
fn starts_with_number(line: &str) -> bool {
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && line[digits..].starts_with(". ")
}

/// The sentences of a paragraph. Text in backquotes is one word.
fn split((first, text): (usize, String)) -> Vec<Sentence> {
    let parts = text.split('`').enumerate();
    let plain: String = parts
        .map(|(place, part)| match place % 2 {
            1 => format!("code{}", "\n".repeat(part.matches('\n').count())),
            _ => part.to_owned(),
        })
        .collect();
    let mut sentences: Vec<Sentence> = Vec::new();
    let mut is_over = true;
    for (index, line) in plain.lines().enumerate() {
        for word in line.split_whitespace() {
            if is_over {
                sentences.push(Sentence { line: first + index, text: String::new() });
            }
            let last = sentences.last_mut().expect("there is one");
            last.text.push_str(word);
            last.text.push(' ');
            let end = word.trim_end_matches(['*', '_', ')', '"', '\'']);
            is_over = end.ends_with(['.', '!', '?']);
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<Complaint> {
        let files = [SourceFile::new(path, text)];
        [sentences_are_short(&files), documents_name_no_commit(&files)].concat()
    }

    #[test]
    fn a_sentence_is_counted_over_lines_and_not_over_its_end() {
        let word = |count: usize| vec!["word"; count].join(" ");
        let text = format!("# T\n\n{}\n{}.\n\n{}. {}.\n", word(12), word(14), word(25), word(25));
        let found = complaints("docs/a.md", &text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/a.md:3: a sentence of 26 words"), "{found:?}");
        let item = format!("- {}\n- {}\n\n1. {}\n2. {}\n", word(20), word(20), word(20), word(20));
        assert!(complaints("README.md", &item).is_empty());
        let item = format!("- {}\n  {}\n", word(20), word(20));
        assert_eq!(complaints("README.md", &item).len(), 1, "an item goes on");
        let code = format!("`{}` {}.\n", word(30), word(24));
        assert!(complaints("README.md", &code).is_empty());
    }

    #[test]
    fn tables_code_and_generated_results_are_left_out() {
        let long = vec!["word"; 40].join(" ");
        for text in [
            format!("| {long} |\n"),
            format!("```sh\n{long}\n```\n"),
            format!("text:\n\n    {long}\n"),
        ] {
            assert!(complaints("docs/a.md", &text).is_empty(), "{text}");
        }
        assert!(complaints("docs/results/a.md", &long).is_empty());
        assert!(complaints("lab/README.md", &long).is_empty());
    }

    #[test]
    fn links_to_files_and_folders_are_followed_from_their_page() {
        let page = "[a](b.md) [c](../README.md#top) [d](sub/) [e](https://x.y/z) [f](#here)\n";
        let files = [
            SourceFile::new("docs/a.md", page),
            SourceFile::new("docs/b.md", "[gone](c.md)\n"),
            SourceFile::new("docs/sub/x.json", ""),
            SourceFile::new("README.md", "![picture](docs/none.svg)\n"),
        ];
        let expected =
            ["docs/b.md:1: c.md: no such file", "README.md:1: docs/none.svg: no such file"];
        assert_eq!(links_lead_somewhere(&files), expected);
    }

    #[test]
    fn a_table_of_promises_names_tests_that_are_there() {
        let table = "| promise | test |\n|---|---|\n| a | `one`, `two` |\n| b | `three` |\n";
        let other = "\n| word | meaning |\n|---|---|\n| c | `four` |\n";
        let tests = "fn one() {}\nconst TESTS: &[Test] = &[(\"module::two\", two)];\n";
        let files = [
            SourceFile::new("crates/a/tests/a.rs", tests),
            SourceFile::new("docs/safety.md", &format!("{table}{other}")),
        ];
        assert_eq!(named_tests_are_there(&files), ["docs/safety.md:4: no test is named `three`"]);
    }

    #[test]
    fn commits_are_found_and_numbers_and_words_are_not() {
        assert_eq!(
            complaints("docs/a.md", "Since 53dffd1 it is so.\n"),
            ["docs/a.md:1: `53dffd1` looks like a commit"]
        );
        for fine in ["1234567 pages.\n", "A facade and deadbeef.\n", "0x1f of 7.5\n"] {
            assert!(complaints("docs/a.md", fine).is_empty(), "{fine}");
        }
        assert!(complaints("docs/results/a.md", "53dffd1\n").is_empty());
    }
}
