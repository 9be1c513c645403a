//! Atomic files on a mount: the attribute that makes them so, and the ioctls for their updates.
//!
//! What of a file the kernel keeps in its page cache may be older or newer than an update that is taken back, so the
//! kernel is asked for what is dirty before, and forgets its pages after.

use rustix::io::Errno;
use weir_vfs::{Expect, InodeNumber, Promise, SyncCall};
use zerocopy::FromBytes as _;

use crate::calls::Calls;
use crate::control::{
    ABANDON_UPDATE, BEGIN_UPDATE, END_UPDATE, F2FS_COMMIT_ATOMIC_WRITE, F2FS_FEATURE_ATOMIC_WRITE,
    F2FS_GET_FEATURES, F2FS_START_ATOMIC_WRITE, SyncGroup, SyncMode,
};
use crate::convert;
use crate::errno::{errno, errno_of_sync};
use crate::privileges::Caller;

/// The only value of the attribute.
const ATOMIC: &[u8] = b"1";

impl Calls {
    /// The value of the attribute of an atomic file.
    pub(crate) async fn atomic_attribute(&self, inode: InodeNumber) -> Result<Vec<u8>, Errno> {
        match self.filesystem.is_atomic(inode).await.map_err(|error| errno(&error))? {
            true => Ok(ATOMIC.to_vec()),
            false => Err(Errno::NODATA),
        }
    }

    /// Makes a file atomic, with the attribute's value, or ordinary, without one.
    pub(crate) async fn set_atomic(
        &self,
        inode: InodeNumber,
        value: Option<&[u8]>,
        expect: Expect,
        caller: Caller,
    ) -> Result<(), Errno> {
        self.require_owner(inode, caller).await?;
        if value.is_some_and(|value| value != ATOMIC) {
            return Err(Errno::INVAL);
        }
        let is_atomic = self.filesystem.is_atomic(inode).await.map_err(|error| errno(&error))?;
        match (expect, is_atomic) {
            (Expect::Absent, true) => return Err(Errno::EXIST),
            (Expect::Present, false) => return Err(Errno::NODATA),
            _ => {}
        }
        self.take_over(inode).await?;
        self.filesystem.set_atomic(inode, value.is_some()).await.map_err(|error| errno(&error))
    }

    /// Begins, ends or abandons the update of an open file. The one that has begun it may do the others.
    pub(crate) async fn update(
        &self,
        inode: InodeNumber,
        handle: u64,
        command: u32,
        caller: Caller,
    ) -> Result<(), Errno> {
        let file = self.writable_file(inode, handle, caller).await?;
        self.take_over(inode).await?;
        if matches!(command, BEGIN_UPDATE | END_UPDATE) {
            // What the kernel could not write back is missing: an update without it is not whole.
            self.fails_sync(inode).await?;
        }
        let filesystem = &self.filesystem;
        let done = match command {
            BEGIN_UPDATE => filesystem.begin_update(inode).await,
            END_UPDATE | ABANDON_UPDATE if !file.has_begun_update.get() => return Err(Errno::INVAL),
            END_UPDATE => filesystem.end_updates(&[inode]).await,
            _ => filesystem.abandon_update(inode).await,
        };
        done.map_err(|error| errno(&error))?;
        file.has_begun_update.set(command == BEGIN_UPDATE);
        if command == ABANDON_UPDATE {
            // What is missing since the update was begun was to be a part of it.
            self.lost.cut(inode, 0);
            self.kernel.take_pages(inode).await?;
        }
        Ok(())
    }

    /// Does what an ioctl of Linux's F2FS asks, where the filesystem is one; the bytes that it gives.
    pub(crate) async fn write_atomically(
        &self,
        inode: InodeNumber,
        handle: u64,
        command: u32,
        caller: Caller,
    ) -> Result<Vec<u8>, Errno> {
        if !self.filesystem.has_atomic_writes() {
            return Err(Errno::NOTTY);
        }
        match command {
            F2FS_GET_FEATURES => return Ok(F2FS_FEATURE_ATOMIC_WRITE.to_ne_bytes().to_vec()),
            F2FS_START_ATOMIC_WRITE => self.update(inode, handle, BEGIN_UPDATE, caller).await?,
            F2FS_COMMIT_ATOMIC_WRITE => {
                self.update(inode, handle, END_UPDATE, caller).await?;
                let call = SyncCall::from_promise(Promise::Durable, false);
                match self.synchronise(inode, call, caller).await {
                    // Another open file of it has begun the next update: only that waits.
                    Err(Errno::BUSY) => {
                        self.filesystem.sync().await.map_err(|error| errno(&error))?;
                        if self.find_sync_mode(inode, caller).await == SyncMode::Remote {
                            self.sync_modes.wait_for_store().await?;
                        }
                    }
                    done => done?,
                }
            }
            _ => self.update(inode, handle, ABANDON_UPDATE, caller).await?,
        }
        Ok(Vec::new())
    }

    /// An open file is being closed: an update that was begun through it, and not ended, is taken back. Its program has
    /// died, or forgot it.
    pub(crate) async fn abandon_with(&self, handle: u64) {
        let Some(file) = self.files.get(handle).filter(|file| file.has_begun_update.get()) else { return };
        // What could fail is reading, and then there is no update to be read either.
        let _ = self.take_over(file.inode).await;
        let _ = self.filesystem.abandon_update(file.inode).await;
        self.lost.cut(file.inode, 0);
        let _ = self.kernel.take_pages(file.inode).await;
    }

    /// Synchronises a group of files: that which the call was made on, and others of the caller's own.
    pub(crate) async fn sync_group(
        &self,
        inode: InodeNumber,
        argument: &[u8],
        caller: Caller,
    ) -> Result<(), Errno> {
        let group = SyncGroup::read_from_bytes(argument).map_err(|_| Errno::INVAL)?;
        let mode = SyncMode::of_argument(&group.mode.to_ne_bytes()).ok_or(Errno::INVAL)?;
        let count = usize::try_from(group.count).map_err(|_| Errno::INVAL)?;
        let others = group.inodes.get(..count).ok_or(Errno::INVAL)?;
        self.sync_modes.require_kept(mode)?;
        let mut inodes = vec![inode];
        for other in others {
            let other = u32::try_from(*other)
                .map_or(0, |number| convert::inode(number.into(), self.filesystem.root()));
            if !self.filesystem.is_file_number(other) {
                return Err(Errno::NOENT);
            }
            self.require_owner(other, caller).await?;
            inodes.push(other);
        }
        for inode in &inodes {
            self.take_over(*inode).await?;
        }
        let mut waits_for_store = mode == SyncMode::Remote;
        for inode in inodes.iter().filter(|_| mode == SyncMode::Durable) {
            waits_for_store |= self.find_sync_mode(*inode, caller).await == SyncMode::Remote;
        }
        let done = match mode {
            SyncMode::Durable | SyncMode::Remote => self.filesystem.sync_group(&inodes).await,
            SyncMode::Order => self.filesystem.order_group(&inodes).await,
        };
        done.map_err(|error| errno_of_sync(&error))?;
        if waits_for_store {
            self.sync_modes.wait_for_store().await?;
        }
        for inode in inodes {
            self.fails_sync(inode).await?;
        }
        Ok(())
    }
}
