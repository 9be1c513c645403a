//! What emulated drives leave of a recorded disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_flash::Profile;
use weir_program::{
    BLOCK_BYTES, Call, DiskFilesystem, DiskGround, DiskRecord, Drive, DriveError, LeftByDrive, Moments,
    NewInode, Place, ProgramMutant, Promises, ROOT, Record, StateName, StopCondition, Units, fit_drive,
};
use weir_storage::Rules;

const DISK: u32 = 10;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Lines that are acknowledged, each behind so many writes that no flush follows at once.
fn record_lines(lines: u64, writes: u64) -> Record {
    let mut record = Record::new((0, 0), 1 << 24);
    let new = NewInode { mode: 0o100_600, uid: 0, gid: 0, target: Vec::new(), device: (0, 0) };
    record
        .push(0, Call::Make { inode: DISK, new, at: Some(Place { directory: ROOT, name: b"disk".into() }) });
    let ground = DiskGround::new(DiskFilesystem::Ext4, None, Some(16 << 20), None).unwrap();
    record.push(0, Call::SetSize { inode: DISK, size: ground.bytes, before: 0 });
    record.setup = record.operations.len();
    for nth in 0..lines {
        // Blocks of its own, and the first one again.
        for block in (1..writes).map(|write| (nth % 64) * writes + write).chain([0]) {
            let data = record.push_data(&[nth as u8; BLOCK_BYTES]).unwrap();
            record.push(0, Call::Write { inode: DISK, offset: block * BLOCK, data, grown: None });
        }
        record.acknowledge(0, nth.to_string().into_bytes());
        if nth % 16 == 15 {
            record.push(0, Call::Sync { inode: DISK, data_only: false });
        }
    }
    let ended = record.operations.len();
    record.disk = Some(DiskRecord { ground, ended });
    record
}

fn profile(name: &str) -> Profile {
    Profile::load(name).unwrap().0
}

/// Cuts the power in all moments: the states, and what is pending there.
fn cut(record: &Record, name: &str, rules: Rules<ProgramMutant>) -> Vec<(StateName, Vec<usize>, usize)> {
    let units = Units::from_record(record, Promises::Posix, rules);
    let left = cut_units(record, &units, name, 1);
    let mut moments = Moments::new(record, &units).unwrap();
    let mut states = Vec::new();
    while let Some(moment) = moments.advance().unwrap() {
        for state in left.names_at(&units, moment, moments.pending()) {
            assert!(moments.allows(&state), "{name}: {state}");
            // Each line comes behind two writes.
            let acknowledged = 2 * units.moments[moment].acknowledged;
            states.push((state, moments.pending().to_vec(), acknowledged));
        }
    }
    assert!(states.len() > 20, "{name}: {}", states.len());
    states
}

fn cut_units(record: &Record, units: &Units, name: &str, seed: u64) -> LeftByDrive {
    let drive = Drive::new(record, units, &profile(name)).unwrap();
    let all: BTreeSet<usize> = (0..units.moments.len()).collect();
    drive.cut_power(&all, 8, seed, &StopCondition::from_flag(&Arc::default())).unwrap()
}

/// Whether a state lacks a write behind which a line was acknowledged.
fn loses_line((state, _, acknowledged): &(StateName, Vec<usize>, usize)) -> bool {
    state.missing.iter().any(|unit| unit < acknowledged)
}

#[test]
fn a_drive_with_capacitors_loses_no_write_that_was_answered() {
    let record = record_lines(96, 2);
    assert!(!cut(&record, "sata-plp", Rules::all()).iter().any(loses_line));
    for name in ["sata-ssd", "ufs20", "openssd"] {
        assert!(cut(&record, name, Rules::all()).iter().any(loses_line), "{name}: the control");
    }
    let mutant = Rules::but(Some(ProgramMutant::CutsBeforeLines));
    assert!(
        cut(&record, "sata-plp", mutant).iter().any(loses_line),
        "a line that was acknowledged later counts"
    );
}

/// What is synchronised beside the disk, and a flush that fails, say nothing of what the drive has.
#[test]
fn only_flushes_of_the_disk_count() {
    let data = |record: &mut Record, block: u64| {
        let data = record.push_data(&[7; BLOCK_BYTES]).unwrap();
        record.push(0, Call::Write { inode: DISK, offset: block * BLOCK, data, grown: None });
    };
    let others = [Call::Sync { inode: ROOT, data_only: false }, Call::SyncFailed { inode: DISK }];
    for other in others {
        let mut record = record_lines(0, 2);
        for block in 0..32 {
            data(&mut record, 2 * block);
            data(&mut record, 2 * block + 1);
            record.acknowledge(0, block.to_string().into_bytes());
            record.push(0, other.clone());
            if block % 8 == 7 {
                record.push(0, Call::Sync { inode: DISK, data_only: false });
            }
        }
        assert!(!cut(&record, "sata-plp", Rules::all()).iter().any(loses_line), "{other:?}");
    }
}

/// A line that is acknowledged before its write: the drive has answered nothing by then.
#[test]
fn a_line_that_comes_too_early_is_found() {
    let mut record = record_lines(0, 2);
    record.acknowledge(0, b"0".to_vec());
    let data = record.push_data(&[7; BLOCK_BYTES]).unwrap();
    record.push(0, Call::Write { inode: DISK, offset: 0, data, grown: None });
    record.push(0, Call::Sync { inode: DISK, data_only: false });
    let units = Units::from_record(&record, Promises::Posix, Rules::all());
    let left = cut_units(&record, &units, "sata-plp", 1);
    let mut moments = Moments::new(&record, &units).unwrap();
    let first = moments.advance().unwrap().unwrap();
    assert_eq!(units.moments[first].acknowledged, 1);
    let states = left.names_at(&units, first, moments.pending());
    assert!(states.iter().any(|state| state.missing == [0]), "{states:?}");
}

/// Each moment is cut at its beginning, too, before the drive does anything.
#[test]
fn each_moment_has_a_state() {
    let record = record_lines(24, 2);
    let units = Units::from_record(&record, Promises::Posix, Rules::all());
    let left = cut_units(&record, &units, "sata-plp", 1);
    let mut moments = Moments::new(&record, &units).unwrap();
    while let Some(moment) = moments.advance().unwrap() {
        assert!(!left.names_at(&units, moment, moments.pending()).is_empty(), "{moment}");
    }
}

#[test]
fn a_drive_that_keeps_order_leaves_a_beginning() {
    let record = record_lines(96, 2);
    let is_beginning =
        |(state, pending, _): &(StateName, Vec<usize>, usize)| pending.ends_with(&state.missing);
    assert!(cut(&record, "openssd", Rules::all()).iter().all(is_beginning));
    // Without a mechanism, dies are done when they are done.
    let record = record_lines(96, 32);
    assert!(!cut(&record, "nvme-share", Rules::all()).iter().all(is_beginning), "the control");
}

#[test]
fn a_seed_leaves_the_same_again() {
    let record = record_lines(48, 2);
    let units = Units::from_record(&record, Promises::Posix, Rules::all());
    let [first, again, other] = [1, 1, 2].map(|seed| cut_units(&record, &units, "nvme", seed));
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn a_drive_that_cannot_be_below_a_disk_is_refused() {
    let ground = |bytes| DiskGround::new(DiskFilesystem::Ext4, None, Some(bytes), None).unwrap();
    assert!(fit_drive(&profile("nvme"), Some(&ground(1 << 30))).is_ok());
    assert!(matches!(fit_drive(&profile("nvme"), None), Err(DriveError::NoDisk)));
    let small = fit_drive(&profile("emmc50"), Some(&ground(32 << 30)));
    assert!(matches!(small, Err(DriveError::Small { .. })), "{small:?}");
    let garbles = fit_drive(&profile("emmc45"), Some(&ground(1 << 30)));
    assert!(matches!(garbles, Err(DriveError::Garbles { .. })), "{garbles:?}");
}
