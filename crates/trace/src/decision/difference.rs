//! The first place where two pieces of JSON differ.

use serde_json::{Map, Value};

/// A field in which two decisions differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Path of the field, such as `plan.steps[0].action.cpus`.
    pub path: String,
    /// The recorded value; `None` if the field is absent.
    pub recorded: Option<Value>,
    /// Today's value; `None` if the field is absent.
    pub now: Option<Value>,
}

/// Fields to compare before the others, in this order: actions before their consequences.
const ORDER: [&str; 7] = ["number", "steps", "refused", "inverses", "policy", "do", "verdict"];
/// Field with a sentence, which is never compared.
const SENTENCE: &str = "because";
/// Fields with explanations. Fields that today's explanation adds are not compared.
const EXPLANATIONS: [&str; 2] = ["reason", "refusal"];

/// The first difference between two decisions, in `plan` before `judged`.
pub(super) fn first(recorded: &Value, now: &Value) -> Option<Difference> {
    let part = |name: &str| between(name, &recorded[name], &now[name], false);
    part("plan").or_else(|| part("judged"))
}

/// The first difference between two values. `explains`: they are part of an explanation.
fn between(path: &str, recorded: &Value, now: &Value, explains: bool) -> Option<Difference> {
    match (recorded, now) {
        (Value::Object(recorded), Value::Object(now)) => objects(path, recorded, now, explains),
        (Value::Array(recorded), Value::Array(now)) => lists(path, recorded, now, explains),
        (recorded, now) if recorded == now => None,
        (recorded, now) => difference(path.to_string(), Some(recorded), Some(now)),
    }
}

fn objects(
    path: &str,
    recorded: &Map<String, Value>,
    now: &Map<String, Value>,
    explains: bool,
) -> Option<Difference> {
    let mut names: Vec<&String> =
        recorded.keys().chain(now.keys().filter(|name| !recorded.contains_key(*name))).collect();
    let place = |name: &str| ORDER.iter().position(|first| *first == name).unwrap_or(ORDER.len());
    names.sort_by_key(|name| place(name));
    names.into_iter().filter(|name| *name != SENTENCE).find_map(|name| {
        let path = format!("{path}.{name}");
        let explains = explains || EXPLANATIONS.contains(&name.as_str());
        match (recorded.get(name), now.get(name)) {
            (Some(recorded), Some(now)) => between(&path, recorded, now, explains),
            (None, Some(_)) if explains => None,
            (recorded, now) => difference(path, recorded, now),
        }
    })
}

fn lists(path: &str, recorded: &[Value], now: &[Value], explains: bool) -> Option<Difference> {
    let longest = recorded.len().max(now.len());
    (0..longest).find_map(|place| {
        let path = format!("{path}[{place}]");
        match (recorded.get(place), now.get(place)) {
            (Some(recorded), Some(now)) => between(&path, recorded, now, explains),
            (recorded, now) => difference(path, recorded, now),
        }
    })
}

fn difference(path: String, recorded: Option<&Value>, now: Option<&Value>) -> Option<Difference> {
    Some(Difference { path, recorded: recorded.cloned(), now: now.cloned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(recorded: Value, now: Value, expected: Option<(&str, Value, Value)>) {
        let found = between("plan", &recorded, &now, false);
        let found = found.map(|difference| {
            let shown = |value: Option<Value>| value.unwrap_or(json!("nothing"));
            (difference.path, shown(difference.recorded), shown(difference.now))
        });
        let expected = expected.map(|(path, recorded, now)| (path.to_string(), recorded, now));
        assert_eq!(found, expected);
    }

    #[test]
    fn the_first_place_is_named_and_what_is_done_comes_before_the_rest() {
        check(json!({"a": 1}), json!({"a": 1}), None);
        check(
            json!({"inverses": [1], "steps": [{"action": {"cpus": "0", "do": "x"}}]}),
            json!({"inverses": [2], "steps": [{"action": {"cpus": "1", "do": "x"}}]}),
            Some(("plan.steps[0].action.cpus", json!("0"), json!("1"))),
        );
        check(
            json!({"action": {"cpus": "0", "do": "x"}}),
            json!({"action": {"pages": [], "do": "y"}}),
            Some(("plan.action.do", json!("x"), json!("y"))),
        );
    }

    #[test]
    fn what_only_one_has_is_a_difference() {
        let nothing = || json!("nothing");
        check(json!([1]), json!([1, 2]), Some(("plan[1]", nothing(), json!(2))));
        check(json!([1, 2]), json!([1]), Some(("plan[1]", json!(2), nothing())));
        check(json!({"a": 1}), json!({}), Some(("plan.a", json!(1), nothing())));
        check(json!({}), json!({"a": 1}), Some(("plan.a", nothing(), json!(1))));
        check(json!({"a": null}), json!({"a": 0}), Some(("plan.a", json!(null), json!(0))));
    }

    #[test]
    fn an_explanation_may_be_worded_anew_and_say_more_but_not_something_else() {
        let reason = |reason: Value| json!({"because": reason.to_string(), "reason": reason});
        check(reason(json!({"ratio": 0.5})), reason(json!({"ratio": 0.5, "more": 1})), None);
        check(
            reason(json!({"ratio": 0.5})),
            reason(json!({"more": 1})),
            Some(("plan.reason.ratio", json!(0.5), json!("nothing"))),
        );
        check(
            reason(json!({"of": {"ratio": 0.5}})),
            reason(json!({"of": {"ratio": 0.25}})),
            Some(("plan.reason.of.ratio", json!(0.5), json!(0.25))),
        );
    }
}
