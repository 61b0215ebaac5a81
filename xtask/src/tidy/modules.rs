//! Rule about the core's modules: what imports what.

use std::collections::{BTreeMap, BTreeSet};

use super::{Complaint, SourceFile};

/// The core's sources.
const CORE: &str = "crates/core/src/";

/// Known imports that close a circle: `(module, module that it imports)`, each with all modules
/// below it. An entry without such an import is a complaint.
const KNOWN: [(&str, &str); 10] = [
    // One enum has the reasons of all policies. The guard asks it which actions are indivisible.
    ("plan", "policy"),
    ("policy::asymsched::search_cache", "policy::asymsched::decision"),
    ("policy::asymsched::wide", "policy::asymsched::search"),
    ("policy::carrefour::between", "policy::carrefour::pages"),
    ("policy::sam::bandwidth", "policy::sam::decide"),
    ("policy::sam::coherence", "policy::sam::decide"),
    ("policy::sam::order", "policy::sam::decide"),
    ("policy::sam::remote", "policy::sam::decide"),
    ("topology::calibrated", "topology::description"),
    ("topology::costs", "topology::description"),
];

/// Modules of one parent, each with all modules below it, import each other in no circle. A parent
/// and modules below it may.
pub(super) fn the_core_has_no_import_circle(files: &[SourceFile]) -> Vec<Complaint> {
    let name = |file: &SourceFile| {
        let path = file.path().strip_prefix(CORE)?.strip_suffix(".rs")?;
        (path != "lib").then(|| path.replace('/', "::"))
    };
    let sources: BTreeMap<String, &str> =
        files.iter().filter_map(|file| Some((name(file)?, file.text()))).collect();
    let imports = imports(&sources);
    let is_known = |import: &(String, String)| {
        KNOWN.iter().any(|(from, to)| (import.0.as_str(), import.1.as_str()) == (*from, *to))
    };
    let open: BTreeSet<_> = imports.iter().filter(|one| !is_known(one)).cloned().collect();
    let circles = open.iter().filter(|(from, to)| reaches(&open, to, from));
    let mut complaints: Vec<Complaint> = circles
        .map(|(from, to)| {
            format!("{CORE}: {from} imports {to}, which leads back to it; expected no circle")
        })
        .collect();
    for (from, to) in KNOWN.iter().filter(|_| !sources.is_empty()) {
        let import = ((*from).to_owned(), (*to).to_owned());
        let closes = imports.contains(&import) && reaches(&imports, to, from);
        if !closes {
            complaints.push(format!(
                "xtask/src/tidy/modules.rs: {from} and {to} are no circle any more; expected the \
                 entry to be gone"
            ));
        }
    }
    complaints
}

/// Imports between modules of one parent, by them or by modules below them.
fn imports(sources: &BTreeMap<String, &str>) -> BTreeSet<(String, String)> {
    let mut imports = BTreeSet::new();
    for (module, text) in sources {
        for path in paths(module, text) {
            let common = module.split("::").zip(&path).take_while(|(a, b)| a == b).count();
            let from: Vec<&str> = module.split("::").take(common + 1).collect();
            let to = path.get(..=common).map(|to| to.join("::"));
            let Some(to) = to.filter(|to| is_module(sources, to)) else { continue };
            if from.len() == common + 1 {
                imports.insert((from.join("::"), to));
            }
        }
    }
    imports
}

fn is_module(sources: &BTreeMap<String, &str>, name: &str) -> bool {
    let below = format!("{name}::");
    sources.keys().any(|module| module == name || module.starts_with(&below))
}

/// Whether imports lead from one module to another.
fn reaches(imports: &BTreeSet<(String, String)>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(here) = open.pop() {
        for (_, next) in imports.iter().filter(|(from, _)| from == here) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    seen.contains(to)
}

/// Every path in a module's text that begins with `crate`, `super` or `self`, from the crate's root
/// on. Paths of its tests are left out.
fn paths(module: &str, text: &str) -> Vec<Vec<String>> {
    let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let code: String = product
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line).to_owned() + "\n")
        .collect();
    let mut found = Vec::new();
    for word in ["crate::", "super::", "self::"] {
        for (place, _) in code.match_indices(word) {
            let before = code[..place].chars().next_back();
            if before
                .is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':')
            {
                continue;
            }
            let base: Vec<String> = match word {
                "crate::" => Vec::new(),
                "self::" => module.split("::").map(str::to_owned).collect(),
                _ => parent(module.split("::").map(str::to_owned).collect()),
            };
            tree(&code[place + word.len()..], &base, &mut found);
        }
    }
    found
}

fn parent(mut path: Vec<String>) -> Vec<String> {
    path.pop();
    path
}

/// Reads the rest of a path with its braces. Adds the paths to `found` and returns the text behind.
fn tree<'a>(text: &'a str, base: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = tree(rest.trim_start(), base, found).trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more.trim_start(),
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
            if let Some(after) = rest.strip_prefix('}') {
                return after;
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let path: Vec<String> = match word {
        "super" => parent(base.to_vec()),
        "self" => base.to_vec(),
        _ => base.iter().cloned().chain([word.to_owned()]).collect(),
    };
    match rest.strip_prefix("::") {
        Some(more) if !word.is_empty() => tree(more, &path, found),
        _ => {
            found.push(path);
            // A name may be given another one: ` as other`.
            let end = rest.find([',', '}', ';', '\n']).unwrap_or(rest.len());
            if rest.trim_start().starts_with("as ") { &rest[end..] } else { rest }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(sources: &[(&str, &str)]) -> Vec<Complaint> {
        let file = |(name, text): &(&str, &str)| SourceFile::new(&format!("{CORE}{name}.rs"), text);
        let files: Vec<SourceFile> = sources.iter().map(file).collect();
        let mut complaints = the_core_has_no_import_circle(&files);
        complaints.retain(|one| !one.starts_with("xtask"));
        complaints
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle_also_by_way_of_others() {
        assert_eq!(complaints(&[("a", "use crate::b::B;"), ("b", "use crate::c::C;")]), [""; 0]);
        let pair = complaints(&[("a", "use crate::b::B;"), ("b", "fn f() { crate::a::g() }")]);
        assert_eq!(pair.len(), 2, "{pair:?}");
        let three = [("a", "use super::b;"), ("b/x", "use crate::{c::C};"), ("c", "use crate::a;")];
        assert_eq!(complaints(&three).len(), 3);
    }

    #[test]
    fn a_parent_and_what_is_below_it_may_import_each_other() {
        let sources = [
            ("a", "mod x;\nuse self::x::X;"),
            ("a/x", "use super::{A, y::Y};\nuse crate::a::B;"),
            ("a/y", "use super::super::a::A; // use super::x::X"),
        ];
        assert_eq!(complaints(&sources), [""; 0]);
        let mut circle = sources;
        circle[2].1 = "use super::x::{X as Other, Z};";
        assert_eq!(complaints(&circle).len(), 2);
    }

    #[test]
    fn what_tests_import_closes_no_circle() {
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}";
        assert_eq!(complaints(&[("a", "use crate::b::B;"), ("b", tests)]), [""; 0]);
    }

    #[test]
    fn an_entry_that_is_not_needed_is_a_complaint() {
        let file = SourceFile::new(&format!("{CORE}plan.rs"), "");
        assert_eq!(the_core_has_no_import_circle(&[file]).len(), KNOWN.len());
    }
}
