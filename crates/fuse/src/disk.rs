//! A storage as one file, for a loop device: so the kernel's own filesystems run on it.
//!
//! The file is for direct I/O only, as `losetup --direct-io=on` uses it: what is written is with the storage when the
//! write returns. A loop device turns a filesystem's flush into `fsync`, which flushes the storage, and its discard
//! into punching a hole.

use std::ops::Range;
use std::rc::Rc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use weir_format::FileType;
use weir_storage::{BLOCK_BYTES, ByteStorage, Rejected, Storage, WriteFlags};

use crate::calls::Status;
use crate::control::{STATUS_ATTRIBUTE, SYNC_ALL};
use crate::protocol::{
    Answer, DirectoryName, Header, Names, NodeAttributes, Operation, ROOT, Statistics, WriteRequest,
    open_flags,
};
use crate::serve::Service;

/// The name of the file.
pub const DISK_NAME: &str = "disk";
/// Its inode.
const DISK: u64 = 2;

/// A storage, addressed by bytes.
pub(crate) struct Disk {
    bytes: ByteStorage,
    /// The status as JSON.
    status: Box<Status<()>>,
}

fn failed(_: Rejected) -> Errno {
    Errno::IO
}

impl Disk {
    pub(crate) fn new(storage: Rc<dyn Storage>, status: Box<Status<()>>) -> Disk {
        Disk { bytes: ByteStorage::new(storage), status }
    }

    /// As much of the bytes as is not behind the end.
    fn inside(&self, offset: u64, length: u64) -> Range<u64> {
        let end = self.bytes.bytes();
        offset.min(end)..offset.saturating_add(length).min(end)
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        let mut found = Vec::with_capacity(length as usize);
        self.bytes.read(self.inside(offset, length.into()), &mut found).await.map_err(failed)?;
        Ok(found)
    }

    async fn write(&self, offset: u64, new: &[u8]) -> Result<u32, Errno> {
        let bytes = self.inside(offset, new.len() as u64);
        if bytes.end - bytes.start < new.len() as u64 {
            return Err(Errno::NOSPC);
        }
        self.bytes.write(offset, new, WriteFlags::default()).await.map_err(failed)?;
        u32::try_from(new.len()).map_err(|_| Errno::INVAL)
    }

    async fn flush(&self) -> Result<(), Errno> {
        self.bytes.flush().await.map_err(failed)
    }

    /// Punching a hole discards, where the storage can; zeros are written otherwise, and for other modes.
    async fn allocate(&self, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned()) - FallocateFlags::KEEP_SIZE;
        if flags != FallocateFlags::PUNCH_HOLE && flags != FallocateFlags::ZERO_RANGE {
            return Err(Errno::OPNOTSUPP);
        }
        let may_discard = flags == FallocateFlags::PUNCH_HOLE;
        self.bytes.write_zeros(self.inside(offset, length), may_discard).await.map_err(failed)
    }
}

/// The storage as the kernel sees it: a directory with one file.
impl Disk {
    fn attributes(&self, node: u64) -> Result<NodeAttributes, Errno> {
        let (kind, permissions, size) = match node {
            ROOT => (FileType::Directory, 0o700, 0),
            DISK => (FileType::Regular, 0o600, self.bytes.bytes()),
            _ => return Err(Errno::NOENT),
        };
        Ok(NodeAttributes {
            node,
            size,
            sectors: size / 512,
            mode: u32::from(kind.mode_bits() | permissions),
            links: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            block_bytes: BLOCK_BYTES as u32,
            ..NodeAttributes::default()
        })
    }

    fn names(offset: u64, room: u32) -> Answer {
        let entries = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (DISK, FileType::Regular, DISK_NAME),
        ];
        let mut names = Names::new(room);
        for (position, (node, kind, name)) in (1..).zip(entries).skip_while(|&(nth, _)| nth <= offset) {
            let name = name.as_bytes();
            if !names.have_room(name, false) {
                break;
            }
            names.add(&DirectoryName { node, position, kind, name });
        }
        names.answer()
    }
}

impl Service for Disk {
    const IS_FILESYSTEM: bool = false;

    async fn answer(&self, header: &Header, operation: Operation<'_>) -> Result<Answer, Errno> {
        match operation {
            Operation::Lookup { name } if header.node == ROOT && name == DISK_NAME.as_bytes() => {
                Ok(Answer::entry(self.attributes(DISK)?, 0))
            }
            Operation::Lookup { .. } => Err(Errno::NOENT),
            Operation::GetAttributes { .. } => Ok(Answer::attributes(self.attributes(header.node)?)),
            Operation::Open { .. } => {
                Ok(Answer::opened(0, open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES))
            }
            Operation::Read { offset, length, .. } => Ok(Answer::Data(self.read(offset, length).await?)),
            Operation::Write(WriteRequest { offset, bytes, flags, .. }) => {
                let written = self.write(offset, bytes).await?;
                if flags & libc::O_DSYNC != 0 {
                    self.flush().await?;
                }
                Ok(Answer::bytes(written))
            }
            Operation::Synchronise { .. } => self.flush().await.map(|()| Answer::Done),
            Operation::Allocate { offset, length, mode } => {
                self.allocate(offset, length, mode).await.map(|()| Answer::Done)
            }
            Operation::OpenDirectory { .. } => Ok(Answer::opened(0, 0)),
            Operation::ReadDirectory { offset, room, .. } => Ok(Disk::names(offset, room)),
            Operation::Flush | Operation::Release { .. } | Operation::ReleaseDirectory { .. } => {
                Ok(Answer::Done)
            }
            // `df` would say more of the filesystem on it.
            Operation::Statistics => Ok(Answer::Statistics(Statistics {
                block_bytes: 512,
                name_bytes_max: 255,
                ..Statistics::default()
            })),
            // The status, as of a filesystem's mount.
            Operation::GetExtended { name: STATUS_ATTRIBUTE, room } => {
                Answer::value(self.report_status().await.into_bytes(), room)
            }
            Operation::GetExtended { .. } => Err(Errno::NODATA),
            // Makes everything durable, as on a filesystem's mount.
            Operation::SetExtended { name: STATUS_ATTRIBUTE, value: SYNC_ALL, .. } => {
                self.flush().await.map(|()| Answer::Done)
            }
            // There is one file, and it is never deleted.
            Operation::SetExtended { .. }
            | Operation::Create { .. }
            | Operation::CreateUnnamed { .. }
            | Operation::MakeNode { .. }
            | Operation::MakeDirectory { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::RemoveDirectory { .. }
            | Operation::Rename { .. } => Err(Errno::PERM),
            _ => Err(Errno::NOSYS),
        }
    }

    /// Nothing is kept about the programs that have it open.
    /// The two nodes are there for good.
    fn forget(&self, _: u64, _: u64) {}

    /// The kernel keeps nothing of it.
    async fn collect_all_pages(&self) {}

    async fn report_status(&self) -> String {
        (self.status)(()).await
    }

    async fn take_back(&self, _: Answer) {}
}

#[cfg(test)]
mod tests {
    use weir_flash::{FlashDevice, FlashOptions, Profile};
    use weir_runtime::{Runtime, Simulation};

    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    /// Fills a block with ones, and does something else to it while part of it is written.
    fn beside_a_part(other: impl AsyncFnOnce(&Disk) -> Result<(), Errno>) -> Vec<u8> {
        let runtime = Runtime::simulated(Simulation::default());
        let handle = runtime.handle();
        let profile = Profile::builtin("ufs20").expect("built in").with_capacity(4096);
        let written = async {
            let device = FlashDevice::new(&handle, &profile, FlashOptions::default());
            let disk = Rc::new(Disk::new(device, Box::new(|()| Box::pin(async { String::new() }))));
            disk.write(0, &[1; BLOCK_BYTES]).await?;
            let part = Rc::clone(&disk);
            let part = handle.spawn(async move { part.write(100, &[2; 50]).await });
            handle.give_way().await;
            other(&disk).await?;
            part.await.expect("no task cancels it")?;
            disk.read(0, BLOCK_BYTES as u32).await
        };
        runtime.block_on(written).expect("no deadlock").expect("the device works")
    }

    /// What a write of part of a block has read before is old by the time that it writes.
    #[test]
    fn a_write_of_a_part_does_not_take_back_what_others_write() {
        let found = beside_a_part(async |disk| disk.write(0, &[3; BLOCK_BYTES]).await.map(drop));
        assert!(found[..100].iter().chain(&found[150..]).all(|&byte| byte == 3), "{:?}", &found[90..160]);
    }

    /// The kernel closes a file while asynchronous writes to it are under way, so that an allocation may meet them.
    #[test]
    fn a_write_of_a_part_does_not_take_back_zeros() {
        for flags in [FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE] {
            let mode = (flags | FallocateFlags::KEEP_SIZE).bits().cast_signed();
            let found = beside_a_part(async |disk| disk.allocate(0, BLOCK, mode).await);
            assert!(found[..100].iter().chain(&found[150..]).all(|&byte| byte == 0), "{:?}", &found[90..160]);
        }
    }
}
