#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledbfs_fuzz::run("conventions", data));
