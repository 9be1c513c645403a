//! A storage as one file, for a loop device: so the kernel's own filesystems run on it.
//!
//! The file is for direct I/O only, as `losetup --direct-io=on` uses it: what is written is with the storage when the
//! write returns. A loop device turns a filesystem's flush into `fsync`, which flushes the storage, and its discard
//! into punching a hole.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    ReplyXattr, Request, WriteFlags,
};
use rustix::fs::FallocateFlags;
use weir_runtime::Semaphore;
use weir_storage::{
    BLOCK_BYTES, Command, Discard, Extent, Lba, Part, Rejected, Storage, Write, flush, read, submit_when_free,
};

use crate::control::{STATUS_ATTRIBUTE, SYNC_ALL};
use crate::jobs::Jobs;
use crate::requests::{answer, answer_data, answer_value, configure};

/// The name of the file.
pub const DISK_NAME: &str = "disk";
/// Its inode.
const DISK: INodeNo = INodeNo(2);
const VALID: Duration = Duration::from_secs(3600);
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A storage, addressed by bytes.
pub(crate) struct Disk {
    storage: Rc<dyn Storage>,
    /// A write of less than a block reads the rest of it first; two such must not meet in one block.
    partial: Semaphore,
    /// The status as JSON.
    status: Box<dyn Fn() -> String>,
}

fn failed(_: Rejected) -> Errno {
    Errno::EIO
}

/// The blocks that bytes lie in.
fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

/// Whether bytes are whole blocks.
fn is_whole(bytes: &Range<u64>) -> bool {
    bytes.start.is_multiple_of(BLOCK) && bytes.end.is_multiple_of(BLOCK)
}

/// Blocks, cut where a command cannot take more of them.
fn commands(blocks: Range<u64>, most: u32) -> impl Iterator<Item = Extent> {
    let end = blocks.end;
    blocks.step_by(most.max(1) as usize).map(move |first| {
        let count = (end - first).min(most.max(1).into());
        Extent::new(Lba(first), u32::try_from(count).unwrap_or(u32::MAX))
    })
}

impl Disk {
    pub(crate) fn new(storage: Rc<dyn Storage>, status: Box<dyn Fn() -> String>) -> Disk {
        Disk { storage, partial: Semaphore::new(1), status }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.storage.blocks() * BLOCK
    }

    fn most(&self) -> u32 {
        self.storage.capabilities().max_transfer_blocks
    }

    /// As much of the bytes as is not behind the end.
    fn inside(&self, offset: u64, length: u64) -> Range<u64> {
        offset.min(self.bytes())..offset.saturating_add(length).min(self.bytes())
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let bytes = self.inside(offset, length.into());
        let blocks = blocks_of(&bytes);
        let skipped = (bytes.start - blocks.start * BLOCK) as usize;
        let mut found = Vec::with_capacity(length as usize + 2 * BLOCK_BYTES);
        for extent in commands(blocks, self.most()) {
            found.extend_from_slice(&read(&*self.storage, extent).await.map_err(failed)?);
        }
        found.truncate(skipped + (bytes.end - bytes.start) as usize);
        found.drain(..skipped);
        Ok(found)
    }

    async fn write(&self, offset: u64, new: &[u8]) -> Result<u32, Errno> {
        let bytes = self.inside(offset, new.len() as u64);
        if bytes.end - bytes.start < new.len() as u64 {
            return Err(Errno::ENOSPC);
        }
        if is_whole(&bytes) {
            self.write_blocks(&bytes, new).await?;
        } else {
            let _alone = self.partial.acquire(1).await;
            let blocks = blocks_of(&bytes);
            let whole = blocks.start * BLOCK..blocks.end * BLOCK;
            let length = u32::try_from(whole.end - whole.start).map_err(|_| Errno::EINVAL)?;
            let mut content = self.read(whole.start, length).await?;
            let at = (bytes.start - whole.start) as usize;
            content[at..at + new.len()].copy_from_slice(new);
            self.write_blocks(&whole, &content).await?;
        }
        u32::try_from(new.len()).map_err(|_| Errno::EINVAL)
    }

    async fn write_blocks(&self, bytes: &Range<u64>, content: &[u8]) -> Result<(), Errno> {
        let mut left = content;
        let mut tickets = Vec::new();
        for extent in commands(blocks_of(bytes), self.most()) {
            let (now, later) = left.split_at(extent.blocks as usize * BLOCK_BYTES);
            left = later;
            let parts = [Part::bytes(extent.start, now)];
            let submitted = submit_when_free(&*self.storage, Command::Write(Write::new(&parts))).await;
            tickets.push(submitted.map_err(failed)?);
        }
        for ticket in tickets {
            ticket.transferred().await.map_err(|_| Errno::EIO)?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), Errno> {
        flush(&*self.storage).await.map_err(failed)
    }

    /// Punching a hole discards, where the storage can; zeros are written otherwise, and for other modes.
    async fn allocate(&self, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned()) - FallocateFlags::KEEP_SIZE;
        if flags != FallocateFlags::PUNCH_HOLE && flags != FallocateFlags::ZERO_RANGE {
            return Err(Errno::EOPNOTSUPP);
        }
        let bytes = self.inside(offset, length);
        if !is_whole(&bytes) {
            return Err(Errno::EOPNOTSUPP);
        }
        let capabilities = self.storage.capabilities();
        if flags == FallocateFlags::PUNCH_HOLE && capabilities.discard == Discard::ReadsZero {
            for extent in commands(blocks_of(&bytes), self.most()) {
                let ticket =
                    submit_when_free(&*self.storage, Command::Discard(&[extent])).await.map_err(failed)?;
                ticket.transferred().await.map_err(|_| Errno::EIO)?;
            }
            return Ok(());
        }
        let zeros = vec![0; self.most() as usize * BLOCK_BYTES];
        for extent in commands(blocks_of(&bytes), self.most()) {
            let start = extent.start.0 * BLOCK;
            let length = extent.blocks as usize * BLOCK_BYTES;
            self.write_blocks(&(start..start + length as u64), &zeros[..length]).await?;
        }
        Ok(())
    }
}

/// The storage as the kernel's session knows it: a directory with one file.
pub(crate) struct DiskRequests {
    jobs: Jobs<Disk>,
    bytes: u64,
}

impl DiskRequests {
    pub(crate) fn new(jobs: Jobs<Disk>, bytes: u64) -> DiskRequests {
        DiskRequests { jobs, bytes }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            DISK => (FileType::RegularFile, 0o600, self.bytes),
            _ => return None,
        };
        let time = UNIX_EPOCH;
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        })
    }
}

impl fuser::Filesystem for DiskRequests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(DISK).filter(|_| parent == INodeNo::ROOT && name == DISK_NAME) {
            Some(found) => reply.entry(&VALID, &found, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(found) => reply.attr(&VALID, &found),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.jobs.run(move |disk| async move { answer_data(reply, disk.read(offset, length).await) });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = bytes.to_vec();
        let synchronous = flags.0 & libc::O_DSYNC != 0;
        self.jobs.run(move |disk| async move {
            let written = disk.write(offset, &bytes).await;
            let flushed = if synchronous { disk.flush().await } else { Ok(()) };
            match written.and_then(|count| flushed.map(|()| count)) {
                Ok(count) => reply.written(count),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.jobs.run(move |disk| async move { answer(reply, disk.flush().await) });
    }

    /// The status, as of a filesystem's mount.
    fn getxattr(&self, _: &Request, _: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        if name.as_bytes() != STATUS_ATTRIBUTE {
            return reply.error(Errno::NO_XATTR);
        }
        self.jobs.run(move |disk| async move { answer_value(reply, room, Ok((disk.status)().into_bytes())) });
    }

    /// Makes everything durable, as on a filesystem's mount.
    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        value: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        if name.as_bytes() != STATUS_ATTRIBUTE || value != SYNC_ALL {
            return reply.error(Errno::EPERM);
        }
        self.jobs.run(move |disk| async move { answer(reply, disk.flush().await) });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.jobs.run(move |disk| async move { answer(reply, disk.allocate(offset, length, mode).await) });
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, DISK_NAME),
        ];
        for (nth, (inode, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(inode, nth as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
