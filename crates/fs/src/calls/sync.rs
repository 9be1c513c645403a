//! The synchronisation calls: what each writes and waits for is the table in [`sync`](crate::sync).

use crate::error::FsError;
use crate::filesystem::Filesystem;
use crate::inodes::InodeNumber;
use crate::superblock::SUPERBLOCK_CREDITS;
use crate::sync::Promise;

impl Filesystem {
    /// Makes a file durable: its data and its inode, and the name under which it was made.
    ///
    /// # Errors
    /// [`FsError::NotFound`]; [`FsError::ReadOnly`] after the journal was aborted, and [`FsError::Storage`] if a
    /// write of the file failed: then nothing of it is promised, by this call or a later one.
    pub async fn fsync(&self, inode: InodeNumber) -> Result<(), FsError> {
        self.synchronise(inode, Promise::Durable, false).await
    }

    /// Makes a file's data durable, and what of its inode is needed to find it (J3).
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub async fn fdatasync(&self, inode: InodeNumber) -> Result<(), FsError> {
        self.synchronise(inode, Promise::Durable, true).await
    }

    /// Orders a file, its data and its inode, before everything that is written later to any file. Waits for no
    /// transfer.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub async fn fbarrier(&self, inode: InodeNumber) -> Result<(), FsError> {
        self.synchronise(inode, Promise::Ordered, false).await
    }

    /// Orders a file's data, and what of its inode is needed to find it (J3), before everything that is written
    /// later to any file. Waits for no transfer.
    ///
    /// # Errors
    /// As [`fsync`](Self::fsync).
    pub async fn fdatabarrier(&self, inode: InodeNumber) -> Result<(), FsError> {
        self.synchronise(inode, Promise::Ordered, true).await
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
    pub async fn sync(&self) -> Result<(), FsError> {
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
        if !journal.engine().flushes() {
            return Ok(());
        }
        Ok(journal.flush().await?)
    }

    pub(super) async fn synchronise(
        &self,
        inode: InodeNumber,
        promise: Promise,
        data_only: bool,
    ) -> Result<(), FsError> {
        let fs = &self.0;
        let node = fs.nodes.get(inode).await?;
        // Mounted without a journal, nothing was ever changed.
        let Ok(journal) = fs.changes.mounted_with() else { return Ok(()) };
        fs.changes.journal()?;
        fs.atomic.commit(std::slice::from_ref(&node)).await?;
        Ok(fs.sync.synchronise(journal, (&node.file, &node.last_changes), promise, data_only).await?)
    }
}
