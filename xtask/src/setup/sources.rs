//! The user's apt sources: which mirror carries Debian 12, and the sources of the private apt root
//! made from it.
//!
//! Pure text in, text out. No registry host is named anywhere in this project. Whatever mirror,
//! proxy or snapshot the user chose for Debian 12 also serves the two further suites that the lab
//! needs.

use std::fmt::Write as _;

/// The Debian release with the C library and compiler that the lab is built against.
pub(crate) const RELEASE: &str = "bookworm";

/// The keyring of Debian's suites, for entries that name no keyring.
pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Options of an entry to keep, because the mirror may not work without them. Names are those of
/// deb822 in lower case.
const KEPT_OPTIONS: [&str; 6] =
    ["signed-by", "trusted", "check-valid-until", "check-date", "by-hash", "allow-insecure"];

/// One entry of the sources: a mirror with its suites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Mirrors, tried in order by apt.
    pub(crate) uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// `(name in lower case, value)`.
    options: Vec<(String, String)>,
}

/// Syntax of a file of sources. apt decides by the file's extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `*.sources`: stanzas of `Field: value`.
    Deb822,
    /// `*.list`: `deb [options] uri suite component…`.
    OneLine,
}

/// All enabled entries for binary packages in a file's text. Invalid entries are skipped, because
/// apt itself complains about them.
pub(crate) fn parse(text: &str, style: Style) -> Vec<Source> {
    match style {
        Style::Deb822 => {
            stanzas(text).iter().filter_map(|fields| source_of_fields(fields)).collect()
        }
        Style::OneLine => text.lines().filter_map(source_of_line).collect(),
    }
}

/// The stanzas of a deb822 text: field names in lower case, continuation lines joined by newline.
fn stanzas(text: &str) -> Vec<Vec<(String, String)>> {
    let mut stanzas = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let stanza: &mut Vec<(String, String)> =
            stanzas.last_mut().expect("starts with one stanza");
        if line.trim().is_empty() {
            stanzas.push(Vec::new());
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = stanza.last_mut() {
                value.push('\n');
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            stanza.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    stanzas
}

fn source_of_fields(fields: &[(String, String)]) -> Option<Source> {
    let field =
        |name: &str| fields.iter().find(|field| field.0 == name).map(|field| field.1.as_str());
    let words = |name: &str| -> Vec<String> {
        field(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    let disabled = field("enabled").is_some_and(|value| matches!(value, "no" | "false" | "0"));
    if disabled || !words("types").iter().any(|kind| kind == "deb") {
        return None;
    }
    let options =
        fields.iter().filter(|field| KEPT_OPTIONS.contains(&field.0.as_str())).cloned().collect();
    Some(Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        options,
    })
}

fn source_of_line(line: &str) -> Option<Source> {
    let line = line.split('#').next()?.trim();
    let rest = line.strip_prefix("deb")?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    let options = options
        .split_whitespace()
        .filter_map(|option| option.split_once('='))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.replace(',', " ")))
        .filter(|option| KEPT_OPTIONS.contains(&option.0.as_str()))
        .collect();
    Some(Source { uris: vec![uri], suites: vec![suite], components: words.collect(), options })
}

/// Sources for the private root, in deb822 style: the mirror of Debian 12 with its backports, and
/// the security mirror.
///
/// `None` if no entry has Debian 12's `main`. Without a security entry of the user, the result has
/// none either.
pub(crate) fn private_sources(sources: &[Source]) -> Option<String> {
    let security = format!("{RELEASE}-security");
    let mut text = String::new();
    write_stanza(
        &mut text,
        carrying(sources, RELEASE)?,
        &format!("{RELEASE} {RELEASE}-updates {RELEASE}-backports"),
    );
    if let Some(source) = carrying(sources, &security) {
        write_stanza(&mut text, source, &security);
    }
    Some(text)
}

/// Sources with one suite of the mirror that serves Debian 12.
///
/// `None` if no entry has Debian 12's `main`.
pub(crate) fn sources_of(sources: &[Source], suite: &str) -> Option<String> {
    let mut text = String::new();
    write_stanza(&mut text, carrying(sources, RELEASE)?, suite);
    Some(text)
}

/// The first entry with the `main` of a suite.
fn carrying<'a>(sources: &'a [Source], suite: &str) -> Option<&'a Source> {
    sources.iter().find(|source| {
        source.suites.iter().any(|name| name == suite)
            && source.components.iter().any(|component| component == "main")
            && source.uris.iter().any(|uri| !uri.starts_with("cdrom:"))
    })
}

fn write_stanza(text: &mut String, source: &Source, suites: &str) {
    let uris = source.uris.join(" ");
    write!(text, "Types: deb\nURIs: {uris}\nSuites: {suites}\nComponents: main\n")
        .expect("writes to memory");
    let keyring = ("signed-by".to_owned(), KEYRING.to_owned());
    let signed = source.options.iter().any(|option| option.0 == "signed-by");
    for (name, value) in source.options.iter().chain((!signed).then_some(&keyring)) {
        writeln!(text, "{name}: {value}").expect("writes to memory");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, style: Style, expected: &str) {
        assert_eq!(
            private_sources(&parse(text, style)).unwrap_or_else(|| "none".to_owned()),
            expected
        );
    }

    #[test]
    fn the_mirror_of_debian_12_also_serves_its_backports() {
        check(
            "Types: deb deb-src\n# a comment\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates\n\
             Components: main contrib\nSigned-By: /etc/key.gpg\n\n\
             Types: deb\nURIs: http://security.test/d\nSuites: bookworm-security\nComponents: main\n",
            Style::Deb822,
            "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates bookworm-backports\n\
             Components: main\nsigned-by: /etc/key.gpg\n\n\
             Types: deb\nURIs: http://security.test/d\nSuites: bookworm-security\nComponents: main\n\
             signed-by: /usr/share/keyrings/debian-archive-keyring.gpg\n\n",
        );
    }

    #[test]
    fn one_line_entries_keep_their_options() {
        check(
            "# deb http://off.test/ bookworm main\ndeb-src http://src.test/ bookworm main\n\
             deb [arch=amd64 signed-by=/a.gpg,/b.gpg check-valid-until=no] file:///srv/debian bookworm main # local\n",
            Style::OneLine,
            "Types: deb\nURIs: file:///srv/debian\nSuites: bookworm bookworm-updates bookworm-backports\n\
             Components: main\nsigned-by: /a.gpg /b.gpg\ncheck-valid-until: no\n\n",
        );
    }

    #[test]
    fn a_key_inside_the_entry_stays_whole() {
        let text = "Types: deb\nURIs: http://m.test/\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN\n .\n abc\n";
        let private = private_sources(&parse(text, Style::Deb822)).expect("carries Debian 12");
        assert!(private.contains("signed-by: \n -----BEGIN\n .\n abc\n"), "{private}");
    }

    #[test]
    fn other_releases_disabled_entries_and_discs_do_not_count() {
        check("deb http://mirror.test/debian trixie main", Style::OneLine, "none");
        check("deb http://mirror.test/debian bookworm contrib", Style::OneLine, "none");
        check("deb cdrom:[Debian] bookworm main", Style::OneLine, "none");
        check("deb [unclosed http://mirror.test/ bookworm main", Style::OneLine, "none");
        check(
            "Enabled: no\nTypes: deb\nURIs: http://m.test/\nSuites: bookworm\nComponents: main",
            Style::Deb822,
            "none",
        );
    }
}
