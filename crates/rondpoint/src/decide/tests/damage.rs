//! Damaged model files: one field gets another value. Then either the file is refused with a
//! message, or every policy decides on it without a panic.

use super::*;
use proptest::prelude::*;
use rondpoint_core::policy::POLICIES;
use serde_json::{Value, json};

/// Puts something else into the place that `choice` leads to.
fn damage(value: &mut Value, choice: &mut impl Iterator<Item = usize>, other: Value) {
    let stop = choice.next().unwrap_or(0).is_multiple_of(8);
    let size = match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    if size == 0 || stop {
        *value = other;
        return;
    }
    let place = choice.next().unwrap_or(0) % size;
    match value {
        Value::Array(list) => damage(&mut list[place], choice, other),
        Value::Object(map) => {
            if let Some((_, inner)) = map.iter_mut().nth(place) {
                damage(inner, choice, other);
            }
        }
        _ => {}
    }
}

fn others() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("0x7f0000000000")),
        Just(json!("0-1")),
        Just(json!(-1)),
        Just(json!(0)),
        Just(json!(1)),
        Just(json!(65_536)),
        Just(json!(u64::MAX)),
        Just(json!(1e-300)),
        Just(json!(1e300)),
        (0.0..100.0_f64).prop_map(|number| json!(number)),
    ]
}

const FILES: [(&str, &str); 8] = [
    ("carrefour-a", "shared-array"),
    ("carrefour-a", "read-shared"),
    ("carrefour-a", "two-programs"),
    ("carrefour-a", "well-placed"),
    ("sam-2", "sam-example"),
    ("nmass-2", "four-soplex"),
    ("asymsched-8", "worst-pair"),
    ("chiplet-cxl", "memory-only"),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_damaged_model_is_refused_or_decided(
        file in 0..FILES.len(),
        places in prop::collection::vec((prop::collection::vec(0..1000_usize, 12), others()), 1..3),
    ) {
        let (machine, name) = FILES[file];
        let machine = Machine::load(&root(&format!("machines/{machine}.toml"))).expect("a machine file");
        let topology = machine.topology();
        let text = std::fs::read_to_string(root(&format!("fixtures/models/{name}.json"))).expect("a fixture");
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        for (place, other) in places {
            damage(&mut value, &mut place.into_iter(), other);
        }
        let Ok(model) = build::parse(&value.to_string(), &topology, &mut Budget::new(0, MODEL_ITEMS)) else { return Ok(()) };
        let names: Vec<String> = POLICIES.iter().map(|policy| policy.name.to_string()).collect();
        let mut session = Session {
            policies: choose(&names, None).expect("built in"),
            random: Random::new(1),
            guard: Some(Guard::new(GuardSettings::acting(), topology.node_count())),
            ledger: Ledger::default(),
            accounts: Accounts::default(),
            plans: 0,
            topology,
        };
        let plan = session.decide(&model);
        prop_assert_eq!(plan.inverses.len(), plan.steps.len());
        session.decide(&model);
    }
}
