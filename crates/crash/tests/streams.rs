//! The block layer above a volume: order between epochs, flushes and atomic requests survive power cuts,
//! whatever the elevator does.

#![allow(clippy::print_stdout, reason = "counts belong in the log of a test run")]

use weir_block::{BlockMutant, ElevatorKind};
use weir_crash::{Counts as _, StreamOptions, Totals, Verdict, run_streams};
use weir_storage::Rules;
use weir_volume::VolumeMutant;

/// Distinct crash states that each elevator has to survive.
const STATES: u64 = 8_000;

fn survive(elevator: ElevatorKind) {
    let mut totals = Totals::default();
    for run in 0.. {
        let seed = run * 3 + elevator as u64;
        let options = StreamOptions::draw(seed, elevator);
        let findings = run_streams(&options);
        assert_eq!(findings.failure, None, "seed {seed}: {options:#?}");
        totals.add(&findings.totals);
        if totals.states_distinct >= STATES {
            break;
        }
    }
    println!("{elevator:?}: {totals:?}");
}

#[test]
fn noop_keeps_epochs() {
    survive(ElevatorKind::Noop);
}

#[test]
fn deadline_keeps_epochs() {
    survive(ElevatorKind::Deadline);
}

#[test]
fn fair_keeps_epochs() {
    survive(ElevatorKind::Fair);
}

/// Whether one of a few runs fails by what a crash left, not only by what the order recorder saw.
fn noticed(furnish: impl Fn(&mut StreamOptions)) -> bool {
    (0..40).any(|seed| {
        let mut options = StreamOptions::draw(seed, ElevatorKind::Deadline);
        furnish(&mut options);
        let failure = run_streams(&options).failure;
        failure.is_some_and(|failure| matches!(failure.verdict, Verdict::Missing { .. }))
    })
}

/// Negative controls: the judge sees layers that mix epochs, and volumes that lie about flushes.
#[test]
fn the_judge_notices_broken_layers() {
    for mutant in [BlockMutant::EpochsMixed, BlockMutant::OverlapsReordered] {
        assert!(
            noticed(|options| options.block.rules = Rules::but(Some(mutant))),
            "{mutant:?} was not noticed"
        );
    }
    for mutant in [VolumeMutant::FlushLies, VolumeMutant::FlushNotAwaited] {
        assert!(
            noticed(|options| options.below.volume.rules = Rules::but(Some(mutant))),
            "{mutant:?} was not noticed"
        );
    }
}

/// A run is a function of its seed.
#[test]
fn runs_replay() {
    let options = StreamOptions::draw(3, ElevatorKind::Fair);
    let (first, second) = (run_streams(&options), run_streams(&options));
    assert_eq!((first.trace_hash, first.totals), (second.trace_hash, second.totals));
}
