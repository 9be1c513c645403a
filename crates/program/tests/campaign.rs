//! What a campaign says of a recorded run: of checks that take time, and that disturb each other.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{getegid, geteuid};
use tempfile::TempDir;
use weir_program::{
    Call, CampaignError, CampaignFindings, DiskFilesystem, DiskGround, Judge, NewInode, Place, Plan,
    ProgramCampaign, ProgramMutant, Promises, ROOT, Record, RunDisk, StateName, StopCondition,
};
use weir_runtime::{Runtime, Wall};
use weir_storage::Rules;

/// Files that a run makes, each with a line that acknowledges it.
fn record_files(files: u32) -> Record {
    let owner = (geteuid().as_raw(), getegid().as_raw());
    let mut record = Record::new(owner, 1 << 20);
    for nth in 0..files {
        let new =
            NewInode { mode: 0o100_644, uid: owner.0, gid: owner.1, target: Vec::new(), device: (0, 0) };
        let at = Some(Place { directory: ROOT, name: format!("f{nth}").into_bytes() });
        record.push(0, Call::Make { inode: 10 + nth, new, at });
        record.acknowledge(0, nth.to_string().into_bytes());
    }
    record
}

/// A check, with a directory of its own.
struct Test {
    _directory: TempDir,
    plan: Plan,
}

impl Test {
    fn new(check: &str) -> Test {
        let directory = tempfile::tempdir().unwrap();
        let plan = Plan {
            promises: Promises::Posix,
            drive: None,
            check: check.to_owned(),
            check_limit: Duration::from_secs(60),
            states: 40,
            time: None,
            seed: 1,
            jobs: 1,
            scratch: directory.path().to_owned(),
            here: directory.path().to_owned(),
            weir: "weir".into(),
            stops: Arc::new(AtomicBool::new(false)),
            rules: Rules::all(),
        };
        Test { _directory: directory, plan }
    }

    fn run(&self) -> Result<CampaignFindings, CampaignError> {
        let record = record_files(8);
        let clock = Runtime::wall(Wall::default()).unwrap().handle();
        ProgramCampaign::new(&record, &self.plan).run(&clock, |_| true)
    }
}

#[test]
fn the_time_begins_behind_the_controls() {
    let mut test = Test::new("sleep 0.4");
    test.plan.time = Some(Duration::from_secs(1));
    let findings = test.run().unwrap();
    assert!(findings.distinct > 0 && findings.failures == 0, "{findings:?}");
}

#[test]
fn the_time_ends_checks_that_are_under_way() {
    let mut test = Test::new("test ! -s \"$WEIR_ACKED\" || test $(wc -l <\"$WEIR_ACKED\") = 8 || sleep 50");
    (test.plan.time, test.plan.states) = (Some(Duration::from_secs(1)), 4);
    let findings = test.run().unwrap();
    assert!(findings.seconds < 20.0 && findings.failures == 0, "{findings:?}");
    // From the twelfth one on, a check that fails takes long: that is one that makes a failure smaller.
    (test.plan.time, test.plan.states) = (Some(Duration::from_secs(4)), 40);
    test.plan.check = "test -e f0 -o ! -s \"$WEIR_ACKED\" && exit; cd \"$WEIR_HERE\"; echo >>n; \
                       test $(wc -l <n) -lt 12 || sleep 50; false"
        .to_owned();
    let findings = test.run().unwrap();
    assert!(findings.seconds < 30.0 && findings.failures > 0, "{findings:?}");
    assert!(!findings.reported.is_empty(), "it is as small as it was made until then: {findings:?}");
}

#[test]
fn findings_are_kept_when_a_state_cannot_be_written() {
    let mut test = Test::new(
        "test ! -s \"$WEIR_ACKED\" -o -e f0 || { cd \"$WEIR_HERE\"; mkdir a || mkdir b || mkdir failed; exit 1; }; \
         test ! -e \"$WEIR_HERE\"/failed || rm -r \"$WEIR_HERE\"/scratch",
    );
    let scratch = test.plan.scratch.join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    test.plan.scratch = scratch;
    let findings = test.run().unwrap();
    assert!(findings.failures > 0 && !findings.reported.is_empty(), "{findings:?}");
    assert!(
        findings.warnings.iter().any(|warning| warning.contains("the search ended early")),
        "{findings:?}"
    );
}

#[test]
fn a_check_that_accepts_everything_is_told() {
    let mut test = Test::new("true");
    let is_told = |test: &Test| {
        let warnings = test.run().unwrap().warnings;
        warnings.iter().any(|warning| warning.contains("the check accepts an empty directory"))
    };
    assert!(is_told(&test));
    test.plan.rules = Rules::but(Some(ProgramMutant::TrustsChecks));
    assert!(!is_told(&test), "the control");
}

#[test]
fn a_search_that_checks_no_state_is_no_result() {
    let mut test = Test::new("true");
    assert!(test.run().unwrap().distinct > 10, "the control");
    test.plan.time = Some(Duration::ZERO);
    assert!(matches!(test.run(), Err(CampaignError::NothingChecked)));
    (test.plan.time, test.plan.states) = (None, 0);
    assert!(matches!(test.run(), Err(CampaignError::NothingChecked)));
}

#[test]
fn a_check_that_others_disturb_finds_no_failure() {
    let mut test = Test::new("mkdir \"$WEIR_HERE\"/lock || exit 1; sleep 0.05; rmdir \"$WEIR_HERE\"/lock");
    let told = |findings: &CampaignFindings| {
        findings.warnings.iter().any(|warning| warning.contains("different answers for the same state"))
    };
    test.plan.jobs = 4;
    let findings = test.run().unwrap();
    assert!(findings.failures == 0 && findings.distinct == 40 && told(&findings), "{findings:?}");
    // The controls: one at a time is steady, and what always fails is a failure.
    (test.plan.jobs, test.plan.states) = (1, 10);
    assert!(!told(&test.run().unwrap()));
    test.plan.check = "test ! -s \"$WEIR_ACKED\" -o -e f0".to_owned();
    (test.plan.jobs, test.plan.states) = (4, 40);
    let findings = test.run().unwrap();
    assert!(findings.failures > 0 && !told(&findings), "{findings:?}");
}

#[test]
fn what_is_there_before_it_was_announced_is_found() {
    let mut test = Test::new("test -e f2 || exit 0; test $(wc -l <\"$WEIR_ACKED\") -ge 3");
    let findings = test.run().unwrap();
    assert!(findings.failures > 0, "{findings:?}");
    let first = &findings.reported[0];
    assert!(first.name.missing.is_empty(), "{first:?}");
    assert!(first.explanation.moment.contains("before a line is acknowledged"), "{first:?}");
    test.plan.rules = Rules::but(Some(ProgramMutant::SkipsAnnouncements));
    assert_eq!(test.run().unwrap().failures, 0, "the control");
    test.plan.rules = Rules::all();
    // The control: it may be there when the line before it was acknowledged.
    test.plan.check = "test -e f2 || exit 0; test $(wc -l <\"$WEIR_ACKED\") -ge 2".to_owned();
    assert_eq!(test.run().unwrap().failures, 0);
}

#[test]
fn a_check_that_cannot_be_run_says_nothing_of_a_state() {
    let record = record_files(2);
    let judge = |check: &str| {
        let test = Test::new(check);
        // Nothing is there at the end, with both lines acknowledged.
        let name = StateName { moment: 2, missing: vec![0, 1], torn: Vec::new() };
        ProgramCampaign::new(&record, &test.plan).judge_state(&name)
    };
    assert!(!judge("test -e f0").unwrap().judgement.is_right, "the control");
    assert!(judge("true").unwrap().judgement.is_right);
    assert!(matches!(judge("test -e f0 || exit 127"), Err(CampaignError::CheckNotRun { .. })));
    assert!(matches!(judge("./there-is-no-such-command"), Err(CampaignError::CheckNotRun { .. })));
    assert!(matches!(judge("false"), Err(CampaignError::FailsUncut { .. })));
}

/// A record of a disk on which nothing is that any kernel would mount.
#[test]
fn a_disk_that_is_not_mounted_is_wrong() {
    let can_loop = geteuid().is_root() && std::path::Path::new("/dev/loop-control").exists();
    let knows_ext4 = std::fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("ext4"));
    if !can_loop || !knows_ext4 {
        eprintln!("skipped: there is no loop device, or no ext4 in the kernel");
        return;
    }
    let owner = (geteuid().as_raw(), getegid().as_raw());
    let mut record = Record::new(owner, 1 << 20);
    let new = NewInode { mode: 0o100_600, uid: owner.0, gid: owner.1, target: Vec::new(), device: (0, 0) };
    record.push(0, Call::Make { inode: 10, new, at: Some(Place { directory: ROOT, name: b"disk".into() }) });
    record.push(0, Call::SetSize { inode: 10, size: 16 << 20, before: 0 });
    let tree = record.tree_after(2).unwrap();
    let ground = DiskGround::new(DiskFilesystem::Ext4, None, Some(16 << 20), None).unwrap();
    let test = Test::new("true");
    let judge = Judge::new(&test.plan.scratch, &test.plan.here, "true", Duration::from_secs(60));
    let stop = StopCondition::from_flag(&test.plan.stops);
    let judgement = judge
        .on_disk(Some(RunDisk { ground, weir: "weir".into() }))
        .judge(&tree, &[], &stop)
        .unwrap()
        .unwrap();
    assert_eq!((judgement.is_right, &*judgement.ending), (false, "the filesystem cannot be mounted"));
    let judge = Judge::new(&test.plan.scratch, &test.plan.here, "test -s disk", Duration::from_secs(60));
    assert!(judge.judge(&tree, &[], &stop).unwrap().unwrap().is_right, "without a ground it is a file");
}
