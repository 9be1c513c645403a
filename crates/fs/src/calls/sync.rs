//! The synchronisation calls: what each writes and waits for is the table in [`sync`](crate::sync); and those for atomic
//! files and their updates ([`atomic`](crate::atomic)).

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::inodes::{InodeNumber, Node};
use crate::superblock::SUPERBLOCK_CREDITS;
use crate::sync::SyncCall;

impl Filesystem {
    /// Makes a file durable: its data and its inode, and the name under which it was made.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; [`FsError::ReadOnly`] after the journal was aborted, and [`FsError::Storage`] if a
    /// write of the file failed: then nothing of it is promised, by this call or a later one.
    pub fn fsync(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fsync)
    }

    /// Makes a file's data durable, and what of its inode is needed to find it (J3).
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fdatasync(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fdatasync)
    }

    /// Orders a file, its data and its inode, before everything that is written later to any file. Waits for no
    /// transfer.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fbarrier(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fbarrier)
    }

    /// Orders a file's data, and what of its inode is needed to find it (J3), before everything that is written
    /// later to any file. Waits for no transfer.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn fdatabarrier(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fdatabarrier)
    }

    /// Runs `write`, which writes to a file up to the byte `end`, and orders that before everything that is written
    /// later, as if [`fdatabarrier`](Self::fdatabarrier) followed it; but not what makes the file longer, which is for
    /// [`fbarrier`](Self::fbarrier) to order. So a program that writes in place says once that each of its writes is to
    /// be ordered, and need not call for each.
    ///
    /// # Errors
    /// As [`fdatabarrier`](Self::fdatabarrier); inside, those of `write`, which orders nothing then.
    pub async fn in_order<T, E>(
        &self,
        inode: InodeNumber,
        end: u64,
        write: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>, FsError> {
        let is_in_place = self.attributes(inode).await?.size >= end;
        let done = write.await;
        if is_in_place && done.is_ok() {
            self.fdatabarrier(inode).await?;
        }
        Ok(done)
    }

    /// Makes everything durable, but for updates of atomic files that are not synchronised: those stay whole.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync), of any file.
    pub fn sync(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            // Mounted without a journal, nothing was ever changed.
            let Ok(journal) = fs.changes.mounted_with() else { return Ok(()) };
            fs.changes.journal()?;
            fs.accesses.log().await?;
            fs.write_back_everything().await?;
            let handle = journal.start(SUPERBLOCK_CREDITS).await?;
            fs.superblock.log_totals(&handle).await?;
            drop(handle);
            journal.commit_all().await?;
            fs.write_back_everything().await?;
            if !journal.engine().facts().flushes {
                return Ok(());
            }
            Ok(journal.flush().await?)
        })
    }

    /// Does what a call promises. What [`fsync`](Self::fsync) and the others are short for.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub fn synchronise(&self, inode: InodeNumber, call: SyncCall) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            let node = fs.nodes.get(inode).await?;
            // Mounted without a journal, nothing was ever changed.
            let Ok(journal) = fs.changes.mounted_with() else { return Ok(()) };
            fs.changes.journal()?;
            fs.atomic.commit(std::slice::from_ref(&node)).await?;
            Ok(fs.sync.synchronise(journal, (&node.file, &node.last_changes), call).await?)
        })
    }

    /// Makes a file atomic, or ordinary again. After a crash, all that was written to an atomic file between two
    /// synchronisation calls is there, or none of it, its size included; neither writeback, nor the timer of the
    /// journal, nor calls for other files put a part of it on the disk. [`sync`](Self::sync) leaves it alone, and
    /// unmount commits it. Files that are made in a directory that is atomic are so from the beginning.
    ///
    /// An atomic file that has become longer or was written to has an *update* until it is synchronised. While it has
    /// one it cannot be made shorter, nor get holes ([`FsError::UpdateOpen`]).
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotPermitted`] for what is neither file nor directory, [`FsError::ReadOnly`],
    /// and what the storage fails by.
    pub fn set_atomic(&self, inode: InodeNumber, atomic: bool) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let node = self.0.nodes.get(inode).await?;
            self.0.atomic.set(&node, atomic).await
        })
    }

    /// Whether a file, or the files that are made in a directory, are atomic.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    pub fn is_atomic(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        Box::pin(async move { Ok(self.0.nodes.get(inode).await?.hands_down_atomicity()) })
    }

    /// Synchronises a group of files as [`fsync`](Self::fsync) does: after a crash the updates of all atomic ones among
    /// them are there, or none is.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync), of any of the files; [`FsError::UpdateOpen`] if an update of one was begun.
    pub fn sync_group<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.synchronise_group(inodes, SyncCall::Fsync).await })
    }

    /// Orders a group of files as [`fbarrier`](Self::fbarrier) does, and whole as [`sync_group`](Self::sync_group) does.
    ///
    /// # Errors
    /// As [`sync_group`](Self::sync_group).
    pub fn order_group<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.synchronise_group(inodes, SyncCall::Fbarrier).await })
    }

    async fn synchronise_group(&self, inodes: &[InodeNumber], call: SyncCall) -> Result<(), FsError> {
        let nodes = self.nodes_of(inodes).await?;
        if self.0.changes.mounted_with().is_ok() {
            self.0.changes.journal()?;
            self.0.atomic.commit(&nodes).await?;
        }
        // Transactions become durable in order, so of the atomic ones that which changed last stands for all.
        let (atomic, ordinary): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.is_atomic());
        let newest = atomic.into_iter().reduce(|one, other| match (one.last_change(), other.last_change()) {
            (Some(one_in), Some(other_in)) if !other_in.is_after(one_in) => one,
            (Some(_), None) => one,
            _ => other,
        });
        for node in newest.into_iter().chain(ordinary) {
            self.synchronise(node.number, call).await?;
        }
        Ok(())
    }

    /// Begins an update of an atomic file: from now on only [`end_updates`](Self::end_updates) puts what is written
    /// into the journal, and no synchronisation call does. What was written before goes there first.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a file that is not atomic, [`FsError::UpdateOpen`] if one was begun,
    /// and those of [`write`](Self::write).
    pub fn begin_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let node = self.0.nodes.get(inode).await?;
            self.0.atomic.begin_update(&node).await
        })
    }

    /// Ends the updates of files, which were begun: after a crash all of them are there or none is. They are in the
    /// running transaction then, so any synchronisation call for one of the files covers all.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if one was not begun, and those of [`write`](Self::write).
    pub fn end_updates<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.atomic.end_updates(&self.nodes_of(inodes).await?).await })
    }

    /// Takes back what was written to an atomic file since its update was begun, or since it was synchronised.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    pub fn abandon_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let node = self.0.nodes.get(inode).await?;
            let _locked = node.lock_exclusive().await;
            self.0.atomic.abandon(&node);
            Ok(())
        })
    }

    async fn nodes_of(&self, inodes: &[InodeNumber]) -> Result<Vec<Rc<Node>>, FsError> {
        let mut nodes = Vec::with_capacity(inodes.len());
        for inode in inodes {
            nodes.push(self.0.nodes.get(*inode).await?);
        }
        Ok(nodes)
    }
}
