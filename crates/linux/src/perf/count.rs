//! The bytes that `read(2)` on a perf event returns, by its `read_format`.

use super::attr::read_format::{GROUP, ID, LOST, TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING};

/// Most events of a group (our choice). The kernel's own limit is the size of the read.
pub const MAX_GROUP: usize = 256;

/// The value of an event and the times for which it was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Number of events while the event was on a counter.
    pub value: u64,
    /// Time for which the event was enabled, ns.
    pub enabled_ns: u64,
    /// Time for which the event was on a counter, ns.
    pub running_ns: u64,
    /// Number of the event; 0 if the format does not have it.
    pub id: u64,
    /// Number of lost samples; 0 if the format does not have it.
    pub lost: u64,
}

/// A read that does not have the length that its format prescribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a perf count of format {format:#x} ended after {words} words")]
pub struct CountError {
    /// The `read_format` of the event.
    pub format: u64,
    /// Number of words read.
    pub words: usize,
}

struct Words<'a> {
    bytes: &'a [u8],
    taken: usize,
    format: u64,
}

impl Words<'_> {
    fn next(&mut self) -> Result<u64, CountError> {
        let fail = CountError { format: self.format, words: self.taken };
        let (word, rest) = self.bytes.split_first_chunk::<8>().ok_or(fail)?;
        self.bytes = rest;
        self.taken += 1;
        Ok(u64::from_ne_bytes(*word))
    }

    fn next_if(&mut self, bit: u64) -> Result<u64, CountError> {
        if self.format & bit == 0 { Ok(0) } else { self.next() }
    }
}

/// Parses one read: one count, or with `GROUP` one for each member in the order of opening.
///
/// # Errors
/// Fewer words than the format needs, or a group beyond [`MAX_GROUP`].
pub fn parse(bytes: &[u8], format: u64) -> Result<Vec<Count>, CountError> {
    let mut words = Words { bytes, taken: 0, format };
    if format & GROUP == 0 {
        let value = words.next()?;
        let enabled_ns = words.next_if(TOTAL_TIME_ENABLED)?;
        let running_ns = words.next_if(TOTAL_TIME_RUNNING)?;
        let id = words.next_if(ID)?;
        let lost = words.next_if(LOST)?;
        return Ok(vec![Count { value, enabled_ns, running_ns, id, lost }]);
    }
    let members = usize::try_from(words.next()?).unwrap_or(usize::MAX);
    if members > MAX_GROUP {
        return Err(CountError { format, words: 1 });
    }
    let enabled_ns = words.next_if(TOTAL_TIME_ENABLED)?;
    let running_ns = words.next_if(TOTAL_TIME_RUNNING)?;
    (0..members)
        .map(|_| {
            let value = words.next()?;
            let id = words.next_if(ID)?;
            let lost = words.next_if(LOST)?;
            Ok(Count { value, enabled_ns, running_ns, id, lost })
        })
        .collect()
}

/// Number of bytes of a read with this format.
#[must_use]
pub fn bytes(format: u64, members: usize) -> usize {
    let bit = |bit: u64| usize::from(format & bit != 0);
    let times = bit(TOTAL_TIME_ENABLED) + bit(TOTAL_TIME_RUNNING);
    let each = 1 + bit(ID) + bit(LOST);
    8 * if format & GROUP == 0 { times + each } else { 1 + times + members * each }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_single_count_has_times_number_and_losses() {
        let format = TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | ID | LOST;
        let counts = parse(&encoded(&[9, 100, 50, 7, 2]), format).unwrap();
        let expected = Count { value: 9, enabled_ns: 100, running_ns: 50, id: 7, lost: 2 };
        assert_eq!(counts, [expected]);
        assert_eq!(bytes(format, 1), 40);
    }

    #[test]
    fn a_group_shares_its_times() {
        let format = GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING | ID;
        let counts = parse(&encoded(&[2, 100, 50, 9, 7, 8, 6]), format).unwrap();
        assert_eq!((counts[0].value, counts[0].id), (9, 7));
        assert_eq!((counts[1].value, counts[1].id, counts[1].running_ns), (8, 6, 50));
        assert_eq!(bytes(format, 2), 56);
    }

    #[test]
    fn a_short_read_is_refused() {
        let error = parse(&encoded(&[2, 9]), GROUP | ID).unwrap_err();
        assert_eq!(error.to_string(), "a perf count of format 0xc ended after 2 words");
        assert!(parse(&encoded(&[u64::MAX]), GROUP).is_err());
        assert!(parse(&[1, 2, 3], 0).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_counts_or_an_error(bytes: Vec<u8>, format in 0u64..32) {
            let _ = parse(&bytes, format);
        }
    }
}
