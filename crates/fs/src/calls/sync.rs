//! The synchronisation calls: what each writes and waits for is the table in [`sync`](crate::sync); and those for atomic
//! files and their updates ([`atomic`](crate::atomic)).

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use weir_journal::{OrderBy, SyncedFile as _, Until};
use weir_vfs::{FsError, InodeNumber, SyncCall, SyncCalls};

use crate::filesystem::BarrierFs;
use crate::inodes::Node;
use crate::superblock::SUPERBLOCK_CREDITS;

impl SyncCalls for BarrierFs {
    fn sync(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            // Mounted without a journal, nothing was ever changed.
            let Ok(journal) = fs.changes.mounted_with() else { return Ok(()) };
            fs.changes.journal()?;
            fs.accesses.log().await?;
            if let Some(moments) = fs.moments.get() {
                return moments.reach_durable(fs).await;
            }
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

    fn order_all(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            let Ok(journal) = fs.changes.mounted_with() else { return Ok(()) };
            match fs.changes.journal()?.engine().facts().order {
                // Whatever a crash leaves is in order (J11).
                _ if fs.moments.get().is_some() => Ok(()),
                OrderBy::Flushes => self.sync().await,
                OrderBy::Barriers => {
                    fs.submit_everything().await?;
                    Ok(journal.force_commit(Until::Dispatched).await?)
                }
                OrderBy::Receipt => {
                    fs.write_back_everything().await?;
                    Ok(journal.force_commit(Until::Transferred).await?)
                }
            }
        })
    }

    fn synchronise(&self, inode: InodeNumber, call: SyncCall) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let fs = &self.0;
            let node = fs.nodes.get(inode).await?;
            // Mounted without a journal, nothing was ever changed.
            let Ok(journal) = fs.changes.mounted_with() else { return Ok(()) };
            fs.changes.journal()?;
            fs.atomic.commit(std::slice::from_ref(&node)).await?;
            if let Some(moments) = fs.moments.get() {
                node.file.check_written()?;
                moments.keep_promise(fs, call.promise()).await?;
                fs.sync.note_answered(journal, call.promise());
                return Ok(());
            }
            let inode = node.synced_inode()?;
            Ok(fs.sync.synchronise(journal, (&node.file, &node.last_changes), inode, call).await?)
        })
    }

    fn set_atomic(&self, inode: InodeNumber, atomic: bool) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let node = self.0.nodes.get(inode).await?;
            self.0.atomic.set(&node, atomic).await
        })
    }

    fn is_atomic(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>> {
        Box::pin(async move { Ok(self.0.nodes.get(inode).await?.hands_down_atomicity()) })
    }

    fn begin_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let node = self.0.nodes.get(inode).await?;
            self.0.atomic.begin_update(&node).await
        })
    }

    fn end_updates<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move { self.0.atomic.end_updates(&self.nodes_of(inodes).await?).await })
    }

    fn abandon_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        Box::pin(async move {
            let node = self.0.nodes.get(inode).await?;
            let _locked = node.lock_exclusive().await;
            self.0.atomic.abandon(&node);
            Ok(())
        })
    }

    fn synchronise_group<'a>(
        &'a self,
        inodes: &'a [InodeNumber],
        call: SyncCall,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move {
            let nodes = self.nodes_of(inodes).await?;
            if let Ok(journal) = self.0.changes.mounted_with() {
                self.0.changes.journal()?;
                self.0.atomic.commit(&nodes).await?;
                if let Some(moments) = self.0.moments.get() {
                    moments.keep_promise(&self.0, call.promise()).await?;
                    inodes.iter().for_each(|_| self.0.sync.note_answered(journal, call.promise()));
                    return Ok(());
                }
            }
            // Transactions become durable in order, so of the atomic ones that which changed last stands for all.
            let (atomic, ordinary): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.is_atomic());
            let newest =
                atomic.into_iter().reduce(|one, other| match (one.last_change(), other.last_change()) {
                    (Some(one_in), Some(other_in)) if !other_in.is_after(one_in) => one,
                    (Some(_), None) => one,
                    _ => other,
                });
            for node in newest.into_iter().chain(ordinary) {
                self.synchronise(node.number, call).await?;
            }
            Ok(())
        })
    }
}

impl BarrierFs {
    async fn nodes_of(&self, inodes: &[InodeNumber]) -> Result<Vec<Rc<Node>>, FsError> {
        let mut nodes = Vec::with_capacity(inodes.len());
        for inode in inodes {
            nodes.push(self.0.nodes.get(*inode).await?);
        }
        Ok(nodes)
    }
}
