//! Whatever is in a file, the reader ends with steps or an error, and never panics.

use proptest::prelude::*;
use proptest::sample::Index;

use crate::damaged::{EVERY_FIELD, read};

/// A change of a few bytes of a good file.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let splice = (any::<Index>(), 0_usize..8, "[\\x00-\\x7f]{0,6}|[0-9\"{}\\[\\],:.eE-]{0,6}");
    proptest::collection::vec(splice, 1..4).prop_map(|splices| {
        let mut file = EVERY_FIELD.as_bytes().to_vec();
        for (place, length, bytes) in splices {
            let start = place.index(file.len());
            let end = (start + length).min(file.len());
            file.splice(start..end, bytes.bytes());
        }
        file
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_change_of_a_good_file_makes_the_reader_panic(file in mutated()) {
        let (steps, error, _) = read(&file);
        prop_assert!(steps <= 2);
        if let Some(error) = error {
            prop_assert!(error.to_string().starts_with("run.trace:"), "{}", error);
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(
        file in proptest::collection::vec(any::<u8>(), 0..200),
        after_a_header: bool,
    ) {
        let header = EVERY_FIELD.lines().next().expect("a header");
        let mut whole = format!("{header}\n").into_bytes();
        whole.truncate(if after_a_header { whole.len() } else { 0 });
        whole.extend(file);
        let (steps, _, _) = read(&whole);
        prop_assert_eq!(steps, 0);
    }

    #[test]
    fn a_file_cut_off_anywhere_gives_the_steps_before(at in any::<Index>()) {
        let header = EVERY_FIELD.find('\n').expect("a header") + 1;
        let end = header + at.index(EVERY_FIELD.len() - header);
        let (steps, error, truncated) = read(&EVERY_FIELD.as_bytes()[..end]);
        prop_assert!(error.is_none(), "{:?}", error);
        let whole = EVERY_FIELD[header..end].lines().filter(|line| line.ends_with("}}")).count();
        prop_assert!(steps == whole.div_ceil(2) || steps + 1 == whole.div_ceil(2));
        prop_assert!(truncated.is_none_or(|cut| cut.bytes > 0));
    }
}
