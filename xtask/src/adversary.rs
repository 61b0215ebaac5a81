//! `./x lab adversary`: the adversary's faults on an emulated machine with several nodes, where the
//! manager moves pages.
//!
//! The test program of `rondpoint` runs in the guest and finds the product at its path of this
//! machine. Words that are given go to the test program: `RONDPOINT_SEED=7 RONDPOINT_RUNS=1`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::trusted::Trusted;
use crate::{cargo, lab};

/// Name of the test program.
const TEST: &str = "adversary";
/// Four nodes of two CPUs.
const MACHINE: &str = "carrefour-a";
/// Host time after which it is given up, seconds: a run takes minutes.
const LIMIT_S: &str = "28800";
/// Each kind of weather, with each command whose calls fail.
const USUAL_RUNS: &str = "RONDPOINT_RUNS=18";

/// Builds the test and the lab, then becomes `rondpoint-lab`.
///
/// # Errors
/// Something cannot be built, or the lab cannot be run.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (test, product) = build()?;
    let workloads = lab::build()?.join(lab::built::WORKLOADS);
    Trusted::Parts.trust();
    let shown = |path: &Path| path.display().to_string();
    let (test, product, workloads) = (shown(&test), shown(&product), shown(&workloads));
    let mut files =
        vec![format!("{product}:{product}"), format!("{workloads}:/bin/{}", lab::built::WORKLOADS)];
    files.extend(libraries(&product)?.into_iter().map(|library| format!("{library}:{library}")));
    let mut line = vec!["run", "--no-cache", "--config", "first-touch", "--output"];
    line.extend(["--machine", MACHINE, "--timeout", LIMIT_S]);
    line.extend(files.iter().flat_map(|file| ["--file", file.as_str()]));
    line.extend(["--", &test, "faults", USUAL_RUNS]);
    // Of two words for one setting the test takes the last.
    line.extend(words);
    lab::become_runner(&line)
}

/// The test program and the product that it names.
fn build() -> Result<(PathBuf, PathBuf)> {
    let mut command = cargo::command();
    command.args(["test", "--release", "--no-run", "--package", "rondpoint", "--test", TEST]);
    // As in the guest's other programs: no commit, which would build it anew each time.
    command.args(["--message-format", "json-render-diagnostics"]).env("RONDPOINT_COMMIT", "");
    let output = command.stderr(Stdio::inherit()).output().context("cargo: cannot run")?;
    if !output.status.success() {
        bail!("cannot build the test {TEST}");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let test = executable(&messages, "test", TEST).context("cargo names no test program")?;
    let product = executable(&messages, "bin", "rondpoint").context("cargo names no product")?;
    Ok((test, product))
}

/// The program of this kind and name among cargo's messages, one JSON object a line.
fn executable(messages: &str, kind: &str, name: &str) -> Option<PathBuf> {
    let all = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = all.filter(|message| {
        let target = &message["target"];
        target["name"] == name && target["kind"][0] == kind
    });
    found.find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
}

/// Shared libraries of a program, as ldd(1) lists them.
fn libraries(program: &str) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context("ldd: cannot run")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: ldd fails: {}", told.trim());
    listed(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("{program}: libraries"))
}

/// Paths in lines such as `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f…)`.
///
/// # Errors
/// A library is missing.
fn listed(text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, path) in text.lines().filter_map(|line| line.trim().split_once(" => ")) {
        ensure!(path != "not found", "{name} is not on this machine");
        let path = path.split(" (").next().unwrap_or(path);
        found.extend(path.starts_with('/').then(|| path.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_and_libraries_are_found() {
        let message = |kind: &str, executable: Option<&str>| {
            let target = json!({ "kind": [kind], "name": "rondpoint" });
            json!({ "target": target, "executable": executable }).to_string()
        };
        let messages =
            [message("lib", None), message("bin", Some("/t/r")), "no JSON".to_owned()].join("\n");
        assert_eq!(executable(&messages, "bin", "rondpoint"), Some(PathBuf::from("/t/r")));
        assert_eq!(executable(&messages, "test", TEST), None);
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /lib/libm.so.6 (0x00007f00)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        assert_eq!(listed(text).unwrap(), ["/lib/libm.so.6"]);
        let missing = listed("\tlibm.so.6 => /lib/libm.so.6 (0x7f00)\n\tlibz.so.9 => not found\n");
        assert_eq!(missing.unwrap_err().to_string(), "libz.so.9 is not on this machine");
    }
}
