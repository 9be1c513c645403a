//! Failures are made small: a mutant is killed by a long workload, and what is left of that is short.

use std::str::FromStr as _;

use weir_crash::{CutName, JudgedBy, Setup, Shrunk, Workload};
use weir_fs::{FsMutant, JournalMutant};
use weir_storage::Rules;

use super::{EVERYTHING, bench};

/// What is left of a workload of 29 operations under a mutant on the worst disk with barriers.
fn shrunk(mutant: FsMutant) -> Shrunk {
    let mut setup = Setup::named("adversary", "dual").unwrap();
    setup.options.rules = Rules::but(Some(mutant));
    let bench = setup.prepare().unwrap();
    let workload: Workload = EVERYTHING.parse().unwrap();
    let failure = bench.sweep(&workload).unwrap().failure.unwrap();
    let small = bench.shrink(&workload, &failure);
    assert_eq!(small.failure.defect.by, failure.defect.by);
    // It replays by its name, which is text, and nothing of it fails without the mutant.
    let name = CutName::from_str(&small.failure.cut.as_ref().unwrap().to_string()).unwrap();
    assert_eq!(bench.replay(&small.workload, &name), Ok(Some(small.failure.clone())));
    let told = bench.describe_failure(&small.workload, &small.failure, "a command").unwrap();
    assert_eq!(told.parse::<Workload>(), Ok(small.workload.clone()), "{told}");
    let kept = Setup::named("adversary", "dual").unwrap().prepare().unwrap();
    assert_eq!(kept.sweep(&small.workload).unwrap().failure, None, "{told}");
    assert_eq!(bench.shrink(&small.workload, &small.failure), small, "nothing more can be left out");
    small
}

/// J1: what is called durable is not flushed. A new file and a call are left, and one block is lost.
#[test]
fn a_flush_that_is_forgotten_is_shrunk() {
    let Shrunk { workload, failure } = shrunk(FsMutant::Journal(JournalMutant::FlushForgotten));
    assert!(workload.operations.len() <= 3, "{workload}");
    assert_eq!((failure.defect.by, failure.lost.len()), (JudgedBy::Model, 1), "{failure:?}");
}

/// J2: JC belongs to the epoch of JD. Whatever makes a transaction is left, and one block of the log is lost.
#[test]
fn a_commit_block_in_the_epoch_of_its_log_is_shrunk() {
    let Shrunk { workload, failure } = shrunk(FsMutant::Journal(JournalMutant::CommitInEpochOfLog));
    assert!(workload.operations.len() <= 3, "{workload}");
    assert_eq!((failure.defect.by, failure.lost.len()), (JudgedBy::Recovery, 1), "{failure:?}");
}

/// J3: `fdatabarrier` orders data that nothing leads to.
#[test]
fn a_barrier_that_forgets_metadata_is_shrunk() {
    let Shrunk { workload, failure } = shrunk(FsMutant::DataBarrierForgetsMetadata);
    assert!(workload.operations.len() <= 8, "{workload}");
    assert!(workload.to_string().contains("fdatabarrier"), "{workload}");
    assert_eq!(failure.defect.by, JudgedBy::Model);
}

/// What is told names the judge, the cut, what is lost, what was promised and what is found.
#[test]
fn a_failure_is_told_to_a_person() {
    let bench = bench("legacy", "jbd2-nobarrier");
    let workload = EVERYTHING.parse().unwrap();
    let failure = bench.sweep(&workload).unwrap().failure.unwrap();
    let Shrunk { workload, failure } = bench.shrink(&workload, &failure);
    let told = bench.describe_failure(&workload, &failure, "weir crash run x.txt").unwrap();
    for part in [
        "# Failure found by ",
        "# on legacy, engine jbd2-nobarrier, seed 1",
        "# replay: weir crash run x.txt",
        "# the power is cut during this operation or after it (event ",
        "# lost of the writes that were not durable:\n#   block ",
        "# promises made before the cut:\n",
        "# content without the power cut:\n#   /",
        "# content after the power cut:\n",
    ] {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
}
