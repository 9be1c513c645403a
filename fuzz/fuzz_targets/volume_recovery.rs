//! Edits of a volume, most under good checksums, and a life with what comes of them.
#![no_main]

#[path = "../../crates/volume/tests/support/hostile.rs"]
mod hostile;

use libfuzzer_sys::fuzz_target;

thread_local! {
    static SEEDS: hostile::Seeds = hostile::Seeds::new();
}

fuzz_target!(|data: &[u8]| {
    SEEDS.with(|seeds| seeds.play(data));
});
