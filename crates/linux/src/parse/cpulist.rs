//! Lists of CPUs or nodes: `0-3,8,10-11`, and the kernel's stride form `0-31:2/8`.
//!
//! `cpulist`, `online`, `cpumask`, `shared_cpu_list`, `Cpus_allowed_list` all have this format; the
//! strides appear in command lines (Documentation/admin-guide/kernel-parameters.rst, "cpulists").

use rondpoint_input::Budget;

use super::ParseError;
use super::fields::{decimal, hexadecimal, trim};

/// Largest number in a list. No kernel is built for more CPUs (`NR_CPUS` of x86-64 is 8192).
pub const MAX_NUMBER: u64 = 65_535;
/// Most numbers that a list may expand to, with repeated ones (our choice): sixteen times each.
const MOST_ITEMS: u64 = 16 * (MAX_NUMBER + 1);

/// Parses a list; an empty text is the empty list. The result is sorted without duplicates.
///
/// # Errors
/// A piece is no number or range, a range is descending, or a number is above [`MAX_NUMBER`].
pub fn parse(bytes: &[u8]) -> Result<Vec<u32>, ParseError> {
    let text = trim(bytes);
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Ok(numbers);
    }
    let mut budget = Budget::new(0, MOST_ITEMS);
    for piece in text.split(|&byte| byte == b',') {
        let piece = read_piece(trim(piece))
            .ok_or_else(|| ParseError::new(1, "a list such as 0-3,8", bytes))?;
        budget
            .take_items(u64::from(piece.last - piece.first) + 1)
            .map_err(|_| ParseError::new(1, "a list without so many repeated numbers", bytes))?;
        numbers.extend(piece.numbers());
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// A piece of a list: `first-last:used/group`.
struct Piece {
    first: u32,
    last: u32,
    used: u32,
    group: u32,
}

impl Piece {
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let Self { first, last, used, group } = *self;
        (first..=last).filter(move |number| (number - first) % group < used)
    }
}

fn read_piece(piece: &[u8]) -> Option<Piece> {
    let (range, stride) = match split_at(piece, b':') {
        Some((range, stride)) => (range, Some(stride)),
        None => (piece, None),
    };
    let (first, last) = match split_at(range, b'-') {
        Some((first, last)) => (bounded(first)?, bounded(last)?),
        None => (bounded(range)?, bounded(range)?),
    };
    let (used, group) = match stride {
        Some(text) => {
            let (used, group) = split_at(text, b'/')?;
            (bounded(used)?, bounded(group)?)
        }
        None => (1, 1),
    };
    if first > last || used == 0 || used > group {
        return None;
    }
    Some(Piece { first, last, used, group })
}

fn bounded(word: &[u8]) -> Option<u32> {
    decimal(word).filter(|&number| number <= MAX_NUMBER)?.try_into().ok()
}

fn split_at(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Parses a mask: groups of 32 bits in hexadecimal, the highest first. Masks are beside lists
/// (`cpumap`, `shared_cpu_map`), and alone before Linux 2.6.28.
///
/// # Errors
/// A group is no number of 32 bits, or there are more groups than [`MAX_NUMBER`] needs.
pub fn parse_mask(bytes: &[u8]) -> Result<Vec<u32>, ParseError> {
    const GROUP_BITS: u32 = 32;
    let fail = || ParseError::new(1, "a mask such as 3,0000000f", bytes);
    let groups: Vec<&[u8]> = trim(bytes).split(|&byte| byte == b',').collect();
    if groups.len() as u64 > MAX_NUMBER / u64::from(GROUP_BITS) {
        return Err(fail());
    }
    let mut numbers = Vec::new();
    for (first, group) in (0..).step_by(GROUP_BITS as usize).zip(groups.iter().rev()) {
        let bits = hexadecimal(group).filter(|bits| *bits >> GROUP_BITS == 0).ok_or_else(fail)?;
        numbers.extend((0..GROUP_BITS).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    Ok(numbers)
}

/// Writes a sorted list in the kernel's form: `0-3,8`.
#[must_use]
pub fn format(sorted: &[u32]) -> String {
    let mut pieces: Vec<String> = Vec::new();
    let mut index = 0;
    while index < sorted.len() {
        let first = sorted[index];
        let mut last = first;
        while index + 1 < sorted.len() && sorted[index + 1] == last + 1 {
            index += 1;
            last = sorted[index];
        }
        pieces.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
        index += 1;
    }
    pieces.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        let shown = match parse(text.as_bytes()) {
            Ok(numbers) => format(&numbers),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{text:?}");
    }

    #[test]
    fn lists_ranges_and_strides_are_read() {
        check("0-3\n", "0-3");
        check("", "");
        check("\n", "");
        check("8,0-3,2", "0-3,8");
        check("0-7:2/4", "0-1,4-5");
        check("5", "5");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let signed = ["+1", "++1", "0,+1", "1-+2", "0-7:+2/4", "0-3\x002"];
        for bad in signed {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in ["a", "3-1", "1-", "-", ",", "0-7:0/4", "0-7:5/4", "0-7:2", "70000", "1 2"] {
            check(bad, &format!("line 1: expected a list such as 0-3,8, found `{bad}`"));
        }
    }

    #[test]
    fn a_list_that_repeats_its_numbers_without_end_is_refused() {
        let text = "0-65535,".repeat(8_000) + "0";
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 1: expected a list without so many repeated"), "{error}");
        let every_number = (0..=MAX_NUMBER).map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!(parse(every_number.join(",").as_bytes()).unwrap().len(), 65_536);
    }

    #[test]
    fn masks_are_groups_of_32_bits() {
        assert_eq!(parse_mask(b"0000000f\n").unwrap(), [0, 1, 2, 3]);
        assert_eq!(parse_mask(b"3,80000000\0\0").unwrap(), [31, 32, 33]);
        assert_eq!(parse_mask(b"0\n").unwrap(), [0u32; 0]);
        for bad in [&b""[..], b"x", b"1,,1", b"100000000", b"+1"] {
            assert!(parse_mask(bad).is_err(), "{bad:?}");
        }
        assert!(parse_mask(&b"1,".repeat(5000)).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes: Vec<u8>) {
            let _ = (parse(&bytes), parse_mask(&bytes));
        }

        #[test]
        fn a_written_list_reads_back(numbers in proptest::collection::btree_set(0u32..300, 0..50)) {
            let sorted: Vec<u32> = numbers.into_iter().collect();
            prop_assert_eq!(parse(format(&sorted).as_bytes()).unwrap(), sorted);
        }
    }
}
