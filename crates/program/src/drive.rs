//! *Drive*: an emulated drive in the place of the recorded disk, and what a power cut leaves of what the host has asked of it.
//!
//! The requests of the record are handed to a [`FlashDevice`] in virtual time, in their order:
//!
//! 1. Writes of different blocks are in flight together. The record has no times; so the host pauses before some requests, as the
//!    seed draws, and the drive goes on meanwhile.
//! 2. Before a flush, and before a line is acknowledged, all writes are answered, as they were when the run was recorded.
//! 3. At the beginning of a moment and at events of the drive, as drawn, its power is cut, on a copy, and its firmware recovers the
//!    copy.
//!
//! In place of its data a block carries the number of the request, so that what is left says which requests are there. Discards
//! and zeros are taken as done when they are asked for: no drive is recorded that keeps them back.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use thiserror::Error;
use weir_flash::{FlashDevice, FlashOptions, Profile};
use weir_runtime::{Handle, Random, Runtime, Simulation, Stalled};
use weir_storage::{Command, Lba, Part, Rejected, Ticket, Write, submit_when_free};
use weir_vfs::InodeNumber;

use crate::disk_ground::DiskGround;
use crate::disk_state::find_disk;
use crate::mutants::ProgramMutant;
use crate::operation::{Call, Operation};
use crate::record::Record;
use crate::state::StateName;
use crate::stop::StopCondition;
use crate::tree::BLOCK_BYTES;
use crate::unit::UnitNumber;
use crate::units::{Moment, Units};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The host pauses before one request in so many.
const PAUSE_EVERY: u64 = 8;
/// How long it pauses at most, in nanoseconds: a write to flash or two.
const PAUSE_NS_MAX: u64 = 3_000_000;
/// The host watches the drive so long behind its last request, in pauses.
const PAUSES_AT_END: u32 = 8;

/// Why a drive cannot be below a record.
#[derive(Debug, Error)]
pub enum DriveError {
    /// The record is not that of a disk.
    #[error("--drive goes with a disk: --ground ext4 and others, or a trace of one")]
    NoDisk,
    /// It has too few blocks.
    #[error("{name} has {bytes} bytes, which is less than the disk: choose a smaller --disk-size")]
    Small {
        /// The drive.
        name: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// It leaves blocks that hold neither what was there nor what was written.
    #[error(
        "{name} leaves garbage in a block that it was writing, which no state of a record has: choose another --drive"
    )]
    Garbles {
        /// The drive.
        name: String,
    },
    /// The record cannot be read.
    #[error("cannot read the record: {0}")]
    Io(#[from] io::Error),
    /// It does not answer.
    #[error("the emulated drive does not answer")]
    Stalled(#[from] Stalled),
    /// It refuses a request.
    #[error("the emulated drive refuses a request: {0}")]
    Rejected(#[from] Rejected),
}

/// See the head of this file.
pub struct Drive<'a> {
    record: &'a Record,
    units: &'a Units,
    profile: Profile,
    /// The file that is the disk: what is done to others, no drive is asked for.
    disk: InodeNumber,
    /// No flush failed, so each makes durable what was written before it.
    flushes_cover_all: bool,
}

/// A drive like this one, of the size of a disk.
///
/// # Errors
/// [`DriveError::NoDisk`], [`DriveError::Small`] and [`DriveError::Garbles`].
pub fn fit_drive(profile: &Profile, disk: Option<&DiskGround>) -> Result<Profile, DriveError> {
    let blocks = disk.ok_or(DriveError::NoDisk)?.bytes.div_ceil(BLOCK);
    let name = profile.name.clone();
    if profile.tears_programs() {
        return Err(DriveError::Garbles { name });
    }
    let small = profile.with_capacity(blocks);
    match small.blocks >= blocks {
        true => Ok(small),
        false => Err(DriveError::Small { name, bytes: profile.blocks * BLOCK }),
    }
}

/// What a cut has left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Left {
    /// Requests that the host had begun to hand over.
    issued: usize,
    /// Of each block that was written since the flush before, what it holds: the number of the request behind the one that has
    /// written it, or 0.
    holds: BTreeMap<u64, u64>,
}

impl Left {
    /// The state, at a moment at which these units are pending. What needs something that is missing is missing, too.
    fn name(&self, units: &Units, moment: usize, pending: &[UnitNumber]) -> StateName {
        let mut missing: Vec<UnitNumber> = Vec::new();
        for number in pending.iter().copied() {
            let unit = &units.all[number];
            let is_there = match unit.block() {
                Some((_, block)) => {
                    self.holds.get(&block).is_some_and(|holds| *holds > unit.operation as u64)
                }
                None => unit.operation < self.issued,
            };
            if !is_there || unit.needs.iter().any(|need| missing.binary_search(need).is_ok()) {
                missing.push(number);
            }
        }
        StateName { moment, missing, torn: Vec::new() }
    }
}

/// What cuts of a drive have left, by the moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftByDrive(BTreeMap<usize, BTreeSet<Left>>);

impl LeftByDrive {
    /// The states at a moment at which these units are pending.
    #[must_use]
    pub fn names_at(&self, units: &Units, moment: usize, pending: &[UnitNumber]) -> Vec<StateName> {
        let left = self.0.get(&moment).into_iter().flatten();
        left.map(|left| left.name(units, moment, pending)).collect()
    }
}

/// What is done at the events of a drive.
struct Watch {
    /// The next moment.
    moment: usize,
    /// Lines that were acknowledged.
    lines: usize,
    /// Requests that the host has begun to hand over.
    issued: usize,
    /// Blocks that were written since the last flush.
    unflushed: BTreeSet<u64>,
    /// Events of each moment so far.
    events: BTreeMap<usize, u64>,
    /// At which events of each moment the power is cut.
    cuts: BTreeMap<usize, BTreeSet<u64>>,
    left: LeftByDrive,
    random: Random,
}

impl<'a> Drive<'a> {
    /// A drive with this profile, of the size of the recorded disk.
    ///
    /// # Errors
    /// Those of [`fit_drive`], and [`DriveError::Io`].
    pub fn new(record: &'a Record, units: &'a Units, profile: &Profile) -> Result<Drive<'a>, DriveError> {
        let profile = fit_drive(profile, record.disk.as_ref().map(|disk| &disk.ground))?;
        let beginning = record.tree_after(record.setup)?;
        let disk = find_disk(&beginning).ok_or(DriveError::NoDisk)?;
        let has_failed = |operation: &Operation| matches!(operation.call, Call::SyncFailed { .. });
        let flushes_cover_all = !record.operations.iter().any(has_failed);
        Ok(Drive { record, units, profile, disk, flushes_cover_all })
    }

    /// What so many cuts leave in each of these moments, at events that `seed` draws; fewer where there are fewer events, or if
    /// `stop` is met.
    ///
    /// # Errors
    /// [`DriveError::Stalled`] and [`DriveError::Rejected`].
    pub fn cut_power(
        &self,
        moments: &BTreeSet<usize>,
        cuts: usize,
        seed: u64,
        stop: &StopCondition,
    ) -> Result<LeftByDrive, DriveError> {
        // The same seed runs the same: the first time events are counted.
        let (events, _) = self.run(BTreeMap::new(), seed, stop)?;
        let mut random =
            Runtime::simulated(Simulation { seed, ..Simulation::default() }).handle().random("cuts");
        let of_moment = |(moment, events): (usize, u64)| {
            let drawn: BTreeSet<u64> = (0..cuts).map(|_| random.below(events)).collect();
            (moment, drawn)
        };
        let chosen = events.into_iter().filter(|(moment, _)| moments.contains(moment));
        Ok(self.run(chosen.map(of_moment).collect(), seed, stop)?.1)
    }

    /// Plays the record: how many events each moment had, and what cuts have left.
    fn run(
        &self,
        cuts: BTreeMap<usize, BTreeSet<u64>>,
        seed: u64,
        stop: &StopCondition,
    ) -> Result<(BTreeMap<usize, u64>, LeftByDrive), DriveError> {
        let runtime = Runtime::simulated(Simulation { seed, ..Simulation::default() });
        let handle = runtime.handle();
        let device = FlashDevice::new(&handle, &self.profile, FlashOptions::default());
        let watch = Rc::new(RefCell::new(Watch {
            moment: 0,
            lines: 0,
            issued: self.record.setup,
            unflushed: BTreeSet::new(),
            events: BTreeMap::new(),
            cuts,
            left: LeftByDrive::default(),
            random: handle.random("power"),
        }));
        let visit = self.visitor(&handle, &device, &watch);
        let at_events = Rc::clone(&visit);
        device.observe(move || at_events());
        runtime.block_on(self.play(&handle, &device, (&watch, &*visit), stop))??;
        device.observe(|| ());
        let mut watch = watch.borrow_mut();
        Ok((std::mem::take(&mut watch.events), std::mem::take(&mut watch.left)))
    }

    /// Counts an event, and cuts the power, on a copy, if that is its turn.
    fn visitor(&self, handle: &Handle, device: &Rc<FlashDevice>, watch: &Rc<RefCell<Watch>>) -> Rc<dyn Fn()> {
        let (weak, watch, handle) = (Rc::downgrade(device), Rc::clone(watch), handle.clone());
        let acknowledged: Vec<usize> = self.units.moments.iter().map(|moment| moment.acknowledged).collect();
        let (profile, rules) = (self.profile.clone(), self.units.rules);
        Rc::new(move || {
            let (Some(device), mut watch) = (weak.upgrade(), watch.borrow_mut()) else { return };
            let Watch { moment, lines, issued, unflushed, events, cuts, left, random } = &mut *watch;
            // Lines that were acknowledged while nothing was written have no moment of their own.
            let has_moment = acknowledged.get(*moment).is_some_and(|acknowledged| acknowledged == lines);
            if !has_moment && !rules.drops(ProgramMutant::CutsBeforeLines) {
                return;
            }
            let nth = events.entry(*moment).or_insert(0);
            if cuts.get(moment).is_some_and(|cuts| cuts.contains(nth)) {
                let medium = device.after_cut(random);
                let again = FlashDevice::restarted(&handle, &profile, FlashOptions::default(), medium);
                let holds = unflushed.iter().map(|block| (*block, read_number(&again, *block))).collect();
                left.0.entry(*moment).or_default().insert(Left { issued: *issued, holds });
            }
            *nth += 1;
        })
    }

    /// Hands the requests to the drive.
    async fn play(
        &self,
        handle: &Handle,
        device: &Rc<FlashDevice>,
        (watch, visit): (&RefCell<Watch>, &dyn Fn()),
        stop: &StopCondition,
    ) -> Result<(), DriveError> {
        let mut random = handle.random("pauses");
        let mut visited = None;
        let mut host = Host { device, in_flight: BTreeMap::new() };
        for (nth, operation) in self.record.operations.iter().enumerate().skip(self.record.setup) {
            if stop.is_met() {
                return Ok(());
            }
            let is_before = |moment: &Moment| moment.operations < nth;
            let moment = self.units.moments.partition_point(is_before);
            let lines = {
                let mut watch = watch.borrow_mut();
                (watch.moment, watch.issued) = (moment, nth + 1);
                watch.lines
            };
            if visited.replace((moment, lines)) != Some((moment, lines)) {
                visit();
            }
            if random.below(PAUSE_EVERY) == 0 {
                handle.sleep(Duration::from_nanos(random.below(PAUSE_NS_MAX))).await;
            }
            match &operation.call {
                Call::Write { inode, offset, data, .. } if *inode == self.disk => {
                    let end = offset + (data.end - data.start);
                    let blocks = offset / BLOCK..end.div_ceil(BLOCK);
                    watch.borrow_mut().unflushed.extend(blocks.clone());
                    host.write(blocks, nth as u64 + 1, self.profile.host.max_transfer_blocks).await?;
                }
                Call::Acknowledge(_) => {
                    if !self.units.rules.drops(ProgramMutant::CutsBeforeLines) {
                        host.wait_for_all().await?;
                    }
                    watch.borrow_mut().lines += 1;
                }
                Call::SyncAll => self.flush(device, &mut host, watch).await?,
                Call::Sync { inode, .. } if *inode == self.disk => {
                    self.flush(device, &mut host, watch).await?
                }
                _ => {}
            }
        }
        watch.borrow_mut().moment = self.units.moments.len().saturating_sub(1);
        visit();
        for _ in 0..PAUSES_AT_END {
            handle.sleep(Duration::from_nanos(PAUSE_NS_MAX)).await;
        }
        Ok(())
    }

    /// Flushes what was written.
    async fn flush(
        &self,
        device: &FlashDevice,
        host: &mut Host<'_>,
        watch: &RefCell<Watch>,
    ) -> Result<(), DriveError> {
        host.wait_for_all().await?;
        let ticket = submit_when_free(device, Command::Flush).await?;
        ticket.transferred().await.map_err(Rejected::Failed)?;
        if self.flushes_cover_all {
            watch.borrow_mut().unflushed.clear();
        }
        Ok(())
    }
}

/// The host of a drive.
struct Host<'a> {
    device: &'a FlashDevice,
    /// The last write of each block that was not answered yet.
    in_flight: BTreeMap<u64, Ticket>,
}

impl Host<'_> {
    /// Writes a number to blocks, by commands of so many at most.
    async fn write(&mut self, blocks: Range<u64>, number: u64, most: u32) -> Result<(), DriveError> {
        for first in blocks.clone().step_by(most.max(1) as usize) {
            let end = (first + u64::from(most.max(1))).min(blocks.end);
            // Writes that overlap have no order among each other (S6).
            for block in first..end {
                if let Some(ticket) = self.in_flight.remove(&block) {
                    ticket.transferred().await.map_err(Rejected::Failed)?;
                }
            }
            let bytes = number.to_le_bytes().repeat((end - first) as usize * BLOCK_BYTES / 8);
            let parts = [Part::bytes(Lba(first), &bytes)];
            let ticket = submit_when_free(self.device, Command::Write(Write::new(&parts))).await?;
            self.in_flight.extend((first..end).map(|block| (block, ticket.clone())));
        }
        Ok(())
    }

    async fn wait_for_all(&mut self) -> Result<(), DriveError> {
        for ticket in std::mem::take(&mut self.in_flight).into_values() {
            ticket.transferred().await.map_err(Rejected::Failed)?;
        }
        Ok(())
    }
}

/// The number that a block carries.
fn read_number(device: &FlashDevice, block: u64) -> u64 {
    let mut bytes = [0; BLOCK_BYTES];
    device.peek(Lba(block), &mut bytes);
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}
