"""Order between writes, without waiting for the disk, on a mount of Weir.

Each call takes an open file, or its descriptor, and says what it has kept: Kept.ORDERED, or Kept.DURABLE where it was a
flush instead. On other filesystems every call is a flush, so a program keeps its order everywhere.
"""

import enum
import errno
import fcntl
import os

__all__ = ["Kept", "order", "order_data", "make_durable"]

_FBARRIER = 0x5701  # _IO('W', 1), crates/capi/include/weir.h
_FDATABARRIER = 0x5702  # _IO('W', 2)
# What filesystems answer that do not know the call.
_UNKNOWN = (errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


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


def _order(file, request, flush):
    descriptor = _descriptor(file)
    try:
        fcntl.ioctl(descriptor, request)
        return Kept.ORDERED
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    flush(descriptor)
    return Kept.DURABLE


def order(file):
    """All that was written to the file, its attributes and its name are before whatever is written later.

    Raises OSError as os.fsync does. Call flush() of an mmap before, if there is one.
    """
    return _order(file, _FBARRIER, os.fsync)


def order_data(file):
    """The same of the file's content and of what is needed to find it. Elsewhere it is os.fdatasync."""
    return _order(file, _FDATABARRIER, os.fdatasync)


def make_durable(file):
    """All that was written to the file survives a power cut when this returns: os.fsync."""
    os.fsync(_descriptor(file))
    return Kept.DURABLE
