//! *Timeline*: the last calls before a cut, and what became of each in a state.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::operation::Call;
use crate::record::Record;
use crate::state::{Moments, StateName};
use crate::units::Units;

/// Calls that a timeline has at most, the last ones.
const CALLS_MAX: usize = 80;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It is there, as it was made durable.
    Durable,
    /// It is there, and need not be.
    There,
    /// Some of it is there.
    Partly,
    /// It is missing.
    Missing,
    /// It made others durable.
    Synchronised,
    /// It failed.
    Failed,
    /// It acknowledged a line.
    Acknowledged,
}

impl Fate {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Fate::Durable => "durable",
            Fate::There => "there",
            Fate::Partly => "partly",
            Fate::Missing => "missing",
            Fate::Synchronised => "synchronised",
            Fate::Failed => "failed",
            Fate::Acknowledged => "acknowledged",
        }
    }
}

/// A call of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineEntry {
    /// Its number among the calls of the run, from 1 on.
    pub number: usize,
    /// The command that made it.
    pub command: String,
    /// The call, for a person.
    pub call: String,
    /// What became of it.
    pub fate: Fate,
}

/// The timeline of a state at the moment that a walk is at; `describe` has the words of a call.
pub(crate) fn make_timeline(
    record: &Record,
    units: &Units,
    moments: &Moments<'_>,
    name: &StateName,
    describe: impl Fn(usize) -> String,
) -> Vec<TimelineEntry> {
    let Some(moment) = units.moments.get(name.moment) else { return Vec::new() };
    let first = record.setup.max(moment.operations.saturating_sub(CALLS_MAX));
    // Of each call, its units that are there for good, there, and missing.
    let mut counts: BTreeMap<usize, [usize; 3]> = BTreeMap::new();
    for (number, unit) in
        units.all[..moment.units].iter().enumerate().filter(|(_, unit)| unit.operation >= first)
    {
        let is_missing = name.missing.binary_search(&number).is_ok();
        let there = units.torn_sectors(number, name);
        let counts = counts.entry(unit.operation).or_default();
        match (moments.pending().binary_search(&number).is_ok(), is_missing) {
            (false, _) => counts[0] += 1,
            (true, false) => counts[1] += 1,
            (true, true) => {
                counts[1] += usize::from(there != 0);
                counts[2] += usize::from(there == 0 || there != unit.sectors());
            }
        }
    }
    let fate = |nth: usize| match &record.operations[nth].call {
        Call::Acknowledge(_) => Fate::Acknowledged,
        Call::SyncFailed { .. } => Fate::Failed,
        call if call.is_sync() => Fate::Synchronised,
        _ => match counts.get(&nth).copied().unwrap_or_default() {
            // It changed nothing that a cut may take.
            [0, 0, 0] => Fate::There,
            [_, 0, 0] => Fate::Durable,
            [_, _, 0] => Fate::There,
            [0, 0, _] => Fate::Missing,
            _ => Fate::Partly,
        },
    };
    let entry = |nth: usize| {
        let operation = &record.operations[nth];
        let command = record.processes.get(operation.process).map_or("", |process| &process.command);
        let call = match &operation.call {
            Call::Acknowledge(line) => {
                let line = record.lines.get(*line).map_or(&[][..], Vec::as_slice);
                format!("{:?} is acknowledged", String::from_utf8_lossy(line))
            }
            _ => describe(nth),
        };
        TimelineEntry { number: nth - record.setup + 1, command: command.to_owned(), call, fate: fate(nth) }
    };
    (first..moment.operations).map(entry).collect()
}
