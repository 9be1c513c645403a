//! Traces of programs under power cuts, under good checksums, and the states that are made of them.
#![no_main]

#[path = "../../crates/program/tests/support/hostile.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    hostile::play(data);
});
