//! The kernel's requests, as calls: each says what it takes to answer one.

use rustix::io::Errno;
use weir_format::FileType;
use weir_vfs::{AttributeChanges, InodeNumber, NewNode, Promise, SyncCall};

use crate::calls::{Calls, Entry, Opened};
use crate::convert::{self, device};
use crate::copy::copy_range;
use crate::errno::errno;
use crate::privileges::Caller;
use crate::protocol::{
    Answer, Header, Names, Operation, ROOT, SetAttributes, Statistics, Time, of_node_id, open_flags,
};
use crate::serve::Service;

/// The twelve bits of permissions in a mode.
fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

/// What is to be made for the caller.
fn new_node(header: &Header, kind: FileType, mode: u32, umask: u32) -> NewNode {
    let (uid, gid, umask) = (header.uid, header.gid, permissions(umask));
    NewNode { uid, gid, umask, ..NewNode::new(kind, permissions(mode)) }
}

fn entry((attributes, generation): Entry) -> Answer {
    Answer::entry(attributes, generation)
}

fn done((): ()) -> Answer {
    Answer::Done
}

/// What the page cache holds of a file stays right, since only the kernel changes it. Where the kernel keeps the times,
/// it has to see direct writes, too: it passes them on without its cache by itself, and one at a time.
fn flags_of(opened: Opened, is_writeback: bool) -> u32 {
    match opened.direct && !is_writeback {
        true => open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES,
        false => open_flags::KEEP_CACHE,
    }
}

impl Calls {
    fn answer_opened(&self, opened: Opened) -> Answer {
        Answer::opened(opened.handle, flags_of(opened, self.kernel.is_writeback))
    }

    fn answer_created(&self, ((attributes, generation), opened): (Entry, Opened)) -> Answer {
        let flags = flags_of(opened, self.kernel.is_writeback);
        Answer::created(attributes, generation, opened.handle, flags)
    }

    /// The inode of a node.
    fn inode(&self, node: u64) -> InodeNumber {
        convert::inode(node, self.filesystem.root())
    }

    /// Refuses to take another file for a node that is gone and had the same number.
    async fn require_same(&self, node: u64) -> Result<(), Errno> {
        let (number, generation) = of_node_id(node);
        match self.filesystem.attributes(self.inode(node)).await {
            Ok(found) if number != ROOT && found.generation != generation => Err(Errno::STALE),
            // A caller that uses it gets the error.
            _ => Ok(()),
        }
    }

    fn changes(&self, set: &SetAttributes) -> AttributeChanges {
        let time = |time| match time {
            Time::At(time) => time,
            Time::Now => self.filesystem.now(),
        };
        AttributeChanges {
            permissions: set.mode.map(permissions),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            accessed: set.accessed.map(time),
            modified: set.modified.map(time),
            changed: set.changed.map(time),
        }
    }

    async fn statistics(&self) -> Statistics {
        let found = self.filesystem.statfs().await;
        Statistics {
            blocks: found.blocks,
            free_blocks: found.free_blocks,
            available_blocks: found.available_blocks,
            inodes: found.inodes.into(),
            free_inodes: found.free_inodes.into(),
            block_bytes: found.block_bytes,
            name_bytes_max: found.name_bytes_max,
            fragment_bytes: found.block_bytes,
            reserved: [0; 7],
        }
    }
}

impl Service for Calls {
    const IS_FILESYSTEM: bool = true;

    async fn answer(&self, header: &Header, operation: Operation<'_>) -> Result<Answer, Errno> {
        let node = self.inode(header.node);
        let caller = Caller::from_header(header);
        self.filesystem.note_thread(caller.thread());
        if !operation.is_of_open_file() {
            self.require_same(header.node).await?;
        }
        match operation {
            Operation::Lookup { name } => match self.lookup(node, name).await {
                Err(Errno::NOENT) => Ok(Answer::nothing()),
                found => found.map(entry),
            },
            Operation::GetAttributes { handle } => {
                if let Some(handle) = handle
                    && self.refuses_writes(node, handle).await
                {
                    return Err(Errno::NOSPC);
                }
                self.attributes(node).await.map(Answer::attributes)
            }
            Operation::GetStatus => self
                .attributes_with_birth(node)
                .await
                .map(|(attributes, born)| Answer::status(attributes, born)),
            Operation::SetAttributes(set) => {
                let changes = self.changes(&set);
                self.set_attributes(node, changes, caller, set.is_open).await.map(Answer::attributes)
            }
            Operation::ReadLink => self.read_link(node).await.map(Answer::Data),
            Operation::Symlink { name, target } => self.symlink(node, name, target, caller).await.map(entry),
            Operation::MakeNode { name, mode, umask, device: number } => {
                let kind = FileType::of_mode(mode as u16).ok_or(Errno::INVAL)?;
                let new = NewNode { device: device(number), ..new_node(header, kind, mode, umask) };
                self.make_node(node, name, &new, caller).await.map(entry)
            }
            Operation::MakeDirectory { name, mode, umask } => {
                let new = new_node(header, FileType::Directory, mode, umask);
                self.make_node(node, name, &new, caller).await.map(entry)
            }
            Operation::Unlink { name } => {
                self.filesystem.unlink(node, name).await.map(done).map_err(|error| errno(&error))
            }
            Operation::RemoveDirectory { name } => {
                self.filesystem.rmdir(node, name).await.map(done).map_err(|error| errno(&error))
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.require_same(new_parent).await?;
                self.rename((node, name), (self.inode(new_parent), new_name), flags, caller).await.map(done)
            }
            Operation::Link { node: linked, name } => {
                self.require_same(linked).await?;
                self.link(self.inode(linked), node, name, caller).await.map(entry)
            }
            // The kernel asks no more, and neither tells of a close.
            Operation::OpenDirectory { .. } => Err(Errno::NOSYS),
            Operation::Open { .. } | Operation::Create { .. } if !self.files.are_told => Err(Errno::NOSYS),
            Operation::Open { flags } => {
                self.open(node, flags).await.map(|opened| self.answer_opened(opened))
            }
            Operation::Create { name, mode, umask, flags } => {
                let new = new_node(header, FileType::Regular, mode, umask);
                self.create(node, name, &new, flags, caller).await.map(|created| self.answer_created(created))
            }
            Operation::CreateUnnamed { mode, umask, flags } => {
                let new = new_node(header, FileType::Regular, mode, umask);
                self.create_unnamed(node, &new, flags, caller)
                    .await
                    .map(|created| self.answer_created(created))
            }
            Operation::Read { offset, length, flags } => {
                if flags & libc::O_DIRECT == 0 {
                    self.files.note_cached_read(node);
                }
                let (buffer, bytes) = self.read(node, offset, length).await?;
                self.note_access(node, flags).await;
                Ok(Answer::Content(buffer, bytes))
            }
            Operation::Write(write) => self.write(node, &write, caller).await.map(Answer::bytes),
            // `close` promises nothing, so the kernel need not ask again.
            Operation::Flush => Err(Errno::NOSYS),
            Operation::Release { handle } => self.close(handle).await.map(done),
            // Of one that was opened before the kernel had that answer.
            Operation::ReleaseDirectory { .. } => Ok(Answer::Done),
            Operation::Synchronise { data_only } | Operation::SynchroniseDirectory { data_only } => {
                let call = SyncCall::from_promise(Promise::Durable, data_only);
                self.synchronise(node, call, caller).await.map(done)
            }
            Operation::ReadDirectory { offset, room, flags, with_attributes } => {
                let mut names = Names::new(room);
                let place = (offset, flags);
                self.directories.read(self, node, place, &mut names, with_attributes).await?;
                Ok(names.answer())
            }
            Operation::Statistics => Ok(Answer::Statistics(self.statistics().await)),
            Operation::SetExtended { name, value, takes_set_group: true, .. } => {
                self.set_list_by_stranger(node, name, value, caller).await.map(done)
            }
            Operation::SetExtended { name, value, flags, .. } => {
                self.set_attribute(node, name, value, flags, caller).await.map(done)
            }
            Operation::GetExtended { name, room } => Answer::value(self.attribute(node, name).await?, room),
            Operation::ListExtended { room } => {
                Answer::value(self.attribute_names(node, caller).await?, room)
            }
            Operation::RemoveExtended { name } => self.remove_attribute(node, name, caller).await.map(done),
            Operation::Ioctl { handle, command, argument } => {
                let given = self.ioctl(node, handle, command, argument, caller).await?;
                Ok(Answer::controlled(&given))
            }
            Operation::Allocate { offset, length, mode } => {
                self.allocate(node, offset, length, mode, caller).await.map(done)
            }
            Operation::CopyRange(copy) => {
                copy_range(self, node, &copy, self.inode(copy.to), caller).await.map(Answer::bytes)
            }
            Operation::Seek { offset, whence } => self.seek(node, offset, whence).await.map(Answer::Offset),
        }
    }

    fn forget(&self, node: u64, count: u64) {
        self.forget_inode(self.inode(node), count);
    }

    async fn collect_all_pages(&self) {
        // Few ask at this time: it is being unmounted.
        let _ = self.collect_dirty_pages().await;
    }

    async fn report_status(&self) -> String {
        Calls::report_status(self).await
    }

    async fn take_back(&self, answer: Answer) {
        if let Some(handle) = answer.handle() {
            // It was just opened, so there is nothing that could fail but what a close does not tell, either.
            let _ = self.release(handle).await;
        }
        for node in answer.told_nodes() {
            self.forget(*node, 1);
        }
    }
}
