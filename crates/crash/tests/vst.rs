//! Virtual stress testing: order-preserving firmware leaves what the golden disk says, and bugs in it are noticed.

use weir_crash::{Vst, VstRequest, VstSummary};
use weir_flash::{FlashMutant, FlashOptions};
use weir_storage::Rules;

/// Images of a run; the campaign judges 2,400.
const IMAGES: u64 = 200;

fn is_clean(vst: &Vst) -> VstSummary {
    let summary = vst.run_test();
    assert_eq!((summary.violations, &summary.first_violation), (0, &None));
    assert!(summary.images == vst.images && summary.images_rolled_back > vst.images / 4, "{summary:?}");
    assert!(summary.erases > 0 && summary.checkpoints > 0 && summary.record_pages > 0, "{summary:?}");
    assert!(summary.internal_flushes > 0, "{summary:?}");
    summary
}

#[test]
fn a_prefix_of_whole_requests_is_left() {
    assert_eq!(is_clean(&Vst::new(IMAGES, 1)).flushes, 0);
}

#[test]
fn what_was_flushed_is_left() {
    let summary = is_clean(&Vst { flush_every: Some(100), ..Vst::new(IMAGES, 2) });
    assert!(summary.flushes > 10, "{summary:?}");
}

/// Small writes to a few blocks, as a trace has them: parts of blocks, beyond the device, with flushes and discards.
#[test]
fn a_trace_is_replayed_until_there_are_enough_images() {
    let write = |sector, sectors| VstRequest::Write { sector, sectors };
    let far = u64::MAX - 3;
    let trace = vec![
        write(3, 2),
        write(0, 8),
        write(far, 40),
        VstRequest::Discard { sector: 0, sectors: 9 },
        write(4, 900),
    ];
    let summary = is_clean(&Vst { trace, flush_every: Some(7), ..Vst::new(300, 3) });
    assert!(summary.requests > 50, "{summary:?}");
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed| Vst::new(20, seed).run_test();
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).trace_hash, run(6).trace_hash);
}

#[test]
fn a_trace_that_changes_nothing_is_a_violation() {
    let trace = vec![VstRequest::Discard { sector: 0, sectors: 1 }];
    assert_eq!(Vst { trace, ..Vst::new(10_000, 1) }.run_test().violations, 1);
}

/// The negative controls.
#[test]
fn firmware_that_tears_requests_or_forgets_records_is_noticed() {
    for mutant in
        [FlashMutant::IncompleteKept, FlashMutant::PairsTornApart, FlashMutant::CoalescingUnrecorded]
    {
        let options = FlashOptions { rules: Rules::but(Some(mutant)), ..FlashOptions::default() };
        let summary = Vst { options, flush_every: Some(50), ..Vst::new(IMAGES, 1) }.run_test();
        assert!(summary.violations > 0, "{mutant:?} survives");
    }
}
