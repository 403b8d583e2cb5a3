#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tiledbfs_fuzz::run("array", data));

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    tiledbfs_fuzz::mutator::array(data, size, max_size, seed, libfuzzer_sys::fuzzer_mutate)
});
