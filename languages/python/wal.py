"""A write-ahead log that orders: wal.py write DIRECTORY writes until it is killed; wal.py check DIRECTORY NUMBER looks at what is left.

A record of the log is ordered before the place in the table that it is about. Every hundredth is made durable, and told.
"""

import os
import struct
import sys
import time
import zlib

from weir_order import make_durable, order, order_data, order_tree

RECORD = 512  # a number, the checksum of its bytes, and zeros


def record(number):
    content = struct.pack("<Q", number)
    return (content + struct.pack("<I", zlib.crc32(content))).ljust(RECORD, b"\0")


def open_files(directory):
    names = (os.path.join(directory, name) for name in ("log", "table"))
    return [os.open(name, os.O_RDWR | os.O_CREAT, 0o644) for name in names]


def write(directory):
    log, table = open_files(directory)
    order(log)
    print(order(table).value, flush=True)
    number = 0
    while True:
        number += 1
        os.pwrite(log, record(number), (number - 1) * RECORD)
        order_data(log)
        os.pwrite(table, struct.pack("<Q", number), 0)
        if number % 100 == 0:
            make_durable(table)
            print(number, flush=True)


def check(directory, durable):
    log, table = open_files(directory)
    whole = 0
    while os.pread(log, RECORD, whole * RECORD) == record(whole + 1):
        whole += 1
    (number,) = struct.unpack("<Q", os.pread(table, 8, 0).ljust(8, b"\0"))
    if not durable <= number <= whole:
        sys.exit(f"the log has {whole} records, the table is at {number}, and {durable} were durable")


def measure(directory):
    """Writes and orders in place for a second: how, and calls a second."""
    log, _ = open_files(directory)
    kept = order(log).value
    calls, end = 0, time.monotonic() + 1
    while time.monotonic() < end:
        os.pwrite(log, record(calls), 0)
        order_data(log)
        calls += 1
    print(f"{kept}: {calls}")


def tree(directory):
    """Orders all that is on the mount: how."""
    print(order_tree(directory).value)


if __name__ == "__main__":
    commands = {"write": write, "measure": measure, "tree": tree}
    if len(sys.argv) == 4 and sys.argv[1] == "check" and sys.argv[3].isdecimal():
        check(sys.argv[2], int(sys.argv[3]))
    elif len(sys.argv) == 3 and sys.argv[1] in commands:
        commands[sys.argv[1]](sys.argv[2])
    else:
        sys.exit("usage: wal.py write|measure|tree DIRECTORY, or wal.py check DIRECTORY NUMBER")
