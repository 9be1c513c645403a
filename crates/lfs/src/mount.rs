//! Mounting and unmounting.
//!
//! 1. The superblock, the newer whole checkpoint, the segment table, and the summaries of open node segments are read.
//! 2. What `fsync` has written behind the checkpoint is rolled forward ([`recovery`](crate::recovery)), and orphans are deleted, in memory.
//! 3. A checkpoint makes that durable, and begins a new chain: blocks of the old one, behind a gap, are never taken for its continuation
//!    (L4). No block of the old chain is overwritten before that, so a power cut here loses nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use tracing::{info, warn};
use weir_block::{BlockLayer, BlockOptions, Dispatch, Durable};
use weir_cache::PageCache;
use weir_f2fs::{
    BlockAddress, CheckpointPack, Image, Layout, Log, NodeFooter, SegmentEntry, SegmentTableBlock,
    SummaryBlock, SummaryKind, checkpoint_flags, read_block,
};
use weir_format::{FormatError, Place, Structure};
use weir_journal::Disk;
use weir_runtime::{Handle as Clock, Semaphore};
use weir_storage::{Recorder, Storage};
use weir_vfs::{FsError, ReadOnlyReason, StorageImage, Timer};

use crate::blocks::BlockWrite;
use crate::checkpoint::{Checkpoints, Durability, Purpose};
use crate::cleaner::Policy;
use crate::cleaner_kind::Cleaner;
use crate::deletion::warn_of_orphan;
use crate::files::Files;
use crate::mounted::{Mounted, TICKS_A_SECOND};
use crate::mutants::{LfsMutant, LfsRules};
use crate::node_table::NodeTable;
use crate::nodes::Nodes;
use crate::operations::Operations;
use crate::options::F2fsOptions;
use crate::placement::Placement;
use crate::space::{Space, summary_of_node};

/// Mounts the filesystem on `device`.
pub(crate) async fn mount(
    clock: &Clock,
    device: Rc<dyn Storage>,
    recorder: Option<Rc<Recorder>>,
    options: F2fsOptions,
) -> Result<Rc<Mounted>, FsError> {
    if options.cleaner == Cleaner::Share && !options.read_only && !device.capabilities().share {
        return Err(FsError::NoShare);
    }
    let image = Image::open(StorageImage(Rc::clone(&device))).await?;
    if image.checkpoint.header.has(checkpoint_flags::ERROR) && !options.read_only {
        let place = Place::Block(image.layout.pack_start(image.pack).0.into());
        let what = "Linux has marked the filesystem as failed: mount it read-only, or let fsck.f2fs mend it";
        return Err(FormatError::corrupt(Structure::Checkpoint, place, what).into());
    }
    if let Some(damage) = &image.damaged_pack {
        warn!(
            name: "checkpoint_damaged",
            %damage,
            "a checkpoint is not whole, and the other one is used: after a power cut during a checkpoint nothing is lost"
        );
    }
    if let Some(block) = image.damaged_copy {
        warn!(
            name: "superblock_damaged",
            %block,
            "a copy of the superblock is damaged, and the other one is used: a writable mount writes it anew"
        );
    }
    let was_unmounted = image.checkpoint.header.has(checkpoint_flags::UMOUNT);
    let Image { superblock, damaged_copy, layout, checkpoint, pack, .. } = image;
    let image = Rc::new(StorageImage(Rc::clone(&device)));
    let space = read_space(&image, &layout, &checkpoint, options.rules).await?;
    let dispatch =
        if device.capabilities().barriers() { Dispatch::OrderPreserving } else { Dispatch::Legacy };
    let capabilities = *device.capabilities();
    let layer_options = BlockOptions { dispatch, ..BlockOptions::default() };
    let layer =
        BlockLayer::recorded(clock, device, layer_options, recorder).map_err(|_| FsError::NoBarriers)?;
    let disk = Disk::new(clock, layer, capabilities, Default::default());
    // Nothing is written without order (L2).
    disk.promise_order();
    let table = Rc::new(NodeTable::from_checkpoint(Rc::clone(&image), &layout, &checkpoint, options.rules)?);
    let placement = Rc::new(Placement {
        space: RefCell::new(space),
        nodes: Nodes::new(Rc::clone(&table), options.cache_inodes),
        dirty_files: Rc::default(),
        table,
        chain_version: Cell::new(checkpoint.chain_version()),
        chain_nodes: Cell::new(0),
        inode_seed: superblock.inode_seed(),
        in_place_pages: options.in_place_pages,
        rules: options.rules,
    });
    let cache = PageCache::new(Rc::clone(&disk), options.cache());
    let stopped = options.read_only.then_some(ReadOnlyReason::Mounted);
    let orphans = checkpoint.orphans.clone();
    let mounted = Rc::new(Mounted {
        options,
        timer: Timer::new(clock, TICKS_A_SECOND),
        operations: Operations::new(Rc::clone(&disk), stopped),
        names: Semaphore::new(1),
        freeing: Semaphore::new(1),
        generation: Cell::new(checkpoint.header.version.get() as u32),
        cleaned: Cell::default(),
        damaged: RefCell::default(),
        kept_orphans: RefCell::default(),
        update_pages: Rc::default(),
        answered: Cell::default(),
        files: Files::new(Rc::clone(&placement), cache, options.cache_inodes),
        since: (clock.now(), checkpoint.header.elapsed.get()),
        checkpoints: Checkpoints::new(checkpoint, pack),
        under_way: Default::default(),
        superblock,
        layout,
        image,
        disk,
        placement,
    });
    if options.read_only && !(was_unmounted && Durability(&mounted).has_no_chain().await?) {
        return Err(FsError::NotRolledForward);
    }
    if !options.read_only {
        if let Some(block) = damaged_copy {
            write_superblock_copy(&mounted, block).await?;
        }
        let recovered = Durability(&mounted).roll_forward().await?;
        Durability(&mounted).start_appending()?;
        for orphan in orphans.iter().copied() {
            if let Err(error) = mounted.delete_orphan(orphan).await {
                warn_of_orphan(orphan, &error);
                mounted.kept_orphans.borrow_mut().insert(orphan);
            }
        }
        info!(name: "filesystem_mounted", recovered, orphans = orphans.len(), "mounted");
        if !options.rules.drops(LfsMutant::ChainGoesOn) {
            Durability(&mounted).write_checkpoint(Purpose::Durability).await?;
        }
        let task = checkpoint_task(Rc::downgrade(&mounted));
        drop(clock.spawn_thread("checkpoint", task));
    }
    Ok(mounted)
}

/// Writes the copy of the superblock in `place` anew from the other one.
async fn write_superblock_copy(mounted: &Mounted, place: BlockAddress) -> Result<(), FsError> {
    let whole = read_block(&*mounted.image, BlockAddress(1 - place.0)).await?;
    let copy = BlockWrite::new(place, &whole[..]);
    mounted.disk.write_in_place(copy.place, &copy.content, Durable::WriteAndEarlier).await?;
    Ok(())
}

/// Ends a mount.
pub(crate) async fn unmount(mounted: &Mounted) -> Result<(), FsError> {
    if !mounted.operations.has_to_write()? {
        return Ok(());
    }
    // No call will come back to files that are open and have no name.
    for file in mounted.files.all().into_iter().filter(|file| file.links() == 0) {
        let _call = mounted.operations.begin().await;
        if let Err(error) = mounted.delete_unnamed(&file).await {
            warn_of_orphan(file.number, &error);
        }
    }
    Durability(mounted).write_checkpoint(Purpose::Unmount).await?;
    info!(name: "filesystem_unmounted", checkpoints = mounted.checkpoints.written(), "unmounted");
    Ok(())
}

/// Writes a checkpoint each interval, if anything was changed, for as long as the filesystem is mounted.
async fn checkpoint_task(mounted: Weak<Mounted>) {
    loop {
        let Some(now) = mounted.upgrade() else { return };
        let (clock, interval) = (now.disk.handle().clone(), now.options.checkpoint_interval);
        drop(now);
        clock.sleep(interval).await;
        let Some(now) = mounted.upgrade() else { return };
        if now.operations.read_only().is_some() {
            return;
        }
        // A failure stops all changes, and every call says so.
        if Durability(&now).has_changes()
            && Durability(&now).write_checkpoint(Purpose::Order).await.is_ok()
            && Durability(&now).is_worth_cleaning()
        {
            let _ = Durability(&now).clean(Policy::CostBenefit, 1).await;
        }
    }
}

/// Reads the segment table, and the summaries of open node segments.
async fn read_space(
    image: &StorageImage,
    layout: &Layout,
    pack: &CheckpointPack,
    rules: LfsRules,
) -> Result<Space, FsError> {
    let mut segments: Vec<SegmentEntry> = Vec::new();
    for index in 0..layout.segment_table_blocks() {
        let corrupt =
            || FormatError::corrupt(Structure::SegmentTable, Place::Block(index.into()), "its place");
        let second = pack.segment_copies.is_second(index);
        let place = layout.segment_table_block(index, second).ok_or_else(corrupt)?;
        let bytes = read_block(image, place).await?;
        segments.extend_from_slice(&SegmentTableBlock::read(&bytes[..], index, layout)?.entries);
    }
    segments.truncate(layout.main_segments() as usize);
    let mut journaled = BTreeSet::new();
    for change in pack.segment_journal(layout)?.entries() {
        let segment = change.segment.get();
        if let Some(entry) = segments.get_mut(segment as usize) {
            *entry = change.entry;
            journaled.insert(segment);
        }
    }
    let nodes = match &pack.node_summaries {
        Some(summaries) => summaries.clone(),
        None => read_node_summaries(image, layout, pack, &segments).await?,
    };
    Space::from_checkpoint(layout, pack, nodes, segments, journaled, rules)
}

/// The summaries of open node segments, by the footers of their nodes: only the pack of an unmount has them.
async fn read_node_summaries(
    image: &StorageImage,
    layout: &Layout,
    pack: &CheckpointPack,
    segments: &[SegmentEntry],
) -> Result<[Box<SummaryBlock>; 3], FsError> {
    let mut summaries = [0; 3].map(|_| SummaryBlock::new(SummaryKind::Node));
    for (log, summary) in [Log::HotNode, Log::WarmNode, Log::ColdNode].into_iter().zip(&mut summaries) {
        let Some(state) = pack.header.log(log) else { continue };
        let Some(entry) = segments.get(state.segment.0 as usize) else { continue };
        for offset in (0..weir_f2fs::SEGMENT_BLOCKS).filter(|offset| entry.is_valid(*offset)) {
            let Some(address) = layout.block_of(state.segment, offset) else { continue };
            let bytes = read_block(image, address).await?;
            if let Some(footer) = NodeFooter::of_block(&bytes[..]) {
                summary.entries[offset as usize] = summary_of_node(footer.node(), 0);
            }
        }
    }
    Ok(summaries)
}
