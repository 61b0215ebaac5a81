//! The bytes that Arm's Statistical Profiling Extension writes into its auxiliary buffer.
//!
//! A sampled operation is a run of packets that ends with a timestamp or an end packet (Arm
//! Architecture Reference Manual, DDI 0487, chapter D17). Numbers are little-endian on every
//! processor. A packet that is cut or unknown is an error, never a guess: what follows it cannot be
//! told apart.

use super::data_source::ServedBy;

/// An error in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpeError {
    /// A header that no packet has.
    #[error("an SPE packet at byte {at} begins with {header:#04x}, which no packet does")]
    UnknownPacket {
        /// Offset in the buffer.
        at: usize,
        /// The first byte.
        header: u8,
    },
    /// The buffer ends inside a packet.
    #[error("an SPE packet at byte {at} is cut")]
    CutPacket {
        /// Offset in the buffer.
        at: usize,
    },
}

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet {
    /// Padding or alignment.
    Padding,
    /// The end of an operation that has no timestamp.
    End,
    /// The end of an operation, with its time in ticks of the generic timer.
    Timestamp(u64),
    /// An address.
    Address {
        /// Kind of address: 0 instruction, 1 branch target, 2 data (virtual), 3 data (physical).
        index: u8,
        /// The address with its tag, level and security bits.
        payload: u64,
    },
    /// A latency, cycles.
    Counter {
        /// Kind of latency: 0 total, 1 issue, 2 translation.
        index: u8,
        /// Cycles.
        payload: u64,
    },
    /// The context that the operation ran in.
    Context {
        /// Exception level of the context.
        index: u8,
        /// CONTEXTIDR: the thread, if the kernel writes it.
        payload: u64,
    },
    /// The kind of operation.
    Operation {
        /// 0 other, 1 load, store or atomic, 2 branch.
        class: u8,
        /// Details of the operation. Bit 0 of class 1 is set for a store.
        payload: u64,
    },
    /// Events of the operation.
    Events {
        /// Number of bytes of `payload`. Bits beyond them are unknown.
        bytes: u8,
        /// Bits of [`event`].
        payload: u64,
    },
    /// The data source of the operation, in the processor's own numbers.
    DataSource(u64),
}

/// An iterator over the packets of a buffer.
pub struct Packets<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offset of `bytes` in the buffer.
    start: usize,
    failed: bool,
}

impl<'a> Packets<'a> {
    /// Iterates over `bytes`, which begin at offset 0 of the buffer or at a multiple of 64 KiB, as
    /// alignment packets need it.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, start: 0, failed: false }
    }

    /// Iterates over `bytes`, which begin at byte `start` of their buffer.
    #[must_use]
    pub fn from(start: u64, bytes: &'a [u8]) -> Self {
        // Alignments are powers of two up to 64 KiB, so higher bits do not matter.
        Self { start: start as usize & 0xffff, ..Self::new(bytes) }
    }

    /// Reads one packet and its length.
    fn packet(&self) -> Result<(Packet, usize), SpeError> {
        let at = self.at;
        let rest = &self.bytes[at..];
        let first = rest[0];
        match first {
            0x00 => return Ok((Packet::Padding, 1)),
            0x01 => return Ok((Packet::End, 1)),
            _ => {}
        }
        // An extended header has a second byte in the form of a short one.
        let is_extended = first & 0xfc == 0x20;
        let (header, prefix) = match (is_extended, rest.get(1)) {
            (false, _) => (first, 0),
            (true, Some(&second)) => (second, 1),
            (true, None) => return Err(SpeError::CutPacket { at }),
        };
        if is_extended && header == 0x00 {
            return self.alignment(first);
        }
        let short = header & 7;
        let index = if is_extended { (first & 3) << 3 | short } else { short };
        let kind = kind_of(header, is_extended);
        let kind = kind.ok_or(SpeError::UnknownPacket { at, header: first })?;
        let length = 1usize << (header >> 4 & 3);
        let start = 1 + prefix;
        let payload = rest.get(start..start + length).ok_or(SpeError::CutPacket { at })?;
        let payload =
            payload.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        let packet = match kind {
            Kind::Timestamp => Packet::Timestamp(payload),
            Kind::Address => Packet::Address { index, payload },
            Kind::Counter => Packet::Counter { index, payload },
            Kind::Context => Packet::Context { index: header & 3, payload },
            Kind::Operation => Packet::Operation { class: header & 3, payload },
            Kind::Events => Packet::Events { bytes: length as u8, payload },
            Kind::DataSource => Packet::DataSource(payload),
        };
        Ok((packet, start + length))
    }

    /// Skips to the next multiple of the alignment, a power of two.
    fn alignment(&self, first: u8) -> Result<(Packet, usize), SpeError> {
        let alignment = 1usize << ((first & 0xf) + 1);
        let length = alignment - (self.start + self.at) % alignment;
        match self.bytes.len() - self.at < length {
            true => Err(SpeError::CutPacket { at: self.at }),
            false => Ok((Packet::Padding, length)),
        }
    }
}

enum Kind {
    Timestamp,
    Address,
    Counter,
    Context,
    Operation,
    Events,
    DataSource,
}

/// The kind of a header. Only addresses and counters have an extended form.
fn kind_of(header: u8, is_extended: bool) -> Option<Kind> {
    Some(match header {
        header if header & 0xf8 == 0xb0 => Kind::Address,
        header if header & 0xf8 == 0x98 => Kind::Counter,
        _ if is_extended => return None,
        0x71 => Kind::Timestamp,
        header if header & 0xcf == 0x42 => Kind::Events,
        header if header & 0xcf == 0x43 => Kind::DataSource,
        header if header & 0xfc == 0x64 => Kind::Context,
        header if header & 0xfc == 0x48 => Kind::Operation,
        _ => return None,
    })
}

impl Iterator for Packets<'_> {
    type Item = Result<Packet, SpeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.at >= self.bytes.len() {
            return None;
        }
        let taken = self.packet();
        match taken {
            Ok((_, length)) => self.at += length,
            Err(_) => self.failed = true,
        }
        Some(taken.map(|(packet, _)| packet))
    }
}

/// One sampled operation. Values without a packet are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operation {
    /// Address of the instruction.
    pub ip: Option<u64>,
    /// Virtual address of its data.
    pub address: Option<u64>,
    /// Physical address of its data.
    pub physical: Option<u64>,
    /// Whether it is a load, a store or an atomic.
    pub is_memory: bool,
    /// Whether it writes.
    pub is_store: bool,
    /// Cycles from dispatch to completion.
    pub latency_cycles: Option<u64>,
    /// Bits of [`event`].
    pub events: u64,
    /// Data source, in the processor's own numbers.
    pub source: Option<u64>,
    /// CONTEXTIDR: the thread, if the kernel writes it.
    pub context: Option<u64>,
    /// Time in ticks of the generic timer.
    pub timestamp: Option<u64>,
}

/// Bits of an events packet.
pub mod event {
    /// The operation retired.
    pub const RETIRED: u64 = 1 << 1;
    /// The operation missed the first-level cache.
    pub const L1_REFILL: u64 = 1 << 3;
    /// The operation reached the last-level cache.
    pub const LLC_ACCESS: u64 = 1 << 8;
    /// The operation missed the last-level cache.
    pub const LLC_MISS: u64 = 1 << 9;
    /// Another socket served the operation.
    pub const REMOTE_ACCESS: u64 = 1 << 10;
}

/// Numbers of data sources on a Neoverse.
mod source {
    pub(super) const L1: u64 = 0x0;
    pub(super) const L2: u64 = 0x8;
    pub(super) const PEER_CORE: u64 = 0x9;
    pub(super) const LOCAL_CLUSTER: u64 = 0xa;
    pub(super) const SYSTEM_CACHE: u64 = 0xb;
    pub(super) const PEER_CLUSTER: u64 = 0xc;
    pub(super) const REMOTE: u64 = 0xd;
    pub(super) const DRAM: u64 = 0xe;
}

/// An iterator over the operations of a buffer. An incomplete operation at the end is dropped.
pub struct Operations<'a> {
    packets: Packets<'a>,
}

impl<'a> Operations<'a> {
    /// Iterates over the operations of `bytes`, as [`Packets::new`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { packets: Packets::new(bytes) }
    }

    /// Iterates over the operations of `bytes`, as [`Packets::from`].
    #[must_use]
    pub fn from(start: u64, bytes: &'a [u8]) -> Self {
        Self { packets: Packets::from(start, bytes) }
    }
}

impl Iterator for Operations<'_> {
    type Item = Result<Operation, SpeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut operation = Operation::default();
        loop {
            match self.packets.next()? {
                Err(error) => return Some(Err(error)),
                Ok(Packet::End) => return Some(Ok(operation)),
                Ok(Packet::Timestamp(ticks)) => {
                    operation.timestamp = Some(ticks);
                    return Some(Ok(operation));
                }
                Ok(packet) => operation.add(packet),
            }
        }
    }
}

impl Operation {
    fn add(&mut self, packet: Packet) {
        match packet {
            Packet::Address { index: 0, payload } => self.ip = Some(instruction(payload)),
            Packet::Address { index: 2, payload } => self.address = Some(virtual_data(payload)),
            Packet::Address { index: 3, payload } => self.physical = Some(payload & LOW_56),
            Packet::Counter { index: 0, payload } => self.latency_cycles = Some(payload),
            Packet::Context { payload, .. } => self.context = Some(payload),
            Packet::Operation { class: 1, payload } => {
                self.is_memory = true;
                self.is_store = payload & 1 == 1;
            }
            Packet::Events { payload, .. } => self.events = payload,
            Packet::DataSource(source) => self.source = Some(source),
            _ => {}
        }
    }

    /// The operation of an AmpereOneX with its data source in Neoverse's numbers
    /// (tools/perf/util/arm-spe.c, Linux 6.14). A number without a meaning there is dropped.
    #[must_use]
    pub fn with_source_of_ampere(self) -> Self {
        let source = self.source.and_then(|number| {
            Some(match number {
                // A cache of the chip, or a device.
                0x0 => source::PEER_CORE,
                0x3 => source::SYSTEM_CACHE,
                0x5 => source::REMOTE,
                0x7 => source::DRAM,
                0x8 => source::L1,
                0x9 => source::L2,
                _ => return None,
            })
        });
        Self { source, ..self }
    }

    /// The level that served the operation on a Neoverse N1, N2, V1 or V2, which have the same
    /// numbers (Technical Reference Manuals, "Data source packet"). `None` for no memory access.
    #[must_use]
    pub fn served_by_neoverse(&self) -> Option<ServedBy> {
        let has = |bit: u64| self.events & bit != 0;
        let by_events = || match () {
            () if has(event::REMOTE_ACCESS) => ServedBy::RemoteUnknown,
            () if !has(event::L1_REFILL) => ServedBy::FirstLevel,
            () => ServedBy::Unknown,
        };
        self.is_memory.then(|| match self.source {
            Some(source::L1) => ServedBy::FirstLevel,
            Some(source::L2) => ServedBy::Private,
            // No packet has the state of the line in the other cache.
            Some(source::PEER_CORE | source::LOCAL_CLUSTER | source::PEER_CLUSTER) => {
                ServedBy::LocalCache { modified: false }
            }
            Some(source::SYSTEM_CACHE) => ServedBy::LastLevel,
            Some(source::REMOTE) => ServedBy::RemoteUnknown,
            Some(source::DRAM) => ServedBy::LocalDram,
            // Stores have no data source packet.
            Some(_) | None => by_events(),
        })
    }
}

/// Bits of an address. Higher bits are tags and states.
const LOW_56: u64 = (1 << 56) - 1;

/// The address in an instruction address packet, without the byte of level and security state.
/// Kernel addresses have all ones above bit 55.
fn instruction(payload: u64) -> u64 {
    extended(payload & LOW_56)
}

/// The address in a virtual data address packet, without the tag in its highest byte.
fn virtual_data(payload: u64) -> u64 {
    extended(payload & LOW_56)
}

/// Extends bit 55 to the upper bits: addresses with it belong to the upper half.
fn extended(address: u64) -> u64 {
    if address >> 55 & 1 == 1 { address | !LOW_56 } else { address }
}

#[cfg(test)]
mod tests;
