//! Settings of a workload on the command line: `NAME:key=value,key=value`.
//!
//! A key is a field of the workload file. It sets the field of every program that has one:
//! `threads=4`, `lock.share=0.2`. A program's name before it chooses that program:
//! `clients.threads=4`. Fields of regions need no `regions.` before them: `mib=64`.

use toml::{Table, Value};

use super::{Workload, WorkloadError};

/// Fields of regions that are called by their own name alone.
const OF_REGIONS: [&str; 6] = ["mib", "touched", "used", "writes", "reuse", "lives_s"];

/// Fields of programs that have fields of their own.
const TABLES: [&str; 5] = ["bursts", "lock", "requests", "regions", "phases"];

impl Workload {
    /// The workload with other values. `word` is its name from then on.
    ///
    /// # Errors
    /// A setting is no `key=value`, names nothing that is there, or gives a value out of range.
    pub(crate) fn with(&self, settings: &str, word: &str) -> Result<Self, WorkloadError> {
        let refuse = |message: String| WorkloadError::Parse { file: word.to_string(), message };
        let mut table = Table::try_from(self).map_err(|error| refuse(error.to_string()))?;
        for setting in settings.split(',') {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(refuse(format!("{setting:?}: expected key=value")));
            };
            let value = parse(value);
            let is_set = match key {
                "stops_s" => table.insert(key.to_string(), value).is_some(),
                _ => set_programs(&mut table, key, &value),
            };
            if !is_set {
                return Err(refuse(format!("{key}: no program has it")));
            }
        }
        table.insert("name".to_string(), Value::String(word.to_string()));
        let message = |error: &toml::de::Error| error.message().lines().next().map(String::from);
        let changed: Self =
            table.try_into().map_err(|error| refuse(message(&error).unwrap_or_default()))?;
        changed.check(word)?;
        Ok(changed)
    }
}

/// A number, a truth value, or else text.
fn parse(text: &str) -> Value {
    let number = text.parse().map(Value::Integer).ok();
    let number = number.or_else(|| text.parse().map(Value::Float).ok());
    number
        .or_else(|| text.parse().map(Value::Boolean).ok())
        .unwrap_or_else(|| Value::String(text.to_string()))
}

/// Sets a field of the programs that have it. Whether there is any.
fn set_programs(workload: &mut Table, key: &str, value: &Value) -> bool {
    let Some(Value::Array(programs)) = workload.get_mut("programs") else { return false };
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let is_named = |one: &Value| one.get("name").and_then(Value::as_str) == Some(first);
    // Where a program is called as one of its fields is, the field is meant.
    let only = !TABLES.contains(&first) && programs.iter().any(is_named);
    let path = if only { rest } else { key };
    let mut path: Vec<&str> = path.split('.').collect();
    if OF_REGIONS.contains(&path[0]) {
        path.insert(0, "regions");
    }
    let chosen = programs.iter_mut().filter(|one| !only || is_named(one));
    set_in(chosen, &path, value)
}

/// Sets what a path leads to in each of these. Whether it leads anywhere in one of them.
fn set_in<'a>(all: impl Iterator<Item = &'a mut Value>, path: &[&str], value: &Value) -> bool {
    all.filter_map(|one| set(one, path, value).then_some(())).count() > 0
}

/// Sets what a path leads to, in all elements of a list, or in one that the path numbers.
fn set(at: &mut Value, path: &[&str], value: &Value) -> bool {
    match (at, path) {
        (Value::Table(table), [field]) => {
            table.insert((*field).to_string(), value.clone());
            true
        }
        (Value::Table(table), [field, rest @ ..]) => {
            table.get_mut(*field).is_some_and(|inner| set(inner, rest, value))
        }
        (Value::Array(list), [number, rest @ ..]) if number.parse::<usize>().is_ok() => {
            let place = number.parse().unwrap_or(usize::MAX);
            list.get_mut(place).is_some_and(|inner| set(inner, rest, value))
        }
        (Value::Array(list), path) => set_in(list.iter_mut(), path, value),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::catalogue::workload;

    #[test]
    fn settings_change_the_programs_that_have_them() {
        let all = workload("service:threads=3,mib=2,clients.requests.lines=9").unwrap();
        assert_eq!(all.name, "service:threads=3,mib=2,clients.requests.lines=9");
        assert!(all.programs.iter().all(|one| one.threads == 3 && one.regions[0].mib == 2.0));
        let lines = |place: usize| all.programs[place].requests.as_ref().map(|of| of.lines);
        assert_eq!((lines(0), lines(1)), (Some(4.0), Some(9.0)));
        let storm = workload("fork-storm:short.every_s=0.05,short.seconds=1").unwrap();
        assert_eq!((storm.programs[0].every_s, storm.programs[1].every_s), (0.0, 0.05));
        let locked = workload("locked:lock.waits=spin,regions.1.mib=8,stops_s=4").unwrap();
        assert_eq!((locked.programs[0].regions[0].mib, locked.stops_s), (16.0, 4.0));
        let both = workload("private:threads=1+bursts:bursts.share=0.5").unwrap();
        assert_eq!(both.programs.len(), 2);
    }

    #[test]
    fn a_setting_that_is_none_is_refused_with_its_key() {
        for (word, expected) in [
            ("private:threads", "\"threads\": expected key=value"),
            ("private:lock.share=0.5", "lock.share: no program has it"),
            ("private:colour=1", "unknown field `colour`"),
            ("private:threads=-1", "u32"),
            ("bursts:bursts.share=2", "bursts.share: expected 0 to 1, got 2"),
            ("locked:lock.region=0", "lock.region: expected a region of several threads"),
        ] {
            let told = format!("{:#}", workload(word).unwrap_err());
            assert!(told.starts_with(word) && told.contains(expected), "{told}");
        }
    }
}
