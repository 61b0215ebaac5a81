//! Tests of packets, operations and their data sources.

use super::*;
use proptest::prelude::*;

fn packets(bytes: &[u8]) -> Vec<Result<Packet, SpeError>> {
    Packets::new(bytes).collect()
}

#[test]
fn every_packet_is_read() {
    let bytes = [
        &[0xb0, 1, 2, 3, 4, 5, 6, 7, 0xc0][..], // instruction
        &[0x65, 9, 0, 0, 0],                    // context of level 1
        &[0x49, 0x01],                          // a store
        &[0x52, 0x0a, 0x06],                    // two bytes of events
        &[0x99, 0x2c, 0x01],                    // issue latency 300
        &[0x21, 0x98, 0x07, 0x00],              // counter 8 in the extended form
        &[0x43, 0x0e],                          // DRAM
        &[0x71, 1, 0, 0, 0, 0, 0, 0, 0x80],
        &[0x00, 0x01],
    ]
    .concat();
    let expected = [
        Packet::Address { index: 0, payload: 0xc007_0605_0403_0201 },
        Packet::Context { index: 1, payload: 9 },
        Packet::Operation { class: 1, payload: 1 },
        Packet::Events { bytes: 2, payload: 0x060a },
        Packet::Counter { index: 1, payload: 300 },
        Packet::Counter { index: 8, payload: 7 },
        Packet::DataSource(0xe),
        Packet::Timestamp(0x8000_0000_0000_0001),
        Packet::Padding,
        Packet::End,
    ];
    assert_eq!(packets(&bytes), expected.map(Ok));
}

#[test]
fn an_alignment_skips_to_its_multiple() {
    let mut bytes = vec![0x00, 0x23, 0x00];
    bytes.resize(16, 0xff);
    bytes.push(0x01);
    let skipped = [Packet::Padding, Packet::Padding, Packet::End];
    assert_eq!(packets(&bytes), skipped.map(Ok), "16 bytes from the buffer's begin");
    assert_eq!(packets(&bytes[..9])[1], Err(SpeError::CutPacket { at: 1 }));
}

#[test]
fn a_cut_or_unknown_packet_ends_the_buffer() {
    assert_eq!(packets(&[0x43]), [Err(SpeError::CutPacket { at: 0 })]);
    assert_eq!(packets(&[0x20]), [Err(SpeError::CutPacket { at: 0 })]);
    let unknown = SpeError::UnknownPacket { at: 1, header: 0xff };
    assert_eq!(packets(&[0x01, 0xff, 0x01]), [Ok(Packet::End), Err(unknown)]);
    let text = "an SPE packet at byte 1 begins with 0xff, which no packet does";
    assert_eq!(unknown.to_string(), text);
}

/// A load of one line, as an N1 writes it.
fn load(source: u8, events: u16) -> Vec<u8> {
    let [low, high] = events.to_le_bytes();
    let mut bytes = vec![0xb0, 0, 0x10, 0x40, 0, 0, 0, 0, 0x80];
    bytes.extend([0x49, 0x00, 0x52, low, high]);
    bytes.extend([0x98, 0x5e, 0x01]);
    bytes.extend([0xb2, 0, 0x20, 0, 0, 0, 0, 0x80, 0xff]);
    bytes.extend([0xb3, 0, 0x30, 0, 0, 0x80, 0, 0, 0x80]);
    bytes.extend([0x43, source, 0x71, 5, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

#[test]
fn an_operation_is_what_stands_before_its_timestamp() {
    let bytes = [load(0xe, 0x0302), load(0xd, 0x0702), vec![0x43, 0x08]].concat();
    let found: Vec<_> = Operations::new(&bytes).collect();
    let [Ok(first), Ok(second)] = found[..] else { panic!("two whole operations: {found:?}") };
    assert_eq!((first.ip, first.address), (Some(0x40_1000), Some(0xff80_0000_0000_2000)));
    assert_eq!((first.physical, first.latency_cycles), (Some(0x80_0000_3000), Some(350)));
    assert_eq!((first.is_memory, first.is_store, first.timestamp), (true, false, Some(5)));
    assert_eq!(first.served_by_neoverse(), Some(ServedBy::LocalDram));
    assert_eq!(second.served_by_neoverse(), Some(ServedBy::RemoteUnknown));
}

fn missed_load(source: u8) -> Operation {
    Operations::new(&load(source, event::L1_REFILL as u16)).next().unwrap().unwrap()
}

#[test]
fn sources_of_neoverse_are_told_apart() {
    let served = |source| missed_load(source).served_by_neoverse().unwrap();
    let peer = ServedBy::LocalCache { modified: false };
    let sources = [0x0, 0x8, 0x9, 0xa, 0xb, 0xc, 0xd, 0xe, 0x7].map(served);
    let expected = [
        ServedBy::FirstLevel,
        ServedBy::Private,
        peer,
        peer,
        ServedBy::LastLevel,
        peer,
        ServedBy::RemoteUnknown,
        ServedBy::LocalDram,
        ServedBy::Unknown,
    ];
    assert_eq!(sources, expected);
    assert_eq!(Operation::default().served_by_neoverse(), None);
    let store = Operation { is_memory: true, events: event::REMOTE_ACCESS, ..Default::default() };
    assert_eq!(store.served_by_neoverse(), Some(ServedBy::RemoteUnknown));
}

#[test]
fn sources_of_ampere_have_numbers_of_their_own() {
    let served = |source| missed_load(source).with_source_of_ampere().served_by_neoverse().unwrap();
    let expected = [
        ServedBy::LocalCache { modified: false },
        ServedBy::LastLevel,
        ServedBy::RemoteUnknown,
        ServedBy::LocalDram,
        ServedBy::FirstLevel,
        ServedBy::Private,
        ServedBy::Unknown,
    ];
    assert_eq!([0x0, 0x3, 0x5, 0x7, 0x8, 0x9, 0x1].map(served), expected);
}

proptest! {
    #[test]
    fn any_bytes_are_packets_or_an_error(bytes: Vec<u8>) {
        let found = packets(&bytes);
        let failures = found.iter().filter(|packet| packet.is_err()).count();
        prop_assert!(failures <= 1 && found.len() <= bytes.len());
        prop_assert!(failures == 0 || found.last().unwrap().is_err());
        prop_assert!(Operations::new(&bytes).count() <= bytes.len());
    }
}
