#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| purelb_fuzz::targets::wire::echo_message(data));
