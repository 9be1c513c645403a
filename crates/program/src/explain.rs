//! *Explanation*: what a state lacks, in the words of the calls, and what is there that should have come later.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;
use weir_format::FileType;
use weir_vfs::InodeNumber;

use crate::operation::{Call, Operation};
use crate::paths::Paths;
use crate::promises::Promises;
use crate::record::Record;
use crate::state::StateName;
use crate::tree::{BLOCK_BYTES, ROOT};
use crate::unit::{SECTOR_BYTES, UnitKind, UnitNumber};
use crate::units::Units;

/// A count with its noun.
#[must_use]
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// What is acknowledged of a record, for a person.
pub(crate) fn describe_acknowledged(record: &Record, acknowledged: usize) -> String {
    match acknowledged.checked_sub(1).and_then(|last| record.lines.get(last)) {
        Some(line) => {
            let count = counted(acknowledged as u64, "line is", "lines are");
            format!("{count} acknowledged, the last {:?}", String::from_utf8_lossy(line))
        }
        None => "nothing is acknowledged".to_owned(),
    }
}

/// What a failing state lacks, and why it may.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// When the power is cut.
    pub moment: String,
    /// What is missing, a line each.
    pub missing: Vec<String>,
    /// What is there all the same, and why the rest is not, a sentence each.
    pub causes: Vec<String>,
}

impl Paths {
    /// A call as a program would write it.
    fn describe(&self, call: &Call) -> String {
        match call {
            Call::Make { new, at, .. } => {
                let verb = match FileType::of_mode(new.mode) {
                    Some(FileType::Directory) => "mkdir",
                    Some(FileType::Regular) => "create",
                    Some(FileType::Symlink) => "symlink",
                    _ => "mknod",
                };
                let path = at.as_ref().map_or("a file without a name".to_owned(), |at| self.of_place(at));
                format!("`{verb}({path})`")
            }
            Call::Link { inode, at } => format!("`link({}, {})`", self.of_inode(*inode), self.of_place(at)),
            Call::Remove { at, .. } => format!("`unlink({})`", self.of_place(at)),
            Call::Rename { from, to, .. } => {
                format!("`rename({}, {})`", self.of_place(from), self.of_place(to))
            }
            Call::Write { inode, offset, data, .. } => {
                let length = counted(data.end - data.start, "byte", "bytes");
                format!("the write of {length} at {offset} to `{}`", self.of_inode(*inode))
            }
            Call::SetSize { inode, size, .. } => format!("`truncate({}, {size})`", self.of_inode(*inode)),
            Call::Zero { inode, offset, length } => {
                format!("the zeros of `fallocate({}, {offset}, {length})`", self.of_inode(*inode))
            }
            Call::SetAttributes { inode, .. } => format!("`chmod` or `chown` of `{}`", self.of_inode(*inode)),
            Call::SetExtended { inode, name, .. } => {
                format!("`setxattr({}, {})`", self.of_inode(*inode), String::from_utf8_lossy(name))
            }
            Call::Sync { inode, data_only } => {
                let verb = if *data_only { "fdatasync" } else { "fsync" };
                format!("`{verb}({})`", self.of_inode(*inode))
            }
            Call::SyncFailed { inode } => format!("`fsync({})`, which fails,", self.of_inode(*inode)),
            Call::SyncAll => "`sync`".to_owned(),
            Call::Acknowledge(_) => "an acknowledgement".to_owned(),
        }
    }
}

/// Units that are missing, of one file or of the names of one directory.
struct Group {
    /// The file, or the directory.
    inode: InodeNumber,
    is_names: bool,
    calls: Vec<usize>,
    data: Option<Range<u64>>,
    /// The calls of which sectors are there, and which.
    torn: Vec<(usize, String)>,
}

/// Explains a state.
#[must_use]
pub fn explain(record: &Record, units: &Units, promises: Promises, name: &StateName) -> Explanation {
    let Some(moment) = units.moments.get(name.moment) else { return Explanation::default() };
    let mut groups: Vec<Group> = Vec::new();
    // All of a piece of data may be there of a block that is torn.
    let is_whole = |unit: &UnitNumber| {
        let sectors = units.all[*unit].sectors();
        sectors != 0 && units.torn_sectors(*unit, name) == sectors
    };
    let missing: Vec<UnitNumber> = name.missing.iter().copied().filter(|unit| !is_whole(unit)).collect();
    // What needs something that is missing is missing for that reason, but for sectors of the same block.
    let is_root = |unit: &&UnitNumber| {
        let is_missing = |need: &UnitNumber| missing.binary_search(need).is_ok();
        units.torn_sectors(**unit, name) != 0 || !units.all[**unit].needs.iter().any(is_missing)
    };
    for unit in missing.iter().filter(is_root) {
        add_to_groups(&mut groups, units, *unit, name);
    }
    let calls_of = |all: &mut dyn Iterator<Item = &UnitNumber>| -> BTreeSet<usize> {
        all.map(|unit| units.all[*unit].operation).collect()
    };
    let roots = calls_of(&mut missing.iter().filter(is_root));
    let others = calls_of(&mut missing.iter()).difference(&roots).count() as u64;
    let calls = CallDescriptions::new(record, moment.operations);
    let described = calls.describe_moment(record, moment.operations, moment.acknowledged);
    let mut explanation = Explanation { moment: described, ..Explanation::default() };
    if groups.is_empty() {
        let call = calls.call(moment.operations.saturating_sub(1));
        explanation
            .causes
            .push(format!("nothing is missing: it is wrong if the power is cut right behind {call}"));
    }
    for group in &groups {
        let what = calls.describe_group(record, group);
        explanation.missing.push(what.clone());
        let is_there = |call: usize| {
            // A call with a piece that is missing is not there.
            let mut own = missing.iter().filter(|unit| units.all[**unit].operation == call);
            own.next().is_none()
        };
        explanation.causes.push(calls.describe_cause(record, group, &what, promises, is_there));
    }
    if others > 0 {
        let more = counted(others, "later call", "later calls");
        explanation.missing.push(format!("{more}, not there without that"));
    }
    explanation
}

fn add_to_groups(groups: &mut Vec<Group>, units: &Units, number: UnitNumber, name: &StateName) {
    let unit = &units.all[number];
    let (inode, is_names) = match &unit.kind {
        UnitKind::Names(names) => (names.last().map_or(ROOT, |(place, _)| place.directory), true),
        kind => (kind.inode().unwrap_or(ROOT), false),
    };
    let known = groups.iter().position(|group| (group.inode, group.is_names) == (inode, is_names));
    let nth = known.unwrap_or(groups.len());
    if known.is_none() {
        groups.push(Group { inode, is_names, calls: Vec::new(), data: None, torn: Vec::new() });
    }
    let group = &mut groups[nth];
    if group.calls.last() != Some(&unit.operation) {
        group.calls.push(unit.operation);
    }
    if let UnitKind::Data { offset, data, .. } = &unit.kind {
        let range = *offset..offset + (data.end - data.start);
        let all = group.data.get_or_insert(range.clone());
        *all = all.start.min(range.start)..all.end.max(range.end);
        let sectors = units.torn_sectors(number, name);
        if sectors != 0 {
            let block = offset / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
            let there: Vec<String> = (0..8)
                .filter(|sector| sectors & 1 << sector != 0)
                .map(|sector| (block + sector * SECTOR_BYTES as u64).to_string())
                .collect();
            group.torn.push((unit.operation, format!("its sectors of 512 bytes at {}", there.join(", "))));
        }
    }
}

/// The calls of a record until an operation, in words.
pub(crate) fn describe_calls(record: &Record, end: usize) -> impl Fn(usize) -> String {
    let calls = CallDescriptions::new(record, end);
    move |nth| calls.call(nth).replace('`', "")
}

/// The calls of a record in words, with the paths that their files had then.
struct CallDescriptions {
    /// A call's description, and the path of its inode then.
    calls: Vec<(String, BTreeMap<InodeNumber, String>)>,
    first: usize,
}

impl CallDescriptions {
    fn new(record: &Record, end: usize) -> CallDescriptions {
        let mut paths = Paths::default();
        let mut calls = Vec::new();
        for (nth, operation) in record.operations[..end.min(record.operations.len())].iter().enumerate() {
            if nth >= record.setup {
                let described = paths.describe(&operation.call);
                let inodes = inodes_of(&operation.call).into_iter();
                calls.push((described, inodes.map(|inode| (inode, paths.of_inode(inode))).collect()));
            }
            paths.follow(&operation.call);
        }
        CallDescriptions { calls, first: record.setup }
    }

    fn call(&self, nth: usize) -> &str {
        self.calls.get(nth.wrapping_sub(self.first)).map_or("", |(described, _)| described)
    }

    fn path(&self, nth: usize, inode: InodeNumber) -> &str {
        let known = self.calls.get(nth.wrapping_sub(self.first)).and_then(|(_, paths)| paths.get(&inode));
        known.map_or("it", String::as_str)
    }

    fn describe_moment(&self, record: &Record, operations: usize, acknowledged: usize) -> String {
        let next = match record.operations.get(operations) {
            Some(operation) if operation.call.is_sync() => "before a synchronisation returns",
            Some(Operation { call: Call::Acknowledge(_), .. }) => "before a line is acknowledged",
            _ => "at the end of the run",
        };
        let (calls, all) = (operations - record.setup, record.operations.len() - record.setup);
        let acknowledged = describe_acknowledged(record, acknowledged);
        format!("the power is cut after call {calls} of {all}, {next}; {acknowledged}")
    }

    fn describe_group(&self, record: &Record, group: &Group) -> String {
        let is_write = |call: &usize| matches!(record.operations[*call].call, Call::Write { .. });
        let first = group.calls.first().copied().unwrap_or(0);
        let torn = group.torn.iter();
        let mut parts: Vec<String> =
            torn.map(|(call, there)| format!("{}, but for {there}", self.call(*call))).collect();
        let is_torn = |call: &usize| group.torn.iter().any(|(torn, _)| torn == call);
        let whole: Vec<usize> = group.calls.iter().copied().filter(|call| !is_torn(call)).collect();
        let writes = whole.iter().filter(|call| is_write(call)).count();
        if writes == 1 {
            let write = whole.iter().find(|call| is_write(call)).copied().unwrap_or(first);
            let write_described = self.call(write);
            let Call::Write { offset, data, .. } = &record.operations[write].call else {
                return String::new();
            };
            let whole = *offset..offset + (data.end - data.start);
            parts.push(match &group.data {
                Some(bytes) if *bytes != whole => {
                    format!("bytes from {} to {} of {write_described}", bytes.start, bytes.end)
                }
                // Without the size that it made, nothing of it is in the file.
                _ => write_described.to_owned(),
            });
        } else if writes > 1 {
            let path = self.path(first, group.inode);
            parts.push(match &group.data {
                Some(bytes) => {
                    format!("the {writes} writes to `{path}`, of bytes from {} to {}", bytes.start, bytes.end)
                }
                None => format!("the {writes} writes to `{path}`"),
            });
        }
        let others: Vec<&str> =
            whole.iter().filter(|call| !is_write(call)).map(|call| self.call(*call)).collect();
        match others.len() {
            0 => {}
            count @ 1..=3 => parts.extend(others[..count].iter().map(|call| (*call).to_owned())),
            count => parts.push(format!("{count} calls from {} to {}", others[0], others[count - 1])),
        }
        parts.join(" and ")
    }

    /// What is there that came later, and why the group need not be there.
    fn describe_cause(
        &self,
        record: &Record,
        group: &Group,
        what: &str,
        promises: Promises,
        is_there: impl Fn(usize) -> bool,
    ) -> String {
        let (first, last) =
            (group.calls.first().copied().unwrap_or(0), group.calls.last().copied().unwrap_or(0));
        let end = self.first + self.calls.len();
        let later = || (first + 1..end).filter(|call| is_there(*call));
        let names_it = |call: &usize| match &record.operations[*call].call {
            Call::Make { inode, .. } | Call::Link { inode, .. } | Call::Rename { inode, .. } => {
                *inode == group.inode
            }
            _ => false,
        };
        let is_change = |call: &usize| record.operations[*call].call.is_change();
        let is_ack = |call: &usize| matches!(record.operations[*call].call, Call::Acknowledge(_));
        let witness = later()
            .find(|call| !group.is_names && names_it(call))
            .or_else(|| later().find(|call| *call > last && is_change(call)))
            .or_else(|| later().find(is_change));
        let is_or_are =
            if what.contains(" writes to ") || what.contains("` and ") || what.starts_with("bytes ") {
                "are"
            } else {
                "is"
            };
        let sync = self.describe_sync(record, group, first, promises);
        let is_torn = !group.torn.is_empty();
        let lost = if is_torn { "is not there whole".to_owned() } else { format!("{is_or_are} not") };
        let acknowledged = later().filter(|call| *call > last).find(is_ack).and_then(|call| {
            match record.operations[call].call {
                Call::Acknowledge(line) => record.lines.get(line),
                _ => None,
            }
        });
        let promise = acknowledged.map_or(String::new(), |line| {
            format!("; it was acknowledged by {:?}", String::from_utf8_lossy(line))
        });
        match witness {
            Some(call) if call > last => {
                format!("{} is there, {what} before it {lost}: {sync}{promise}", self.call(call))
            }
            Some(call) => format!("{} is there, {what} {lost}: {sync}{promise}", self.call(call)),
            None if is_torn => format!("{what} {lost}: {sync}{promise}"),
            None => format!("{what} {lost} there: {sync}{promise}"),
        }
    }

    /// When the file, or the directory, was synchronised.
    fn describe_sync(&self, record: &Record, group: &Group, first: usize, promises: Promises) -> String {
        let end = self.first + self.calls.len();
        let syncs = |from: usize, to: usize| {
            (from..to).rev().find(|call| match record.operations[*call].call {
                Call::Sync { inode, .. } => inode == group.inode,
                _ => false,
            })
        };
        let path = self.path(first, group.inode);
        let what = if group.is_names { format!("the directory `{path}`") } else { format!("`{path}`") };
        let besides = match promises.sync_covers_metadata() && group.is_names {
            true => ", nor anything else that would have made it durable",
            false => "",
        };
        let failed = (first..end).find(|call| match record.operations[*call].call {
            Call::SyncFailed { inode } => inode == group.inode,
            _ => false,
        });
        if let Some(failed) = failed {
            return match syncs(failed, end) {
                Some(_) => format!(
                    "{what} was synchronised again after an `fsync` of it had failed, which covers nothing of what was lost then"
                ),
                None => format!("the `fsync` of {what} failed"),
            };
        }
        match (syncs(first, end), syncs(self.first, first)) {
            (Some(_), _) => format!(
                "{what} was synchronised by `fdatasync`, which does not cover it, or between its parts"
            ),
            (None, Some(_)) => format!("{what} was synchronised before that, and never after it{besides}"),
            (None, None) => format!("{what} was never synchronised{besides}"),
        }
    }
}

/// The inodes that a call is about, and the directories of its names.
fn inodes_of(call: &Call) -> Vec<InodeNumber> {
    match call {
        Call::Make { inode, at, .. } => at.iter().map(|at| at.directory).chain([*inode]).collect(),
        Call::Link { inode, at } | Call::Remove { inode, at } => vec![at.directory, *inode],
        Call::Rename { inode, from, to, .. } => vec![from.directory, to.directory, *inode],
        Call::Write { inode, .. }
        | Call::SetSize { inode, .. }
        | Call::Zero { inode, .. }
        | Call::SetAttributes { inode, .. }
        | Call::SetExtended { inode, .. }
        | Call::Sync { inode, .. }
        | Call::SyncFailed { inode } => vec![*inode],
        Call::SyncAll | Call::Acknowledge(_) => Vec::new(),
    }
}
