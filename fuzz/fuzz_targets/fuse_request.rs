//! Requests that no kernel sends, and what they leave of a filesystem.
#![no_main]

#[path = "../../crates/fuse/tests/support/requests.rs"]
mod requests;

use libfuzzer_sys::fuzz_target;

thread_local! {
    static SESSIONS: requests::Sessions = requests::Sessions::new();
}

fuzz_target!(|data: &[u8]| {
    SESSIONS.with(|sessions| sessions.play(data));
});
