//! Rules about crates: which may depend on which, purity, licences.

use super::{Complaint, SourceFile};

/// The design's table: each crate's folder, its licence, and the workspace's crates that it may
/// use.
const CRATES: [Room; 18] = [
    Room { folder: "crates/core", licence: PERMISSIVE, may_use: &[] },
    Room { folder: "crates/input", licence: PERMISSIVE, may_use: &[] },
    Room { folder: "crates/interpose", licence: PERMISSIVE, may_use: &["rondpoint-linux"] },
    Room {
        folder: "crates/machine",
        licence: PERMISSIVE,
        may_use: &["rondpoint-core", "rondpoint-input"],
    },
    Room {
        folder: "crates/linux",
        licence: PERMISSIVE,
        may_use: &["rondpoint-core", "rondpoint-input"],
    },
    Room {
        folder: "crates/trace",
        licence: PERMISSIVE,
        may_use: &["rondpoint-core", "rondpoint-input"],
    },
    Room {
        folder: "crates/sim",
        licence: PERMISSIVE,
        may_use: &["rondpoint-core", "rondpoint-input", "rondpoint-machine", "rondpoint-trace"],
    },
    Room {
        folder: "crates/replica",
        licence: PERMISSIVE,
        may_use: &["rondpoint-core", "rondpoint-linux"],
    },
    Room {
        folder: "crates/rondpoint",
        licence: PERMISSIVE,
        may_use: &[
            "rondpoint-core",
            "rondpoint-input",
            "rondpoint-linux",
            "rondpoint-machine",
            "rondpoint-trace",
        ],
    },
    Room { folder: "fuzz", licence: PERMISSIVE, may_use: &["rondpoint-fuzz-inputs"] },
    Room {
        folder: "fuzz/inputs",
        licence: PERMISSIVE,
        may_use: &["rondpoint-core", "rondpoint-linux", "rondpoint-machine", "rondpoint-trace"],
    },
    Room { folder: "lab/model", licence: PERMISSIVE, may_use: &["rondpoint-machine"] },
    Room {
        folder: "lab/plugin",
        licence: COPYLEFT,
        may_use: &["rondpoint-machine", "rondpoint-lab-init", "rondpoint-lab-model"],
    },
    Room { folder: "lab/init", licence: PERMISSIVE, may_use: &[] },
    Room {
        folder: "lab/runner",
        licence: PERMISSIVE,
        may_use: &[
            "rondpoint-core",
            "rondpoint-machine",
            "rondpoint-lab-init",
            "rondpoint-lab-model",
        ],
    },
    Room { folder: "lab/workloads", licence: PERMISSIVE, may_use: &[] },
    Room { folder: "packaging", licence: PERMISSIVE, may_use: &[] },
    Room { folder: "xtask", licence: PERMISSIVE, may_use: &[] },
];

struct Room {
    folder: &'static str,
    licence: &'static str,
    may_use: &'static [&'static str],
}

const PERMISSIVE: &str = "Apache-2.0 OR MIT";
const COPYLEFT: &str = "GPL-2.0-or-later";

/// Dependencies that the core may have: small `no_std` crates without effects.
const CORE_MAY_USE: [&str; 5] = ["libm", "hashbrown", "rustc-hash", "serde", "thiserror"];

/// Every manifest but the workspace's own, parsed, with its folder.
fn manifests(files: &[SourceFile]) -> Vec<(&str, Result<toml::Table, Complaint>)> {
    let manifests =
        files.iter().filter_map(|file| Some((file.path.strip_suffix("/Cargo.toml")?, file)));
    manifests
        .map(|(folder, file)| {
            let table = file.text.parse::<toml::Table>();
            (folder, table.map_err(|error| format!("{}: {}", file.path, error.message())))
        })
        .collect()
}

/// Names of the dependencies in a manifest, with the optional ones, without those of tests.
fn dependencies(manifest: &toml::Table) -> Vec<&str> {
    let named = ["dependencies", "build-dependencies"];
    let own = named.iter().filter_map(|section| manifest.get(*section)?.as_table());
    let targets = manifest
        .get("target")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(toml::Table::values);
    let per_target = targets
        .flat_map(|target| named.iter().filter_map(|section| target.get(section)?.as_table()));
    own.chain(per_target).flat_map(toml::Table::keys).map(String::as_str).collect()
}

/// The core has no standard library, no unsafe code, and only dependencies that have no effects.
pub(super) fn the_core_is_pure(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    if let Some(library) = files.iter().find(|file| file.path == "crates/core/src/lib.rs") {
        for attribute in ["no_std", "forbid(unsafe_code)"] {
            let is_there = library.text.lines().any(|line| {
                line.strip_prefix("#![").and_then(|rest| rest.strip_suffix(']')) == Some(attribute)
            });
            if !is_there {
                complaints.push(format!(
                    "crates/core/src/lib.rs: expected #![{attribute}], without a condition"
                ));
            }
        }
    }
    for (folder, manifest) in manifests(files) {
        if let Ok(manifest) = &manifest
            && folder == "crates/core"
        {
            let foreign =
                dependencies(manifest).into_iter().filter(|name| !CORE_MAY_USE.contains(name));
            complaints.extend(foreign.map(|name| {
                format!(
                    "crates/core/Cargo.toml: {name} is not among what the core may use: {}",
                    CORE_MAY_USE.join(", ")
                )
            }));
        }
    }
    complaints
}

/// Each crate uses only those of the workspace's crates that [`CRATES`] lists.
pub(super) fn edges_are_the_design_s(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (folder, manifest) in manifests(files) {
        let Some(room) = CRATES.iter().find(|room| room.folder == folder) else {
            complaints.push(format!("{folder}/Cargo.toml: a crate that the design does not have; add it to CRATES in xtask/src/tidy/crates.rs"));
            continue;
        };
        match manifest {
            Err(complaint) => complaints.push(complaint),
            Ok(manifest) => {
                let ours = dependencies(&manifest)
                    .into_iter()
                    .filter(|name| name.starts_with("rondpoint"));
                let foreign = ours.filter(|name| !room.may_use.contains(name));
                complaints.extend(foreign.map(|name| {
                    let may_use = room.may_use.join(", ");
                    format!("{folder}/Cargo.toml: may not use {name}, only: {may_use}")
                }));
            }
        }
    }
    complaints
}

/// Each crate has the licence of its side of the border to QEMU and the kernel, and the workspace's
/// lints.
pub(super) fn manifests_have_licence_and_lints(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (folder, manifest) in manifests(files) {
        let (Ok(manifest), Some(room)) =
            (manifest, CRATES.iter().find(|room| room.folder == folder))
        else {
            continue;
        };
        let licence = manifest.get("package").and_then(|package| package.get("license")?.as_str());
        if licence != Some(room.licence) {
            complaints
                .push(format!("{folder}/Cargo.toml: expected license = \"{}\"", room.licence));
        }
        let lints = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
        if lints != Some(true) {
            complaints.push(format!("{folder}/Cargo.toml: expected [lints] workspace = true"));
        }
    }
    complaints
}

/// The repository has the text of every licence that a crate or file names.
pub(super) fn licence_texts_are_there(files: &[SourceFile]) -> Vec<Complaint> {
    let texts = ["LICENSE-APACHE", "LICENSE-MIT", "LICENSE-GPL"];
    let absent = texts.iter().filter(|text| !files.iter().any(|file| file.path == **text));
    absent.map(|text| format!("{text}: not there")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: fn(&[SourceFile]) -> Vec<Complaint>, files: &[(&str, &str)], expected: &[&str]) {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        assert_eq!(rule(&files), expected);
    }

    #[test]
    fn the_core_may_not_gain_a_standard_library_or_a_dependency() {
        check(
            the_core_is_pure,
            &[
                (
                    "crates/core/src/lib.rs",
                    "#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]\n",
                ),
                (
                    "crates/core/Cargo.toml",
                    "[dependencies]\nlibm = \"0.2\"\n[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n",
                ),
            ],
            &[
                "crates/core/src/lib.rs: expected #![no_std], without a condition",
                "crates/core/Cargo.toml: libc is not among what the core may use: libm, hashbrown, rustc-hash, serde, thiserror",
            ],
        );
    }

    #[test]
    fn an_edge_that_the_design_does_not_have_is_found() {
        check(
            edges_are_the_design_s,
            &[
                ("crates/sim/Cargo.toml", "[dependencies]\nrondpoint-linux.workspace = true\n"),
                ("crates/plugins/Cargo.toml", ""),
                (
                    "crates/linux/Cargo.toml",
                    "[dependencies]\nrondpoint-core.workspace = true\nlibc = \"0.2\"\n",
                ),
            ],
            &[
                "crates/sim/Cargo.toml: may not use rondpoint-linux, only: rondpoint-core, rondpoint-input, rondpoint-machine, rondpoint-trace",
                "crates/plugins/Cargo.toml: a crate that the design does not have; add it to CRATES in xtask/src/tidy/crates.rs",
            ],
        );
    }

    #[test]
    fn a_crate_needs_its_side_s_licence_and_the_lints() {
        let good = "[package]\nlicense = \"Apache-2.0 OR MIT\"\n[lints]\nworkspace = true\n";
        check(
            manifests_have_licence_and_lints,
            &[
                ("crates/core/Cargo.toml", good),
                ("lab/plugin/Cargo.toml", good),
                ("xtask/Cargo.toml", ""),
            ],
            &[
                "lab/plugin/Cargo.toml: expected license = \"GPL-2.0-or-later\"",
                "xtask/Cargo.toml: expected license = \"Apache-2.0 OR MIT\"",
                "xtask/Cargo.toml: expected [lints] workspace = true",
            ],
        );
    }

    #[test]
    fn a_missing_licence_text_is_named() {
        check(
            licence_texts_are_there,
            &[("LICENSE-MIT", ""), ("LICENSE-GPL", "")],
            &["LICENSE-APACHE: not there"],
        );
    }
}
