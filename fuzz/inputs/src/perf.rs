//! What the kernel writes into a ring of perf events, and names of events from users.

use rondpoint_linux::perf::attr::sample_type as bit;
use rondpoint_linux::perf::record::Records;
use rondpoint_linux::perf::sample::Layout;
use rondpoint_linux::perf::spe::{Operations, Packets};
use rondpoint_linux::perf::spec::EventSpec;

use crate::Target;

/// Records behind three words: sample type, read format and user registers.
pub(crate) const RECORDS: Target =
    Target { name: "perf_records", run: records, seeds: record_seeds };

/// Packets of Arm's statistical profiling extension.
pub(crate) const SPE: Target = Target { name: "spe", run: spe, seeds: spe_seeds };

/// Events as users and sysfs write them.
pub(crate) const EVENT_NAMES: Target =
    Target { name: "event_names", run: event_names, seeds: event_name_seeds };

/// Bytes of the words before the records.
const LAYOUT_BYTES: usize = 24;

fn records(bytes: &[u8]) -> bool {
    let Some((layout, stream)) = bytes.split_at_checked(LAYOUT_BYTES) else { return false };
    let word =
        |at: usize| u64::from_ne_bytes(layout[at * 8..][..8].try_into().expect("eight bytes"));
    let layout = Layout {
        sample_type: word(0),
        read_format: word(1),
        regs_user: word(2),
        regs_intr: word(2).rotate_left(7),
        branch_index: word(1) & 1 << 63 != 0,
    };
    let records: Vec<bool> = Records::new(stream, &layout).map(|read| read.is_ok()).collect();
    let most = stream.len() / 8 + 1;
    assert!(records.len() <= most, "each takes at least its header, or is the cut end");
    records.contains(&true)
}

fn record_seeds() -> Vec<Vec<u8>> {
    const SAMPLE: u64 = 9;
    const LOST: u64 = 2;
    let fields = bit::IDENTIFIER | bit::TID | bit::TIME | bit::ADDR | bit::CPU | bit::DATA_SRC;
    let header = |kind: u64, bytes: u64| kind | bytes << 48;
    let plain = [fields, 0, 0, header(SAMPLE, 56), 7, 1 << 32 | 2, 3, 0x7f00_0000_0000, 1, 1 << 5];
    let lost = [fields, 0, 0, header(LOST, 24), 7, 12];
    let branches = bit::IP | bit::BRANCH_STACK | bit::CALLCHAIN | bit::RAW;
    let deep = [branches, 0, 0, header(SAMPLE, 72), 1, 2, 3, 4, 1, 5, 6, 7, 4];
    [plain.as_slice(), &lost, &deep]
        .map(|words| words.iter().flat_map(|word| word.to_ne_bytes()).collect())
        .to_vec()
}

fn spe(bytes: &[u8]) -> bool {
    let packets = Packets::new(bytes).count();
    assert!(packets <= bytes.len(), "each packet takes a byte, an error is the last");
    let operations: Vec<bool> = Operations::new(bytes).map(|read| read.is_ok()).collect();
    assert!(operations.len() <= packets, "an operation has a packet");
    operations.contains(&true)
}

fn spe_seeds() -> Vec<Vec<u8>> {
    // Address of the instruction, type of operation, address of the data, latency, source, time.
    let mut operation = vec![0xb0];
    operation.extend(0x00ff_8000_1234_5678_u64.to_le_bytes());
    operation.extend([0x49, 0x00, 0xb2]);
    operation.extend(0x0000_7f12_3456_0000_u64.to_le_bytes());
    operation.extend([0x99, 0x20, 0x01, 0x65, 0x0c, 0x00, 0x71]);
    operation.extend(123_456_789_u64.to_le_bytes());
    vec![operation.repeat(3), vec![0; 64], vec![0x01]]
}

fn event_names(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(spec) = text.parse::<EventSpec>() else { return false };
    let again = spec.to_string().parse::<EventSpec>().expect("its own text is accepted");
    assert_eq!(again.to_string(), spec.to_string());
    true
}

fn event_name_seeds() -> Vec<Vec<u8>> {
    ["cycles:u", "r01c2", "cpu/event=0x3c,umask=0x1,name=X/uk", "uncore_imc_0/cas_count_read/"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}
