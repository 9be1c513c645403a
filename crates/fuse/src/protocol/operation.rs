//! What the kernel asks.

use rustix::io::Errno;
use weir_format::FileTime;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::TRANSFER_BYTES;

/// The numbers of the operations.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// Which of the new attributes are meant.
mod valid {
    pub(super) const MODE: u32 = 1;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ACCESSED: u32 = 1 << 4;
    pub(super) const HANDLE: u32 = 1 << 6;
    pub(super) const MODIFIED: u32 = 1 << 5;
    pub(super) const ACCESSED_NOW: u32 = 1 << 7;
    pub(super) const MODIFIED_NOW: u32 = 1 << 8;
    pub(super) const CHANGED: u32 = 1 << 10;
}

/// The handle is one of the node's: a program asks through it, or is about to read or write there.
const ATTRIBUTES_OF_HANDLE: u32 = 1;
/// The kernel writes back pages of its cache, for no caller: user, group and process are 0, and the handle
/// is that of any open file of the inode.
const WRITE_FROM_PAGE_CACHE: u32 = 1;
/// Set-user-ID and set-group-ID are to go with the write.
const WRITE_TAKES_PRIVILEGES: u32 = 1 << 2;
/// `fdatasync`, not `fsync`.
const SYNC_DATA_ONLY: u32 = 1;
/// The caller that sets an access control list has no right to set-group-ID.
const LIST_TAKES_SET_GROUP: u32 = 1;
/// An ioctl whose argument is to be fetched by the server; none of ours.
const IOCTL_UNRESTRICTED: u32 = 1 << 1;

/// What every request begins with.
#[derive(Clone, Copy, Debug, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Header {
    /// Of the request with this header.
    bytes: u32,
    /// Which operation; see [`opcode`].
    pub(crate) opcode: u32,
    /// What the answer names the request by.
    pub(crate) unique: u64,
    /// The inode that it is about, as the kernel numbers it.
    pub(crate) node: u64,
    /// The caller.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The thread that asks, 0 if it is the kernel's own doing.
    pub(crate) thread: u32,
    _extensions: u32,
}

impl Header {
    /// The header of a request, and what follows it. None if the bytes are too few to be a request: then there is
    /// no request to answer, either.
    pub(crate) fn split(request: &[u8]) -> Option<(Header, &[u8])> {
        Header::read_from_prefix(request).ok()
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    Now,
    At(FileTime),
}

/// Attributes to be set, where there is something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<Time>,
    pub(crate) modified: Option<Time>,
    /// Said by a kernel that keeps a writeback cache, and so the times.
    pub(crate) changed: Option<Time>,
    /// A program sets them through an open file.
    pub(crate) is_open: bool,
}

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteRequest<'a> {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// Those that the file was opened with.
    pub(crate) flags: i32,
    pub(crate) takes_privileges: bool,
    /// The kernel writes back pages of its cache: what a mapping has changed, or what any program wrote, where it keeps a
    /// writeback cache.
    pub(crate) from_cache: bool,
}

/// A copy from the inode in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRequest {
    pub(crate) offset: u64,
    /// The inode that is written, as the kernel numbers it.
    pub(crate) to: u64,
    pub(crate) to_handle: u64,
    pub(crate) to_offset: u64,
    pub(crate) length: u64,
}

/// An operation. It is about the inode in the [`Header`]: where it names something, that is the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Lookup { name: &'a [u8] },
    GetAttributes { handle: Option<u64> },
    GetStatus,
    SetAttributes(SetAttributes),
    ReadLink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    MakeNode { name: &'a [u8], mode: u32, umask: u32, device: u32 },
    MakeDirectory { name: &'a [u8], mode: u32, umask: u32 },
    Unlink { name: &'a [u8] },
    RemoveDirectory { name: &'a [u8] },
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    Link { node: u64, name: &'a [u8] },
    Open { flags: i32 },
    Read { offset: u64, length: u32, flags: i32 },
    Write(WriteRequest<'a>),
    Statistics,
    Release { handle: u64 },
    Synchronise { data_only: bool },
    SetExtended { name: &'a [u8], value: &'a [u8], flags: i32, takes_set_group: bool },
    GetExtended { name: &'a [u8], room: u32 },
    ListExtended { room: u32 },
    RemoveExtended { name: &'a [u8] },
    Flush,
    OpenDirectory { flags: i32 },
    ReadDirectory { offset: u64, room: u32, flags: i32, with_attributes: bool },
    ReleaseDirectory { handle: u64 },
    SynchroniseDirectory { data_only: bool },
    Create { name: &'a [u8], mode: u32, umask: u32, flags: i32 },
    CreateUnnamed { mode: u32, umask: u32, flags: i32 },
    Ioctl { handle: u64, command: u32, argument: &'a [u8] },
    Allocate { offset: u64, length: u64, mode: i32 },
    Seek { offset: i64, whence: u32 },
    CopyRange(CopyRequest),
}

impl<'a> Operation<'a> {
    /// Whether it comes by way of an open file, or is about no file: what is open keeps its number.
    pub(crate) fn is_of_open_file(&self) -> bool {
        matches!(
            self,
            Operation::Read { .. }
                | Operation::Write(_)
                | Operation::Statistics
                | Operation::Release { .. }
                | Operation::Synchronise { .. }
                | Operation::Flush
                | Operation::ReadDirectory { .. }
                | Operation::ReleaseDirectory { .. }
                | Operation::SynchroniseDirectory { .. }
                | Operation::Ioctl { .. }
                | Operation::Allocate { .. }
                | Operation::Seek { .. }
                | Operation::CopyRange(_)
        )
    }

    /// Reads what follows the header of a request.
    ///
    /// # Errors
    /// What the request is to be answered: ENOSYS if we do not know the operation (of most, the kernel then asks no
    /// more), EIO if the request is cut off, EINVAL if it makes no sense.
    pub(crate) fn read(header: &Header, body: &'a [u8]) -> Result<Operation<'a>, Errno> {
        if header.bytes as usize != size_of::<Header>() + body.len() {
            return Err(Errno::IO);
        }
        let mut left = Body(body);
        let operation = match header.opcode {
            opcode::LOOKUP => Operation::Lookup { name: left.name()? },
            opcode::GETATTR => {
                let arguments: GetAttributesArguments = left.arguments()?;
                let is_of_handle = arguments.flags & ATTRIBUTES_OF_HANDLE != 0;
                Operation::GetAttributes { handle: is_of_handle.then_some(arguments.handle) }
            }
            opcode::STATX => {
                left.arguments::<StatusArguments>()?;
                Operation::GetStatus
            }
            opcode::SETATTR => Operation::SetAttributes(left.arguments::<SetAttributesArguments>()?.read()?),
            opcode::READLINK => Operation::ReadLink,
            opcode::SYMLINK => Operation::Symlink { name: left.name()?, target: left.text()? },
            opcode::MKNOD => {
                let arguments: MakeNodeArguments = left.arguments()?;
                let MakeNodeArguments { mode, device, umask, .. } = arguments;
                Operation::MakeNode { name: left.name()?, mode, umask, device }
            }
            opcode::MKDIR => {
                let arguments: MakeDirectoryArguments = left.arguments()?;
                Operation::MakeDirectory { name: left.name()?, mode: arguments.mode, umask: arguments.umask }
            }
            opcode::UNLINK => Operation::Unlink { name: left.name()? },
            opcode::RMDIR => Operation::RemoveDirectory { name: left.name()? },
            opcode::RENAME => left.rename(|left| Ok((left.arguments::<u64>()?, 0)))?,
            opcode::RENAME2 => left.rename(|left| {
                let arguments: RenameArguments = left.arguments()?;
                Ok((arguments.new_parent, arguments.flags))
            })?,
            opcode::LINK => Operation::Link { node: left.arguments()?, name: left.name()? },
            opcode::OPEN => Operation::Open { flags: left.arguments::<OpenArguments>()?.flags },
            opcode::OPENDIR => Operation::OpenDirectory { flags: left.arguments::<OpenArguments>()?.flags },
            opcode::READ => {
                let arguments: ReadArguments = left.arguments()?;
                if arguments.bytes > TRANSFER_BYTES {
                    return Err(Errno::INVAL);
                }
                let ReadArguments { offset, bytes, flags, .. } = arguments;
                Operation::Read { offset: in_file(offset)?, length: bytes, flags }
            }
            opcode::READDIR | opcode::READDIRPLUS => {
                let ReadArguments { offset, bytes, flags, .. } = left.arguments()?;
                let with_attributes = header.opcode == opcode::READDIRPLUS;
                Operation::ReadDirectory { offset, room: bytes.min(TRANSFER_BYTES), flags, with_attributes }
            }
            opcode::WRITE => left.write()?,
            opcode::STATFS => Operation::Statistics,
            opcode::RELEASE => Operation::Release { handle: left.arguments::<ReleaseArguments>()?.handle },
            opcode::RELEASEDIR => {
                Operation::ReleaseDirectory { handle: left.arguments::<ReleaseArguments>()?.handle }
            }
            opcode::FSYNC => Operation::Synchronise { data_only: left.data_only()? },
            opcode::FSYNCDIR => Operation::SynchroniseDirectory { data_only: left.data_only()? },
            opcode::SETXATTR => {
                let arguments: SetExtendedArguments = left.arguments()?;
                let (name, value) = (left.text()?, left.bytes(arguments.bytes)?);
                let takes_set_group = arguments.list_flags & LIST_TAKES_SET_GROUP != 0;
                Operation::SetExtended { name, value, flags: arguments.flags, takes_set_group }
            }
            opcode::GETXATTR => {
                let arguments: RoomArguments = left.arguments()?;
                Operation::GetExtended { name: left.text()?, room: arguments.bytes }
            }
            opcode::LISTXATTR => Operation::ListExtended { room: left.arguments::<RoomArguments>()?.bytes },
            opcode::REMOVEXATTR => Operation::RemoveExtended { name: left.text()? },
            opcode::FLUSH => Operation::Flush,
            opcode::CREATE => {
                let arguments: CreateArguments = left.arguments()?;
                let CreateArguments { mode, umask, flags, .. } = arguments;
                Operation::Create { name: left.name()?, mode, umask, flags }
            }
            opcode::TMPFILE => {
                let arguments: CreateArguments = left.arguments()?;
                // It has a name in the kernel, which no program sees.
                left.text()?;
                Operation::CreateUnnamed {
                    mode: arguments.mode,
                    umask: arguments.umask,
                    flags: arguments.flags,
                }
            }
            opcode::IOCTL => {
                let arguments: IoctlArguments = left.arguments()?;
                if arguments.flags & IOCTL_UNRESTRICTED != 0 {
                    return Err(Errno::NOSYS);
                }
                let argument = left.bytes(arguments.in_bytes)?;
                Operation::Ioctl { handle: arguments.handle, command: arguments.command, argument }
            }
            opcode::FALLOCATE => {
                let arguments: AllocateArguments = left.arguments()?;
                let (offset, length) = (in_file(arguments.offset)?, in_file(arguments.length)?);
                Operation::Allocate { offset, length, mode: arguments.mode }
            }
            opcode::LSEEK => {
                let arguments: SeekArguments = left.arguments()?;
                Operation::Seek { offset: arguments.offset, whence: arguments.whence }
            }
            opcode::COPY_FILE_RANGE => {
                let arguments: CopyArguments = left.arguments()?;
                if arguments.flags != 0 {
                    return Err(Errno::INVAL);
                }
                let CopyArguments { to, to_handle, length, .. } = arguments;
                let [offset, to_offset] = [in_file(arguments.offset)?, in_file(arguments.to_offset)?];
                in_file(offset.saturating_add(length).max(to_offset.saturating_add(length)))?;
                Operation::CopyRange(CopyRequest { offset, to, to_handle, to_offset, length })
            }
            _ => return Err(Errno::NOSYS),
        };
        Ok(operation)
    }
}

/// An offset or length that a file can have.
fn in_file(offset: u64) -> Result<u64, Errno> {
    if i64::try_from(offset).is_ok() { Ok(offset) } else { Err(Errno::INVAL) }
}

/// What is left to read of a request. What later versions of the protocol may put behind the rest is left alone.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    /// The next structure.
    fn arguments<T: FromBytes>(&mut self) -> Result<T, Errno> {
        let (arguments, left) = T::read_from_prefix(self.0).map_err(|_| Errno::IO)?;
        self.0 = left;
        Ok(arguments)
    }

    /// So many bytes.
    fn bytes(&mut self, length: u32) -> Result<&'a [u8], Errno> {
        let (bytes, left) = self.0.split_at_checked(length as usize).ok_or(Errno::IO)?;
        self.0 = left;
        Ok(bytes)
    }

    /// What stands before a zero byte, and is something.
    fn text(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Errno::IO)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        if text.is_empty() { Err(Errno::INVAL) } else { Ok(text) }
    }

    /// The name of a directory entry.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        let name = self.text()?;
        if name.contains(&b'/') { Err(Errno::INVAL) } else { Ok(name) }
    }

    fn rename(
        &mut self,
        arguments: impl FnOnce(&mut Self) -> Result<(u64, u32), Errno>,
    ) -> Result<Operation<'a>, Errno> {
        let (new_parent, flags) = arguments(self)?;
        Ok(Operation::Rename { name: self.name()?, new_parent, new_name: self.name()?, flags })
    }

    fn write(&mut self) -> Result<Operation<'a>, Errno> {
        let arguments: WriteArguments = self.arguments()?;
        Ok(Operation::Write(WriteRequest {
            handle: arguments.handle,
            offset: in_file(arguments.offset)?,
            bytes: self.bytes(arguments.bytes)?,
            flags: arguments.flags,
            takes_privileges: arguments.write_flags & WRITE_TAKES_PRIVILEGES != 0,
            from_cache: arguments.write_flags & WRITE_FROM_PAGE_CACHE != 0,
        }))
    }

    fn data_only(&mut self) -> Result<bool, Errno> {
        Ok(self.arguments::<SyncArguments>()?.flags & SYNC_DATA_ONLY != 0)
    }
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct GetAttributesArguments {
    flags: u32,
    _padding: u32,
    handle: u64,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SetAttributesArguments {
    valid: u32,
    _padding: u32,
    _handle: u64,
    size: u64,
    _lock_owner: u64,
    accessed: i64,
    modified: i64,
    changed: i64,
    accessed_nanoseconds: u32,
    modified_nanoseconds: u32,
    changed_nanoseconds: u32,
    mode: u32,
    _unused: u32,
    uid: u32,
    gid: u32,
    _reserved: u32,
}

impl SetAttributesArguments {
    fn read(&self) -> Result<SetAttributes, Errno> {
        let is = |bit| self.valid & bit != 0;
        let time = |set, now, seconds, nanoseconds| match (is(set), is(now)) {
            (false, _) => Ok(None),
            (true, true) => Ok(Some(Time::Now)),
            (true, false) if nanoseconds >= 1_000_000_000 => Err(Errno::INVAL),
            (true, false) => Ok(Some(Time::At(FileTime { seconds, nanoseconds }))),
        };
        Ok(SetAttributes {
            mode: is(valid::MODE).then_some(self.mode),
            uid: is(valid::UID).then_some(self.uid),
            gid: is(valid::GID).then_some(self.gid),
            size: is(valid::SIZE).then_some(self.size).map(in_file).transpose()?,
            accessed: time(valid::ACCESSED, valid::ACCESSED_NOW, self.accessed, self.accessed_nanoseconds)?,
            modified: time(valid::MODIFIED, valid::MODIFIED_NOW, self.modified, self.modified_nanoseconds)?,
            changed: time(valid::CHANGED, 0, self.changed, self.changed_nanoseconds)?,
            is_open: is(valid::HANDLE),
        })
    }
}

/// The mask of wanted fields is ignored: the answer has all of them.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct StatusArguments {
    _get_flags: u32,
    _reserved: u32,
    _handle: u64,
    _flags: u32,
    _mask: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct MakeNodeArguments {
    mode: u32,
    device: u32,
    umask: u32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct MakeDirectoryArguments {
    mode: u32,
    umask: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RenameArguments {
    new_parent: u64,
    flags: u32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct OpenArguments {
    flags: i32,
    _open_flags: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct CreateArguments {
    flags: i32,
    mode: u32,
    umask: u32,
    _open_flags: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ReadArguments {
    _handle: u64,
    offset: u64,
    bytes: u32,
    _read_flags: u32,
    _lock_owner: u64,
    /// Those that the file was opened with.
    flags: i32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct WriteArguments {
    handle: u64,
    offset: u64,
    bytes: u32,
    write_flags: u32,
    _lock_owner: u64,
    flags: i32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ReleaseArguments {
    handle: u64,
    _flags: i32,
    _release_flags: u32,
    _lock_owner: u64,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SyncArguments {
    _handle: u64,
    flags: u32,
    _padding: u32,
}

/// The long form, which the handshake asks for.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SetExtendedArguments {
    bytes: u32,
    flags: i32,
    list_flags: u32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RoomArguments {
    bytes: u32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct IoctlArguments {
    handle: u64,
    flags: u32,
    command: u32,
    _argument: u64,
    in_bytes: u32,
    _out_bytes: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct AllocateArguments {
    _handle: u64,
    offset: u64,
    length: u64,
    mode: i32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct SeekArguments {
    _handle: u64,
    offset: i64,
    whence: u32,
    _padding: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct CopyArguments {
    _handle: u64,
    offset: u64,
    to: u64,
    to_handle: u64,
    to_offset: u64,
    length: u64,
    flags: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request in the making.
    struct Bytes(Vec<u8>);

    impl Bytes {
        /// Its header says how many bytes there are, and is otherwise recognisable.
        fn request(opcode: u32, body: Bytes) -> Vec<u8> {
            let length = 40 + body.0.len() as u32;
            let header =
                Bytes::new().u32(length).u32(opcode).u64(77).u64(5).u32(1000).u32(100).u32(4321).u32(0);
            [header.0, body.0].concat()
        }

        fn new() -> Bytes {
            Bytes(Vec::new())
        }

        fn u32(self, value: u32) -> Bytes {
            self.bytes(&value.to_ne_bytes())
        }

        fn u64(self, value: u64) -> Bytes {
            self.bytes(&value.to_ne_bytes())
        }

        fn bytes(mut self, bytes: &[u8]) -> Bytes {
            self.0.extend_from_slice(bytes);
            self
        }
    }

    fn read(request: &[u8]) -> Result<Operation<'_>, Errno> {
        let (header, body) = Header::split(request).ok_or(Errno::IO)?;
        Operation::read(&header, body)
    }

    /// Arguments of `setattr` with these `valid` bits, as the kernel lays them out.
    fn set_attributes(valid: u32) -> Bytes {
        let times = Bytes::new().u64(10).u64(-20_i64 as u64).u64(30).u32(11).u32(21).u32(31);
        let start = Bytes::new().u32(valid).u32(0).u64(3).u64(4096).u64(9);
        start.bytes(&times.0).u32(0o100_644).u32(0).u32(501).u32(502).u32(0)
    }

    /// Every operation: its number, its bytes behind the header, and what is read of them.
    fn operations() -> Vec<(u32, Bytes, Operation<'static>)> {
        let name = b"name".as_slice();
        let new = Bytes::new;
        let nothing = SetAttributes {
            mode: None,
            uid: None,
            gid: None,
            size: None,
            accessed: None,
            modified: None,
            changed: None,
            is_open: false,
        };
        let at = |seconds, nanoseconds| Some(Time::At(FileTime { seconds, nanoseconds }));
        let all = SetAttributes {
            mode: Some(0o100_644),
            uid: Some(501),
            gid: Some(502),
            size: Some(4096),
            accessed: at(10, 11),
            modified: at(-20, 21),
            changed: at(30, 31),
            is_open: true,
        };
        let now = SetAttributes { accessed: Some(Time::Now), modified: Some(Time::Now), ..nothing };
        // A handle, an offset, a length, flags, an owner of locks, flags of `open`.
        let transfer = |flags| new().u64(3).u64(8192).u32(4).u32(flags).u64(9).u32(0x4000).u32(0);
        let written = |takes_privileges, from_cache| {
            let (handle, offset, bytes, flags) = (3, 8192, b"data".as_slice(), 0x4000);
            Operation::Write(WriteRequest { handle, offset, bytes, flags, takes_privileges, from_cache })
        };
        let read_directory = |with_attributes| {
            let (offset, room, flags) = (8192, 4, 0x4000);
            Operation::ReadDirectory { offset, room, flags, with_attributes }
        };
        let set_extended = |list_flags| new().u32(3).u32(1).u32(list_flags).u32(0).bytes(b"user.a/b\0abc");
        let extended = |takes_set_group| {
            let (name, value) = (b"user.a/b".as_slice(), b"abc".as_slice());
            Operation::SetExtended { name, value, flags: 1, takes_set_group }
        };
        let released = || new().u64(3).u32(0).u32(0).u64(0);
        vec![
            (1, new().bytes(b"name\0"), Operation::Lookup { name }),
            (3, new().u32(0).u32(0).u64(9), Operation::GetAttributes { handle: None }),
            (3, new().u32(1).u32(0).u64(9), Operation::GetAttributes { handle: Some(9) }),
            (4, set_attributes(0), Operation::SetAttributes(nothing)),
            (4, set_attributes(0b100_0111_1111), Operation::SetAttributes(all)),
            (4, set_attributes(0b1_1011_0000), Operation::SetAttributes(now)),
            (5, new(), Operation::ReadLink),
            (6, new().bytes(b"name\0../to\0"), Operation::Symlink { name, target: b"../to" }),
            (
                8,
                new().u32(0o20_600).u32(0x103).u32(0o22).u32(0).bytes(b"name\0"),
                Operation::MakeNode { name, mode: 0o20_600, umask: 0o22, device: 0x103 },
            ),
            (
                9,
                new().u32(0o755).u32(0o22).bytes(b"name\0"),
                Operation::MakeDirectory { name, mode: 0o755, umask: 0o22 },
            ),
            (10, new().bytes(b"name\0"), Operation::Unlink { name }),
            (11, new().bytes(b"name\0"), Operation::RemoveDirectory { name }),
            (
                12,
                new().u64(6).bytes(b"name\0new\0"),
                Operation::Rename { name, new_parent: 6, new_name: b"new", flags: 0 },
            ),
            (13, new().u64(12).bytes(b"name\0"), Operation::Link { node: 12, name }),
            (14, new().u32(0x8002).u32(0), Operation::Open { flags: 0x8002 }),
            (15, transfer(0), Operation::Read { offset: 8192, length: 4, flags: 0x4000 }),
            (16, transfer(2).bytes(b"data"), written(false, false)),
            (16, transfer(1).bytes(b"data"), written(false, true)),
            (16, transfer(4).bytes(b"data"), written(true, false)),
            (17, new(), Operation::Statistics),
            (18, released(), Operation::Release { handle: 3 }),
            (20, new().u64(3).u32(0).u32(0), Operation::Synchronise { data_only: false }),
            (20, new().u64(3).u32(1).u32(0), Operation::Synchronise { data_only: true }),
            (21, set_extended(0), extended(false)),
            (21, set_extended(1), extended(true)),
            (22, new().u32(64).u32(0).bytes(b"name\0"), Operation::GetExtended { name, room: 64 }),
            (23, new().u32(64).u32(0), Operation::ListExtended { room: 64 }),
            (24, new().bytes(b"name\0"), Operation::RemoveExtended { name }),
            (25, new(), Operation::Flush),
            (27, new().u32(0x8000).u32(0), Operation::OpenDirectory { flags: 0x8000 }),
            (28, transfer(0), read_directory(false)),
            (44, transfer(0), read_directory(true)),
            (29, released(), Operation::ReleaseDirectory { handle: 3 }),
            (30, new().u64(3).u32(1).u32(0), Operation::SynchroniseDirectory { data_only: true }),
            (
                35,
                new().u32(0x8042).u32(0o600).u32(0o22).u32(0).bytes(b"name\0"),
                Operation::Create { name, mode: 0o600, umask: 0o22, flags: 0x8042 },
            ),
            (
                39,
                new().u64(3).u32(0).u32(0x4004_5703).u64(0x7FFF_0000).u32(4).u32(0).bytes(&[1, 0, 0, 0]),
                Operation::Ioctl { handle: 3, command: 0x4004_5703, argument: &[1, 0, 0, 0] },
            ),
            (
                43,
                new().u64(3).u64(8192).u64(4096).u32(3).u32(0),
                Operation::Allocate { offset: 8192, length: 4096, mode: 3 },
            ),
            (
                45,
                new().u64(6).u32(2).u32(0).bytes(b"name\0new\0"),
                Operation::Rename { name, new_parent: 6, new_name: b"new", flags: 2 },
            ),
            (
                51,
                new().u32(0x41_8002).u32(0o600).u32(0o22).u32(0).bytes(b"/\0"),
                Operation::CreateUnnamed { mode: 0o600, umask: 0o22, flags: 0x41_8002 },
            ),
            (52, new().u32(0).u32(0).u64(3).u32(0).u32(0xFFF), Operation::GetStatus),
            (46, new().u64(3).u64(-1_i64 as u64).u32(4).u32(0), Operation::Seek { offset: -1, whence: 4 }),
            (
                47,
                new().u64(3).u64(8192).u64(6).u64(4).u64(4096).u64(100).u64(0),
                Operation::CopyRange(CopyRequest {
                    offset: 8192,
                    to: 6,
                    to_handle: 4,
                    to_offset: 4096,
                    length: 100,
                }),
            ),
        ]
    }

    #[test]
    fn every_operation_is_read() {
        for (opcode, body, expected) in operations() {
            let request = Bytes::request(opcode, body);
            assert_eq!(read(&request), Ok(expected), "{opcode}");
            let (header, _) = Header::split(&request).unwrap();
            assert_eq!((header.opcode, header.unique, header.node), (opcode, 77, 5));
            assert_eq!((header.uid, header.gid), (1000, 100));
        }
    }

    #[test]
    fn what_is_cut_off_is_an_error_at_every_length() {
        for (opcode, body, _) in operations() {
            let length = body.0.len();
            for left in 0..length {
                let cut = Bytes(body.0[..left].to_vec());
                assert_eq!(read(&Bytes::request(opcode, cut)), Err(Errno::IO), "{opcode} cut to {left}");
            }
            let request = Bytes::request(opcode, body);
            for left in 0..request.len() {
                // Its header says that there were more.
                assert_eq!(read(&request[..left]), Err(Errno::IO), "{opcode} read to {left}");
            }
        }
    }

    /// Later versions of the protocol put more behind what is known.
    #[test]
    fn what_follows_is_left_alone() {
        for (opcode, body, expected) in operations() {
            let request = Bytes::request(opcode, body.u64(u64::MAX));
            assert_eq!(read(&request), Ok(expected), "{opcode}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let new = Bytes::new;
        let transfer = |offset, length| new().u64(3).u64(offset).u32(length).u32(0).u64(9).u32(0).u32(0);
        let mut late = set_attributes(0b1_0000).0;
        late[56..60].copy_from_slice(&1_000_000_000_u32.to_ne_bytes());
        let mut huge = set_attributes(0b1000).0;
        huge[16..24].fill(0xFF);
        let cases = [
            (1, new().bytes(b"\0"), Errno::INVAL),
            (1, new().bytes(b"a/b\0"), Errno::INVAL),
            (10, new().bytes(b"/\0"), Errno::INVAL),
            (12, new().u64(6).bytes(b"name\0a/b\0"), Errno::INVAL),
            (6, new().bytes(b"name\0\0"), Errno::INVAL),
            (4, Bytes(late), Errno::INVAL),
            (4, Bytes(huge), Errno::INVAL),
            (15, transfer(1 << 63, 1), Errno::INVAL),
            (15, transfer(0, (1 << 20) + 1), Errno::INVAL),
            (16, transfer(1 << 63, 1).bytes(b"1"), Errno::INVAL),
            (16, transfer(0, u32::MAX).bytes(b"1"), Errno::IO),
            (21, new().u32(u32::MAX).u32(0).bytes(b"user.a\0"), Errno::IO),
            (39, new().u64(3).u32(2).u32(1).u64(0).u32(0).u32(0), Errno::NOSYS),
            (39, new().u64(3).u32(0).u32(1).u64(0).u32(u32::MAX).u32(0), Errno::IO),
            (43, new().u64(3).u64(1 << 63).u64(1).u32(0).u32(0), Errno::INVAL),
            (43, new().u64(3).u64(0).u64(u64::MAX).u32(0).u32(0), Errno::INVAL),
        ];
        for (nth, (opcode, body, expected)) in cases.into_iter().enumerate() {
            assert_eq!(read(&Bytes::request(opcode, body)), Err(expected), "case {nth}");
        }
        // Locks, access, interrupts, bmap, poll, SYNCFS, longer copies, what may come.
        for opcode in [0, 7, 19, 26, 31, 32, 33, 34, 36, 37, 40, 48, 50, 53, 4096, u32::MAX] {
            assert_eq!(read(&Bytes::request(opcode, new())), Err(Errno::NOSYS), "{opcode}");
        }
    }

    /// Whatever comes, there is an answer, and nothing is read from outside of it.
    #[test]
    fn chance_finds_no_panic() {
        let runtime =
            weir_runtime::Runtime::simulated(weir_runtime::Simulation { seed: 7, ..Default::default() });
        let mut random = runtime.handle().random("requests");
        let operations = operations();
        let mut read_well = 0;
        for _ in 0..200_000 {
            let (opcode, body, _) = &operations[random.below(operations.len() as u64) as usize];
            let mut body = body.0.clone();
            for _ in 0..random.below(6) {
                match (random.below(3), body.len() as u64) {
                    (0, _) | (_, 0) => body.push(random.below(256) as u8),
                    (1, length) => body[random.below(length) as usize] = random.below(256) as u8,
                    (_, length) => body.truncate(random.below(length + 1) as usize),
                }
            }
            let opcode = if random.below(50) == 0 { random.below(64) as u32 } else { *opcode };
            let mut request = Bytes::request(opcode, Bytes(body));
            if random.below(50) == 0 {
                let at = random.below(request.len() as u64) as usize;
                request[at] = random.below(256) as u8;
            }
            match read(&request) {
                Ok(Operation::Write(WriteRequest { bytes, .. })) => {
                    assert!(bytes.len() + 80 <= request.len())
                }
                Ok(Operation::Lookup { name }) => assert!(!name.is_empty() && !name.contains(&b'/')),
                Ok(_) => {}
                Err(error) => assert!([Errno::IO, Errno::INVAL, Errno::NOSYS].contains(&error)),
            }
            read_well += u32::from(read(&request).is_ok());
        }
        assert!(read_well > 20_000, "{read_well}");
    }
}
