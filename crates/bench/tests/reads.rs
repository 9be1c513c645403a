//! How fast an emulated device is read, and what lies on it.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use weir_bench::{BenchError, ReadGround, ReadsOptions, reads};
use weir_flash::Profile;

const SMALL: ReadsOptions = ReadsOptions { span_blocks: 2048, depth: 32, seed: 3 };

/// What layers may cost a reader, on the emulated NVMe drive.
#[test]
fn layers_hold_up_no_reads() {
    let report = reads(&Profile::builtin("nvme").unwrap(), &SMALL).unwrap();
    assert_eq!(report.rates.iter().map(|rates| rates.ground).collect::<Vec<_>>(), ReadGround::ALL);
    for rates in &report.rates {
        assert!(rates.random_ratio >= 0.8, "{rates:?}");
        assert!(rates.sequential_ratio >= 0.6, "{rates:?}");
        // Reads of one run after another would reach an eighth.
        assert!(rates.overwritten_ratio >= 0.65, "{rates:?}");
    }
}

#[test]
fn a_seed_replays() {
    let run = |seed| reads(&Profile::builtin("ufs20").unwrap(), &ReadsOptions { seed, ..SMALL }).unwrap();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).trace_hash, run(8).trace_hash);
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    let small = Profile::builtin("nvme").unwrap().with_capacity(1 << 14);
    assert!(matches!(reads(&small, &SMALL), Err(BenchError::Capacity { .. })));
}
