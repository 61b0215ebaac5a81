//! The body of `PERF_RECORD_SAMPLE`: fields in the order in which the kernel writes them
//! (`perf_output_sample`, kernel/events/core.c; the comment in the header file puts AUX elsewhere).

use super::attr::sample_type as bit;
use super::attr::{Attr, read_format};
use super::count;
use super::data_source::DataSource;
use super::record::RecordError;

/// The layout of an event's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// Fields of a sample, bits of `sample_type`.
    pub sample_type: u64,
    /// The format of the READ field.
    pub read_format: u64,
    /// Mask of the sampled user registers.
    pub regs_user: u64,
    /// Mask of the registers sampled at the interrupt.
    pub regs_intr: u64,
    /// Whether `PERF_SAMPLE_BRANCH_HW_INDEX` is set, which adds a word before the branches.
    pub branch_index: bool,
}

impl Layout {
    /// The layout of an event's samples.
    #[must_use]
    pub fn of(attr: &Attr) -> Self {
        const BRANCH_HW_INDEX: u64 = 1 << 17;
        Self {
            sample_type: attr.sample_type,
            read_format: attr.read_format,
            regs_user: attr.sample_regs_user,
            regs_intr: attr.sample_regs_intr,
            branch_index: attr.branch_sample_type & BRANCH_HW_INDEX != 0,
        }
    }
}

/// One sample. Fields that its layout does not have are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Number of the event (IDENTIFIER or ID).
    pub id: u64,
    /// Instruction address.
    pub ip: u64,
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// Time, ns of the perf clock.
    pub time_ns: u64,
    /// Virtual address of the data.
    pub address: u64,
    /// The CPU of the access.
    pub cpu: u32,
    /// Number of events that the sample represents.
    pub period: u64,
    /// WEIGHT, or all of WEIGHT_STRUCT: see [`Sample::latency_cycles`].
    pub weight: u64,
    /// Data source of the access.
    pub source: DataSource,
    /// Physical address of the data; 0 if unknown.
    pub physical: u64,
    /// Size of the page of the data; 0 if unknown.
    pub page_bytes: u64,
}

impl Sample {
    /// Load latency in cycles. On Intel and AMD it is the low half of WEIGHT_STRUCT. In practice
    /// that is all of WEIGHT, because no latency needs more than 32 bits.
    #[must_use]
    pub fn latency_cycles(&self) -> u32 {
        (self.weight & u64::from(u32::MAX)) as u32
    }
}

struct Body<'a> {
    bytes: &'a [u8],
    layout: &'a Layout,
}

impl Body<'_> {
    fn has(&self, bit: u64) -> bool {
        self.layout.sample_type & bit != 0
    }

    fn word(&mut self, field: &'static str) -> Result<u64, RecordError> {
        let (word, rest) =
            self.bytes.split_first_chunk::<8>().ok_or(RecordError::CutField { field })?;
        self.bytes = rest;
        Ok(u64::from_ne_bytes(*word))
    }

    fn word_if(&mut self, bit: u64, field: &'static str) -> Result<u64, RecordError> {
        if self.has(bit) { self.word(field) } else { Ok(0) }
    }

    fn halves_if(&mut self, bit: u64, field: &'static str) -> Result<(u32, u32), RecordError> {
        if !self.has(bit) {
            return Ok((0, 0));
        }
        let word = self.word(field)?.to_ne_bytes();
        let half =
            |at: usize| u32::from_ne_bytes([word[at], word[at + 1], word[at + 2], word[at + 3]]);
        Ok((half(0), half(4)))
    }

    fn skip(&mut self, bytes: u64, field: &'static str) -> Result<(), RecordError> {
        let cut = RecordError::CutField { field };
        let bytes = usize::try_from(bytes).map_err(|_| cut)?;
        self.bytes = self.bytes.get(bytes..).ok_or(cut)?;
        Ok(())
    }

    fn skip_words(&mut self, words: u64, field: &'static str) -> Result<(), RecordError> {
        self.skip(words.checked_mul(8).ok_or(RecordError::CutField { field })?, field)
    }
}

/// The task and the CPU of a record that is no sample. The kernel appends them with SAMPLE_ID_ALL
/// (`__perf_event__output_id_sample`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Process.
    pub process: u32,
    /// Thread.
    pub thread: u32,
    /// The CPU.
    pub cpu: u32,
}

/// Parses the fields appended to a record.
///
/// # Errors
/// There are fewer fields than the layout has. The error names the first incomplete one.
pub(super) fn origin(bytes: &[u8], layout: &Layout) -> Result<Origin, RecordError> {
    timed_origin(bytes, layout).map(|(_, origin)| origin)
}

/// As [`origin`], with the record's time, ns of the perf clock; 0 if the layout has none.
///
/// # Errors
/// As [`origin`].
pub(super) fn timed_origin(bytes: &[u8], layout: &Layout) -> Result<(u64, Origin), RecordError> {
    let mut body = Body { bytes, layout };
    let (process, thread) = body.halves_if(bit::TID, "TID")?;
    let time_ns = body.word_if(bit::TIME, "TIME")?;
    body.word_if(bit::ID, "ID")?;
    body.word_if(bit::STREAM_ID, "STREAM_ID")?;
    let (cpu, _) = body.halves_if(bit::CPU, "CPU")?;
    Ok((time_ns, Origin { process, thread, cpu }))
}

/// Parses the body of a sample record.
///
/// # Errors
/// The record is too short for its layout. The error names the first incomplete field.
pub fn parse(bytes: &[u8], layout: &Layout) -> Result<Sample, RecordError> {
    let mut body = Body { bytes, layout };
    let mut sample =
        Sample { id: body.word_if(bit::IDENTIFIER, "IDENTIFIER")?, ..Sample::default() };
    sample.ip = body.word_if(bit::IP, "IP")?;
    (sample.process, sample.thread) = body.halves_if(bit::TID, "TID")?;
    sample.time_ns = body.word_if(bit::TIME, "TIME")?;
    sample.address = body.word_if(bit::ADDR, "ADDR")?;
    if body.has(bit::ID) {
        sample.id = body.word("ID")?;
    }
    body.word_if(bit::STREAM_ID, "STREAM_ID")?;
    (sample.cpu, _) = body.halves_if(bit::CPU, "CPU")?;
    sample.period = body.word_if(bit::PERIOD, "PERIOD")?;
    skip_variable(&mut body)?;
    sample.weight = body.word_if(bit::WEIGHT | bit::WEIGHT_STRUCT, "WEIGHT")?;
    sample.source = DataSource(body.word_if(bit::DATA_SRC, "DATA_SRC")?);
    body.word_if(bit::TRANSACTION, "TRANSACTION")?;
    skip_registers(&mut body, bit::REGS_INTR, layout.regs_intr, "REGS_INTR")?;
    sample.physical = body.word_if(bit::PHYS_ADDR, "PHYS_ADDR")?;
    body.word_if(bit::CGROUP, "CGROUP")?;
    sample.page_bytes = body.word_if(bit::DATA_PAGE_SIZE, "DATA_PAGE_SIZE")?;
    body.word_if(bit::CODE_PAGE_SIZE, "CODE_PAGE_SIZE")?;
    if body.has(bit::AUX) {
        let bytes = body.word("AUX")?;
        body.skip(bytes, "AUX")?;
    }
    Ok(sample)
}

/// Skips the fields between PERIOD and WEIGHT, which are not used.
fn skip_variable(body: &mut Body<'_>) -> Result<(), RecordError> {
    if body.has(bit::READ) {
        let format = body.layout.read_format;
        let members = if format & read_format::GROUP == 0 {
            1
        } else {
            let members = body.bytes.first_chunk::<8>().map(|word| u64::from_ne_bytes(*word));
            let bounded = members.filter(|&members| members <= count::MAX_GROUP as u64);
            bounded.ok_or(RecordError::CutField { field: "READ" })? as usize
        };
        body.skip(count::bytes(format, members) as u64, "READ")?;
    }
    if body.has(bit::CALLCHAIN) {
        let depth = body.word("CALLCHAIN")?;
        body.skip_words(depth, "CALLCHAIN")?;
    }
    if body.has(bit::RAW) {
        // A 32-bit size, then that many bytes; the kernel pads so that both together are words.
        let size = body.bytes.first_chunk::<4>().ok_or(RecordError::CutField { field: "RAW" })?;
        let size = u64::from(u32::from_ne_bytes(*size));
        body.skip(4 + size, "RAW")?;
    }
    if body.has(bit::BRANCH_STACK) {
        let branches = body.word("BRANCH_STACK")?;
        let words = branches
            .checked_mul(3)
            .and_then(|words| words.checked_add(u64::from(body.layout.branch_index)));
        body.skip_words(
            words.ok_or(RecordError::CutField { field: "BRANCH_STACK" })?,
            "BRANCH_STACK",
        )?;
    }
    skip_registers(body, bit::REGS_USER, body.layout.regs_user, "REGS_USER")?;
    if body.has(bit::STACK_USER) {
        let size = body.word("STACK_USER")?;
        body.skip(size, "STACK_USER")?;
        if size > 0 {
            body.word("STACK_USER")?;
        }
    }
    Ok(())
}

fn skip_registers(
    body: &mut Body<'_>,
    bit: u64,
    mask: u64,
    field: &'static str,
) -> Result<(), RecordError> {
    const ABI_NONE: u64 = 0;
    if body.has(bit) && body.word(field)? != ABI_NONE {
        body.skip_words(u64::from(mask.count_ones()), field)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn pair(first: u32, second: u32) -> u64 {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_ne_bytes());
        bytes[4..].copy_from_slice(&second.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn every_field_is_found_behind_every_other() {
        let layout = Layout {
            sample_type: ((1 << 25) - 1) & !bit::WEIGHT,
            read_format: read_format::GROUP | read_format::ID,
            regs_user: 0b101,
            regs_intr: 0b11,
            branch_index: true,
        };
        let bytes = words(&[
            1,
            2,
            pair(3, 4),
            5,
            6,
            7,
            8,
            pair(9, 0),
            10, // IDENTIFIER … PERIOD
            2,
            0,
            0,
            0,
            0, // READ: two members with numbers
            2,
            0,
            0, // CALLCHAIN
            pair(12, 0),
            0, // RAW: 4 + 12 bytes
            1,
            0,
            0,
            0,
            0, // BRANCH_STACK with its index
            1,
            0,
            0, // REGS_USER
            8,
            0,
            8, // STACK_USER
            11,
            12,
            13, // WEIGHT_STRUCT, DATA_SRC, TRANSACTION
            1,
            0,
            0, // REGS_INTR
            14,
            15,
            16,
            17, // PHYS_ADDR, CGROUP, DATA_PAGE_SIZE, CODE_PAGE_SIZE
            8,
            0, // AUX
        ]);
        let expected = Sample {
            id: 7,
            ip: 2,
            process: 3,
            thread: 4,
            time_ns: 5,
            address: 6,
            cpu: 9,
            period: 10,
            weight: 11,
            source: DataSource(12),
            physical: 14,
            page_bytes: 16,
        };
        assert_eq!(parse(&bytes, &layout), Ok(expected));
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length], &layout).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn absent_fields_take_no_room() {
        let layout = Layout { sample_type: bit::TID | bit::PHYS_ADDR, ..Layout::default() };
        let sample = parse(&words(&[pair(3, 4), 9]), &layout).unwrap();
        assert_eq!((sample.process, sample.thread, sample.physical), (3, 4, 9));
        let error = parse(&words(&[pair(3, 4)]), &layout).unwrap_err();
        assert_eq!(error.to_string(), "a perf sample ends inside its field PHYS_ADDR");
    }

    #[test]
    fn the_latency_is_the_low_half_of_the_weight_word() {
        let sample = Sample { weight: 7 << 32 | 300, ..Sample::default() };
        assert_eq!(sample.latency_cycles(), 300);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_sample_or_an_error(
            bytes: Vec<u8>, sample_type in 0u64..1 << 25, read_format in 0u64..32,
            regs_user: u64, regs_intr: u64, branch_index: bool,
        ) {
            let layout = Layout { sample_type, read_format, regs_user, regs_intr, branch_index };
            let _ = parse(&bytes, &layout);
        }
    }
}
