//! The kernel's requests: each is taken from the session's thread to the filesystem's, and answered from there.
//!
//! Everything of the crate `fuser`, whose interface changes with every release, is named here, in `convert`, and
//! in `server`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, FopenFlags, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use weir_ext4::FileType;
use weir_fs::{AttributeChanges, NewNode};

use crate::calls::{Calls, Entry, Opened, What};
use crate::convert::{device, file_time, inode};
use crate::errno::errno;
use crate::jobs::Jobs;
use crate::privileges::Caller;

/// How long the kernel may keep what it was told. Nobody changes the filesystem but by way of the kernel, so it
/// could be for ever.
const VALID: Duration = Duration::from_secs(3600);

/// Requests that the kernel sends without waiting for their answers: asynchronous reads, and direct I/O.
const BACKGROUND: u16 = 256;
/// Bytes of a write, or of what is read ahead, in one request.
const REQUEST_BYTES: u32 = 1 << 20;

/// The filesystem as the kernel's session knows it.
pub(crate) struct Requests(Jobs<Calls>);

impl Requests {
    pub(crate) fn new(jobs: Jobs<Calls>) -> Requests {
        Requests(jobs)
    }

    fn run<F>(&self, job: impl FnOnce(Rc<Calls>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        self.0.run(job);
    }
}

fn owned(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

/// The twelve bits of permissions in a mode.
fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

pub(crate) fn answer(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn answer_entry(reply: ReplyEntry, result: Result<Entry, Errno>) {
    match result {
        Ok((attributes, generation)) => reply.entry(&VALID, &attributes, generation),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn answer_data(reply: ReplyData, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(bytes) => reply.data(&bytes),
        Err(errno) => reply.error(errno),
    }
}

fn answer_open(reply: ReplyOpen, result: Result<Opened, Errno>) {
    match result {
        Ok(opened) => reply.opened(FileHandle(opened.handle), open_flags(opened)),
        Err(errno) => reply.error(errno),
    }
}

/// Answers with a value, or with its size where the caller has no room and asks.
pub(crate) fn answer_value(reply: ReplyXattr, room: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > room as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

/// What the page cache holds of a file stays right, since only the kernel changes it.
fn open_flags(opened: Opened) -> FopenFlags {
    match opened.direct {
        true => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        false => FopenFlags::FOPEN_KEEP_CACHE,
    }
}

/// Agrees with the kernel on how they talk. Without the kernel's writeback cache, writes come in the order in which
/// programs make them.
pub(crate) fn configure(config: &mut KernelConfig) {
    let wanted = InitFlags::FUSE_ASYNC_DIO
        | InitFlags::FUSE_HAS_IOCTL_DIR
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
    // What an older kernel does not have, it does without.
    let have = config.capabilities() & wanted;
    let _ = config.add_capabilities(have);
    let _ = config.set_max_background(BACKGROUND);
    let _ = config.set_max_write(REQUEST_BYTES);
    if let Err(most) = config.set_max_readahead(REQUEST_BYTES) {
        let _ = config.set_max_readahead(most);
    }
}

impl fuser::Filesystem for Requests {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        configure(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = owned(name);
        self.run(move |calls| async move { answer_entry(reply, calls.lookup(inode(parent), &name).await) });
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.run(move |calls| async move {
            match calls.attributes(inode(number)).await {
                Ok(attributes) => reply.attr(&VALID, &attributes),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let caller = Caller::of(request);
        self.run(move |calls| async move {
            let time = |time| match time {
                TimeOrNow::SpecificTime(time) => file_time(time),
                TimeOrNow::Now => calls.filesystem.now(),
            };
            let changes = AttributeChanges {
                permissions: mode.map(permissions),
                uid,
                gid,
                size,
                accessed: accessed.map(time),
                modified: modified.map(time),
            };
            match calls.set_attributes(inode(number), changes, caller).await {
                Ok(attributes) => reply.attr(&VALID, &attributes),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        self.run(move |calls| async move {
            let target = calls.filesystem.read_link(inode(number)).await;
            answer_data(reply, target.map_err(|error| errno(&error)));
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        number: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = FileType::of_mode(mode as u16) else { return reply.error(Errno::EINVAL) };
        let (uid, gid) = (request.uid(), request.gid());
        let new = NewNode { kind, permissions: permissions(mode), uid, gid, device: device(number) };
        let name = owned(name);
        self.run(
            move |calls| async move { answer_entry(reply, calls.make(inode(parent), &name, &new).await) },
        );
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let (uid, gid) = (request.uid(), request.gid());
        let new = NewNode { uid, gid, ..NewNode::new(FileType::Directory, permissions(mode)) };
        let name = owned(name);
        self.run(
            move |calls| async move { answer_entry(reply, calls.make(inode(parent), &name, &new).await) },
        );
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        self.run(move |calls| async move {
            let done = calls.filesystem.unlink(inode(parent), &name).await;
            answer(reply, done.map_err(|error| errno(&error)));
        });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        self.run(move |calls| async move {
            let done = calls.filesystem.rmdir(inode(parent), &name).await;
            answer(reply, done.map_err(|error| errno(&error)));
        });
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (name, target) = (owned(name), owned(target.as_os_str()));
        let owner = (request.uid(), request.gid());
        self.run(move |calls| async move {
            answer_entry(reply, calls.symlink(inode(parent), &name, &target, owner).await);
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (owned(name), owned(new_name));
        self.run(move |calls| async move {
            let (from, to) = ((inode(parent), &name[..]), (inode(new_parent), &new_name[..]));
            answer(reply, calls.rename(from, to, flags).await);
        });
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = owned(name);
        self.run(move |calls| async move {
            answer_entry(reply, calls.link(inode(number), inode(parent), &name).await);
        });
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.run(move |calls| async move { answer_open(reply, calls.open(inode(number), flags.0).await) });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (uid, gid) = (request.uid(), request.gid());
        let new = NewNode { uid, gid, ..NewNode::new(FileType::Regular, permissions(mode)) };
        let name = owned(name);
        self.run(move |calls| async move {
            match calls.create(inode(parent), &name, &new, flags).await {
                Ok(((attributes, generation), opened)) => {
                    let handle = FileHandle(opened.handle);
                    reply.created(&VALID, &attributes, generation, handle, open_flags(opened));
                }
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(move |calls| async move {
            answer_data(reply, calls.read(inode(number), offset, length).await);
        });
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let bytes = bytes.to_vec();
        let takes_privileges_of =
            how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then(|| Caller::of(request));
        self.run(move |calls| async move {
            match calls.write(inode(number), handle.0, offset, &bytes, flags.0, takes_privileges_of).await {
                Ok(written) => reply.written(written),
                Err(errno) => reply.error(errno),
            }
        });
    }

    /// `close`: it promises nothing, so the kernel need not ask again.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.run(move |calls| async move { answer(reply, calls.release(handle.0).await) });
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let what = if data_only { What::Data } else { What::All };
        self.run(move |calls| async move { answer(reply, calls.synchronise(inode(number), what).await) });
    }

    fn opendir(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.run(move |calls| async move { answer_open(reply, calls.open(inode(number), flags.0).await) });
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.run(move |calls| async move {
            match calls.read_directory(handle.0, offset, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.run(move |calls| async move { answer(reply, calls.release(handle.0).await) });
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let what = if data_only { What::Data } else { What::All };
        self.run(move |calls| async move { answer(reply, calls.synchronise(inode(number), what).await) });
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.run(move |calls| async move {
            let found = calls.filesystem.statfs().await;
            reply.statfs(
                found.blocks,
                found.free_blocks,
                found.available_blocks,
                found.inodes.into(),
                found.free_inodes.into(),
                found.block_bytes,
                found.name_bytes_max,
                found.block_bytes,
            );
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (owned(name), value.to_vec());
        self.run(move |calls| async move {
            answer(reply, calls.set_attribute(inode(number), &name, &value, flags).await);
        });
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let name = owned(name);
        self.run(move |calls| async move {
            answer_value(reply, room, calls.attribute(inode(number), &name).await);
        });
    }

    fn listxattr(&self, _: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        self.run(move |calls| async move {
            answer_value(reply, room, calls.attribute_names(inode(number)).await);
        });
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = owned(name);
        self.run(move |calls| async move {
            answer(reply, calls.remove_attribute(inode(number), &name).await);
        });
    }

    fn ioctl(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: IoctlFlags,
        command: u32,
        argument: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let argument = argument.to_vec();
        self.run(move |calls| async move {
            match calls.ioctl(inode(number), handle.0, command, &argument).await {
                Ok(()) => reply.ioctl(0, &[]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = Caller::of(request);
        self.run(move |calls| async move {
            answer(reply, calls.allocate(inode(number), offset, length, mode, caller).await);
        });
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.run(move |calls| async move {
            match calls.seek(inode(number), offset, whence).await {
                Ok(found) => reply.offset(found),
                Err(errno) => reply.error(errno),
            }
        });
    }
}
