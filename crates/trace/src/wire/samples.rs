//! Address samples by columns, as small as text gets: ten thousand of them are about a third of a
//! megabyte.

use rondpoint_core::observation::{self, AddressSample, Source, UNKNOWN_NODE};
use rondpoint_core::{Pid, Tid};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The samples of one interval as columns with one entry for each sample.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    address: Vec<u64>,
    pid: Column<u32>,
    tid: Column<u32>,
    cpu: Column<u16>,
    /// Node that holds the page; -1 if unknown.
    node: Column<i32>,
    latency_cycles: Column<u32>,
    page_shift: Column<u8>,
    /// One letter for each sample, see [`letter`].
    source: String,
    /// One letter for each sample: `l` for a load, `s` for a store.
    access: String,
    lost: u64,
    throttled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stores: bool,
}

/// One value for each sample, or one value for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a list with one for each address")]
enum Column<T> {
    All(T),
    Each(Vec<T>),
}

impl<T: Copy + PartialEq> Column<T> {
    fn of(values: impl Iterator<Item = T>) -> Self {
        let values: Vec<T> = values.collect();
        match values.first() {
            Some(first) if values.iter().all(|value| value == first) => Self::All(*first),
            _ => Self::Each(values),
        }
    }

    fn get(&self, place: usize) -> T {
        match self {
            Self::All(value) => *value,
            Self::Each(values) => values[place],
        }
    }

    /// Checks that the column has `count` values. The error names the column.
    fn check(&self, name: &str, count: usize) -> Result<(), String> {
        match self {
            Self::All(_) => Ok(()),
            Self::Each(values) => same_count(name, values.len(), count),
        }
    }
}

fn same_count(name: &str, found: usize, count: usize) -> Result<(), String> {
    match found == count {
        true => Ok(()),
        false => {
            Err(format!("{name} has {found} entries, expected {count} as there are addresses"))
        }
    }
}

/// The samples of one interval.
#[derive(Debug, Clone)]
pub(crate) struct Samples(observation::Samples);

impl From<&observation::Samples> for Samples {
    fn from(samples: &observation::Samples) -> Self {
        Self(samples.clone())
    }
}

impl From<Samples> for observation::Samples {
    fn from(samples: Samples) -> Self {
        samples.0
    }
}

impl Serialize for Samples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let list = &self.0.list;
        let node = |sample: &AddressSample| match sample.node {
            UNKNOWN_NODE => -1,
            node => i32::from(node),
        };
        let columns = Columns {
            address: list.iter().map(|sample| sample.address).collect(),
            pid: Column::of(list.iter().map(|sample| sample.pid.0)),
            tid: Column::of(list.iter().map(|sample| sample.tid.0)),
            cpu: Column::of(list.iter().map(|sample| sample.cpu)),
            node: Column::of(list.iter().map(node)),
            latency_cycles: Column::of(list.iter().map(|sample| sample.latency_cycles)),
            page_shift: Column::of(list.iter().map(|sample| sample.page_shift)),
            source: list.iter().map(|sample| letter(sample.source)).collect(),
            access: list.iter().map(|sample| if sample.store { 's' } else { 'l' }).collect(),
            lost: self.0.lost,
            throttled: self.0.throttled,
            period: self.0.period,
            stores: self.0.stores,
        };
        columns.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Samples {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Columns::deserialize(deserializer)?.samples().map(Self).map_err(D::Error::custom)
    }
}

impl Columns {
    fn samples(&self) -> Result<observation::Samples, String> {
        let count = self.address.len();
        self.pid.check("pid", count)?;
        self.tid.check("tid", count)?;
        self.cpu.check("cpu", count)?;
        self.node.check("node", count)?;
        self.latency_cycles.check("latency_cycles", count)?;
        self.page_shift.check("page_shift", count)?;
        same_count("source", self.source.chars().count(), count)?;
        same_count("access", self.access.chars().count(), count)?;
        let letters = self.source.chars().zip(self.access.chars());
        let list = self.address.iter().zip(letters).enumerate();
        let list = list.map(|(place, (address, (source, access)))| {
            Ok(AddressSample {
                address: *address,
                pid: Pid(self.pid.get(place)),
                tid: Tid(self.tid.get(place)),
                cpu: self.cpu.get(place),
                node: node(self.node.get(place))?,
                latency_cycles: self.latency_cycles.get(place),
                page_shift: self.page_shift.get(place),
                source: source_of(source)?,
                store: is_store(access)?,
            })
        });
        Ok(observation::Samples {
            list: list.collect::<Result<_, String>>()?,
            lost: self.lost,
            throttled: self.throttled,
            period: self.period,
            stores: self.stores,
        })
    }
}

fn node(number: i32) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(node) if node != UNKNOWN_NODE => Ok(node),
        _ if number == -1 => Ok(UNKNOWN_NODE),
        _ => Err(format!("node {number}, expected -1 to {}", UNKNOWN_NODE - 1)),
    }
}

fn letter(source: Source) -> char {
    match source {
        Source::FirstLevel => '1',
        Source::Private => 'p',
        Source::InFlight => 'i',
        Source::LastLevel => 'l',
        Source::CacheSameNode => 'n',
        Source::CacheRemote => 'r',
        Source::CacheRemoteModified => 'm',
        Source::Dram => 'd',
        Source::HintFault => 'f',
        Source::Unknown => '?',
    }
}

fn source_of(letter: char) -> Result<Source, String> {
    Ok(match letter {
        '1' => Source::FirstLevel,
        'p' => Source::Private,
        'i' => Source::InFlight,
        'l' => Source::LastLevel,
        'n' => Source::CacheSameNode,
        'r' => Source::CacheRemote,
        'm' => Source::CacheRemoteModified,
        'd' => Source::Dram,
        'f' => Source::HintFault,
        '?' => Source::Unknown,
        other => return Err(format!("source `{other}`, expected one of 1pilnrmdf?")),
    })
}

fn is_store(letter: char) -> Result<bool, String> {
    match letter {
        'l' => Ok(false),
        's' => Ok(true),
        other => Err(format!("access `{other}`, expected l (load) or s (store)")),
    }
}
