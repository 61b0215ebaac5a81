//! Samples and records as an independent decoder reads them: linux-perf-event-reader.
//!
//! That decoder leaves out READ, CGROUP and WEIGHT_STRUCT. It has AUX before the page sizes, where
//! `perf_output_sample` (kernel/events/core.c) writes it last. Samples with these fields are left
//! to the unit tests.
//!
//! Ten million samples:
//! `PROPTEST_CASES=625000 cargo test --release --package rondpoint-linux --test differential`.

use linux_perf_event_reader::{
    BranchSampleFormat, Endianness, EventRecord, RawData, RawEventRecord, ReadFormat,
    RecordIdParseInfo, RecordParseInfo, RecordType, SampleFormat,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rondpoint_linux::perf::attr::sample_type as bit;
use rondpoint_linux::perf::record::{Mode, Record, Records};
use rondpoint_linux::perf::sample::{Layout, Sample};

/// What both decoders know.
const BOTH: u64 = ((1 << 25) - 1) & !(bit::READ | bit::CGROUP | bit::WEIGHT_STRUCT | bit::AUX);
/// Samples of a case.
const SAMPLES: usize = 16;
/// Cases of each test, unless `PROPTEST_CASES` says otherwise: 65,536 samples.
const CASES: u32 = 4096;
const KIND_SAMPLE: u32 = 9;

/// Numbers to fill fields with, and lengths.
struct Numbers<'a>(std::iter::Cycle<std::slice::Iter<'a, u64>>);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        *self.0.next().expect("never empty")
    }
}

/// The body of a sample as the kernel writes it: words in the order of `perf_output_sample`.
fn body(layout: &Layout, numbers: &mut Numbers<'_>) -> Vec<u64> {
    let has = |bit: u64| layout.sample_type & bit != 0;
    let mut words = Vec::new();
    let plain = [bit::IDENTIFIER, bit::IP, bit::TID, bit::TIME, bit::ADDR, bit::ID, bit::STREAM_ID];
    let plain = plain.into_iter().chain([bit::CPU, bit::PERIOD]);
    words.extend(plain.filter(|bit| has(*bit)).map(|_| numbers.next()));
    if has(bit::IDENTIFIER | bit::ID) && has(bit::IDENTIFIER) && has(bit::ID) {
        // The kernel writes the same number into both.
        let at = [bit::IP, bit::TID, bit::TIME, bit::ADDR].iter().filter(|bit| has(**bit)).count();
        words[at + 1] = words[0];
    }
    let mut counted = |bit: u64, words: &mut Vec<u64>, each: u64, before: u64| {
        if has(bit) {
            let count = numbers.next() % 5;
            words.push(count);
            words.extend((0..before + count * each).map(|_| numbers.next()));
        }
    };
    counted(bit::CALLCHAIN, &mut words, 1, 0);
    if has(bit::RAW) {
        // A size of 4 modulo 8, so that it and its bytes are whole words.
        words.push(u64::from_ne_bytes([12, 0, 0, 0, 1, 2, 3, 4]));
        words.push(u64::MAX);
    }
    counted(bit::BRANCH_STACK, &mut words, 3, u64::from(layout.branch_index));
    let registers = |mask: u64, words: &mut Vec<u64>, numbers: &mut Numbers<'_>| {
        let abi = numbers.next() % 3;
        words.push(abi);
        let count = if abi == 0 { 0 } else { mask.count_ones() };
        words.extend((0..count).map(|_| numbers.next()));
    };
    if has(bit::REGS_USER) {
        registers(layout.regs_user, &mut words, numbers);
    }
    if has(bit::STACK_USER) {
        let stack = numbers.next() % 3;
        words.push(stack * 8);
        words.extend((0..stack).map(|_| numbers.next()));
        words.extend((stack > 0).then(|| stack * 8));
    }
    let plain = [bit::WEIGHT, bit::DATA_SRC, bit::TRANSACTION];
    words.extend(plain.into_iter().filter(|bit| has(*bit)).map(|_| numbers.next()));
    if has(bit::REGS_INTR) {
        registers(layout.regs_intr, &mut words, numbers);
    }
    let plain = [bit::PHYS_ADDR, bit::DATA_PAGE_SIZE, bit::CODE_PAGE_SIZE];
    words.extend(plain.into_iter().filter(|bit| has(*bit)).map(|_| numbers.next()));
    words
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).expect("fits a record");
    let header = [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes()].concat();
    [&header, body].concat()
}

/// How the other decoder is told the same layout.
fn told(layout: &Layout) -> RecordParseInfo {
    const HW_INDEX: u64 = 1 << 17;
    RecordParseInfo {
        endian: if cfg!(target_endian = "big") {
            Endianness::BigEndian
        } else {
            Endianness::LittleEndian
        },
        sample_format: SampleFormat::from_bits_retain(layout.sample_type),
        branch_sample_format: BranchSampleFormat::from_bits_retain(if layout.branch_index {
            HW_INDEX
        } else {
            0
        }),
        read_format: ReadFormat::from_bits_retain(layout.read_format),
        common_data_offset_from_end: None,
        sample_regs_user: layout.regs_user,
        user_regs_count: layout.regs_user.count_ones() as u8,
        sample_regs_intr: layout.regs_intr,
        intr_regs_count: layout.regs_intr.count_ones() as u8,
        id_parse_info: RecordIdParseInfo {
            nonsample_record_id_offset_from_end: None,
            sample_record_id_offset_from_start: None,
        },
        nonsample_record_time_offset_from_end: None,
        sample_record_time_offset_from_start: None,
    }
}

fn theirs<'a>(kind: u32, misc: u16, body: &'a [u8], layout: &Layout) -> Option<EventRecord<'a>> {
    let record = RawEventRecord::new(RecordType(kind), misc, RawData::from(body), told(layout));
    record.parse().ok()
}

/// The fields that both tell.
type Common = [u64; 10];

fn common(sample: &Sample) -> Common {
    [
        sample.id,
        sample.ip,
        u64::from(sample.process),
        u64::from(sample.thread),
        sample.time_ns,
        sample.address,
        u64::from(sample.cpu),
        sample.period,
        sample.physical,
        sample.page_bytes,
    ]
}

fn common_of(record: Option<EventRecord<'_>>) -> Option<Common> {
    let Some(EventRecord::Sample(sample)) = record else { return None };
    let number = |number: Option<i32>| u64::from(number.unwrap_or(0) as u32);
    Some([
        sample.id.unwrap_or(0),
        sample.ip.unwrap_or(0),
        number(sample.pid),
        number(sample.tid),
        sample.timestamp.unwrap_or(0),
        sample.addr.unwrap_or(0),
        u64::from(sample.cpu.unwrap_or(0)),
        sample.period.unwrap_or(0),
        sample.phys_addr.unwrap_or(0),
        sample.data_page_size.unwrap_or(0),
    ])
}

fn layouts() -> impl Strategy<Value = Layout> {
    let masks = (any::<u64>(), any::<u64>(), 0u32..64, 0u32..64);
    (any::<u64>(), masks, any::<bool>()).prop_map(|(sample_type, masks, branch_index)| {
        let (regs_user, regs_intr, thin_user, thin_intr) = masks;
        Layout {
            sample_type: sample_type & BOTH,
            read_format: 0,
            regs_user: regs_user >> thin_user,
            regs_intr: regs_intr >> thin_intr,
            branch_index,
        }
    })
}

fn configuration() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(CASES),
    }
}

proptest! {
    #![proptest_config(configuration())]

    #[test]
    fn samples_are_read_as_by_the_other_decoder(
        layout in layouts(), numbers in vec(any::<u64>(), 61), misc in 0u16..8, cut in 0usize..40,
    ) {
        let mut numbers = Numbers(numbers.iter().cycle());
        let bodies: Vec<Vec<u8>> = (0..SAMPLES)
            .map(|_| body(&layout, &mut numbers).iter().flat_map(|word| word.to_ne_bytes()).collect())
            .collect();
        let stream: Vec<u8> =
            bodies.iter().flat_map(|body| record(KIND_SAMPLE, misc, body)).collect();
        let ours: Vec<_> = Records::new(&stream, &layout).collect();
        prop_assert_eq!(ours.len(), SAMPLES);
        for (ours, body) in ours.into_iter().zip(&bodies) {
            let Ok(Record::Sample(sample, mode)) = ours else {
                return Err(TestCaseError::fail(format!("{ours:?}")));
            };
            let expected = [Mode::Other, Mode::Kernel, Mode::User][usize::from(misc).min(3) % 3];
            prop_assert_eq!(mode, if misc > 2 { Mode::Other } else { expected });
            prop_assert_eq!(Some(common(&sample)), common_of(theirs(KIND_SAMPLE, misc, body, &layout)));
        }
        // A sample that is cut is an error to both.
        let whole = &bodies[0];
        let short = &whole[..whole.len().saturating_sub(8 * (1 + cut))];
        let ours = Records::new(&record(KIND_SAMPLE, misc, short), &layout).next();
        let ours = match ours {
            Some(Ok(Record::Sample(sample, _))) => Some(common(&sample)),
            _ => None,
        };
        prop_assert_eq!(ours, common_of(theirs(KIND_SAMPLE, misc, short, &layout)));
    }

    #[test]
    fn births_ends_names_and_losses_are_read_as_by_the_other_decoder(
        words in vec(any::<u64>(), 0..6), name in "[a-z]{0,15}",
    ) {
        let layout = Layout::default();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for kind in [2, 4, 7] {
            let ours = Records::new(&record(kind, 0, &bytes), &layout).next();
            let theirs = theirs(kind, 0, &bytes, &layout);
            match (ours, theirs) {
                (Some(Ok(Record::Lost { records })), Some(EventRecord::Lost(lost))) => {
                    prop_assert_eq!(records, lost.count);
                }
                (Some(Ok(Record::Fork(ours))), Some(EventRecord::Fork(theirs)))
                | (Some(Ok(Record::Exit(ours))), Some(EventRecord::Exit(theirs))) => {
                    let ours = [ours.process, ours.parent_process, ours.thread];
                    let theirs = [theirs.pid, theirs.ppid, theirs.tid].map(|number| number as u32);
                    prop_assert_eq!(ours, theirs);
                }
                // They read on behind what is used here, so they may find it cut.
                (Some(Ok(_)), None) => prop_assert!(words.len() < 4, "kind {kind}"),
                (ours, theirs) => prop_assert!(
                    matches!(ours, Some(Err(_))) && theirs.is_none(),
                    "kind {}: {:?} here, {:?} there", kind, ours, theirs
                ),
            }
        }
        let mut bytes = [7u32.to_ne_bytes(), 8u32.to_ne_bytes()].concat();
        bytes.extend(name.as_bytes());
        bytes.resize(8 + (name.len() / 8 + 1) * 8, 0);
        let ours = Records::new(&record(3, 0, &bytes), &layout).next();
        let Some(EventRecord::Comm(comm)) = theirs(3, 0, &bytes, &layout) else {
            return Err(TestCaseError::fail("no name there"));
        };
        let found = String::from_utf8(comm.name.as_slice().into_owned()).expect("letters");
        let expected = Record::Name { process: comm.pid as u32, thread: comm.tid as u32, name: found };
        prop_assert_eq!(ours.expect("a record").expect("whole"), expected);
    }
}
