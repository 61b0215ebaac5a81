//! `decide` on the models in `fixtures/models`: files in, text out; and the refusals with their
//! paths.

mod damage;

use super::*;
use expect_test::expect_file;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn budget() -> Budget {
    Budget::new(MODEL_BYTES, MODEL_ITEMS)
}

fn arguments(machine: &str, model: &str, policy: &str) -> Arguments {
    Arguments {
        machine: root(&format!("machines/{machine}.toml")),
        model: vec![root(&format!("fixtures/models/{model}.json"))],
        policy: policy.split(',').map(str::to_string).collect(),
        preset: None,
        seed: 1,
        print_model: false,
        lab: false,
        unguarded: false,
        json: false,
    }
}

/// Output without the place of the checkout.
fn output(arguments: &Arguments) -> String {
    let text = run(arguments).expect("good input");
    text.replace(&root("fixtures").display().to_string(), "fixtures")
}

macro_rules! plans {
    ($($test:ident: $machine:literal $model:literal $policy:literal => $file:literal;)*) => {$(
        #[test]
        fn $test() {
            let file = concat!("../../../../fixtures/models/", $file, ".txt");
            expect_file![file].assert_eq(&output(&arguments($machine, $model, $policy)));
        }
    )*};
}

plans! {
    a_shared_array_is_interleaved_and_private_pages_colocated: "carrefour-a" "shared-array" "carrefour" => "shared-array.carrefour";
    the_author_code_decides_differently: "carrefour-a" "shared-array" "carrefour:code" => "shared-array.carrefour-code";
    a_table_that_is_only_read_is_replicated: "carrefour-a" "read-shared" "carrefour" => "read-shared.carrefour";
    without_replication_lp_interleaves_it: "carrefour-a" "read-shared" "carrefour:lp" => "read-shared.carrefour-lp";
    a_well_placed_program_stays: "carrefour-a" "well-placed" "carrefour" => "well-placed.carrefour";
    sharers_on_two_sockets_come_together: "sam-2" "sam-example" "sam" => "sam-example.sam";
    one_of_four_clones_moves_away: "nmass-2" "four-soplex" "nmass" => "four-soplex.nmass";
    the_worst_pair_of_nodes_becomes_a_best_one: "asymsched-8" "worst-pair" "asymsched" => "worst-pair.asymsched";
    hot_pages_leave_a_memory_only_node: "chiplet-cxl" "memory-only" "carrefour" => "memory-only.carrefour";
    two_programs_are_judged_apart: "carrefour-a" "two-programs" "carrefour" => "two-programs.carrefour";
}

#[test]
fn the_reference_of_published_rates_is_the_machine_file() {
    use rondpoint_core::reference::CARREFOUR_A;
    let machine = Machine::load(&root(&format!("machines/{}.toml", CARREFOUR_A.machine)))
        .expect("a machine file");
    let topology = machine.topology();
    assert_eq!(topology.controllers().len(), CARREFOUR_A.controllers);
    for node in topology.controllers().iter() {
        assert_eq!(topology.controller_bytes_per_s(node), Some(CARREFOUR_A.controller_bytes_per_s));
    }
    assert_eq!(topology.clock_hz(), Some(CARREFOUR_A.clock_hz));
    assert_eq!(topology.cpus_of_package(0).len(), CARREFOUR_A.cpus_per_socket);
}

#[test]
fn several_models_are_intervals_of_one_run() {
    let mut arguments = arguments("carrefour-a", "shared-array", "carrefour");
    arguments.model.push(root("fixtures/models/well-placed.json"));
    let text = output(&arguments);
    assert!(text.contains("plan 2 for"), "{text}");
}

#[test]
fn json_has_the_same_plan_and_the_same_input_gives_the_same_bytes() {
    let arguments =
        Arguments { json: true, ..arguments("carrefour-a", "shared-array", "carrefour") };
    let text = output(&arguments);
    assert_eq!(text, output(&arguments));
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let steps = value["plans"][0]["steps"].as_array().expect("steps");
    let kinds: Vec<&str> = steps.iter().filter_map(|step| step["action"].as_str()).collect();
    assert_eq!(kinds, ["set-sampling", "move-pages", "move-pages"]);
    assert_eq!(steps[1]["reason"]["because"], "co-location");
    assert_eq!(steps[1]["pages"][0]["to"], 3);
}

/// A model with one field changed, given to a policy: the error.
fn refusal(change: impl FnOnce(&mut serde_json::Value)) -> String {
    let text =
        std::fs::read_to_string(root("fixtures/models/shared-array.json")).expect("a fixture");
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    change(&mut value);
    refusal_of_text(&value.to_string())
}

fn refusal_of_text(text: &str) -> String {
    let machine = Machine::load(&root("machines/carrefour-a.toml")).expect("a machine file");
    format!(
        "{:#}",
        build::parse(text, &machine.topology(), &mut budget()).expect_err("a bad model")
    )
}

fn check_refusal(change: fn(&mut serde_json::Value), expected: &str) {
    let error = refusal(change);
    assert!(error.starts_with(expected), "{error}\nexpected {expected}");
}

#[test]
fn a_bad_field_of_the_machine_is_refused_with_its_path() {
    check_refusal(
        |m| m["traffic"] = serde_json::json!([[1.0, 2.0], [3.0, 4.0]]),
        "traffic: 2 entries, the machine has 4 nodes",
    );
    check_refusal(|m| m["free_percent"][3] = 101.into(), "free_percent[3]: 101, expected 0 to 100");
    check_refusal(|m| m["elapsed_s"] = 0.into(), "elapsed_s: 0, expected more than zero");
    check_refusal(|m| m["confidence"] = 2.into(), "confidence: 2, expected 0 to 1");
    check_refusal(|m| m["version"] = 2.into(), "version: 2, this program reads 1");
    check_refusal(
        |m| m["apps"] = serde_json::json!([m["apps"][0].clone(), m["apps"][0].clone()]),
        "apps[1].pid: 100 after 100",
    );
}

#[test]
fn a_bad_field_of_a_process_or_thread_is_refused_with_its_path() {
    check_refusal(
        |m| m["apps"][0]["traffic"][2] = serde_json::json!([1.0]),
        "apps[0].traffic[2]: 1 entries, expected 4",
    );
    check_refusal(
        |m| m["apps"][0]["traffic"][2][1] = (-1.0).into(),
        "apps[0].traffic[2][1]: -1, expected zero or more",
    );
    check_refusal(
        |m| m["apps"][0]["traffic"][2][1] = "x".into(),
        "apps[0].traffic[2][1]: invalid type: string",
    );
    check_refusal(
        |m| m["apps"][0]["threads"][1]["cpu"] = 16.into(),
        "apps[0].threads[1].cpu: 16, the machine has 16 CPUs",
    );
    check_refusal(
        |m| m["apps"][0]["threads"][1]["ipc"] = (-0.1).into(),
        "apps[0].threads[1].ipc: -0.1, expected zero or more",
    );
    check_refusal(
        |m| m["apps"][0]["threads"][1]["tid"] = 100.into(),
        "apps[0].threads[1].tid: 100, expected ascending",
    );
    check_refusal(
        |m| m["apps"][0]["threads"][1]["cpu_share"] = 1.5.into(),
        "apps[0].threads[1].cpu_share: 1.5, expected 0 to 1",
    );
    check_refusal(
        |m| m["apps"][0]["threads"][0]["allowed"] = "0-16".into(),
        "apps[0].threads[0].allowed: CPU 16, the machine has 16",
    );
    check_refusal(
        |m| m["apps"][0]["threads"][0]["allowed"] = "3-1".into(),
        "apps[0].threads[0].allowed: `3-1`, expected CPUs",
    );
    check_refusal(
        |m| m["apps"][0]["read_percent"] = 101.into(),
        "apps[0].read_percent: 101, expected 0 to 100",
    );
    check_refusal(
        |m| m["apps"][0]["memory_mib"] = serde_json::json!([1, 2]),
        "apps[0].memory_mib: 2 entries, the machine has 4",
    );
    check_refusal(
        |m| m["apps"][0]["read_procent"] = 1.into(),
        "apps[0].read_procent: unknown field",
    );
}

#[test]
fn amounts_that_cannot_be_are_refused() {
    check_refusal(
        |m| m["apps"][0]["memory_mib"][1] = 1e9.into(),
        "apps[0].memory_mib: 976562.5 GiB on node 1, which has 16.0 GiB",
    );
    check_refusal(|m| m["apps"][0]["traffic"][0][0] = 1e300.into(), "apps[0].traffic[0][0]: 1000");
}

#[test]
fn a_process_is_not_older_than_the_clock() {
    check_refusal(
        |m| {
            m["at_s"] = 10.into();
            m["apps"][0]["run_time_s"] = 11.into();
        },
        "apps[0].run_time_s: 11, expected at most at_s",
    );
}

#[test]
fn a_bad_field_of_a_page_is_refused_with_its_path() {
    check_refusal(
        |m| m["apps"][0]["pages"][1]["home"] = 4.into(),
        "apps[0].pages[1]: node 4, the machine has 4 nodes",
    );
    check_refusal(
        |m| m["apps"][0]["pages"][1]["address"] = "7f00".into(),
        "apps[0].pages[1].address: `7f00`, expected 0x",
    );
    check_refusal(
        |m| m["apps"][0]["pages"][1]["address"] = "0x7f01".into(),
        "apps[0].pages[1].address: 0x7f01 is not the start",
    );
    check_refusal(
        |m| m["apps"][0]["pages"][1]["count"] = 0.into(),
        "apps[0].pages[1].count: 0, expected 1 to",
    );
    check_refusal(
        |m| m["apps"][0]["pages"][1]["stores"] = 9.into(),
        "apps[0].pages[1].accesses: 2 accesses with 9 stores",
    );
    check_refusal(
        |m| m["apps"][0]["pages"][1]["touched_by"] = serde_json::json!([9]),
        "apps[0].pages[1].touched_by[0]: the process has no thread 9",
    );
}

#[test]
fn text_that_is_no_model_is_refused_with_line_and_column() {
    assert!(refusal_of_text("{").contains("line 1 column"), "{}", refusal_of_text("{"));
    assert!(refusal_of_text("{\"version\": 1}").contains("missing field `apps`"));
    assert!(
        refusal_of_text("{\"version\": 1, \"confidence\": NaN, \"apps\": []}")
            .starts_with("confidence: ")
    );
    assert!(
        refusal_of_text("{\"version\": 1, \"confidence\": 1e999, \"apps\": []}")
            .starts_with("confidence: ")
    );
    assert!(refusal_of_text("{\"version\": 1, \"apps\": []} x").contains("after the model"));
}

#[test]
fn policies_and_presets_that_are_not_there_are_refused_with_what_there_is() {
    let refused = |policy: &str, preset: Option<&str>| {
        let arguments = Arguments {
            preset: preset.map(str::to_string),
            ..arguments("carrefour-a", "well-placed", policy)
        };
        format!("{:#}", run(&arguments).expect_err("bad usage"))
    };
    assert!(
        refused("karrefour", None)
            .starts_with("--policy karrefour: no such policy, expected one of observe, carrefour")
    );
    assert!(
        refused("carrefour", Some("ddraft"))
            .starts_with("--policy carrefour:ddraft: no such preset, expected one of final, draft")
    );
    assert!(
        refused("auto", Some("x"))
            .starts_with("--policy auto:x: no such preset, the only one is priced")
    );
    assert!(refused("observe", Some("x")).starts_with("--policy observe:x: has no presets"));
    assert!(refused("observe,carrefour", Some("final")).starts_with("--preset is for one policy"));
    let both = "--policy sam:port and --preset slides: both name a preset; expected one of them";
    assert_eq!(refused("sam:port", Some("slides")), both);
    assert_eq!(refused("auto,", None), "--policy: an empty name; expected NAME or NAME,NAME");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = format!(
        "{:#}",
        run(&arguments("carrefour-a", "no-such", "carrefour")).expect_err("no file")
    );
    assert!(error.contains("no-such.json"), "{error}");
    let error = format!(
        "{:#}",
        run(&arguments("no-such", "well-placed", "carrefour")).expect_err("no file")
    );
    assert!(error.contains("no-such.toml"), "{error}");
}

#[test]
fn a_printed_model_is_read_back_as_the_same_model() {
    for (machine, name) in [
        ("carrefour-a", "shared-array"),
        ("carrefour-a", "read-shared"),
        ("carrefour-a", "two-programs"),
        ("sam-2", "sam-example"),
        ("asymsched-8", "worst-pair"),
        ("chiplet-cxl", "memory-only"),
    ] {
        let topology = Machine::load(&root(&format!("machines/{machine}.toml")))
            .expect("a machine file")
            .topology();
        let mut first =
            read_model(&root(&format!("fixtures/models/{name}.json")), &topology, &mut budget())
                .expect("a fixture");
        for thread in &mut first.threads {
            (thread.cpu_before, thread.is_narrowed) = (Some(0), true);
            (thread.queued_share, thread.core_shared) = (Some(0.25), 0.5);
            thread.ran_on = Some((0..).take(topology.node_count()).collect());
        }
        let again =
            build::parse(&write::to_json(&first, &topology).to_string(), &topology, &mut budget())
                .expect("what we wrote");
        assert_eq!(again, first, "{name}");
    }
}
