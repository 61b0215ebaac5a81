//! `cargo run --example spe_witness -- PROGRAM PACKETS`: generated SPE packets, decoded here and by
//! the kernel's own decoder, which PROGRAM is built around (`driver.c` beside this file).
//!
//! Long blocks of whole packets, and between them short ones with some bytes changed and with
//! headers that no packet has. One known difference does not fail the check. For an alignment
//! packet the kernel wants as many bytes left as the alignment has, though fewer may be skipped.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};

use rondpoint_linux::perf::spe::{Packet, Packets, SpeError};

/// Bytes of a long block, about: some thousand packets.
const LONG: usize = 60_000;
/// Bytes of a short one: what is changed early hides little behind it.
const SHORT: usize = 200;
/// One block of this many is long.
const TURN: u64 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, packets] = &arguments[..] else {
        eprintln!("usage: spe_witness PROGRAM PACKETS");
        return ExitCode::from(2);
    };
    let compared = packets.parse().map_err(|_| format!("{packets}: no number"));
    match compared.and_then(|packets| compare(program, packets)) {
        Ok(counts) => {
            println!("{}", counts.sentence());
            ExitCode::from(u8::from(counts.differ > 0))
        }
        Err(error) => {
            eprintln!("spe_witness: {error}");
            ExitCode::from(2)
        }
    }
}

#[derive(Default)]
struct Counts {
    packets: u64,
    blocks: u64,
    refused: u64,
    alignments: u64,
    differ: u64,
}

impl Counts {
    fn sentence(&self) -> String {
        format!(
            "{} SPE packets in {} blocks: the kernel's decoder finds the same in all but {}; both \
             refuse {} blocks at the same byte, {} end at an alignment that the kernel takes for cut",
            self.packets, self.blocks, self.differ, self.refused, self.alignments
        )
    }
}

fn compare(program: &str, wanted: u64) -> Result<Counts, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut input = child.stdin.take().ok_or("no stdin")?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut counts = Counts::default();
    while counts.packets < wanted {
        let is_long = counts.blocks.is_multiple_of(TURN);
        let mut bytes = block(&mut random, if is_long { LONG } else { SHORT });
        if !is_long {
            foreign(&mut random, &mut bytes);
            for _ in 0..2 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
        }
        input.write_all(&(bytes.len() as u32).to_le_bytes()).map_err(failed)?;
        input.write_all(&bytes).map_err(failed)?;
        input.flush().map_err(failed)?;
        let theirs = answer(&mut output).map_err(failed)?;
        counts.blocks += 1;
        judge(&bytes, &theirs, &mut counts);
    }
    drop(input);
    child.wait().map_err(failed)?;
    Ok(counts)
}

/// What the program says about one block, without the closing `end`.
fn answer(output: &mut BufReader<impl Read>) -> std::io::Result<String> {
    let mut said = String::new();
    loop {
        let before = said.len();
        if output.read_line(&mut said)? == 0 {
            return Err(std::io::Error::other("ended without an answer"));
        }
        if &said[before..] == "end\n" {
            said.truncate(before);
            return Ok(said);
        }
    }
}

/// Adds one block to the counts and prints the first line in which the two differ.
fn judge(bytes: &[u8], theirs: &str, counts: &mut Counts) {
    let (ours, packets) = shown(bytes);
    counts.packets += packets;
    if ours == theirs {
        counts.refused +=
            u64::from(ours.lines().last().is_some_and(|line| line.starts_with("bad ")));
        return;
    }
    let different = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
    // Their packets are ours as far as they got, and the next byte begins an alignment.
    let cut = theirs.lines().last().and_then(|line| line.strip_prefix("bad "));
    let cut = cut.and_then(|at| at.parse::<usize>().ok());
    let until = theirs.len() - theirs.lines().last().map_or(0, |line| line.len() + 1);
    let is_alignment = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xfc == 0x20);
    if cut.is_some_and(is_alignment) && ours.starts_with(&theirs[..until]) {
        counts.alignments += 1;
        return;
    }
    counts.differ += 1;
    let end = (ours.lines().last().unwrap_or(""), theirs.lines().last().unwrap_or(""));
    let (ours, theirs) = different.unwrap_or(end);
    println!("block {}: `{ours}` here, `{theirs}` by the kernel", counts.blocks);
}

/// Our packets in the program's form, and how many there are.
fn shown(bytes: &[u8]) -> (String, u64) {
    let mut text = String::new();
    let mut packets = 0;
    for packet in Packets::new(bytes) {
        packets += 1;
        let (kind, index, payload) = match packet {
            Ok(Packet::Padding) => continue,
            Ok(Packet::End) => (2, 0, 0),
            Ok(Packet::Timestamp(ticks)) => (3, 0, ticks),
            Ok(Packet::Address { index, payload }) => (4, index, payload),
            Ok(Packet::Counter { index, payload }) => (5, index, payload),
            Ok(Packet::Context { index, payload }) => (6, index, payload),
            Ok(Packet::Operation { class, payload }) => (7, class, payload),
            Ok(Packet::Events { bytes, payload }) => (8, bytes, payload),
            Ok(Packet::DataSource(source)) => (9, 0, source),
            Err(SpeError::UnknownPacket { at, .. } | SpeError::CutPacket { at }) => {
                let _ = writeln!(text, "bad {at}");
                continue;
            }
        };
        let _ = writeln!(text, "{kind} {index} {payload:x}");
    }
    (text, packets)
}

/// Whole packets of every kind and size.
fn block(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 16);
    while bytes.len() < length {
        let size = random.below(4) as u8;
        let index = random.below(8) as u8;
        let header = match random.below(13) {
            0 => 0x00,
            1 => 0x01,
            2 => 0x71,
            3 => 0x42 | size << 4,
            4 => 0x43 | size << 4,
            5 => 0x64 | index & 3,
            6 => 0x48 | index & 3,
            7 | 8 => 0xb0 | index,
            9 => 0x98 | index,
            10 => {
                align(random, &mut bytes);
                continue;
            }
            _ => 0x20 | index & 3,
        };
        bytes.push(header);
        let sized = match header {
            0x00 | 0x01 => continue,
            0x20..=0x23 => {
                let second = if size & 1 == 0 { 0xb0 | index } else { 0x98 | index };
                bytes.push(second);
                second
            }
            header => header,
        };
        let payload = random.next().to_le_bytes();
        bytes.extend(&payload[..1 << (sized >> 4 & 3)]);
    }
    bytes
}

/// An alignment packet: its two bytes and anything up to the next multiple of 2 to 16 bytes. One of
/// 2 bytes at an odd place ends between its own bytes, and its second one is padding.
fn align(random: &mut Random, bytes: &mut Vec<u8>) {
    let power = random.below(4) as u8;
    let end = (bytes.len() + 1).next_multiple_of(2 << power);
    bytes.extend([0x20 | power, 0x00]);
    while bytes.len() < end {
        bytes.push(random.next() as u8);
    }
}

/// Ends one block in four with a header that no packet has: a neighbour of a context's four, or a
/// context's in the extended form.
fn foreign(random: &mut Random, bytes: &mut Vec<u8>) {
    let header = match random.below(12) {
        // 0x62 and 0x63 are events and a data source.
        0 => vec![0x60 | random.below(2) as u8],
        1 => vec![0x68 | random.below(8) as u8],
        2 => vec![0x20 | random.below(4) as u8, 0x64 | random.below(4) as u8],
        _ => return,
    };
    bytes.extend(header);
    bytes.extend(random.next().to_le_bytes());
}

/// Marsaglia's xorshift64 (13, 7, 17).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}
