//! Lists of CPUs or nodes: `0-3,8,10-11`, and the kernel's stride form `0-31:2/8`.
//!
//! `cpulist`, `online`, `cpumask`, `shared_cpu_list`, `Cpus_allowed_list` all have this format; the
//! strides appear in command lines (Documentation/admin-guide/kernel-parameters.rst, "cpulists").

use super::ParseError;
use super::fields::decimal;

/// The largest number taken: no kernel is built for more CPUs (`NR_CPUS` of x86-64 is 8192).
pub const MAX_NUMBER: u64 = 65_535;

/// Parses a list; an empty text is the empty list. The result is sorted and has no doubles.
///
/// # Errors
/// A piece that is no number or range, a range that runs backwards, a number above [`MAX_NUMBER`].
pub fn parse(bytes: &[u8]) -> Result<Vec<u32>, ParseError> {
    let text = bytes.trim_ascii();
    let mut numbers = Vec::new();
    if text.is_empty() {
        return Ok(numbers);
    }
    for piece in text.split(|&byte| byte == b',') {
        push_piece(piece.trim_ascii(), &mut numbers)
            .ok_or_else(|| ParseError::new(1, "a list such as 0-3,8", bytes))?;
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn push_piece(piece: &[u8], numbers: &mut Vec<u32>) -> Option<()> {
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
    numbers.extend((first..=last).filter(|number| (number - first) % group < used));
    Some(())
}

fn bounded(word: &[u8]) -> Option<u32> {
    decimal(word).filter(|&number| number <= MAX_NUMBER)?.try_into().ok()
}

fn split_at(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// Writes a list the kernel's way: `0-3,8`.
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
        for bad in ["a", "3-1", "1-", "-", ",", "0-7:0/4", "0-7:5/4", "0-7:2", "70000", "1 2"] {
            check(bad, &format!("line 1: expected a list such as 0-3,8, found `{bad}`"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_written_list_reads_back(numbers in proptest::collection::btree_set(0u32..300, 0..50)) {
            let sorted: Vec<u32> = numbers.into_iter().collect();
            prop_assert_eq!(parse(format(&sorted).as_bytes()).unwrap(), sorted);
        }
    }
}
