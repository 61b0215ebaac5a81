//! Square tables as rows, and counters.

use std::fmt;

use rondpoint_core::observation;
use rondpoint_core::{Matrix, Nanos};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A square table as a list of rows, one for each accessing node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Square<T>(pub(crate) Matrix<T>);

impl<T: Copy + Serialize> Serialize for Square<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.rows())
    }
}

impl<'de, T: Copy + Deserialize<'de>> Deserialize<'de> for Square<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<Vec<T>>::deserialize(deserializer)?;
        if let Some((place, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != rows.len())
        {
            return Err(D::Error::custom(format!(
                "row {place} has {} entries, expected {} as there are rows",
                row.len(),
                rows.len()
            )));
        }
        Matrix::from_rows(&rows).map(Self).ok_or_else(|| D::Error::custom("expected a square"))
    }
}

/// A counter: `[value, enabled ns, running ns]`, or only its value if it has no times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter(pub(crate) observation::Counter);

impl Serialize for Counter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let observation::Counter { value, enabled, running } = self.0;
        match (enabled.0, running.0) {
            (0, 0) => value.serialize(serializer),
            (enabled, running) => [value, enabled, running].serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Counter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CounterVisitor).map(Self)
    }
}

struct CounterVisitor;

impl<'de> Visitor<'de> for CounterVisitor {
    type Value = observation::Counter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count, or [count, enabled ns, running ns]")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(observation::Counter::exact(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut next = |place: usize| {
            entries.next_element::<u64>()?.ok_or_else(|| A::Error::invalid_length(place, &self))
        };
        let (value, enabled, running) = (next(0)?, Nanos(next(1)?), Nanos(next(2)?));
        match entries.next_element::<u64>()? {
            None => Ok(observation::Counter { value, enabled, running }),
            Some(_) => Err(A::Error::invalid_length(4, &self)),
        }
    }
}
