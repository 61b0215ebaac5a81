//! The same as JSON: each moment with all measurements and proposals, without merging.

use serde_json::{Value, json};

use super::Asked;

/// Version of the printed JSON; fields are only ever added to one.
const VERSION: u32 = 1;

impl Asked<'_> {
    /// All moments at which something was wanted or judged, or the one that is asked for.
    pub(super) fn json(&self, name: &str, place: Option<usize>) -> String {
        let story = self.story;
        let header = &story.header;
        let policies: Vec<String> = header.policies.iter().map(ToString::to_string).collect();
        let places = match place {
            Some(place) => place..place + 1,
            None => 0..story.moments.len(),
        };
        let moments = places.map(|place| self.moment_json(place));
        let moments: Vec<Value> = moments
            .filter(|one| {
                place.is_some() || has_content(one, "wanted") || has_content(one, "judged")
            })
            .collect();
        let all = json!({
            "version": VERSION,
            "file": name,
            "written_by": header.written_by,
            "command": header.command,
            "nodes": header.topology.node_count(),
            "cpus": header.topology.cpu_count(),
            "policies": policies,
            "seconds": story.seconds(),
            "looks": story.moments.len(),
            "looks_decided_otherwise": story.differing,
            "unknown_policy": story.unknown_policy,
            "panicked": story.panicked,
            "truncated_line": story.truncated.map(|end| end.line),
            "moments": moments,
        });
        format!("{all:#}\n")
    }

    fn moment_json(&self, place: usize) -> Value {
        let story = self.story;
        let moment = &story.moments[place];
        let mut value = json!(moment);
        if let (Some(pid), Some(processes)) =
            (self.pid, value.pointer_mut("/known/processes").and_then(Value::as_array_mut))
        {
            processes.retain(|process| process["pid"] == pid);
        }
        let wanted = self.deeds(place).map(|deed| {
            let mut wanted = json!(deed);
            wanted["sentence"] = json!(deed.sentence());
            wanted["verdict"] = json!(story.verdict_on(deed));
            wanted["judged_at_s"] =
                json!(story.verdict_on(deed).map(|verdict| story.moments[verdict.moment].at_s));
            wanted
        });
        value["wanted"] = wanted.collect();
        let judged = story.verdicts_of(moment).iter().filter(|one| self.concerns(Some(one.pid)));
        value["judged"] = judged
            .map(|verdict| {
                let mut value = json!(verdict);
                value["sentence"] = json!(verdict.sentence());
                value
            })
            .collect();
        value
    }
}

fn has_content(moment: &Value, list: &str) -> bool {
    moment[list].as_array().is_some_and(|list| !list.is_empty())
}
