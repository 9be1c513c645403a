//! The synchronisation calls: what each writes and waits for is the table in [`sync`](crate::sync); and those for atomic
//! files and their updates ([`atomic`](crate::atomic)).

use futures_util::future::LocalBoxFuture;

use crate::attributes::InodeNumber;
use crate::error::FsError;
use crate::refusal::refuse;
use crate::sync_call::SyncCall;

/// Order and durability.
pub trait SyncCalls {
    /// Makes a file durable: its data and its inode, and the name under which it was made.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; [`FsError::ReadOnly`] after the journal was aborted, and [`FsError::Storage`] if a
    /// write of the file failed: then nothing of it is promised, by this call or a later one.
    fn fsync(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fsync)
    }

    /// Makes a file's data durable, and what of its inode is needed to find it (J3).
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    fn fdatasync(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fdatasync)
    }

    /// Orders a file, its data and its inode, before everything that is written later to any file. Waits for no
    /// transfer.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    fn fbarrier(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fbarrier)
    }

    /// Orders a file's data, and what of its inode is needed to find it (J3), before everything that is written
    /// later to any file. Waits for no transfer.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    fn fdatabarrier(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.synchronise(inode, SyncCall::Fdatabarrier)
    }

    /// Makes everything durable, but for updates of atomic files that are not synchronised: those stay whole.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync), of any file.
    fn sync(&self) -> LocalBoxFuture<'_, Result<(), FsError>>;

    /// Orders everything that was changed before, by any caller, before everything that is changed later, but for updates of
    /// atomic files that are not synchronised. Waits for no transfer, where
    /// the filesystem keeps order without; elsewhere it is [`sync`](Self::sync).
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn order_all(&self) -> LocalBoxFuture<'_, Result<(), FsError>> {
        self.sync()
    }

    /// Does what a call promises. What [`fsync`](Self::fsync) and the others are short for.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    fn synchronise(&self, inode: InodeNumber, call: SyncCall) -> LocalBoxFuture<'_, Result<(), FsError>>;

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
    fn set_atomic(&self, inode: InodeNumber, atomic: bool) -> LocalBoxFuture<'_, Result<(), FsError>> {
        let _ = (inode, atomic);
        refuse()
    }

    /// Whether a file, or the files that are made in a directory, are atomic.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    fn is_atomic(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<bool, FsError>>;

    /// Does what a call promises, for a group of files: what [`sync_group`](Self::sync_group) and
    /// [`order_group`](Self::order_group) are short for. Without atomic files, for one after the other.
    ///
    /// # Errors
    /// As [`sync_group`](Self::sync_group).
    fn synchronise_group<'a>(
        &'a self,
        inodes: &'a [InodeNumber],
        call: SyncCall,
    ) -> LocalBoxFuture<'a, Result<(), FsError>> {
        Box::pin(async move {
            for inode in inodes {
                self.synchronise(*inode, call).await?;
            }
            Ok(())
        })
    }

    /// Synchronises a group of files as [`fsync`](Self::fsync) does: after a crash the updates of all atomic ones among
    /// them are there, or none is.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync), of any of the files; [`FsError::UpdateOpen`] if an update of one was begun.
    fn sync_group<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        self.synchronise_group(inodes, SyncCall::Fsync)
    }

    /// Orders a group of files as [`fbarrier`](Self::fbarrier) does, and whole as [`sync_group`](Self::sync_group) does.
    ///
    /// # Errors
    /// As [`sync_group`](Self::sync_group).
    fn order_group<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        self.synchronise_group(inodes, SyncCall::Fbarrier)
    }

    /// Whether updates can be begun of any regular file, atomic or not, as on Linux's F2FS.
    fn has_atomic_writes(&self) -> bool {
        false
    }

    /// Begins an update of an atomic file: from now on only [`end_updates`](Self::end_updates) puts what is written
    /// into the journal, and no synchronisation call does. What was written before goes there first. A filesystem that
    /// [has atomic writes](Self::has_atomic_writes) begins one of any regular file.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a file that has to be atomic and is not, [`FsError::UpdateOpen`] if one was begun,
    /// and those of [`write`](crate::FileCalls::write).
    fn begin_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        let _ = inode;
        refuse()
    }

    /// Ends the updates of files, which were begun: after a crash all of them are there or none is. They are in the
    /// running transaction, or the next checkpoint, then, so any synchronisation call for one of the files covers all.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if one was not begun, and those of [`write`](crate::FileCalls::write).
    fn end_updates<'a>(&'a self, inodes: &'a [InodeNumber]) -> LocalBoxFuture<'a, Result<(), FsError>> {
        let _ = inodes;
        refuse()
    }

    /// Takes back what was written to an atomic file since its update was begun, or since it was synchronised.
    ///
    /// # Errors
    /// [`FsError::NotFound`], and what reading may fail by.
    fn abandon_update(&self, inode: InodeNumber) -> LocalBoxFuture<'_, Result<(), FsError>> {
        let _ = inode;
        refuse()
    }
}
