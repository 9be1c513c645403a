//! The conformance suite passes on a file disk, and fails, with the rule's name, on a storage that breaks
//! the rule: each [`Fault`] is such a storage.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::faulty::{Fault, Faulty};
use weir_runtime::{Runtime, Wall};
use weir_storage::{Expectations, Failure, FileDisk, FileDiskOptions, Report, Rule, Storage, conformance};

const BYTES: u64 = 512 * 4096;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn disk(runtime: &Runtime, path: &Path, fill: u8) -> Rc<FileDisk> {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, vec![fill; BYTES as usize]).unwrap();
    let options = FileDiskOptions { queue_depth: 16, ..FileDiskOptions::default() };
    FileDisk::open(&runtime.handle(), path, options).unwrap()
}

fn check(fault: Fault) -> Result<Report, Failure> {
    let runtime = Runtime::wall(Wall::default()).unwrap();
    let directory = directory();
    let path = directory.path().join("disk");
    let fill = if fault == Fault::DirtyWhenFresh { 0xff } else { 0 };
    let expectations = Expectations { patience: Duration::from_secs(3), ..Expectations::default() };
    let make = async || {
        let disk = disk(&runtime, &path, fill);
        Rc::new(Faulty::new(&runtime.handle(), disk, fault)) as Rc<dyn Storage>
    };
    runtime.block_on(conformance(&runtime.handle(), expectations, make)).unwrap()
}

#[test]
fn a_storage_without_a_fault_passes() {
    let report = check(Fault::None).unwrap();
    assert!(report.passed.contains(&Rule::Concurrency), "{report}");
    assert_eq!(report.passed.len() + report.skipped.len(), Rule::ALL.len());
}

#[test]
fn every_rule_has_a_fault_that_it_catches() {
    for rule in Rule::ALL {
        assert!(Fault::ALL.iter().any(|fault| fault.breaks() == rule), "nothing breaks {rule:?}");
    }
}

#[test]
fn every_fault_is_caught_by_its_rule() {
    for fault in Fault::ALL {
        match check(fault) {
            Err(failure) => assert_eq!(failure.rule, fault.breaks(), "{fault:?}: {failure}"),
            Ok(report) => panic!("{fault:?} was not caught: {report}"),
        }
    }
}
