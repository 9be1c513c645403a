//! The benchmark of F2FS's cleaners, at the smallest sizes.

use weir_bench::{FsPlan, cleaners};

use crate::support::{directory, options, runtime};

#[test]
fn both_cleaners_move_pages_and_shares_write_fewer_blocks() {
    let directory = directory();
    let options = options(directory.path());
    let runtime = runtime();
    let work = async |handle| cleaners(&handle, FsPlan::cleaners_tiny(), &options, &mut |_| {}).await;
    let report = runtime.block_on(work(runtime.handle())).unwrap().unwrap();
    assert_eq!(report.cases.iter().map(|case| case.fsync_every).collect::<Vec<_>>(), [8, 16, 32, 64, 128]);
    for case in &report.cases {
        let (copied, shared) = (case.copy.moved_pages_per_write, case.share.moved_pages_per_write);
        // Up to 8 pages are overwritten in place.
        assert_eq!(copied > 0.0, case.fsync_every > 8, "{case:?}");
        // The filesystem is small, so a segment more or less counts.
        assert!((copied - shared).abs() <= 0.25 * copied, "{case:?}");
        if copied > 0.0 {
            assert!(case.share.write_amplification < case.copy.write_amplification, "{case:?}");
        }
        assert!(case.share_over_copy.median > 0.0, "{case:?}");
    }
    assert!(report.checked_blocks > 0);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files were left behind");
}
