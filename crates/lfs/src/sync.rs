//! Synchronisation calls: what each writes, and what it waits for.
//!
//! | call | writes | with barriers, waits for | without, waits for |
//! |---|---|---|---|
//! | `fsync` | dirty pages; direct nodes; the inode, if it changed | (a) | (b) |
//! | `fdatasync` | the same, and the inode only if other nodes do not tell roll-forward | (a) | (b) |
//! | `fbarrier`, `fdatabarrier` | as `fdatasync` | queue space | (b) |
//! | what roll-forward cannot bring back | a [checkpoint](crate::checkpoint) | the same, of the checkpoint | the same |
//!
//! (a) A transfer of all, and a flush. (b) The transfer of pages, a flush, the transfer of nodes, a flush.
//!
//! Pages are one epoch, the nodes behind them the next (L3): a node on the disk leads to pages on the disk. The last node has the mark of
//! `fsync`, so roll-forward takes all of a call or nothing. Linux's F2FS waits for pages, then for nodes, then for the one flush
//! ([`Flushes::Once`]); with its option `nobarrier` it does not flush ([`Flushes::Never`]). A power cut may leave nodes without their pages
//! then.
//!
//! A call overwrites few dirty pages in place, but not those of an [update](crate::atomic): it takes effect with the last node.
//!
//! Roll-forward cannot bring back a directory, a file with several names or none, what was renamed, cut, or got attributes that need a
//! node, updates of several files that ended together, and a new file in a new directory, or with a name that the newest checkpoint has
//! for another file. Linux's F2FS takes the last of these, and files that were cut, by roll-forward.
//!
//! Where a power cut may tear a block, a node may be half written, and roll-forward cannot see that: a call that has nodes to write writes
//! a checkpoint. A plain file or a disk is such a storage, a volume is not. Linux's F2FS does not look for torn nodes.

use std::rc::Rc;

use weir_block::Class;
use weir_cache::SubmitTurn;
use weir_f2fs::{ATTRIBUTE_NODE_PLACE, NodeId, first_page};
use weir_format::FileType;
use weir_journal::{HomeIntegrity, Promise, SyncedFile};
use weir_storage::Ticket;
use weir_vfs::{FsError, SyncCall};

use crate::blocks::BlockWrite;
use crate::checkpoint::{Durability, Purpose};
use crate::file::File;
use crate::mutants::LfsMutant;
use crate::options::Flushes;
use crate::placement::Marks;
use crate::under_way::WrittenNodes;

impl Durability<'_> {
    /// Makes what was changed of a file durable, or puts it before all that comes next.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; those of writing, and of writes that failed since the last call.
    pub(crate) async fn synchronise(&self, number: NodeId, call: SyncCall) -> Result<(), FsError> {
        self.synchronise_file(number, call).await?;
        let (durable, ordered) = self.answered.get();
        self.answered.set(match call.promise() {
            Promise::Durable => (durable + 1, ordered),
            Promise::Ordered => (durable, ordered + 1),
        });
        Ok(())
    }

    async fn synchronise_file(&self, number: NodeId, call: SyncCall) -> Result<(), FsError> {
        let call_permit = self.operations.begin().await;
        let file = self.files.get(number).await?;
        if file.update.borrow().is_some() {
            return Err(FsError::UpdateOpen);
        }
        if !self.operations.has_to_write()? {
            return Ok(file.pages.check_written()?);
        }
        let is_durable = call.promise() == Promise::Durable;
        let mut tickets = None;
        if !self.needs_checkpoint(&file) {
            // No other task submits pages of the file between its pages and its nodes, or cuts it.
            let turn = file.pages.take_turn().await;
            let written = self.operations.complete(self.write_chain(&file, call, turn)).await;
            tickets = written.inspect_err(|error| self.operations.stop_after(error))?;
        }
        drop(call_permit);
        let Some(mut tickets) = tickets else {
            let purpose = if is_durable { Purpose::Durability } else { Purpose::Order };
            self.write_checkpoint(purpose).await?;
            return Ok(file.pages.check_written()?);
        };
        if self.has_barriers() && is_durable {
            // What an earlier call has only ordered is durable, too.
            self.under_way.add_to(&mut tickets);
            tickets.extend(self.checkpoints.footer());
            self.disk.wait_transferred(&tickets).await?;
            self.flush().await?;
        }
        Ok(file.pages.check_written()?)
    }

    /// Writes the pages of a file, and its nodes behind them: with barriers they are submitted, otherwise durable. What it has submitted;
    /// `None` if the file needs a checkpoint meanwhile.
    async fn write_chain(
        &self,
        file: &Rc<File>,
        call: SyncCall,
        turn: SubmitTurn<'_>,
    ) -> Result<Option<Vec<Ticket>>, FsError> {
        let ends_epoch = self.submit_pages(file, &turn).await?;
        let mut tickets = file.pages.untransferred();
        // No node leads to a page whose write has failed.
        file.pages.check_written()?;
        let submitting = self.checkpoints.submitting.acquire(1).await;
        // A checkpoint that has failed meanwhile began a chain that no mount finds.
        self.operations.check_writable()?;
        if self.needs_checkpoint(file) {
            return Ok(None);
        }
        let (writes, nodes) = self.lay_out_nodes(file, call == SyncCall::Fsync)?;
        drop(turn);
        if self.has_barriers() {
            // What writeback has submitted is in the current epoch, transferred or not (L3).
            if !ends_epoch && !writes.is_empty() && self.keeps_nodes_behind() {
                self.disk.barrier().await?;
            }
            self.submit_blocks(writes, Class::Barrier, &mut tickets).await?;
            self.under_way.keep(tickets.clone(), nodes);
            drop(submitting);
        } else {
            // The submitting permit is kept: no node is durable before one that stands before it in the log.
            self.disk.wait_transferred(&tickets).await?;
            if !writes.is_empty() {
                if self.options.flushes == Flushes::Ordered {
                    self.flush().await?;
                }
                self.submit_blocks(writes, Class::Orderless, &mut tickets).await?;
                self.disk.wait_transferred(&tickets).await?;
                drop(nodes);
            }
            self.flush().await?;
        }
        Ok(Some(tickets))
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// As [`write_checkpoint`](Self::write_checkpoint).
    pub(crate) async fn sync(&self) -> Result<(), FsError> {
        if !self.operations.has_to_write()? {
            return Ok(());
        }
        self.write_checkpoint(Purpose::Durability).await?;
        self.files.all().iter().try_for_each(|file| Ok(file.pages.check_written()?))
    }

    async fn flush(&self) -> Result<(), FsError> {
        match self.options.flushes {
            Flushes::Ordered | Flushes::Once => Ok(self.disk.flush().await?),
            Flushes::Never => Ok(()),
        }
    }

    /// Whether roll-forward would not bring a file back as it is, or has no room for it.
    fn needs_checkpoint(&self, file: &File) -> bool {
        if self.is_settled(file) {
            return false;
        }
        let tears = HomeIntegrity::from_capabilities(self.disk.capabilities()) != HomeIntegrity::NeverTorn;
        if tears && self.has_nodes_to_write(file)
            || !self.placement.space.borrow().can_roll_forward()
            || self.has_few_segments(0)
        {
            return true;
        }
        let inode = file.inode.borrow();
        if file.kind() != Some(FileType::Regular) || file.links() != 1 || file.needs_checkpoint.get() {
            return true;
        }
        let parent = self.files.find(NodeId(inode.parent.get()));
        let misses = |parent: Rc<File>| {
            parent.is_new.get()
                || parent.needs_checkpoint.get()
                || parent.lost_names.borrow().contains(inode.name())
        };
        file.is_new.get() && parent.is_some_and(misses)
    }

    /// Whether the newest checkpoint, or the chain behind it, has all of a file.
    fn is_settled(&self, file: &File) -> bool {
        !self.has_nodes_to_write(file)
            && !file.is_new.get()
            && !file.needs_checkpoint.get()
            && file.lost_names.borrow().is_empty()
    }

    /// Whether a call writes nodes. Of one that is torn, which has no checksum, roll-forward would take what is there.
    fn has_nodes_to_write(&self, file: &File) -> bool {
        file.is_dirty()
            || !file.slots.borrow().is_empty()
            || !self.placement.nodes.dirty_of(file.number).is_empty()
    }

    /// Submits the dirty pages of a file as the end of an epoch, for the caller that has the turn to submit. Whether there were some.
    async fn submit_pages(&self, file: &File, turn: &SubmitTurn<'_>) -> Result<bool, FsError> {
        let last = if self.keeps_nodes_behind() { Class::Barrier } else { self.class() };
        file.is_synchronised.set(true);
        let done = turn.submit(self.class(), last).await;
        file.is_synchronised.set(false);
        Ok(done?)
    }

    /// Whether barriers keep nodes behind their pages (L3).
    fn keeps_nodes_behind(&self) -> bool {
        self.has_barriers() && !self.options.rules.drops(LfsMutant::NodesWithPages)
    }

    /// The writes of a file's direct nodes, and of the inode if it `changed` or is needed: the last with the mark of `fsync`.
    fn lay_out_nodes(
        &self,
        file: &Rc<File>,
        with_times: bool,
    ) -> Result<(Vec<BlockWrite>, WrittenNodes), FsError> {
        let nodes = self.placement.nodes.dirty_of(file.number);
        let is_direct = |place| place == ATTRIBUTE_NODE_PLACE || first_page(place, 0).is_some();
        let direct: Vec<_> = nodes.iter().filter(|node| is_direct(node.place)).collect();
        let is_new = file.is_new.get();
        let with_inode = is_new || file.changed_itself.get() || (with_times && file.is_dirty());
        let mut writes = Vec::new();
        for (nth, node) in (1..).zip(&direct) {
            let is_last = nth == direct.len() && !with_inode;
            let fsync = is_last || self.options.rules.drops(LfsMutant::MarkOnEveryNode);
            let marks = Marks { fsync, name: false };
            writes.push(self.placement.write_node(node, false, marks)?);
        }
        if with_inode && (file.is_dirty() || !direct.is_empty()) {
            writes.push(self.placement.write_inode(file, Marks { fsync: true, name: is_new })?);
        }
        file.holds_update.set(false);
        let chain = &self.placement.chain_nodes;
        chain.set(chain.get() + writes.len() as u64);
        Ok((writes, WrittenNodes { nodes, files: vec![Rc::clone(file)] }))
    }
}
