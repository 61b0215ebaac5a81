//! The target `event_names` of `rondpoint-fuzz-inputs` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (rondpoint_fuzz_inputs::target("event_names").run)(bytes);
});
