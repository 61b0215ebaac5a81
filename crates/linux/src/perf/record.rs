//! Records of a perf ring as a plain stream of bytes: header, kind, body.
//!
//! A record that is cut short is an error, never a guess. The rest of the stream cannot be trusted
//! after it, so iteration ends there.

use super::sample::{self, Layout, Origin, Sample};

/// An error in a stream of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Fewer bytes are left than a header has, or than the header promises.
    #[error("a perf record of kind {kind} promises {promised} bytes and has {present}")]
    CutRecord {
        /// Kind of the record; 0 if it is cut too.
        kind: u32,
        /// Bytes of the record by its header.
        promised: usize,
        /// Bytes left.
        present: usize,
    },
    /// A header that gives a size smaller than the header itself, or not a multiple of eight.
    #[error("a perf record of kind {kind} claims a size of {size} bytes")]
    ImpossibleSize {
        /// The record's kind.
        kind: u32,
        /// Size of the record, bytes.
        size: u16,
    },
    /// A sample with fewer fields than its event's layout has.
    #[error("a perf sample ends inside its field {field}")]
    CutField {
        /// The first incomplete field.
        field: &'static str,
    },
    /// Another record with fewer words than its kind has.
    #[error("a perf record of kind {kind} is too short for its kind")]
    ShortBody {
        /// The record's kind.
        kind: u32,
    },
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// PERF_RECORD_SAMPLE, and whether the CPU was in the kernel.
    Sample(Sample, Mode),
    /// PERF_RECORD_LOST: records that did not fit into the ring.
    Lost {
        /// Number of lost records.
        records: u64,
    },
    /// PERF_RECORD_LOST_SAMPLES: samples lost before they reached the ring.
    LostSamples {
        /// Number of lost samples.
        samples: u64,
    },
    /// PERF_RECORD_THROTTLE: the kernel has stopped the event for a while.
    Throttle,
    /// PERF_RECORD_UNTHROTTLE: the kernel has resumed the event.
    Unthrottle,
    /// PERF_RECORD_COMM: a thread's new name.
    Name {
        /// The process.
        process: u32,
        /// The thread.
        thread: u32,
        /// The name, up to 15 bytes.
        name: String,
    },
    /// PERF_RECORD_FORK: a new thread or process.
    Fork(Relation),
    /// PERF_RECORD_EXIT: a thread's end.
    Exit(Relation),
    /// PERF_RECORD_AUX: bytes that a PMU wrote into the auxiliary area.
    Aux {
        /// Position of the first byte, since the beginning.
        from: u64,
        /// Number of bytes.
        bytes: u64,
        /// Whether some did not fit, or were lost in the PMU.
        incomplete: bool,
        /// The task whose event wrote them.
        origin: Origin,
    },
    /// PERF_RECORD_SWITCH_CPU_WIDE: a task begins or stops to run on the CPU.
    Switch {
        /// Whether the task stops.
        out: bool,
        /// Time, ns of the perf clock.
        time_ns: u64,
        /// The task that begins or stops.
        task: Origin,
    },
    /// Any other kind.
    Other(u32),
}

/// A thread, its process and its parent process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The parent process.
    pub parent_process: u32,
}

/// The CPU's mode when a sample was taken (`PERF_RECORD_MISC_CPUMODE_MASK`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// User code.
    User,
    /// The kernel.
    Kernel,
    /// A hypervisor or its guest, or unknown.
    Other,
}

// Numbers of `enum perf_event_type`, include/uapi/linux/perf_event.h; 1 is MMAP.
const KIND_LOST: u32 = 2;
const KIND_COMM: u32 = 3;
const KIND_EXIT: u32 = 4;
const KIND_THROTTLE: u32 = 5;
const KIND_UNTHROTTLE: u32 = 6;
const KIND_FORK: u32 = 7;
const KIND_SAMPLE: u32 = 9;
const KIND_AUX: u32 = 11;
const KIND_LOST_SAMPLES: u32 = 13;
const KIND_SWITCH_CPU_WIDE: u32 = 15;
const HEADER: usize = 8;
/// `PERF_RECORD_MISC_SWITCH_OUT`.
const MISC_SWITCH_OUT: u16 = 1 << 13;
/// `PERF_AUX_FLAG_TRUNCATED`, `_PARTIAL` and `_COLLISION`.
const AUX_INCOMPLETE: u64 = 0x1 | 0x4 | 0x8;

/// An iterator over the records of a stream of bytes, whose samples have one layout.
pub struct Records<'a> {
    bytes: &'a [u8],
    layout: &'a Layout,
    failed: bool,
}

impl<'a> Records<'a> {
    /// Iterates over the records of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8], layout: &'a Layout) -> Self {
        Self { bytes, layout, failed: false }
    }

    fn take(&mut self) -> Result<Record, RecordError> {
        let present = self.bytes.len();
        let header = self.bytes.first_chunk::<HEADER>();
        let header = header.ok_or(RecordError::CutRecord { kind: 0, promised: HEADER, present })?;
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let misc = u16::from_ne_bytes([header[4], header[5]]);
        let size = u16::from_ne_bytes([header[6], header[7]]);
        let promised = usize::from(size);
        if promised < HEADER || promised % 8 != 0 {
            return Err(RecordError::ImpossibleSize { kind, size });
        }
        if promised > present {
            return Err(RecordError::CutRecord { kind, promised, present });
        }
        let (record, rest) = self.bytes.split_at(promised);
        self.bytes = rest;
        parse(kind, misc, &record[HEADER..], self.layout)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.bytes.is_empty() {
            return None;
        }
        let taken = self.take();
        // Only a malformed header makes the rest unreadable. The header gives the end of a
        // malformed body.
        self.failed = matches!(
            taken,
            Err(RecordError::CutRecord { .. } | RecordError::ImpossibleSize { .. })
        );
        Some(taken)
    }
}

fn parse(kind: u32, misc: u16, body: &[u8], layout: &Layout) -> Result<Record, RecordError> {
    let short = RecordError::ShortBody { kind };
    let word = |at: usize| -> Result<u64, RecordError> {
        let bytes = body.get(at..).and_then(<[u8]>::first_chunk::<8>).ok_or(short)?;
        Ok(u64::from_ne_bytes(*bytes))
    };
    let half = |at: usize| -> Result<u32, RecordError> {
        let bytes = body.get(at..).and_then(<[u8]>::first_chunk::<4>).ok_or(short)?;
        Ok(u32::from_ne_bytes(*bytes))
    };
    let relation = || -> Result<Relation, RecordError> {
        Ok(Relation { process: half(0)?, parent_process: half(4)?, thread: half(8)? })
    };
    Ok(match kind {
        KIND_SAMPLE => Record::Sample(sample::parse(body, layout)?, mode(misc)),
        KIND_LOST => Record::Lost { records: word(8)? },
        KIND_AUX => Record::Aux {
            from: word(0)?,
            bytes: word(8)?,
            incomplete: word(16)? & AUX_INCOMPLETE != 0,
            origin: sample::origin(&body[24..], layout)?,
        },
        KIND_SWITCH_CPU_WIDE => {
            // The other task of the switch comes first.
            let (time_ns, task) = sample::timed_origin(body.get(8..).ok_or(short)?, layout)?;
            Record::Switch { out: misc & MISC_SWITCH_OUT != 0, time_ns, task }
        }
        KIND_LOST_SAMPLES => Record::LostSamples { samples: word(0)? },
        KIND_THROTTLE => Record::Throttle,
        KIND_UNTHROTTLE => Record::Unthrottle,
        KIND_FORK => Record::Fork(relation()?),
        KIND_EXIT => Record::Exit(relation()?),
        KIND_COMM => {
            let text = body.get(8..).ok_or(short)?;
            let end = text.iter().position(|&byte| byte == 0).ok_or(short)?;
            let name = String::from_utf8_lossy(&text[..end]).into_owned();
            Record::Name { process: half(0)?, thread: half(4)?, name }
        }
        other => Record::Other(other),
    })
}

fn mode(misc: u16) -> Mode {
    match misc & 7 {
        1 => Mode::Kernel,
        2 => Mode::User,
        _ => Mode::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::attr::sample_type;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER + body.len()).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn check(bytes: &[u8], expected: &[&str]) {
        let layout = Layout { sample_type: sample_type::ADDR, ..Layout::default() };
        let shown: Vec<String> = Records::new(bytes, &layout)
            .map(|record| match record {
                Ok(Record::Sample(sample, mode)) => {
                    format!("sample {:#x} {mode:?}", sample.address)
                }
                Ok(record) => format!("{record:?}"),
                Err(error) => error.to_string(),
            })
            .collect();
        assert_eq!(shown, expected);
    }

    fn halves(values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    #[test]
    fn kinds_are_told_apart() {
        let mut bytes = record(KIND_SAMPLE, 2, &0xabcu64.to_ne_bytes());
        bytes.extend(record(KIND_SAMPLE, 1, &1u64.to_ne_bytes()));
        bytes.extend(record(KIND_LOST, 0, &[7u64.to_ne_bytes(), 5u64.to_ne_bytes()].concat()));
        bytes.extend(record(KIND_LOST_SAMPLES, 0, &3u64.to_ne_bytes()));
        bytes.extend(record(KIND_THROTTLE, 0, &[0; 24]));
        bytes.extend(record(KIND_COMM, 0, &[halves(&[7, 8]), b"name\0\0\0\0".to_vec()].concat()));
        bytes.extend(record(KIND_FORK, 0, &halves(&[7, 1, 8, 1, 0, 0])));
        bytes.extend(record(77, 0, &[]));
        check(
            &bytes,
            &[
                "sample 0xabc User",
                "sample 0x1 Kernel",
                "Lost { records: 5 }",
                "LostSamples { samples: 3 }",
                "Throttle",
                "Name { process: 7, thread: 8, name: \"name\" }",
                "Fork(Relation { process: 7, thread: 8, parent_process: 1 })",
                "Other(77)",
            ],
        );
    }

    #[test]
    fn a_cut_stream_ends_with_a_typed_error() {
        let whole = record(KIND_SAMPLE, 2, &1u64.to_ne_bytes());
        check(&whole[..12], &["a perf record of kind 9 promises 16 bytes and has 12"]);
        check(&whole[..5], &["a perf record of kind 0 promises 8 bytes and has 5"]);
    }

    #[test]
    fn a_short_body_costs_one_record_and_a_bad_header_all_that_follow() {
        let good = record(KIND_SAMPLE, 2, &1u64.to_ne_bytes());
        let short = record(KIND_SAMPLE, 2, &[]);
        let mut bad = record(KIND_SAMPLE, 2, &[0; 8]);
        bad[6..8].copy_from_slice(&13u16.to_ne_bytes());
        check(
            &[&short[..], &good, &bad, &good].concat(),
            &[
                "a perf sample ends inside its field ADDR",
                "sample 0x1 User",
                "a perf record of kind 9 claims a size of 13 bytes",
            ],
        );
        check(
            &record(KIND_LOST, 0, &[0; 8]),
            &["a perf record of kind 2 is too short for its kind"],
        );
        check(
            &record(KIND_COMM, 0, &[1; 16]),
            &["a perf record of kind 3 is too short for its kind"],
        );
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_records_or_an_error(bytes: Vec<u8>, sample_type in 0u64..1 << 25) {
            let layout = Layout { sample_type, ..Layout::default() };
            let records = Records::new(&bytes, &layout).count();
            prop_assert!(records <= bytes.len() / HEADER + 1);
        }
    }
}
