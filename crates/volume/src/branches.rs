//! *Branches*: what snapshots and clones read, and how they are made and deleted. They are made of shares (V7), so cleaning,
//! checkpoints and recovery know nothing of them.
//!
//! 1. To make a snapshot is to write its name into the [table](Table). Its slot is empty, so it reads what the volume reads.
//! 2. Before a command changes a block of the volume, the newest snapshot gets it: a share into its slot, unless it has the block
//!    already ([`Branches::preserve`]). The share comes first in the log, so a crash leaves it without the change, or both (V10).
//! 3. What was never written is shared from a block of zeros, so that the slot maps it.
//! 4. A snapshot that is deleted leaves what it has to the one before it, which lacks what has not changed between them.
//!
//! An operation that takes many records says in the table what it does, and is ended when the volume is opened again.

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use tracing::warn;
use weir_runtime::{Permit, Semaphore};
use weir_storage::{BLOCK_BYTES, Command, Extent, Lba, Part, Rejected, SharePair, StorageError, Write};

use crate::blocks::Blocks;
use crate::common::Common;
use crate::error::{Damage, SnapshotError};
use crate::flush::Flusher;
use crate::layout::ENTRIES_PER_PAGE;
use crate::log::Log;
use crate::map::Entry;
use crate::map_page::{page_of, pages_of};
use crate::mutants::VolumeMutant;
use crate::names::Pairs;
use crate::pager::WhenFull;
use crate::snapshot_table::{Branch, BranchKind, Table, is_name};

/// Blocks that are looked at, and shared, by one record at most.
const SHARED_AT_ONCE: u32 = 256;

/// When the table is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Now,
    /// On a volume with marks, where no user has placed a record behind the newest one (V13).
    AtMark,
}

/// The logical blocks at which the slots of a path begin.
pub(crate) type Path = Rc<[u32]>;

/// The snapshots and clones of an open volume.
pub(crate) struct Branches {
    common: Rc<Common>,
    blocks: Rc<RefCell<Blocks>>,
    log: Rc<Log>,
    flusher: Rc<Flusher>,
    table: RefCell<Table>,
    /// The path of the volume itself.
    of_volume: Path,
    /// The path of the snapshot that keeps what the volume changes; empty if there is none.
    newest: RefCell<Path>,
    /// Slots that are open as storages, each as often as it is.
    in_use: RefCell<Vec<u32>>,
    /// Held by what changes the table.
    changing: Semaphore,
}

impl Branches {
    pub(crate) fn new(log: &Rc<Log>, flusher: &Rc<Flusher>) -> Branches {
        Branches {
            common: Rc::clone(&log.common),
            blocks: Rc::clone(&log.blocks),
            log: Rc::clone(log),
            flusher: Rc::clone(flusher),
            table: RefCell::default(),
            of_volume: Rc::from([0]),
            newest: RefCell::new(Rc::from([])),
            in_use: RefCell::default(),
            changing: Semaphore::new(1),
        }
    }

    pub(crate) fn table(&self) -> Ref<'_, Table> {
        self.table.borrow()
    }

    pub(crate) fn blocks(&self) -> Ref<'_, Blocks> {
        self.blocks.borrow()
    }

    /// Loads pages of the map.
    pub(crate) async fn load_pages(&self, pages: impl Fn() -> Vec<u32>) -> Result<(), SnapshotError> {
        Ok(self.log.pager.load(WhenFull::Wait, |_| pages()).await?)
    }

    /// Snapshots and clones in the order in which they were made.
    pub(crate) fn list(&self) -> Vec<Branch> {
        self.table.borrow().branches.iter().filter(|branch| !branch.is_leaving).cloned().collect()
    }

    /// The snapshot or clone with this name.
    pub(crate) fn find_branch(&self, name: &str) -> Result<Branch, SnapshotError> {
        let found = self.table.borrow().find(name).filter(|branch| !branch.is_leaving).cloned();
        found.ok_or_else(|| SnapshotError::Unknown(name.to_owned()))
    }

    /// The snapshot with this name.
    pub(crate) fn find_snapshot(&self, name: &str) -> Result<Branch, SnapshotError> {
        find_snapshot(&self.table.borrow(), name).cloned()
    }

    /// A slot is open as a storage from here on, and its branch stays.
    pub(crate) fn begin_use(&self, slot: u32) {
        self.in_use.borrow_mut().push(slot);
    }

    pub(crate) fn end_use(&self, slot: u32) {
        let mut in_use = self.in_use.borrow_mut();
        in_use.iter().position(|other| *other == slot).map(|i| in_use.swap_remove(i));
    }

    /// Sees to it that a snapshot of this name can be made.
    pub(crate) fn require_room(&self, name: &str) -> Result<(), SnapshotError> {
        let slots = self.common.geometry.slots;
        if slots == 0 {
            return Err(SnapshotError::NoSlots);
        }
        if !is_name(name) {
            return Err(SnapshotError::Name(name.to_owned()));
        }
        let table = self.table.borrow();
        if table.find(name).is_some() {
            return Err(SnapshotError::Exists(name.to_owned()));
        }
        table.free_slot(slots).map(drop).ok_or(SnapshotError::NoneFree)
    }

    /// The path of a slot as it is now: it changes with the table.
    pub(crate) fn path(&self, slot: u32) -> Path {
        if slot == 0 {
            return Rc::clone(&self.of_volume);
        }
        self.path_of(&self.table.borrow(), slot)
    }

    fn path_of(&self, table: &Table, slot: u32) -> Path {
        table.path(slot).into_iter().map(|slot| self.base(slot)).collect()
    }

    /// The first logical block of a slot.
    pub(crate) fn base(&self, slot: u32) -> u32 {
        (u64::from(slot) * self.common.geometry.slot_blocks()) as u32
    }

    /// The logical block of zeros.
    fn zeros(&self) -> u32 {
        self.common.geometry.table().map_or(0, |table| table.0 as u32 + 1)
    }

    fn set_table(&self, table: Table) {
        let newest = table.newest().map(|branch| branch.slot);
        self.newest.replace(newest.map_or_else(|| Rc::from([]), |slot| self.path_of(&table, slot)));
        self.table.replace(table);
    }

    /// V10: sees to it that the newest snapshot still reads what it does now when a command of the volume has changed its blocks.
    /// [`Rejected::Busy`] as for the command itself: what was shared by then stays so.
    ///
    /// # Errors
    /// Those of a share.
    #[inline]
    pub(crate) fn preserve(&self, command: &Command<'_>) -> Result<(), Rejected> {
        if self.newest.borrow().is_empty() || self.common.drops(VolumeMutant::SnapshotUnpreserved) {
            return Ok(());
        }
        let preserve_write = |write: &Write<'_>| {
            write.parts.iter().try_for_each(|part| self.preserve_extent(part.extent(), true))
        };
        match command {
            Command::Write(write) => preserve_write(write),
            Command::Packed(writes) => writes.iter().try_for_each(preserve_write),
            Command::Discard(extents) => {
                extents.iter().try_for_each(|extent| self.preserve_extent(*extent, false))
            }
            Command::Share(pairs) => {
                let target = |pair: &SharePair| Extent::new(pair.to, pair.from.blocks);
                pairs.iter().try_for_each(|pair| self.preserve_extent(target(pair), true))
            }
            Command::Read { .. } | Command::Barrier { .. } | Command::Flush => Ok(()),
        }
    }

    /// The same of one extent. What is not mapped changes only if it is written.
    fn preserve_extent(&self, extent: Extent, is_written: bool) -> Result<(), Rejected> {
        let path = Rc::clone(&self.newest.borrow());
        let Some((own, behind)) = path.split_first() else { return Ok(()) };
        for part in pieces(extent) {
            let pages = || pages_of_path(&path, part).chain([page_of(self.zeros())]);
            self.log.pager.prepare(pages().count(), true, pages)?;
            let pairs: Pairs = {
                let blocks = self.blocks.borrow();
                let lacks = |lba: &u32| !blocks.entry(own + lba).is_mapped();
                let source = |lba: u32| find_source(&blocks, behind, lba);
                let fills = is_written && !self.common.drops(VolumeMutant::HolesUnpreserved);
                let zeros = fills.then(|| self.zeros());
                let pair = |lba| Some((own + lba, source(lba).or(zeros)?));
                part.iter().map(|lba| lba.0 as u32).filter(lacks).filter_map(pair).collect()
            };
            self.share_preserved(&pairs)?;
        }
        Ok(())
    }

    fn share_preserved(&self, pairs: &Pairs) -> Result<(), Rejected> {
        if pairs.is_empty() {
            return Ok(());
        }
        self.log.append_share(pairs)?;
        self.common.count(|stats| stats.preserved_blocks += pairs.len() as u64);
        Ok(())
    }

    /// What a command says of blocks of a clone, as a share: sources are looked up by its path.
    pub(crate) fn pairs_of_clone(&self, slot: u32, pairs: &Pairs) -> Result<Pairs, Rejected> {
        let (path, base) = (self.path(slot), self.base(slot));
        let pages = || {
            let of_source = |from: u32| pages_of_path(&path, Extent::new(Lba(from.into()), 1));
            pairs.iter().flat_map(move |(to, from)| of_source(*from).chain([page_of(base + to)]))
        };
        self.log.pager.prepare(pages().count() + 1, true, || pages().chain([page_of(self.zeros())]))?;
        let blocks = self.blocks.borrow();
        let source = |from: &u32| find_source(&blocks, &path, *from).unwrap_or(self.zeros());
        Ok(pairs.iter().map(|(to, from)| (base + to, source(from))).collect())
    }

    /// Keeps others from changing snapshots and clones as long as the permit is held.
    pub(crate) async fn hold(&self) -> Permit {
        self.changing.acquire(1).await
    }

    /// Makes a snapshot of all that is in the log, durably.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub(crate) async fn create_snapshot(&self, name: &str) -> Result<Branch, SnapshotError> {
        let origin = (self.common.handle.wall_clock_nanos(), self.common.handle.entropy());
        self.create_received(name, origin).await
    }

    /// The same of a snapshot that was received from elsewhere: when that was made, and its identity.
    pub(crate) async fn create_received(
        &self,
        name: &str,
        made: (u64, u64),
    ) -> Result<Branch, SnapshotError> {
        self.create(name, made, When::AtMark, |_| Ok((BranchKind::Snapshot, 0, self.log.placed_to()))).await
    }

    /// Makes a clone of a snapshot, durably.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub(crate) async fn create_clone(&self, snapshot: &str, name: &str) -> Result<Branch, SnapshotError> {
        let made = (self.common.handle.wall_clock_nanos(), self.common.handle.entropy());
        self.create(name, made, When::Now, |table| {
            let found = find_snapshot(table, snapshot)?;
            Ok((BranchKind::Clone, found.slot, found.sequence))
        })
        .await
    }

    async fn create(
        &self,
        name: &str,
        (made, identity): (u64, u64),
        when: When,
        origin: impl Fn(&Table) -> Result<(BranchKind, u32, u64), SnapshotError>,
    ) -> Result<Branch, SnapshotError> {
        let _changing = self.changing.acquire(1).await;
        self.require_room(name)?;
        let slots = self.common.geometry.slots;
        let add = |table: &Table| {
            let slot = table.free_slot(slots).ok_or(SnapshotError::NoneFree)?;
            let (kind, parent, sequence) = origin(table)?;
            let name = name.to_owned();
            let branch = Branch { name, kind, sequence, made, identity, slot, parent, is_leaving: false };
            let mut table = table.clone();
            table.branches.push(branch);
            Ok(table)
        };
        let sequence = self.change_table_at(when, add).await?;
        self.make_durable(sequence).await?;
        self.table.borrow().find(name).cloned().ok_or_else(|| SnapshotError::Unknown(name.to_owned()))
    }

    /// Deletes a snapshot or a clone, durably.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub(crate) async fn delete(&self, name: &str) -> Result<(), SnapshotError> {
        let _changing = self.changing.acquire(1).await;
        // One that is leaving already had no room to end.
        let found = self.table.borrow().find(name).cloned();
        let found = found.ok_or_else(|| SnapshotError::Unknown(name.to_owned()))?;
        if self.table.borrow().branches.iter().any(|branch| branch.parent == found.slot) {
            return Err(SnapshotError::HasClone(name.to_owned()));
        }
        if self.in_use.borrow().contains(&found.slot) {
            return Err(SnapshotError::InUse(name.to_owned()));
        }
        let with_leaving = |table: &Table| {
            let mut table = table.clone();
            let leaving = table.branches.iter_mut().filter(|branch| branch.slot == found.slot);
            leaving.for_each(|branch| branch.is_leaving = true);
            Ok(table)
        };
        self.change_table(with_leaving).await?;
        let sequence = self.remove(&found).await?;
        self.make_durable(sequence).await
    }

    /// Empties the slot of a branch that is leaving, and takes it out of the table.
    async fn remove(&self, leaving: &Branch) -> Result<u64, SnapshotError> {
        let older = match leaving.kind {
            BranchKind::Snapshot => self.table.borrow().older_than(leaving.slot).map(|older| older.slot),
            BranchKind::Clone => None,
        };
        let base = self.base(leaving.slot);
        for extent in self.pages_of_slots(&[leaving.slot]) {
            let at = |base: u32| Extent::new(extent.start.offset(base.into()), extent.blocks);
            let inherits = !self.common.drops(VolumeMutant::SnapshotNotInherited);
            if let Some(older) = older.map(|slot| self.base(slot)).filter(|_| inherits) {
                self.share_all(extent, &[base, older], |blocks, lba| {
                    let is_wanted =
                        blocks.entry(base + lba).is_mapped() && !blocks.entry(older + lba).is_mapped();
                    is_wanted.then_some((older + lba, base + lba))
                })
                .await?;
            }
            self.common.until_accepted(async || self.log.append_discard(&[at(base)])).await?;
        }
        let take_out = |table: &Table| {
            let mut table = table.clone();
            table.branches.retain(|branch| branch.slot != leaving.slot);
            Ok(table)
        };
        self.change_table(take_out).await
    }

    /// Lets the volume read what a snapshot does, durably. Nothing else may use the volume meanwhile. Snapshots stay as they are.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub(crate) async fn roll_back(&self, name: &str) -> Result<(), SnapshotError> {
        let _changing = self.changing.acquire(1).await;
        let slot = find_snapshot(&self.table.borrow(), name)?.slot;
        self.change_table(|table| Ok(Table { rolled_back_to: slot, ..table.clone() })).await?;
        let sequence = self.end_roll_back(slot).await?;
        self.make_durable(sequence).await
    }

    async fn end_roll_back(&self, slot: u32) -> Result<u64, SnapshotError> {
        let slots: Vec<u32> = self.table.borrow().path(slot).into_iter().filter(|slot| *slot != 0).collect();
        let path = self.path(slot);
        for extent in self.pages_of_slots(&slots) {
            for part in pieces(extent) {
                self.common.until_accepted(async || self.preserve_extent(part, true)).await?;
            }
            self.share_all(extent, &path, |blocks, lba| {
                let source = find_source(blocks, &path, lba)?;
                (blocks.entry(source) != blocks.entry(lba)).then_some((lba, source))
            })
            .await?;
        }
        self.change_table(|table| Ok(Table { rolled_back_to: 0, ..table.clone() })).await
    }

    /// Empties all slots and the table, of a volume without snapshots and clones, so that they can lie elsewhere: what a record
    /// says of one of their blocks counts no longer.
    pub(crate) async fn empty_slots(&self) -> Result<(), SnapshotError> {
        let geometry = &self.common.geometry;
        let in_page = ENTRIES_PER_PAGE as u64;
        for first in (geometry.slot_blocks()..geometry.addressable_blocks()).step_by(ENTRIES_PER_PAGE) {
            let blocks = (geometry.addressable_blocks() - first).min(in_page) as u32;
            if !self.blocks.borrow().map.is_empty(page_of(first as u32)) {
                self.common
                    .until_accepted(async || self.log.append_discard(&[Extent::new(Lba(first), blocks)]))
                    .await?;
            }
        }
        Ok(())
    }

    /// The last mapped block of the volume, if it is `first` or behind.
    pub(crate) async fn last_mapped(&self, first: u64) -> Result<Option<Lba>, SnapshotError> {
        let pages = page_of(first as u32)..=page_of((self.common.geometry.logical_blocks - 1) as u32);
        for page in pages.rev() {
            if self.blocks.borrow().map.is_empty(page) {
                continue;
            }
            self.load_pages(|| vec![page]).await?;
            let begin = u64::from(page) * ENTRIES_PER_PAGE as u64;
            let end = (begin + ENTRIES_PER_PAGE as u64).min(self.common.geometry.logical_blocks);
            if let Some((lba, _)) = self.blocks.borrow().map.known_in(begin.max(first), end).last() {
                return Ok(Some(Lba(u64::from(lba))));
            }
        }
        Ok(None)
    }

    /// Takes the table as the volume that is being opened has it.
    ///
    /// # Errors
    /// [`Damage::SnapshotTable`].
    pub(crate) fn load(&self, block: &[u8]) -> Result<(), Damage> {
        self.set_table(Table::from_block(block, &self.common.geometry)?);
        Ok(())
    }

    /// Ends what a crash has interrupted.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) async fn end_interrupted(&self) -> Result<(), SnapshotError> {
        let Table { branches, rolled_back_to } = self.table.borrow().clone();
        if rolled_back_to != 0 {
            self.end_roll_back(rolled_back_to).await?;
        }
        for leaving in branches.iter().filter(|branch| branch.is_leaving) {
            match self.remove(leaving).await {
                Err(SnapshotError::Volume(Rejected::Failed(StorageError::NoSpace))) => {
                    warn!(
                        name: "deletion_not_ended",
                        name = leaving.name,
                        "the volume is too full to end a deletion: delete it again when there is room"
                    );
                }
                removed => drop(removed?),
            }
        }
        Ok(())
    }

    /// Writes the table as `change` makes it of the one that there is. Returns its record.
    async fn change_table(
        &self,
        change: impl Fn(&Table) -> Result<Table, SnapshotError>,
    ) -> Result<u64, SnapshotError> {
        self.change_table_at(When::Now, change).await
    }

    async fn change_table_at(
        &self,
        when: When,
        change: impl Fn(&Table) -> Result<Table, SnapshotError>,
    ) -> Result<u64, SnapshotError> {
        let at = self.common.geometry.table().ok_or(SnapshotError::NoSlots)?;
        let is_held = when == When::AtMark && !self.common.drops(VolumeMutant::SnapshotUnmarked);
        let marks = self.common.marks.as_ref().filter(|_| is_held);
        let mut waits = None;
        let attempt = async || {
            self.load_pages(|| vec![page_of(self.zeros())]).await?;
            while let Some(marks) = marks.filter(|marks| marks.is_changed()) {
                if marks.is_given_up() {
                    return Err(SnapshotError::NoMark);
                }
                waits.get_or_insert_with(|| marks.note_snapshot(&self.common.slots));
                let lacks_mark = || marks.is_changed() && !marks.is_given_up();
                self.common.wait_for_marks(marks, lacks_mark).await?;
                self.load_pages(|| vec![page_of(self.zeros())]).await?;
            }
            drop(waits.take());
            let table = change(&self.table.borrow())?;
            let mut bytes = table.to_block(self.common.geometry.volume);
            if !self.blocks.borrow().entry(self.zeros()).is_mapped() {
                bytes.resize(2 * BLOCK_BYTES, 0);
            }
            let sequence = self.log.append(&[Write::new(&[Part::bytes(at, &bytes)])])?;
            self.set_table(table);
            Ok(sequence)
        };
        self.common.until_accepted(attempt).await
    }

    async fn make_durable(&self, sequence: u64) -> Result<(), SnapshotError> {
        self.flusher.want_durable(sequence);
        Ok(self.common.watermark.until_durable(sequence).await.map_err(Rejected::Failed)?)
    }

    /// The blocks of the volume of which some slot has a page of the map, page by page.
    pub(crate) fn pages_of_slots(&self, slots: &[u32]) -> Vec<Extent> {
        let logical = self.common.geometry.logical_blocks;
        let in_page = ENTRIES_PER_PAGE as u64;
        let map = &self.blocks.borrow().map;
        let is_used =
            |first: &u64| slots.iter().any(|slot| !map.is_empty(page_of(self.base(*slot) + *first as u32)));
        let extent = |first: u64| Extent::new(Lba(first), (logical - first).min(in_page) as u32);
        (0..logical).step_by(ENTRIES_PER_PAGE).filter(is_used).map(extent).collect()
    }

    /// Shares what `pair` says of the blocks of an extent, whose pages at `bases` are loaded first.
    async fn share_all(
        &self,
        extent: Extent,
        bases: &[u32],
        pair: impl Fn(&Blocks, u32) -> Option<(u32, u32)>,
    ) -> Result<(), SnapshotError> {
        for part in pieces(extent) {
            let attempt = async || {
                // While it waits for room, a page may be evicted.
                self.load_pages(|| pages_of_path(bases, part).collect()).await?;
                let pairs: Pairs = {
                    let blocks = self.blocks.borrow();
                    part.iter().filter_map(|lba| pair(&blocks, lba.0 as u32)).collect()
                };
                Ok::<u64, SnapshotError>(self.log.append_share(&pairs)?)
            };
            self.common.until_accepted(attempt).await?;
        }
        Ok(())
    }
}

/// Looks for a block at the beginning of each slot of a path, in turn; the logical block at which it is.
pub(crate) fn find_source(blocks: &Blocks, path: &[u32], lba: u32) -> Option<u32> {
    path.iter().map(|base| base + lba).find(|lba| blocks.entry(*lba).is_known())
}

/// What a branch reads as a block, by its path. The pages of the map are in memory.
pub(crate) fn find_entry(blocks: &Blocks, path: &[u32], lba: u32) -> Entry {
    find_source(blocks, path, lba).map_or(Entry::default(), |lba| blocks.entry(lba))
}

/// The pages of the map in which an extent is looked up by a path.
pub(crate) fn pages_of_path(path: &[u32], extent: Extent) -> impl Iterator<Item = u32> {
    path.iter()
        .flat_map(move |base| pages_of(Extent::new(extent.start.offset(u64::from(*base)), extent.blocks)))
}

/// An extent in pieces of which one record shares all blocks.
fn pieces(extent: Extent) -> impl Iterator<Item = Extent> {
    (0..extent.blocks).step_by(SHARED_AT_ONCE as usize).map(move |first| {
        Extent::new(extent.start.offset(first.into()), (extent.blocks - first).min(SHARED_AT_ONCE))
    })
}

pub(crate) fn find_snapshot<'t>(table: &'t Table, name: &str) -> Result<&'t Branch, SnapshotError> {
    let found = table.find(name).filter(|found| !found.is_leaving);
    match found {
        Some(found) if found.kind == BranchKind::Snapshot => Ok(found),
        Some(_) => Err(SnapshotError::NoSnapshot(name.to_owned())),
        None => Err(SnapshotError::Unknown(name.to_owned())),
    }
}
