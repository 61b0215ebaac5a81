//! Inputs made of good ones: bytes, words and numbers changed, pieces doubled, dropped and swapped.

use rondpoint_core::random::Random;

/// Numbers at the edges of types and of sensible counts.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "-1",
    "2",
    "63",
    "64",
    "1023",
    "65536",
    "4294967295",
    "9223372036854775808",
    "18446744073709551615",
    "99999999999999999999999",
    "1e308",
    "0.5",
];

/// Changes of one input at most.
const MOST_CHANGES: usize = 4;

/// Inputs for a target in `./x test`. By hand: a million.
pub(crate) const USUAL_RUNS: u64 = 1_500;

/// A number of the environment, such as `RONDPOINT_SEED`.
pub(crate) fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

/// A good input with one to four changes.
pub(crate) fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len())].clone();
    // Half of the inputs have one change, for readers that refuse much.
    for _ in 0..=random.below(2) * random.below(MOST_CHANGES) {
        change(&mut input, seeds, random);
    }
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = (at + 1 + random.below(16)).min(input.len());
    match random.below(12) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.below(256) as u8,
        2 => input.insert(at, random.below(256) as u8),
        3 => drop(input.drain(at.min(end)..end)),
        4 => {
            let piece = input[at.min(end)..end].to_vec();
            let copies = 1 + random.below(8);
            input.splice(at..at, piece.repeat(copies));
        }
        5 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            let to = (from + random.below(64)).min(other.len());
            input.splice(at.min(end)..end, other[from..to].iter().copied());
        }
        _ => renumber(input, at, random),
    }
}

/// Replaces the number at `at` or behind it.
fn renumber(input: &mut Vec<u8>, at: usize, random: &mut Random) {
    let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset)
    else {
        return;
    };
    let length = input[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = NUMBERS[random.below(NUMBERS.len())];
    input.splice(start..start + length, number.bytes());
}
