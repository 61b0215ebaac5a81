//! Numbers on the command line. The error for a wrong value names the expected range.

use std::ops::RangeInclusive;

/// A parser of whole numbers in `range`; `what` says what they count, in the plural.
pub(crate) fn whole<N: TryFrom<u64>>(
    what: &'static str,
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone {
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("expected a whole number of {what} from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_what_does() {
        let seconds = whole::<u64>("seconds", 1..=60);
        assert_eq!(seconds("60"), Ok(60));
        for text in ["soon", "0", "61", "-1", "1.5", "", "99999999999999999999"] {
            let error = seconds(text).expect_err(text);
            assert_eq!(error, "expected a whole number of seconds from 1 to 60");
        }
        assert_eq!(whole::<u8>("bytes", 0..=999)("300").ok(), None);
    }
}
