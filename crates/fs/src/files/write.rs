//! Writing files.
//!
//! What is written to pages in memory that have their place needs no transaction, unless the timer has ticked
//! since the inode was stamped (J6). Everything else gets its place first, in a transaction that its data belongs
//! to (J2): blocks are allocated when they are written, for all of a write at once, behind what comes before them
//! in the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::OptionFuture;
use weir_cache::{BLOCK, index_of, split, units};
use weir_format::Stamp;
use weir_journal::{Role, TxHandle};
use weir_runtime::Buffer as Memory;
use weir_storage::BLOCK_BYTES;
use weir_vfs::{Caller, FsError};

use super::{Files, require_regular};
use crate::inodes::Node;
use crate::mapping::{MAP_CREDITS, Tree, Wanted, place};
use crate::mutants::FsMutant;

/// Blocks that one handle writes at most: 8 MiB.
pub(super) const CHUNK_BLOCKS: usize = 2048;
/// The same where they go through the journal.
pub(super) const CHUNK_JOURNALED: usize = 32;

/// What a write does to the inode's times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// They become now.
    Stamped,
    /// They stay.
    Kept,
}

/// A write to a file.
#[derive(Clone, Copy)]
pub(crate) struct FileWrite<'a> {
    pub(crate) caller: Caller,
    pub(crate) node: &'a Rc<Node>,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) times: Times,
}

impl<'a> FileWrite<'a> {
    /// What is left of it behind the first `done` bytes.
    fn rest(self, done: usize) -> FileWrite<'a> {
        FileWrite { offset: self.offset + done as u64, bytes: &self.bytes[done..], ..self }
    }
}

/// The content of the blocks at both ends of a change, as far as it stays. Pages may leave the cache while a
/// change gets its place; these do not.
#[derive(Default)]
pub(super) struct Edges(Vec<(u32, Rc<Memory>)>);

impl Edges {
    fn get(&self, index: u32) -> Option<Rc<Memory>> {
        self.0.iter().find(|(edge, _)| *edge == index).map(|(_, content)| Rc::clone(content))
    }
}

impl Files {
    /// Writes at `offset`: how many bytes, all of them unless space or memory run out in between.
    pub(crate) async fn write(&self, write: FileWrite<'_>) -> Result<usize, FsError> {
        let bytes = write.bytes.len();
        // A moment waits for calls that are under way, and has room for so many bytes of theirs.
        let room = self.under_way.as_ref().map(|(room, most)| room.acquire(bytes.min(*most)));
        let _room = OptionFuture::from(room).await;
        self.changes.changing(self.write_all(write)).await
    }

    async fn write_all(&self, write: FileWrite<'_>) -> Result<usize, FsError> {
        let FileWrite { node, offset, .. } = write;
        require_regular(node)?;
        let bytes = self.within_size_max(offset, write.bytes)?;
        let write = FileWrite { bytes, ..write };
        if bytes.is_empty() {
            return Ok(0);
        }
        self.read_edges(node, offset..offset + bytes.len() as u64).await;
        let _locked = node.lock_exclusive().await;
        if node.is_atomic() && !self.rules.drops(FsMutant::UpdateNotDeferred) {
            // It has become so meanwhile.
            return Err(FsError::UpdateOpen);
        }
        let mut done = 0;
        while done < bytes.len() {
            self.cache.throttle().await;
            let some = self.changes.with_space(async || self.write_some(write.rest(done)).await);
            match some.await {
                Ok(written) => done += written,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes at least one byte, and what one handle can.
    async fn write_some(&self, write: FileWrite<'_>) -> Result<usize, FsError> {
        let FileWrite { caller, node, offset, bytes, times } = write;
        let journaled = node.is_journaled(self.mode);
        let now = self.timer.now();
        let stamped = times == Times::Kept || {
            let inode = node.inode.borrow();
            inode.time(Stamp::Modified) == now && inode.time(Stamp::Changed) == now
        };
        let (first, at) = split(offset);
        if stamped && !journaled {
            let most = self.cache.allowance().saturating_mul(BLOCK_BYTES) - at;
            let most = units::cut(offset, most, bytes.len());
            let most = match self.rules.drops(FsMutant::EndInTwoSteps) {
                true => most.min(usize::try_from(node.size().saturating_sub(offset)).unwrap_or(usize::MAX)),
                false => within_size(offset, most, node.size()),
            };
            let done = node.file.overwrite(offset, &bytes[..most]);
            if done > 0 {
                return Ok(done);
            }
        }
        let most = if journaled { CHUNK_JOURNALED } else { CHUNK_BLOCKS.min(self.cache.allowance()) };
        let bytes = &bytes[..units::cut(offset, most * BLOCK_BYTES - at, bytes.len())];
        let end = offset + bytes.len() as u64;
        let range = first..index_of(end - 1) + 1;
        let edges = self.edges(node, &(offset..end)).await?;
        let grows = end > node.size();
        let behind = if grows { self.behind_end(node).await? } else { None };
        if stamped && !journaled && !grows && self.mapping.is_written(node, range.clone()).await? {
            self.put_bytes(node, None, offset, bytes, &edges).await?;
            return Ok(bytes.len());
        }
        let credits = MAP_CREDITS + if journaled { range.len() as u32 } else { 0 };
        let handle = self.changes.start_for(caller, credits).await?;
        let mapped = self.mapping.map(&handle, node, range, Wanted::Written).await;
        let done = match mapped {
            Ok(reached) => Ok(bytes.len().min((u64::from(reached) * BLOCK - offset) as usize)),
            Err(error) => Err(error),
        };
        if let Ok(done) = done {
            if let Some((behind, edges)) = behind {
                self.zero_part(node, &handle, behind, &edges).await?;
            }
            self.changes
                .all_or_abort(self.put_bytes(node, Some(&handle), offset, &bytes[..done], &edges))
                .await?;
            if offset + done as u64 > node.size() {
                node.inode.borrow_mut().set_size(offset + done as u64);
                node.last_changes.note_data();
            }
            if times == Times::Stamped {
                node.stamp(now);
            }
        }
        // Also after an error: the tree may have grown.
        self.mapping.log_data(node, &handle).await?;
        done
    }

    /// Reads the blocks that will be written in part into the page cache, while no call has to wait for the lock. What
    /// it cannot read, [`edges`](Self::edges) tells.
    async fn read_edges(&self, node: &Rc<Node>, changed: Range<u64>) {
        if node.is_journaled(self.mode) {
            return;
        }
        for at in [changed.start, changed.end] {
            let (index, inside) = split(at);
            let partial = inside > 0 && u64::from(index) * BLOCK < node.size();
            if partial && !node.file.contains(index) {
                let _ = self.read_missing(node, u64::from(index) * BLOCK, &mut [0], true).await;
            }
        }
    }

    /// What stays of the first and the last block of a change of these bytes. The caller holds the lock.
    pub(super) async fn edges(&self, node: &Node, changed: &Range<u64>) -> Result<Edges, FsError> {
        let mut edges = Edges::default();
        if changed.is_empty() {
            return Ok(edges);
        }
        let (offset, end) = (changed.start, changed.end);
        let (first, last) = (index_of(offset), index_of(end - 1));
        let begins = !offset.is_multiple_of(BLOCK);
        let ends = !end.is_multiple_of(BLOCK) && end < node.size();
        for (index, partial) in [(first, begins || (ends && first == last)), (last, ends && first != last)] {
            if partial
                && u64::from(index) * BLOCK < node.size()
                && let Some(home) = self.mapping.home(node, index).await?
            {
                edges.0.push((index, self.content(node, index, home).await?));
            }
        }
        Ok(edges)
    }

    /// The bytes behind the end of a file, in its last block, if they are not all zeros: what was appended when the
    /// power failed may have reached the disk, and the new size not. They must be zeros before the file grows.
    /// The caller holds the lock.
    pub(super) async fn behind_end(&self, node: &Node) -> Result<Option<(Range<u64>, Edges)>, FsError> {
        let size = node.size();
        let (index, at) = split(size);
        if at == 0 || self.rules.drops(FsMutant::BehindEndTrusted) {
            return Ok(None);
        }
        let Some(home) = self.mapping.home(node, index).await? else { return Ok(None) };
        let content = self.content(node, index, home).await?;
        if content[at..].iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        Ok(Some((size..size.next_multiple_of(BLOCK), Edges(vec![(index, content)]))))
    }

    /// The content of a block that is mapped and written.
    pub(crate) async fn content(&self, node: &Node, index: u32, home: u64) -> Result<Rc<Memory>, FsError> {
        let here = self.journaled(node, home).or_else(|| node.file.snapshot(index));
        match here {
            Some(content) => Ok(content),
            None => Ok(Rc::new(self.disk.read(home, 1).await?)),
        }
    }

    /// Changes blocks that are mapped and written, in memory or in the journal. What is neither in memory nor
    /// among the edges was zeros before. The caller holds the lock.
    pub(super) async fn put_bytes(
        &self,
        node: &Rc<Node>,
        handle: Option<&TxHandle>,
        offset: u64,
        bytes: &[u8],
        edges: &Edges,
    ) -> Result<(), FsError> {
        let handle = handle.filter(|_| node.is_journaled(self.mode));
        let places = self.places(node, handle.is_some(), offset..offset + bytes.len() as u64).await?;
        // Nothing waits from here on: no part of it is written back before the rest is here.
        let (mut done, mut entered) = (0, 0);
        while done < bytes.len() {
            let (index, at) = split(offset + done as u64);
            let taken = (BLOCK_BYTES - at).min(bytes.len() - done);
            let part = &bytes[done..done + taken];
            done += taken;
            let home = places.get(&index).copied();
            if let Some((handle, home)) = handle.zip(home) {
                put_journaled(node, handle, (index, home), at, part, edges);
                continue;
            }
            if let Some(home) = home.filter(|_| !node.file.contains(index)) {
                let content = edges.get(index).unwrap_or_else(|| Rc::new(Memory::new(BLOCK_BYTES)));
                node.file.insert(index, home, content);
                entered += 1;
            }
            node.file.change(index, at, part);
        }
        self.cache.make_room(entered);
        Ok(())
    }

    /// Where blocks are on the disk that are changed: all of them, or those that are not in memory as this ends.
    async fn places(
        &self,
        node: &Node,
        all: bool,
        changed: Range<u64>,
    ) -> Result<BTreeMap<u32, u64>, FsError> {
        let mut places = BTreeMap::new();
        if changed.is_empty() {
            return Ok(places);
        }
        let indices = index_of(changed.start)..=index_of(changed.end - 1);
        loop {
            // A page may leave while another one's place is looked up.
            let missing = |index: &u32| !places.contains_key(index) && (all || !node.file.contains(*index));
            let Some(first) = indices.clone().find(missing) else { return Ok(places) };
            for index in (first..=*indices.end()).filter(missing).collect::<Vec<_>>() {
                let Some(extent) = Tree::from_node(node).find(index).await? else {
                    return Err(FsError::Invalid("a block that is not mapped"));
                };
                places.insert(index, place(&extent, index));
            }
        }
    }
}

/// Journal mode data: the block is a buffer of the transaction, and no page.
fn put_journaled(
    node: &Rc<Node>,
    handle: &TxHandle,
    (index, home): (u32, u64),
    at: usize,
    part: &[u8],
    edges: &Edges,
) {
    let buffers = &node.metadata().buffers;
    let cached = buffers.cached(home).filter(|buffer| buffer.role() == Role::Data);
    let buffer = match cached {
        Some(buffer) => buffer,
        None => {
            let buffer = buffers.fresh(home, Role::Data);
            if let Some(content) = edges.get(index) {
                handle.modify(&buffer, 0..BLOCK_BYTES, |bytes| bytes.copy_from_slice(&content));
            }
            buffer
        }
    };
    handle.modify(&buffer, at..at + part.len(), |bytes| bytes.copy_from_slice(part));
    node.last_changes.note_data();
    node.file.forget_clean(index..index + 1);
}

/// How many of a write's bytes go to pages that lie in the file whole. The page that its end is in is changed once, with
/// the size: no reader may find it changed in part.
fn within_size(offset: u64, bytes: usize, size: u64) -> usize {
    let last = if offset + bytes as u64 > size { size / BLOCK * BLOCK } else { size };
    bytes.min(usize::try_from(last.saturating_sub(offset)).unwrap_or(usize::MAX))
}
