//! Input for real programs: the same bytes on every machine, so that runs stay deterministic and
//! nothing has to be fetched.

use serde::Deserialize;

/// A file that the lab makes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Input {
    /// Its place in the guest.
    pub(crate) path: String,
    kind: Kind,
    /// Its size, KiB; of `reads`: the size of the `bases` that they come from.
    kib: u32,
    /// How many; of `reads` only.
    #[serde(default)]
    count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Lines of words, few of which are frequent.
    Words,
    /// One random DNA sequence, FASTA.
    Bases,
    /// Pieces of such a sequence with errors, FASTQ.
    Reads,
    /// Raw I420 video.
    Frames,
}

/// Different words.
const WORDS: usize = 20_000;
/// Words in a line.
const LINE: u64 = 10;
const LETTERS: &[u8; 4] = b"ACGT";
/// Bases in a line of FASTA, and in a read.
const BASES_IN_LINE: usize = 70;
const READ: usize = 100;
/// One base in this many is read wrongly.
const ERRORS: u64 = 60;
/// Size of a frame, pixels.
const WIDTH: usize = 416;
const HEIGHT: usize = 240;

impl Input {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let size = self.kib as usize * 1024;
        match self.kind {
            Kind::Words => words(size),
            Kind::Bases => fasta(&bases(size)),
            Kind::Reads => reads(&bases(size), self.count),
            Kind::Frames => frames(size),
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

fn words(size: usize) -> Vec<u8> {
    let mut random = Random(1);
    let word = |random: &mut Random| -> Vec<u8> {
        let length = 2 + random.below(9);
        (0..length).map(|_| b'a' + random.below(26) as u8).collect()
    };
    let known: Vec<Vec<u8>> = (0..WORDS).map(|_| word(&mut random)).collect();
    let mut text = Vec::with_capacity(size + 128);
    while text.len() < size {
        for at in 1..=LINE {
            // The product of two even choices favours the first words, as texts do.
            let range = 1 + random.below(WORDS as u64);
            text.extend_from_slice(&known[random.below(range) as usize]);
            text.push(if at == LINE { b'\n' } else { b' ' });
        }
    }
    text.truncate(size.saturating_sub(1));
    text.push(b'\n');
    text
}

fn bases(size: usize) -> Vec<u8> {
    let mut random = Random(2);
    (0..size).map(|_| LETTERS[random.below(4) as usize]).collect()
}

fn fasta(bases: &[u8]) -> Vec<u8> {
    let mut text = b">sequence\n".to_vec();
    for line in bases.chunks(BASES_IN_LINE) {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text
}

fn reads(bases: &[u8], count: u32) -> Vec<u8> {
    let mut random = Random(3);
    let mut text = Vec::new();
    let places = bases.len().saturating_sub(READ) as u64;
    for number in 0..count {
        let start = random.below(places) as usize;
        let mut read = bases[start..start + READ].to_vec();
        for base in &mut read {
            if random.below(ERRORS) == 0 {
                *base = LETTERS[random.below(4) as usize];
            }
        }
        text.extend_from_slice(format!("@read{number}\n").as_bytes());
        text.extend_from_slice(&read);
        text.extend_from_slice(b"\n+\n");
        text.resize(text.len() + READ, b'I');
        text.push(b'\n');
    }
    text
}

fn frames(size: usize) -> Vec<u8> {
    let mut random = Random(4);
    let mut video = Vec::with_capacity(size);
    let mut number = 0;
    while video.len() + WIDTH * HEIGHT * 3 / 2 <= size {
        for row in 0..HEIGHT {
            for column in 0..WIDTH {
                // Squares that move by three pixels a frame over a slope.
                let square = ((column + 3 * number) / 32 + row / 24) % 2 * 60;
                let pixel = 40 + square + (row + column) / 8 + random.below(6) as usize;
                video.push(pixel as u8);
            }
        }
        let colours = WIDTH * HEIGHT / 2;
        video.extend((0..colours).map(|at| (118 + at % (WIDTH / 2) / 16) as u8));
        number += 1;
    }
    video
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(kind: Kind, kib: u32, count: u32) -> Vec<u8> {
        Input { path: "/x".to_owned(), kind, kib, count }.bytes()
    }

    #[test]
    fn input_has_its_size_and_form_and_is_the_same_again() {
        let words = input(Kind::Words, 64, 0);
        assert_eq!((words.len(), words.last()), (65536, Some(&b'\n')));
        assert_eq!(words, input(Kind::Words, 64, 0));
        let genome = input(Kind::Bases, 4, 0);
        assert!(genome.starts_with(b">sequence\n"));
        assert_eq!(genome.iter().filter(|byte| LETTERS.contains(byte)).count(), 4096);
        let frame = WIDTH * HEIGHT * 3 / 2;
        assert_eq!(input(Kind::Frames, 300, 0).len(), 2 * frame);
    }

    #[test]
    fn most_bases_of_a_read_are_the_sequence_s() {
        let sequence = bases(4096);
        let text = String::from_utf8(input(Kind::Reads, 4, 5)).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 20);
        for read in lines.chunks(4).map(|record| record[1].as_bytes()) {
            let alike = |place: &[u8]| place.iter().zip(read).filter(|(a, b)| a == b).count();
            let best = sequence.windows(READ).map(alike).max().expect("places");
            assert!((90..=100).contains(&best), "{best}");
        }
    }

    #[test]
    fn few_words_are_frequent() {
        let text = String::from_utf8(input(Kind::Words, 256, 0)).expect("text");
        let mut counts = std::collections::BTreeMap::new();
        text.split_whitespace().for_each(|word| *counts.entry(word).or_insert(0) += 1);
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let total: u32 = counts.iter().sum();
        let tenth: u32 = counts[..counts.len() / 10].iter().sum();
        assert!(tenth * 4 > total, "{tenth} of {total}");
    }
}
