//! Floats that JSON cannot hold, and sets of indices.

use std::fmt;

use rondpoint_core::IndexSet;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A float: a number, or one of the texts `"NaN"`, `"Infinity"` and `"-Infinity"`, because JSON has
/// no numbers for them.
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

/// The largest index in a set: the kernel's largest process number, `PID_MAX_LIMIT`
/// (include/linux/threads.h, v6.12). CPUs and nodes are fewer. It bounds the memory that a damaged
/// file can make a reader allocate.
const MAX_INDEX: usize = 4 << 20;

/// A set of CPUs, nodes or processes in the kernel's notation: `"0-3,8"`. It holds ascending,
/// separate ranges, so that it is no larger than its text until it is expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set(Vec<(usize, usize)>);

impl Set {
    /// 64-bit words of the set after [`Set::expand`].
    pub(crate) fn words(&self) -> u64 {
        self.0.last().map_or(0, |(_, last)| *last as u64 / 64 + 1)
    }

    /// The set as an index set.
    pub(crate) fn expand(&self) -> IndexSet {
        let mut set = IndexSet::new();
        // The highest range comes first, so that the set's words are allocated once.
        self.0.iter().rev().for_each(|(first, last)| set.insert_range(*first, *last));
        set
    }

    /// The set of some ranges, sorted and merged.
    fn of_ranges(mut ranges: Vec<(usize, usize)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end + 1 => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}

impl From<&IndexSet> for Set {
    fn from(set: &IndexSet) -> Self {
        Self::of_ranges(set.iter().map(|index| (index, index)).collect())
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for Set {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Set {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |part: &str| {
            D::Error::custom(format!("`{part}`, expected a list of numbers as \"0-3,8\""))
        };
        let mut ranges = Vec::new();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<usize>(), last.parse::<usize>()) {
                (Ok(first), Ok(last)) if first <= last && last <= MAX_INDEX => {
                    ranges.push((first, last));
                }
                _ => return Err(wrong(part)),
            }
        }
        Ok(Self::of_ranges(ranges))
    }
}
