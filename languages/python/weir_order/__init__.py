"""Order between writes, without waiting for the disk, on a mount of Weir.

Each call takes an open file, or its descriptor, and says what it has kept: Kept.ORDERED, or Kept.DURABLE where it was a
flush instead. On other filesystems every call is a flush, so a program keeps its order everywhere. On an overlay over a
mount of Weir it is a flush of the mount's, of which no more than order is known: Kept.ORDERED.
"""

import sys

if sys.platform != "linux":
    # What fsync keeps elsewhere, and how its structures lie, is not known here: macOS's does not flush the drive.
    raise ImportError("weir_order is for Linux: call os.fsync, and on macOS fcntl.fcntl(fd, fcntl.F_FULLFSYNC)")

import ctypes
import enum
import errno
import fcntl
import os

__all__ = ["Kept", "order", "order_data", "make_durable", "order_tree"]

_FBARRIER = 0x5701  # _IO('W', 1), crates/capi/include/weir.h
_FDATABARRIER = 0x5702  # _IO('W', 2)
_SYNC_GROUP = 0x43F8570A  # _IOW('W', 10, struct weir_group)
_ORDER_ALL = 0x570B  # _IO('W', 11)
_ALONE = bytes(0x3F8)  # A struct weir_group of one file, which is to be durable.
_WRITE_AND_WAIT = 7  # SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE and _WAIT_AFTER
_FUSE_MAGIC = 0x65735546  # The type of a mount through FUSE, in fstatfs.
_OVERLAY_MAGIC = 0x794C7630  # That of an overlay.
_STATUS = "user.weir.status"  # An attribute of every file of a mount of Weir; "sync" makes all of the mount durable.
# What filesystems answer that do not know the call.
_UNKNOWN = (errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_library = ctypes.CDLL(None, use_errno=True)


class Kept(enum.Enum):
    """What a call has kept."""

    ORDERED = "ordered"
    DURABLE = "durable"


def _descriptor(file):
    """The descriptor of a file, with nothing left in a buffer of the interpreter."""
    if isinstance(file, int):
        return file
    if hasattr(file, "flush"):
        file.flush()
    return file.fileno()


def _order(file, request, flush, argument=0):
    descriptor = _descriptor(file)
    try:
        fcntl.ioctl(descriptor, request, argument)
        return Kept.ORDERED
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    flush(descriptor)
    return Kept.ORDERED if _is_above_weir(descriptor) else Kept.DURABLE


def order(file):
    """All that was written to the file, its attributes and its name are before whatever is written later.

    Raises OSError as os.fsync does. Call flush() of an mmap before, if there is one.
    """
    return _order(file, _FBARRIER, os.fsync)


def order_data(file):
    """The same of the file's content and of what is needed to find it. Elsewhere it is os.fdatasync."""
    return _order(file, _FDATABARRIER, os.fdatasync)


def make_durable(file):
    """All that was written to the file survives a power cut when this returns.

    So it is on a mount of Weir where os.fsync only orders (--sync order, or the file's attribute), and on an overlay over it;
    there all of the mount is made durable, for which the caller has to have the right to write the file. Elsewhere this is os.fsync.
    """
    descriptor = _descriptor(file)
    if _kind(descriptor) != _FUSE_MAGIC:
        os.fsync(descriptor)
        if _is_above_weir(descriptor):
            # A filesystem without this attribute is not to get it.
            os.setxattr(descriptor, _STATUS, b"sync", os.XATTR_REPLACE)
        return Kept.DURABLE
    # The kernel passes on what it keeps of the file: mappings change it without a call.
    _call("sync_file_range", descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _WRITE_AND_WAIT, but=(errno.ESPIPE, *_UNKNOWN))
    _order(descriptor, _SYNC_GROUP, os.fsync, _ALONE)
    return Kept.DURABLE


def order_tree(directory):
    """All that was changed on the filesystem of a directory, by any program, is before whatever is changed later.

    Takes a path, an open file or a descriptor. Elsewhere it is syncfs, whose errors it raises. On another mount through
    FUSE, and on one of a server of Weir that is older than this call, it raises OSError (EOPNOTSUPP): the kernel does not
    pass syncfs on to its server. So it does on an overlay over a mount of Weir: name the mount.
    """
    if isinstance(directory, (str, bytes, os.PathLike)):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            return order_tree(descriptor)
        finally:
            os.close(descriptor)
    # Elsewhere this is all; on a mount of Weir the kernel begins to hand over what it keeps of files, and the next call waits for it.
    _call("syncfs", _descriptor(directory))
    return _order(directory, _ORDER_ALL, _refuse_unordered)


def _call(name, *arguments, but=()):
    """Calls a function of the C library; raises OSError for its errors but those."""
    if getattr(_library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        if number not in but:
            raise OSError(number, os.strerror(number))


def _kind(descriptor):
    """The type of the filesystem that a file is on."""
    found = (ctypes.c_long * 32)()  # A struct statfs, of which the first field is the kind.
    _call("fstatfs", descriptor, ctypes.byref(found))
    return found[0]


def _is_above_weir(descriptor):
    """Whether a file is on an overlay that has it on a mount of Weir."""
    if _kind(descriptor) != _OVERLAY_MAGIC:
        return False
    try:
        os.getxattr(descriptor, _STATUS)
        return True
    except OSError as error:
        if error.errno not in (errno.ENODATA, *_UNKNOWN):
            raise
        return False


def _refuse_unordered(descriptor):
    """Raises OSError where syncfs does not reach what keeps the files: through FUSE, and so below an overlay."""
    if _kind(descriptor) == _FUSE_MAGIC or _is_above_weir(descriptor):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
