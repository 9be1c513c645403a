//! *Explanation of a disk's state*: which writes are missing of those that were not flushed, and whose they are.

use crate::block_owners::BlockOwners;
use crate::disk_record::DiskRecord;
use crate::explain::{Explanation, counted, describe_acknowledged};
use crate::operation::Call;
use crate::record::Record;
use crate::state::StateName;
use crate::unit::{SECTOR_BYTES, UnitKind, UnitNumber};
use crate::units::{Moment, Units};

/// Writes that are named one by one; of more, how many each file has.
const NAMED_MAX: usize = 12;

/// Explains a state of a disk.
pub(crate) fn explain_disk(
    record: &Record,
    disk: &DiskRecord,
    units: &Units,
    name: &StateName,
    owners: &BlockOwners,
) -> Explanation {
    let Some(moment) = units.moments.get(name.moment) else { return Explanation::default() };
    let is_whole = |unit: &UnitNumber| {
        let sectors = units.all[*unit].sectors();
        sectors != 0 && units.torn_sectors(*unit, name) == sectors
    };
    let missing: Vec<UnitNumber> = name.missing.iter().copied().filter(|unit| !is_whole(unit)).collect();
    let lines = match missing.len() <= NAMED_MAX {
        true => missing.iter().map(|unit| describe_unit(units, *unit, name, owners)).collect(),
        false => describe_by_owner(units, &missing, owners),
    };
    Explanation {
        moment: describe_moment(record, disk, moment),
        missing: lines,
        causes: vec![describe_cause(record, units, moment, &missing)],
    }
}

/// A request to a disk, in words.
pub(crate) fn describe_request(call: &Call, owners: &BlockOwners) -> String {
    match call {
        Call::Write { offset, data, .. } => {
            let bytes = counted(data.end - data.start, "byte", "bytes");
            format!("write of {bytes} at {offset}, to {}", owners.describe(*offset).replace('`', ""))
        }
        Call::Zero { offset, length, .. } => format!("discard of {length} bytes at {offset}"),
        Call::SyncFailed { .. } => "flush".to_owned(),
        call if call.is_sync() => "flush".to_owned(),
        _ => "another request".to_owned(),
    }
}

/// What is missing, by whose it is, in the order in which that was written first.
fn describe_by_owner(units: &Units, missing: &[UnitNumber], owners: &BlockOwners) -> Vec<String> {
    let mut counts: Vec<(String, u64)> = Vec::new();
    for number in missing {
        let whose = match &units.all[*number].kind {
            UnitKind::Data { offset, .. } => format!("to {}", owners.owner(*offset)),
            _ => "that discard blocks".to_owned(),
        };
        match counts.iter_mut().find(|(known, _)| *known == whose) {
            Some((_, count)) => *count += 1,
            None => counts.push((whose, 1)),
        }
    }
    let describe = |(whose, count): &(String, u64)| format!("{} {whose}", counted(*count, "write", "writes"));
    let mut lines: Vec<String> = counts.iter().take(NAMED_MAX).map(describe).collect();
    let more: u64 = counts.iter().skip(NAMED_MAX).map(|(_, count)| count).sum();
    if more > 0 {
        lines.push(counted(more, "more write", "more writes"));
    }
    lines
}

fn describe_unit(units: &Units, number: UnitNumber, name: &StateName, owners: &BlockOwners) -> String {
    let unit = &units.all[number];
    let UnitKind::Data { offset, data, .. } = &unit.kind else {
        return "a discard of blocks".to_owned();
    };
    let bytes = counted(data.end - data.start, "byte", "bytes");
    let whose = owners.describe(*offset);
    let there = units.torn_sectors(number, name);
    let torn = match there {
        0 => String::new(),
        there => {
            let block = offset - offset % crate::tree::BLOCK_BYTES as u64;
            let sectors = (0..8).filter(|sector| there & 1 << sector != 0);
            let places = sectors.map(|sector| (block + sector * SECTOR_BYTES as u64).to_string());
            format!(", but for its sectors of 512 bytes at {}", places.collect::<Vec<_>>().join(", "))
        }
    };
    format!("the write of {bytes} at {offset} of the disk, to {whose}{torn}")
}

fn describe_moment(record: &Record, disk: &DiskRecord, moment: &Moment) -> String {
    let (done, all) = (record.requests(moment.operations), record.requests(record.operations.len()));
    let next = match record.operations.get(moment.operations).map(|operation| &operation.call) {
        Some(call) if call.is_sync() => "before a flush of the disk returns",
        Some(_) => "before a line is acknowledged",
        None => "when the filesystem is unmounted",
    };
    let ended = match moment.operations > disk.ended {
        true => ", when the run has ended",
        false => "",
    };
    let acknowledged = describe_acknowledged(record, moment.acknowledged);
    format!("the power is cut after request {done} of {all} to the disk, {next}{ended}; {acknowledged}")
}

fn describe_cause(record: &Record, units: &Units, moment: &Moment, missing: &[UnitNumber]) -> String {
    let Some(first) = missing.first() else {
        return "nothing that was written is missing: either the kernel had not written it yet, as no synchronisation had asked \
                for it, or the program is wrong at this moment without a power cut"
            .to_owned();
    };
    let request = units.all[*first].operation;
    let flush = record.operations[record.setup..request].iter().rposition(|each| each.call.is_sync());
    let since = match flush {
        Some(flush) => {
            let flush = record.requests(record.setup + flush + 1);
            format!("since the flush that is request {flush}")
        }
        None => "since the run began".to_owned(),
    };
    let acknowledged =
        record.operations[request..moment.operations].iter().find_map(|each| match each.call {
            Call::Acknowledge(line) => record.lines.get(line),
            _ => None,
        });
    let promise = acknowledged.map_or(String::new(), |line| {
        format!("; {:?} was acknowledged meanwhile", String::from_utf8_lossy(line))
    });
    format!("the disk was not flushed behind what is missing, {since}{promise}")
}
