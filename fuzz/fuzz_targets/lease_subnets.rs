#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| purelb_fuzz::targets::api::lease_subnets(data));
