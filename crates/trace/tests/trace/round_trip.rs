//! Whatever enters a controller comes out of the file as it was.

use proptest::collection::vec;
use proptest::prelude::*;
use rondpoint_core::controller::{Input, Step};
use rondpoint_trace::{Header, Reader, Writer};

use crate::arbitrary;

fn written(header: &Header, inputs: &[Input]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "memory", header).expect("a vector takes everything");
    for input in inputs {
        writer.step(input, &Step::default()).expect("a vector takes everything");
    }
    file
}

fn read(file: &[u8]) -> (Header, Vec<Input>) {
    let mut reader = Reader::new(file, "memory").expect("just written");
    let inputs = reader.by_ref().map(|record| record.expect("just written").input).collect();
    assert_eq!(reader.truncated(), None);
    (reader.header().clone(), inputs)
}

fn header_and_inputs() -> impl Strategy<Value = (Header, Vec<Input>)> {
    arbitrary::header().prop_flat_map(|header| {
        let inputs = vec(arbitrary::input(&header.topology), 0..4);
        (Just(header), inputs)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_header_and_any_inputs_are_read_as_they_were_written(
        (header, inputs) in header_and_inputs()
    ) {
        let (read_header, read_inputs) = read(&written(&header, &inputs));
        prop_assert_eq!(read_header, header);
        prop_assert_eq!(read_inputs, inputs);
    }
}
