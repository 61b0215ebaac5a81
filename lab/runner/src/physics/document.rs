//! The findings as a table, and as docs/LAB.md.

use std::fmt::Write as _;

use anyhow::Result;

use super::Finding;

/// What docs/LAB.md says before its table.
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

/// The whole of docs/LAB.md.
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
