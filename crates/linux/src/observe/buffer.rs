//! Address samples that a unit writes into an auxiliary buffer by itself: Arm's SPE.
//!
//! The buffer holds packets and no task. A task's own event is stopped when the task leaves its
//! CPU, and then the kernel tells in a record which bytes it wrote. The bytes of several tasks lie
//! in one record if the event is opened on all tasks. The time in each operation and the records of
//! task switches then tell the task.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rondpoint_core::observation::Samples;

use super::cpu_ring::{largest, pages_of, send_to};
use super::sampler::MAX_SAMPLES;
use super::subject::Subject;
use super::translation::Translation;
use crate::LinuxError;
use crate::perf::attr::{flag, sample_type};
use crate::perf::event::OpenEvent;
use crate::perf::pmu::Event;
use crate::perf::record::{Record, RecordError, Records};
use crate::perf::ring::Ring;
use crate::perf::sample::{Layout, Origin};
use crate::perf::spe::{Operation, Operations};
use crate::perf::switches::Switches;
use crate::syscall::memory::{AuxMemory, page_bytes};

/// Bytes of a CPU's buffer (our choice): some thousand operations of 40 to 60 bytes. A half-full
/// buffer wakes this process.
const AUX_BYTES: usize = 256 * 1024;
/// Bytes of the ring of records about the buffer (our choice).
const RECORD_BYTES: usize = 16 * 1024;
/// The same with records of task switches, each about 50 bytes: 5,000 of them (our choice).
const SWITCH_BYTES: usize = 256 * 1024;
/// Fields of a record.
const FIELDS: u64 = sample_type::IDENTIFIER | sample_type::TID | sample_type::CPU;

/// The buffer of one CPU.
pub(super) struct Buffer {
    area: Area,
    /// One event for each task. The ring of the first takes the records of all.
    pub(super) events: Vec<OpenEvent>,
    /// The first event whose task lives. poll(2) returns at once for one that has ended.
    pub(super) waker: usize,
}

/// The ring and the buffer behind it.
struct Area {
    ring: Ring,
    aux: AuxMemory,
    layout: Layout,
    /// The tasks of the CPU, if the event is opened on all tasks.
    switches: Option<Switches>,
}

/// Malformed data of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Trouble {
    /// Number of malformed records and runs of packets.
    pub(super) bad_records: u64,
    /// The error of the first malformed record.
    pub(super) first: Option<RecordError>,
    /// Whether the buffer was full, or may have been. The kernel then disables the event.
    full: bool,
}

/// The event to open, whose records about its buffer name task and CPU.
pub(super) fn sampling(event: &Event, period: u64) -> Event {
    let mut attr = event.attr.clone();
    attr.sample_type = FIELDS;
    attr.sample_period = period.max(1);
    attr.flags |= flag::SAMPLE_ID_ALL | flag::EXCLUDE_KERNEL;
    Event { name: event.name.clone(), attr, cpus: None }
}

impl Buffer {
    /// Opens `event` on a CPU for the tasks of `subject`; `None` where all have ended.
    ///
    /// # Errors
    /// The event is refused, or its buffer cannot be mapped.
    pub(super) fn open(
        event: &Event,
        subject: &Subject,
        cpu: u32,
    ) -> Result<Option<Self>, LinuxError> {
        let all_tasks = subject.is_all_tasks();
        let event = if all_tasks { &with_switches(event) } else { event };
        let events = subject.open(event, cpu)?;
        let Some(first) = events.first() else { return Ok(None) };
        let area = Area::map(first.as_fd(), Layout::of(&first.attr), all_tasks);
        let area = area.map_err(|source| LinuxError::Call {
            call: "mmap",
            attempted: event.name.clone(),
            source,
        })?;
        if all_tasks && area.ring.clock().is_none() {
            return Err(LinuxError::Input {
                what: format!("event `{}`", event.name),
                problem: "the kernel does not tell the time of samples, so their task is unknown"
                    .to_string(),
            });
        }
        send_to(&events[1..], first, event)?;
        Ok(Some(Self { area, events, waker: 0 }))
    }

    /// A descriptor that is readable when the buffer is half full.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.events.get(self.waker).map(AsFd::as_fd)
    }

    /// Moves the buffer's accesses into `samples`.
    pub(super) fn drain(&mut self, translation: &Translation, samples: &mut Samples) -> Trouble {
        let trouble = self.area.drain(translation, samples);
        if trouble.full {
            // For a running event the call has no effect.
            self.events.iter().for_each(|event| drop(event.enable()));
        }
        trouble
    }
}

/// The event with a record of each task switch, and times.
fn with_switches(event: &Event) -> Event {
    let mut event = event.clone();
    event.attr.sample_type |= sample_type::TIME;
    event.attr.flags |= flag::CONTEXT_SWITCH;
    event
}

impl Area {
    fn map(event: BorrowedFd<'_>, layout: Layout, all_tasks: bool) -> io::Result<Self> {
        let bytes = if all_tasks { SWITCH_BYTES } else { RECORD_BYTES };
        let ring = largest(pages_of(bytes, page_bytes()), |pages| Ring::new(event, pages))?;
        let pages = pages_of(AUX_BYTES, page_bytes());
        let aux = largest(pages, |pages| ring.map_aux(event, pages))?;
        Ok(Self { ring, aux, layout, switches: all_tasks.then(Switches::default) })
    }

    fn drain(&mut self, translation: &Translation, samples: &mut Samples) -> Trouble {
        let (mut records, mut packets) = (Vec::new(), Vec::new());
        let mut trouble = Trouble::default();
        let mut taken = 0;
        self.ring.drain(&mut records);
        let clock = self.ring.clock();
        for record in Records::new(&records, &self.layout) {
            match record {
                Ok(Record::Aux { from, bytes, incomplete, origin }) => {
                    packets.clear();
                    let came = self.ring.take_aux(&self.aux, from, bytes, &mut packets);
                    // The number of lost samples is unknown, at least 1.
                    samples.lost += u64::from(incomplete);
                    trouble.full |= incomplete;
                    taken += bytes;
                    let task = |operation: &Operation| {
                        let Some(switches) = &self.switches else { return Some(origin) };
                        switches.at(clock?.ns(operation.timestamp?), origin)
                    };
                    let whole = keep(Operations::from(from, &packets), task, translation, samples);
                    trouble.bad_records += u64::from(!came || !whole);
                    if let Some(switches) = &mut self.switches {
                        // A full buffer stops its event, and with it the records of switches.
                        if incomplete { switches.forget() } else { switches.forget_before_last() }
                    }
                }
                Ok(Record::Switch { out, time_ns, task }) => {
                    if let Some(switches) = &mut self.switches {
                        if out { switches.end(task) } else { switches.begin(time_ns, task) }
                    }
                }
                Ok(Record::Lost { records }) => {
                    samples.lost += records;
                    self.switches.iter_mut().for_each(Switches::forget);
                }
                Ok(_) => {}
                Err(problem) => {
                    trouble.bad_records += 1;
                    trouble.first.get_or_insert(problem);
                }
            }
        }
        // No record tells of a buffer that was full when its task came to the CPU.
        trouble.full |= taken >= self.aux.bytes() as u64 / 2;
        trouble
    }
}

/// Adds the accesses in a run of packets. `task`: the task of an operation. Returns whether all
/// packets were valid.
fn keep(
    operations: Operations<'_>,
    task: impl Fn(&Operation) -> Option<Origin>,
    translation: &Translation,
    samples: &mut Samples,
) -> bool {
    for operation in operations {
        let Ok(operation) = operation else { return false };
        let Some(origin) = task(&operation) else {
            samples.lost += 1;
            continue;
        };
        let Some(sample) = translation.operation(&operation, origin) else { continue };
        match samples.list.len() < MAX_SAMPLES {
            true => samples.list.push(sample),
            false => samples.lost += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rondpoint_core::observation::Source;
    use rondpoint_core::topology::synthetic;
    use rondpoint_core::{Pid, Tid};

    use super::*;
    use crate::parse::zoneinfo::{PhysicalMap, ZoneSpan};
    use crate::perf::data_source::Vendor;

    /// Places in the control page (include/uapi/linux/perf_event.h).
    const CAPABILITIES: u64 = 40;
    const TIME_SCALE: u64 = 48;
    const TIME_ZERO: u64 = 64;
    const DATA_HEAD: u64 = 1024;
    const AUX_TAIL: u64 = 1064;
    const AUX_OFFSET: u64 = 1072;

    /// A ring and a buffer in a file, written as the kernel and the unit write them.
    struct Unit {
        file: File,
        pages: usize,
        data_head: u64,
        aux_head: u64,
    }

    impl Unit {
        fn new() -> Self {
            Self::with(RECORD_BYTES)
        }

        fn with(bytes: usize) -> Self {
            let pages = pages_of(bytes, page_bytes());
            let file = tempfile::tempfile().unwrap();
            let bytes = (1 + pages) * page_bytes() + AUX_BYTES.max(page_bytes());
            file.set_len(bytes as u64).unwrap();
            Self { file, pages, data_head: 0, aux_head: 0 }
        }

        fn set(&self, at: u64, bytes: &[u8]) {
            self.file.write_all_at(bytes, at).unwrap();
        }

        /// Writes a record: kind, flags and body.
        fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
            let mut record = kind.to_ne_bytes().to_vec();
            record.extend([misc, 8 + body.len() as u16].map(u16::to_ne_bytes).concat());
            record.extend(body);
            self.set(page_bytes() as u64 + self.data_head, &record);
            self.data_head += record.len() as u64;
            self.set(DATA_HEAD, &self.data_head.to_ne_bytes());
        }

        /// Writes the record that a task begins or stops to run on CPU 1.
        fn switches(&mut self, out: bool, time_ns: u64, (pid, tid): (u32, u32)) {
            let mut body = [0u32; 2].map(u32::to_ne_bytes).concat();
            body.extend(identity((pid, tid, 1), Some(time_ns)));
            self.record(15, if out { 1 << 13 } else { 0 }, &body);
        }

        fn word(&self, at: u64) -> u64 {
            let mut word = [0; 8];
            self.file.read_exact_at(&mut word, at).unwrap();
            u64::from_ne_bytes(word)
        }

        /// Writes packets where the last ones end, and the record about them.
        fn writes(&mut self, packets: &[u8], flags: u64, task: (u32, u32, u32)) {
            self.writes_at(packets, flags, task, None);
        }

        fn writes_at(
            &mut self,
            packets: &[u8],
            flags: u64,
            task: (u32, u32, u32),
            time_ns: Option<u64>,
        ) {
            let start = ((1 + self.pages) * page_bytes()) as u64;
            for (byte, at) in packets.iter().zip(self.aux_head..) {
                self.set(start + at % AUX_BYTES as u64, &[*byte]);
            }
            let bytes = packets.len() as u64;
            let mut body = [self.aux_head, bytes, flags].map(u64::to_ne_bytes).concat();
            body.extend(identity(task, time_ns));
            self.record(11, 0, &body);
            self.aux_head += bytes;
        }
    }

    /// The fields behind a record: TID, TIME, CPU, IDENTIFIER.
    fn identity((pid, tid, cpu): (u32, u32, u32), time_ns: Option<u64>) -> Vec<u8> {
        let mut fields = [pid, tid].map(u32::to_ne_bytes).concat();
        fields.extend(time_ns.into_iter().flat_map(u64::to_ne_bytes));
        fields.extend([cpu, 0].map(u32::to_ne_bytes).concat());
        fields.extend(7u64.to_ne_bytes());
        fields
    }

    /// An operation as a Neoverse writes it: kind, addresses, latency, source, time.
    fn operation(store: bool, virtual_: u64, physical: u64, cycles: u16, source: u8) -> Vec<u8> {
        let mut packets = vec![0x49, u8::from(store)];
        packets.push(0xb2);
        packets.extend(virtual_.to_le_bytes());
        packets.push(0xb3);
        packets.extend(physical.to_le_bytes());
        packets.push(0x98);
        packets.extend(cycles.to_le_bytes());
        if !store {
            packets.extend([0x43, source]);
        }
        packets.push(0x71);
        packets.extend(99u64.to_le_bytes());
        packets
    }

    fn translation() -> Translation {
        let machine = synthetic::parse("node:2 core:2").unwrap();
        let span = |node, first_frame| ZoneSpan { node, first_frame, frames: 16 };
        let physical = PhysicalMap::new(vec![span(0, 16), span(1, 32)], 4096);
        Translation::new(&machine, physical, Vendor::Arm)
    }

    #[test]
    fn packets_become_samples_of_the_task_that_wrote_them() {
        let mut unit = Unit::new();
        let layout = Layout { sample_type: FIELDS, ..Layout::default() };
        let mut area = Area::map(unit.file.as_fd(), layout, false).unwrap();
        assert_eq!(unit.word(AUX_OFFSET), ((1 + unit.pages) * page_bytes()) as u64);
        let (mut samples, translation) = (Samples::default(), translation());
        assert_eq!(area.drain(&translation, &mut samples), Trouble::default());
        assert!(samples.list.is_empty());

        // Thread 71 on node 0 reads DRAM; thread 82 on node 1 reads what the other socket answers.
        unit.writes(&operation(false, 0x5008, 17 << 12, 300, 0xe), 0, (7, 71, 0));
        let two = [
            operation(false, 0x6010, 17 << 12, 700, 0xd),
            operation(true, 0x7010, 33 << 12, 9, 0),
            operation(false, 0xffff_8000_0000_0000, 33 << 12, 9, 0xe),
        ];
        unit.writes(&two.concat(), 0, (8, 82, 3));
        assert_eq!(area.drain(&translation, &mut samples), Trouble::default());
        let seen: Vec<_> = samples.list.iter().map(|one| (one.pid, one.tid, one.cpu)).collect();
        let (first, second) = ((Pid(7), Tid(71), 0), (Pid(8), Tid(82), 3));
        assert_eq!(seen, [first, second, second], "the kernel's own access is left out");
        let told: Vec<_> =
            samples.list.iter().map(|one| (one.node, one.source, one.latency_cycles)).collect();
        let expected = [(0, Source::Dram, 300), (0, Source::Dram, 700), (1, Source::FirstLevel, 9)];
        assert_eq!(told, expected);
        assert_eq!(
            samples.list.iter().map(|one| one.store).collect::<Vec<_>>(),
            [false, false, true]
        );
        assert_eq!(unit.word(AUX_TAIL), unit.aux_head, "it is given back to the unit");
    }

    #[test]
    fn a_buffer_that_wraps_or_overflows_or_is_broken_loses_nothing_else() {
        let mut unit = Unit::new();
        unit.aux_head = 3 * AUX_BYTES as u64 - 11;
        let layout = Layout { sample_type: FIELDS, ..Layout::default() };
        let mut area = Area::map(unit.file.as_fd(), layout, false).unwrap();
        let (mut samples, translation) = (Samples::default(), translation());
        let good = operation(false, 0x5008, 17 << 12, 300, 0xe);
        unit.writes(&good, 0x1, (7, 71, 0)); // truncated behind it
        unit.writes(&[&good[..], &[0xff]].concat(), 0, (7, 71, 0)); // no packet begins so
        unit.writes(&good, 0, (7, 71, 0));
        let trouble = area.drain(&translation, &mut samples);
        assert_eq!((samples.list.len(), samples.lost, trouble.bad_records), (3, 1, 1));
        assert!(samples.list.iter().all(|one| one.address == 0x5008));
        // A record of more than the buffer holds.
        let (start, bytes) = (unit.aux_head, 2 * AUX_BYTES as u64);
        unit.writes(&[], 0, (7, 71, 0));
        let claims = page_bytes() as u64 + unit.data_head - 56 + 16;
        unit.file.write_all_at(&bytes.to_ne_bytes(), claims).unwrap();
        assert_eq!(area.drain(&translation, &mut samples).bad_records, 1);
        assert_eq!((samples.list.len(), unit.word(AUX_TAIL)), (3, start + bytes));
    }

    /// The operation of an address with its time, ticks of the timer.
    fn timed(address: u64, ticks: u64) -> Vec<u8> {
        let mut packets = operation(false, address, 17 << 12, 300, 0xe);
        let time = packets.len() - 8;
        packets[time..].copy_from_slice(&ticks.to_le_bytes());
        packets
    }

    #[test]
    fn a_buffer_of_all_tasks_belongs_to_the_task_that_ran_at_its_time() {
        let mut unit = Unit::with(SWITCH_BYTES);
        // A tick is four nanoseconds, and tick 0 was at 1000.
        unit.set(CAPABILITIES, &(1u64 << 4).to_ne_bytes());
        let mut scale = [0u16, 10].map(u16::to_ne_bytes).concat();
        scale.extend((4u32 << 10).to_ne_bytes());
        unit.set(TIME_SCALE, &scale);
        unit.set(TIME_ZERO, &1000u64.to_ne_bytes());
        let layout = Layout { sample_type: FIELDS | sample_type::TIME, ..Layout::default() };
        let mut area = Area::map(unit.file.as_fd(), layout, true).unwrap();

        unit.switches(true, 1100, (7, 71));
        unit.switches(false, 1100, (8, 82));
        unit.switches(true, 1200, (8, 82));
        unit.switches(false, 1200, (9, 93));
        let ticks = [20, 30, 60];
        let bytes = ticks.map(|ticks| timed(0x5000 + ticks, ticks)).concat();
        unit.writes_at(&bytes, 0, (9, 93, 1), Some(1250));
        let (mut samples, translation) = (Samples::default(), translation());
        assert_eq!(area.drain(&translation, &mut samples), Trouble::default());
        let seen = |samples: &Samples| -> Vec<(u32, u32, u64)> {
            samples.list.iter().map(|one| (one.pid.0, one.tid.0, one.address)).collect()
        };
        let expected = [(7, 71, 0x5014), (8, 82, 0x501e), (9, 93, 0x503c)];
        assert_eq!(seen(&samples), expected);

        // The kernel lost records of switches: nobody's samples are given to another task.
        samples.list.clear();
        unit.record(2, 0, &[0u64, 3].map(u64::to_ne_bytes).concat());
        unit.switches(false, 1400, (7, 71));
        let bytes = [timed(0x5008, 90), timed(0x6008, 110)].concat();
        unit.writes_at(&bytes, 0, (7, 71, 1), Some(1450));
        area.drain(&translation, &mut samples);
        assert_eq!((seen(&samples), samples.lost), (vec![(7, 71, 0x6008)], 3 + 1));
    }
}
