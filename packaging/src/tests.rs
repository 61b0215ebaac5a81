//! Packages read back with other code than wrote them: the libraries' readers, and digests.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use md5::{Digest as _, Md5};
use sha2::Sha256;

use super::*;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Stand-ins for what `./x dist` builds, beside the real sources. The packages are in `output`.
fn packed(with_libraries: bool) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &[u8]| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("program", b"\x7fELF program");
    put("manual/man/rondpoint.1", b".TH rondpoint 1\n");
    put("manual/man/rondpoint-run.1", b".TH rondpoint-run 1\n");
    for shell in ["rondpoint.bash", "_rondpoint", "rondpoint.fish"] {
        put(&format!("manual/completions/{shell}"), b"complete\n");
    }
    put("libraries/librondpoint_interpose.so", b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0");
    put("libraries/librondpoint_replica.so", b"\0GLIBC_2.17\0GLIBC_PRIVATE\0");
    put("libraries/librondpoint_replica.a", b"!<arch>\n");
    let output = folder.path().join("output");
    fs::create_dir(&output).unwrap();
    let arguments = Arguments {
        program: folder.path().join("program"),
        machine: "x86_64".into(),
        manual: folder.path().join("manual"),
        libraries: with_libraries.then(|| folder.path().join("libraries")),
        checkout: checkout(),
        time: 1_700_000_000,
        output: output.clone(),
    };
    run(&arguments).unwrap();
    (folder, output)
}

fn named(output: &Path, end: &str) -> Vec<u8> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(output).unwrap().map(|one| one.unwrap().path()).collect();
    names.retain(|path| path.to_string_lossy().ends_with(end));
    assert_eq!(names.len(), 1, "{end}: {names:?}");
    fs::read(&names[0]).unwrap()
}

fn unzip(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut text).unwrap();
    text
}

/// Path → mode and content of a tar archive's files and links.
fn files(archive: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(archive);
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert_eq!(header.mtime().unwrap(), 1_700_000_000);
        let (kind, mode) = (header.entry_type(), header.mode().unwrap());
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        if kind.is_symlink() {
            bytes = entry.link_name_bytes().unwrap().into_owned();
        }
        entry.read_to_end(&mut bytes).unwrap();
        if !kind.is_dir() {
            found.insert(path, (mode, bytes));
        }
    }
    found
}

fn members(deb: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = ar::Archive::new(deb);
    let mut found = Vec::new();
    while let Some(member) = archive.next_entry() {
        let mut member = member.unwrap();
        let name = String::from_utf8_lossy(member.header().identifier()).into_owned();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        found.push((name, bytes));
    }
    found
}

#[test]
fn a_deb_has_its_three_members_and_its_sums_are_those_of_its_files() {
    let (_folder, output) = packed(true);
    let found = members(&named(&output, "rondpoint_0.1.0_amd64.deb"));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    assert_eq!(found[0].1, b"2.0\n");
    let control = files(&unzip(&found[1].1));
    let text = |name: &str| String::from_utf8(control[name].1.clone()).unwrap();
    for line in ["Package: rondpoint", "Architecture: amd64", "Recommends: libc6 (>= 2.34)"] {
        assert!(text("control").lines().any(|one| one == line), "{line}: {}", text("control"));
    }
    let lines = text("control");
    assert!(lines.lines().all(|line| line.starts_with(' ') || line.contains(": ")), "{lines}");
    for script in ["postinst", "prerm", "postrm"] {
        assert_eq!(control[script].0, 0o755);
        assert!(text(script).starts_with("#!/bin/sh\n") && text(script).contains("set -e\n"));
    }
    let data = files(&unzip(&found[2].1));
    assert_eq!(data["usr/bin/rondpoint"], (0o755, b"\x7fELF program".to_vec()));
    for example in ["rondpoint-metrics.conf", "rondpoint-perf.conf"] {
        assert!(data.contains_key(&format!("usr/share/doc/rondpoint/{example}")), "{example}");
    }
    assert_eq!(data["usr/lib/rondpoint/numad"].1, b"../../bin/rondpoint");
    assert_eq!(unzip(&data["usr/share/man/man1/rondpoint-run.1.gz"].1), b".TH rondpoint-run 1\n");
    let mut summed = 0;
    for line in text("md5sums").lines() {
        let (sum, path) = line.split_once("  ").unwrap();
        assert_eq!(hex(&Md5::digest(&data[path].1)), sum, "{path}");
        summed += 1;
    }
    let conffiles =
        control.get("conffiles").map_or(0, |(_, text)| text.split(|b| *b == b'\n').count() - 1);
    let links = 1;
    assert_eq!(summed + conffiles + links, data.len(), "every file has its sum or is edited");
}

/// What the unit, the configuration and the pages name for a reader is installed. Pages of results
/// and of the sources are not.
#[test]
fn what_the_installed_texts_name_is_installed() {
    let (_folder, output) = packed(false);
    let data = files(&unzip(&members(&named(&output, "rondpoint_0.1.0_amd64.deb"))[2].1));
    let text = |path: &str| String::from_utf8(data[path].1.clone()).unwrap();
    let folder = "usr/share/doc/rondpoint";
    let mut links = 0;
    for page in ["daemon", "safety", "reference", "how-it-decides", "guide"] {
        for rest in text(&format!("{folder}/{page}.md")).split("](").skip(1) {
            let link = rest.split([')', '#']).next().unwrap();
            if link.ends_with(".md") && !link.contains('/') {
                assert!(data.contains_key(&format!("{folder}/{link}")), "{page}.md: {link}");
                links += 1;
            }
        }
    }
    assert!(links > 10, "{links}");
    let mut named = 0;
    for path in data.keys().filter(|path| path.ends_with(".md") || path.contains("/systemd/")) {
        let text = text(path);
        for (begin, _) in text.match_indices("/usr/share/") {
            let is_end = |one: char| one.is_whitespace() || "`,;)\"'".contains(one);
            let path = text[begin..].split(is_end).next().unwrap();
            let path = path.trim_start_matches('/').trim_end_matches('.');
            let is_there =
                data.keys().any(|one| one == path || one.starts_with(&format!("{path}/")));
            assert!(is_there || !path.contains("rondpoint"), "{path} is not in the package");
            named += usize::from(is_there);
        }
    }
    assert!(named >= 4, "{named}");
    for path in ["rondpoint.schema.json", "grafana.json"] {
        let bytes = &data[&format!("usr/share/rondpoint/{path}")].1;
        serde_json::from_slice::<serde_json::Value>(bytes).expect("JSON");
    }
}

/// Debian Policy 12.5 and 12.7: every package has its copyright, and its changelog compressed.
#[test]
fn every_deb_has_its_copyright_and_its_changelog() {
    let (_folder, output) = packed(true);
    for package in ["rondpoint", "rondpoint-replica"] {
        let deb = named(&output, &format!("/{package}_0.1.0_amd64.deb"));
        let data = files(&unzip(&members(&deb)[2].1));
        let file = |name: &str| &data[&format!("usr/share/doc/{package}/{name}")].1;
        let copyright = String::from_utf8_lossy(file("copyright"));
        assert!(copyright.contains("MIT License") && copyright.contains("Apache License"));
        let changes = unzip(file("changelog.gz"));
        assert_eq!(changes, fs::read(checkout().join("CHANGELOG.md")).unwrap());
    }
}

#[test]
fn an_upgrade_keeps_an_edited_configuration_wherever_there_is_one() {
    let (_folder, output) = packed(false);
    let has = checkout().join("packaging/rondpoint.toml").exists();
    let found = members(&named(&output, ".deb"));
    let control = files(&unzip(&found[1].1));
    let list = control.get("conffiles").map(|(_, bytes)| bytes.clone());
    assert_eq!(list, has.then(|| b"/etc/rondpoint/rondpoint.toml\n".to_vec()));
    let package = rpm::Package::parse(&mut &named(&output, ".rpm")[..]).unwrap();
    let entries = package.metadata.get_file_entries().unwrap();
    let edited: Vec<_> =
        entries.iter().filter(|one| one.flags().contains(rpm::FileFlags::NOREPLACE)).collect();
    assert_eq!(edited.len(), usize::from(has));
}

#[test]
fn the_library_is_a_package_of_its_own_where_it_was_built() {
    let (_folder, output) = packed(true);
    let found = members(&named(&output, "rondpoint-replica_0.1.0_amd64.deb"));
    let control = String::from_utf8(files(&unzip(&found[1].1))["control"].1.clone()).unwrap();
    assert!(control.contains("\nDepends: libc6 (>= 2.17)\n"), "{control}");
    let data = files(&unzip(&found[2].1));
    for path in [
        "usr/lib/librondpoint_replica.so",
        "usr/lib/librondpoint_replica.a",
        "usr/lib/python3/dist-packages/rondpoint_replica.py",
        "usr/include/rondpoint_replica.h",
    ] {
        assert!(data.contains_key(path), "{path}: {:?}", data.keys());
    }
    let package =
        rpm::Package::parse(&mut &named(&output, "rondpoint-replica-0.1.0-1.x86_64.rpm")[..]);
    let package = package.unwrap();
    let entries = package.metadata.get_file_entries().unwrap();
    let paths: Vec<String> =
        entries.iter().map(|one| one.path().to_string_lossy().into_owned()).collect();
    for path in [
        "/usr/lib64/pkgconfig/rondpoint-replica.pc",
        "/usr/lib64/librondpoint_replica.a",
        "/usr/share/rondpoint-replica/rondpoint_replica.py",
    ] {
        assert!(paths.iter().any(|one| one == path), "{path}: {paths:?}");
    }
    let (_folder, output) = packed(false);
    let all = fs::read_dir(&output).unwrap().count();
    assert_eq!(all, 5, "deb, rpm, tar, image, manifest");
}

#[test]
fn an_rpm_is_read_back_with_its_files_scripts_and_digests() {
    let (_folder, output) = packed(true);
    let package =
        rpm::Package::parse(&mut &named(&output, "rondpoint-0.1.0-1.x86_64.rpm")[..]).unwrap();
    package.verify_digests().unwrap();
    assert_eq!(package.metadata.get_arch().unwrap(), "x86_64");
    assert!(package.metadata.get_post_install_script().unwrap().script.contains("useradd"));
    let entries = package.metadata.get_file_entries().unwrap();
    let program = entries.iter().find(|one| one.path() == Path::new("/usr/bin/rondpoint")).unwrap();
    assert_eq!(program.mode().permissions(), 0o755);
}

#[test]
fn every_blob_of_the_image_has_the_digest_that_names_it() {
    let (_folder, output) = packed(false);
    let layout = files(&named(&output, ".oci.tar"));
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    let blob = |descriptor: &serde_json::Value| -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let bytes = layout[&format!("blobs/sha256/{digest}")].1.clone();
        assert_eq!(hex(&Sha256::digest(&bytes)), digest);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    };
    assert_eq!(json(&layout["oci-layout"].1)["imageLayoutVersion"], "1.0.0");
    let manifest = json(&blob(&json(&layout["index.json"].1)["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    assert_eq!((&config["architecture"], &config["os"]), (&"amd64".into(), &"linux".into()));
    let layer = unzip(&blob(&manifest["layers"][0]));
    let id = format!("sha256:{}", hex(&Sha256::digest(&layer)));
    assert_eq!(config["rootfs"]["diff_ids"], serde_json::json!([id]));
    assert_eq!(files(&layer)["usr/bin/rondpoint"].0, 0o755);
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/rondpoint");
}

#[test]
fn the_tar_archive_is_for_any_prefix_and_the_same_each_time() {
    let ((_one, first), (_other, second)) = (packed(true), packed(true));
    let archive = named(&first, ".tar.gz");
    let found = files(&unzip(&archive));
    let stem = "rondpoint-0.1.0-x86_64";
    assert!(found.contains_key(&format!("{stem}/bin/rondpoint")), "{:?}", found.keys());
    assert!(found.contains_key(&format!("{stem}/include/rondpoint_replica.h")));
    for end in ["rondpoint_0.1.0_amd64.deb", "rondpoint-0.1.0-1.x86_64.rpm", ".tar.gz", ".oci.tar"]
    {
        assert!(named(&first, end) == named(&second, end), "{end} differs");
    }
}

/// Names of capabilities in a text, without `CAP_`, sorted.
fn capabilities(text: &str) -> Vec<String> {
    let words = text.split(|one: char| !one.is_ascii_uppercase() && one != '_');
    let mut names: Vec<String> = words
        .filter(|word| word.len() > 2)
        .map(|word| word.trim_start_matches("CAP_").to_owned())
        .collect();
    names.sort();
    names
}

/// The manifest and the unit grant what the daemon keeps by its row in `docs/safety.md`. A test of
/// the program compares the row with the running daemon.
#[test]
fn the_manifest_and_the_unit_grant_the_capabilities_that_the_daemon_keeps() {
    let read = |path: &str| fs::read_to_string(checkout().join(path)).unwrap();
    let line = |text: &str, begin: &str| {
        let mut lines = text.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(begin)).unwrap_or_default().to_owned()
    };
    let row = line(&read("docs/safety.md"), "| `daemon` |");
    let kept = capabilities(row.split('|').next().unwrap());
    assert_eq!(kept, ["PERFMON", "SYS_NICE", "SYS_PTRACE"]);
    let manifest = read("packaging/kubernetes/daemonset.yaml");
    assert_eq!(capabilities(&line(&manifest, "add:")), kept);
    let unit = read("packaging/rondpoint.service");
    for set in ["CapabilityBoundingSet=", "AmbientCapabilities="] {
        assert_eq!(capabilities(&line(&unit, set)), kept, "{set}");
    }
    assert_eq!(line(&unit, "TimeoutStartSec="), "15min", "a start puts much back");
}

/// The default profiles of container runtimes forbid a manager's work. The manifest lifts them and
/// nothing that Kubernetes could grant beside.
#[test]
fn the_manifest_lifts_the_profiles_that_forbid_moves_and_nothing_more() {
    let (_folder, output) = packed(false);
    let text = String::from_utf8(named(&output, "daemonset.yaml")).unwrap();
    let has = |line: &str| text.lines().any(|one| one.trim() == line);
    for line in [
        "drop: [ALL]",
        "allowPrivilegeEscalation: false",
        "readOnlyRootFilesystem: true",
        "privileged: false",
        "automountServiceAccountToken: false",
        "seccompProfile: { type: Unconfined }",
        "appArmorProfile: { type: Unconfined }",
        "container.apparmor.security.beta.kubernetes.io/rondpoint: unconfined",
        "- { name: cgroup, mountPath: /sys/fs/cgroup, readOnly: true }",
        "limits: { memory: 512Mi }",
        "image: rondpoint:0.1.0",
        "mode = \"observe\"",
    ] {
        assert!(has(line), "{line}");
    }
    for word in ["hostNetwork", "hostIPC", "SYS_ADMIN", "privileged: true", "@VERSION@", "\t"] {
        assert!(!text.contains(word), "{word}");
    }
}

/// What systemd says of the unit that the package holds; lower is stricter.
const MOST_EXPOSED: f64 = 2.0;

#[test]
fn the_unit_of_the_package_is_as_strict_as_it_says() {
    let (_folder, output) = packed(false);
    let members = members(&named(&output, "rondpoint_0.1.0_amd64.deb"));
    let files = files(&unzip(&members[2].1));
    let unit = files.iter().find(|(path, _)| path.ends_with("system/rondpoint.service"));
    let (_, (_, text)) = unit.expect("a unit");
    let lines = String::from_utf8_lossy(text);
    // Without the first, a call outside of the lists ends the daemon, and masks stay changed.
    for line in ["SystemCallErrorNumber=EPERM", "MemoryMax=512M"] {
        assert!(lines.lines().any(|one| one == line), "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rondpoint.service");
    fs::write(&path, text).unwrap();
    let mut analyze = std::process::Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(&path);
    // `packaging/lifecycle.sh` asks it in a guest, wherever `./x test` runs.
    let Ok(told) = analyze.output() else { return };
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let level = told.lines().find_map(|line| line.split_once("rondpoint.service: "));
    let level = level.and_then(|(_, level)| level.split_whitespace().next()?.parse::<f64>().ok());
    assert!(level.is_some_and(|level| level <= MOST_EXPOSED), "{told}");
}
