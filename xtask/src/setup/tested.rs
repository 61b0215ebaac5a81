//! Which packages the lab's checks have passed with: `tested.toml` beside this file.
//!
//! Debian replaces versions, so nothing is pinned: another package is taken when it passes the
//! checks, and the difference is said. `./x setup --record-tested` writes the list anew, after a
//! `./x test` that passed.

use std::fs;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::installed::{Installed, Package};
use crate::tidy::root;

/// The list of tested packages in this build.
const TESTED: &str = include_str!("tested.toml");

/// Prefixes of the packages whose versions can change a result.
const DECISIVE: [&str; 4] = ["linux-image-", "linux-perf", "numad", "qemu-system-x86"];

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tested {
    packages: Vec<Package>,
}

/// One sentence for each decisive package that is not the tested one.
pub(crate) fn differences(installed: &Installed) -> Result<Vec<String>> {
    let tested: Tested = toml::from_str(TESTED).context("xtask/src/setup/tested.toml")?;
    let others = decisive(installed).filter(|package| !tested.packages.contains(package));
    let sentence = |package: &Package| {
        format!(
            "{} {}: not the package that the lab was last tested with; its checks passed",
            package.name, package.version
        )
    };
    Ok(others.map(sentence).collect())
}

/// Writes the decisive packages of `installed` into the repository as the tested ones.
pub(crate) fn record(installed: &Installed) -> Result<()> {
    let tested = Tested { packages: decisive(installed).cloned().collect() };
    let path = root().join("xtask/src/setup/tested.toml");
    let text = toml::to_string(&tested).context("cannot write tested.toml")?;
    let header =
        "# The packages that ./x test last passed with; written by ./x setup --record-tested.\n\n";
    fs::write(&path, format!("{header}{text}"))
        .with_context(|| format!("{}: cannot write", path.display()))
}

fn decisive(installed: &Installed) -> impl Iterator<Item = &Package> {
    installed
        .packages
        .iter()
        .filter(|package| DECISIVE.iter().any(|name| package.name.starts_with(name)))
}
