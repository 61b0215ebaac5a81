//! `./x results`: writes the pages and charts of docs/results from one JSON file for each
//! experiment.
//!
//! A page says nothing that its JSON does not say: `./x tidy` fails where the two differ.

mod chart;
mod data;
mod page;
mod scatter;
mod screens;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use self::data::Experiment;
use self::screens::Screen;
use crate::tidy::{Complaint, SourceFile, root};

/// Folder of the screens' JSON files.
const SCREENS: &str = "docs/screens";
/// Folder of the experiments' JSON files and pages.
const FOLDER: &str = "docs/results";
/// Page with the list of all pages.
const INDEX: &str = "docs/results/README.md";

/// Writes every page and chart, the list of pages, and the screens in documents.
pub(crate) fn run() -> Result<()> {
    let experiments = read(FOLDER, Experiment::parse)?;
    let screens = read(SCREENS, Screen::parse)?;
    let mut files = rendered(&experiments);
    for entry in fs::read_dir(root().join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let document = fs::read_to_string(&path)?;
            let name = format!("docs/{}.md", name_of(&path));
            files.insert(name.clone(), screens::filled(&document, &screens).context(name)?);
        }
    }
    for (path, text) in &files {
        let path = root().join(path);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    println!("{} files written", files.len());
    Ok(())
}

/// The page of an experiment given as JSON.
#[cfg(test)]
pub(crate) fn page_of(name: &str, json: &str) -> Result<String> {
    Ok(page::page(name, &Experiment::parse(json)?))
}

/// Every JSON file of a folder by its name.
fn read<T>(folder: &str, parse: fn(&str) -> Result<T>) -> Result<BTreeMap<String, T>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root().join(folder)).with_context(|| folder.to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let context = || path.display().to_string();
            let text = fs::read_to_string(&path).with_context(context)?;
            found.insert(name_of(&path), parse(&text).with_context(context)?);
        }
    }
    Ok(found)
}

fn name_of(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// All generated files by their path.
fn rendered(experiments: &BTreeMap<String, Experiment>) -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([(INDEX.to_string(), page::index(experiments))]);
    for (name, experiment) in experiments {
        files.insert(format!("{FOLDER}/{name}.md"), page::page(name, experiment));
        files.insert(format!("{FOLDER}/{name}.svg"), chart::svg(experiment));
    }
    files
}

/// Rule of `./x tidy`: pages and charts are those that their JSON gives.
pub(crate) fn results_are_what_their_json_says(files: &[SourceFile]) -> Vec<Complaint> {
    let here = files.iter().filter(|file| file.path().starts_with("docs/results/"));
    let (data, pages): (Vec<&SourceFile>, Vec<&SourceFile>) =
        here.partition(|file| file.path().ends_with(".json"));
    let mut complaints = Vec::new();
    let mut experiments = BTreeMap::new();
    for file in data {
        match Experiment::parse(file.text()) {
            Ok(experiment) => {
                experiments.insert(name_of(Path::new(file.path())), experiment);
            }
            Err(error) => complaints.push(format!("{}: {error:#}", file.path())),
        }
    }
    let mut expected = rendered(&experiments);
    for page in pages {
        match expected.remove(page.path()) {
            Some(text) if text == page.text() => {}
            Some(_) => complaints
                .push(format!("{}: is not what its JSON says; run ./x results", page.path())),
            None => complaints.push(format!("{}: there is no JSON for it", page.path())),
        }
    }
    complaints.extend(expected.keys().map(|path| format!("{path}: missing; run ./x results")));
    complaints
}

/// Rule of `./x tidy`: screens in documents are those that their JSON gives.
pub(crate) fn screens_are_what_their_json_says(files: &[SourceFile]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut screens = BTreeMap::new();
    for file in files.iter().filter(|file| file.path().starts_with("docs/screens/")) {
        match Screen::parse(file.text()) {
            Ok(screen) => {
                screens.insert(name_of(Path::new(file.path())), screen);
            }
            Err(error) => complaints.push(format!("{}: {error:#}", file.path())),
        }
    }
    for file in files {
        let path = file.path();
        let is_document =
            path.starts_with("docs/") && path.ends_with(".md") && path.matches('/').count() == 1;
        match screens::filled(file.text(), &screens) {
            _ if !is_document => {}
            Ok(text) if text == file.text() => {}
            Ok(_) => complaints
                .push(format!("{path}: a screen is not what its JSON says; run ./x results")),
            Err(error) => complaints.push(format!("{path}: {error:#}")),
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str = r#"{"format": 1, "title": "A & B", "about": "Two of them.", "kind": "emulated",
        "machine": "m", "seeds": 5, "commit": "abcdef1", "commands": ["./x lab run"], "reference": 1.0,
        "columns": ["speed"], "rows": [{"name": "one", "cells": [1.0]},
        {"name": "two", "cells": [{"median": 1.5, "least": 1.25, "most": 2.0}]},
        {"name": "three", "cells": [null]}], "findings": ["It grew."]}"#;

    fn files(list: &[(&str, &str)]) -> Vec<SourceFile> {
        list.iter().map(|(path, text)| SourceFile::new(path, text)).collect()
    }

    #[test]
    fn a_page_that_was_edited_a_page_without_data_and_a_missing_one_are_told() {
        let experiments = BTreeMap::from([("x".to_string(), Experiment::parse(DATA).unwrap())]);
        let all = rendered(&experiments);
        let path = |end: &str| format!("docs/results/{end}");
        let (page, chart) = (all[&path("x.md")].clone(), all[&path("x.svg")].clone());
        let whole = [
            (path("x.json"), DATA.to_string()),
            (path("x.md"), page.clone()),
            (path("x.svg"), chart),
            (INDEX.to_string(), all[INDEX].clone()),
        ];
        let check = |list: &[(String, String)]| {
            let list: Vec<(&str, &str)> =
                list.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            results_are_what_their_json_says(&files(&list))
        };
        assert!(check(&whole).is_empty(), "{:?}", check(&whole));
        let mut edited = whole.clone();
        edited[1].1 = page.replace("1.25", "1.35");
        assert_eq!(
            check(&edited),
            ["docs/results/x.md: is not what its JSON says; run ./x results"]
        );
        let mut more = whole.to_vec();
        more.push((path("old.md"), String::new()));
        assert_eq!(check(&more), ["docs/results/old.md: there is no JSON for it"]);
        assert_eq!(check(&whole[..3]), [format!("{INDEX}: missing; run ./x results")]);
    }

    #[test]
    fn a_page_has_the_numbers_their_kind_and_how_to_get_them() {
        let experiment = Experiment::parse(DATA).unwrap();
        let page = page::page("x", &experiment);
        for expected in [
            "| one | 1.00 |",
            "| two | 1.50 (1.25 to 2.00) |",
            "| three | – |",
            "emulated",
            "abcdef1",
            "./x lab run",
            "- It grew.",
        ] {
            assert!(page.contains(expected), "{expected}: {page}");
        }
        let svg = chart::svg(&experiment);
        assert!(svg.contains("A &amp; B") && svg.contains("1.50"), "{svg}");
        assert_eq!(svg.matches("class=\"range\"").count(), 1, "{svg}");
        assert_eq!(svg.matches("class=\"bar\"").count(), 2, "what is not known has no bar: {svg}");
    }

    #[test]
    fn points_are_drawn_in_place_of_bars() {
        let scatter = r#""scatter": {"x": "a", "y": "b", "range": [-1, 2],
            "points": [{"series": "s", "at": [0, 0]}, {"series": "s", "at": [9, 1]}]}, "rows"#;
        let svg = chart::svg(&Experiment::parse(&DATA.replace("\"rows", scatter)).unwrap());
        assert_eq!(svg.matches("class=\"point\"").count(), 2, "{svg}");
        assert!(svg.contains("cx=\"480.0\""), "beyond the range it is on the edge: {svg}");
        assert!(!svg.contains("class=\"bar\""), "{svg}");
    }

    #[test]
    fn data_that_says_too_little_is_refused() {
        let refuse = |from: &str, to: &str, expected: &str| {
            let error = Experiment::parse(&DATA.replace(from, to)).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        };
        refuse("\"format\": 1", "\"format\": 2", "format 2, expected 1");
        refuse("emulated", "guessed", "unknown variant `guessed`");
        refuse("[1.0]}", "[1.0, 2.0]}", "one: 2 cells for 1 columns");
        refuse("\"least\": 1.25", "\"least\": 1.75", "two: expected least ≤ median ≤ most");
        refuse("[\"./x lab run\"]", "[]", "expected the commands");
        refuse("\"seeds\": 5", "\"seeds\": 0", "expected at least one seed");
    }
}
