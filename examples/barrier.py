"""Orders two writes on a mount of Weir: python3 barrier.py DIRECTORY. Elsewhere it falls back to fsync."""

import errno
import fcntl
import os
import sys

FBARRIER = 0x5701  # _IO('W', 1)


def fbarrier(fd):
    """This file before everything that is written later; waits for nothing. False where it was a flush instead."""
    try:
        fcntl.ioctl(fd, FBARRIER)
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        os.fsync(fd)
        return False


if len(sys.argv) != 2:
    sys.exit(__doc__)
directory = sys.argv[1]
with open(os.path.join(directory, "log"), "wb", buffering=0) as log:
    log.write(b"what is going to be done")
    ordered = fbarrier(log.fileno())
with open(os.path.join(directory, "data"), "wb", buffering=0) as data:
    data.write(b"done")
    os.fsync(data.fileno())  # and now both are safe
print("one barrier, one flush" if ordered else "two flushes")
