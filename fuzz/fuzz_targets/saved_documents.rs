#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| purelb_fuzz::targets::ctl::saved_documents(data));
