//! Floats that JSON cannot hold, and sets of indices.

use std::fmt;

use rondpoint_core::IndexSet;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A float: a number, or `"NaN"`, `"Infinity"`, `"-Infinity"`, which JSON has no numbers for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Float(pub(crate) f64);

impl Serialize for Float {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            number if number.is_finite() => serializer.serialize_f64(number),
            number if number.is_nan() => serializer.serialize_str("NaN"),
            number if number > 0.0 => serializer.serialize_str("Infinity"),
            _ => serializer.serialize_str("-Infinity"),
        }
    }
}

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FloatVisitor).map(Self)
    }
}

struct FloatVisitor;

impl Visitor<'_> for FloatVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"NaN\", \"Infinity\" or \"-Infinity\"")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        match text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }
}

/// The largest index that a set may hold: the kernel's largest process number, `PID_MAX_LIMIT`
/// (include/linux/threads.h, v6.12). CPUs and nodes are fewer. It bounds what a damaged file can
/// make us allocate.
const MAX_INDEX: usize = 4 << 20;

/// A set of CPUs, nodes or processes as the kernel writes it: `"0-3,8"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set(pub(crate) IndexSet);

impl Serialize for Set {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |part: &str| {
            D::Error::custom(format!("`{part}`, expected a list of numbers as \"0-3,8\""))
        };
        let mut set = IndexSet::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), Ok(last)) if first <= last && last <= MAX_INDEX => {
                    (first..=last).for_each(|index| set.insert(index));
                }
                _ => return Err(wrong(part)),
            }
        }
        Ok(Self(set))
    }
}
