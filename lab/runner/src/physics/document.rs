//! The findings as a table, and as docs/lab.md.

use std::fmt::Write as _;

use anyhow::Result;

use super::Finding;

/// What docs/lab.md says before its table.
const HEAD: &str = include_str!("head.md");
/// And after it.
const TAIL: &str = include_str!("tail.md");

/// A table for a terminal.
pub(crate) fn table(findings: &[Finding]) -> String {
    let width = |text: fn(&Finding) -> &str| {
        findings.iter().map(|finding| text(finding).chars().count()).max().unwrap_or(0)
    };
    let (check, target) = (width(|finding| &finding.check), width(|finding| &finding.target));
    let mut text = String::new();
    let mut machine = "";
    for finding in findings {
        if finding.machine != machine {
            machine = &finding.machine;
            let _ = writeln!(text, "{machine} (emulated)");
        }
        let verdict = if finding.holds { "ok  " } else { "FAIL" };
        let _ = writeln!(
            text,
            "  {verdict} {:<check$}  {:<target$}  {}",
            finding.check, finding.target, finding.measured
        );
    }
    let failed = findings.iter().filter(|finding| !finding.holds).count();
    let _ = writeln!(text, "{} passed, {failed} failed", findings.len() - failed);
    text
}

/// The whole of docs/lab.md.
pub(crate) fn markdown(findings: &[Finding]) -> Result<String> {
    let mut text = HEAD.to_owned();
    writeln!(text, "| machine | check | target | measured | verdict |\n|---|---|---|---|---|")?;
    for finding in findings {
        let verdict = if finding.holds { "ok" } else { "**fails**" };
        writeln!(
            text,
            "| {} | {} | {} | {} | {verdict} |",
            finding.machine, finding.check, finding.target, finding.measured
        )?;
    }
    text.push_str(TAIL);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in between takes a guest; the text around it is ours.
    #[test]
    fn the_page_is_of_this_head_and_tail_and_its_table_of_this_form() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab.md");
        let page = std::fs::read_to_string(path).expect("docs/lab.md");
        let table = page.strip_prefix(HEAD).and_then(|rest| rest.strip_suffix(TAIL));
        let table = table.expect("docs/lab.md begins as head.md and ends as tail.md");
        let empty = markdown(&[]).expect("text");
        let form = empty.strip_prefix(HEAD).and_then(|rest| rest.strip_suffix(TAIL));
        assert!(table.starts_with(form.expect("it is so made")), "{table}");
        assert!(table.lines().all(|line| line.starts_with('|')), "{table}");
    }
}
