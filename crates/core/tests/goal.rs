//! The page of the benchmarks' goals: when it is measured, and which rows it keeps.

use std::path::Path;

use serde_json::{Value, json};

#[expect(dead_code, reason = "only a benchmark measures")]
#[path = "../benches/goal/mod.rs"]
mod goal;

#[test]
fn goals_are_measured_by_cargo_bench_alone() {
    assert!(goal::are_wanted_by(&["--bench"]));
    assert!(goal::are_wanted_by(&["goal", "--bench"]));
    assert!(!goal::are_wanted_by(&["decide", "--bench"]), "another benchmark was asked for");
    assert!(!goal::are_wanted_by(&[]), "cargo test --benches");
    assert!(!goal::are_wanted_by(&["--bench", "--list"]));
}

#[test]
fn a_page_has_rows_of_one_commit_and_machine() {
    let row = |name: &str, us: u32| json!({"name": name, "cells": [us]});
    let names = |page: &Value| -> Vec<Value> {
        let rows = page["rows"].as_array().expect("rows");
        rows.iter().map(|row| row["name"].clone()).collect()
    };
    let first = goal::page(&Value::Null, row("a", 1), "one", "here");
    let both = goal::page(&first, row("b", 2), "one", "here");
    assert_eq!(names(&both), ["a", "b"]);
    let again = goal::page(&both, row("a", 3), "one", "here");
    assert_eq!(again["rows"], json!([row("a", 3), row("b", 2)]));
    assert_eq!(names(&goal::page(&both, row("a", 3), "two", "here")), ["a"]);
    assert_eq!(names(&goal::page(&both, row("a", 3), "one", "there")), ["a"]);
}

#[test]
fn a_folder_that_is_no_checkout_has_no_commit() {
    assert_eq!(goal::commit_of(Path::new("/")), None);
}
