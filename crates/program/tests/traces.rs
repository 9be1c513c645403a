//! Traces that come from anybody: of any calls, in any order, nothing panics, hangs, or leads out of its directory.

use weir_runtime::{Runtime, Simulation};

use crate::support::hostile::{CALL_BYTES, Outcome, cases, play, play_corpus, within_memory};

#[test]
fn no_trace_does_damage() {
    let mut random = Runtime::simulated(Simulation::default()).handle().random("traces");
    let (mut refused, mut played) = (0, 0);
    let cases = cases(400);
    for _ in 0..cases {
        let calls = 1 + random.below(24) as usize;
        let mut bytes: Vec<u8> = (0..=calls * CALL_BYTES).map(|_| random.below(256) as u8).collect();
        bytes[0] = random.below(4) as u8;
        // Most have one process, and places in files and names that may be.
        for call in bytes[1..].as_chunks_mut::<CALL_BYTES>().0 {
            call[5] = u8::from(random.below(200) == 0) * 255;
            if random.below(60) != 0 {
                (1..5).for_each(|at| call[at] = call[at] / 16 * 13 / 16 * 16 + call[at] % 13);
            }
        }
        match play(&bytes) {
            Outcome::Refused => refused += 1,
            Outcome::Played => played += 1,
        }
    }
    assert!(refused > cases / 20 && played > cases / 4, "{refused} refused, {played} played of {cases}");
    within_memory();
}

/// What the fuzz target has found worth keeping: each case a file of bytes.
#[test]
fn cases_of_the_fuzz_target() {
    play_corpus("crash_trace", |case| {
        play(case);
    });
}
