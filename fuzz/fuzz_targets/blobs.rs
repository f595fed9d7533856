#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tamis_fuzzing::blobs(bytes));
