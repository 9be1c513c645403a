"""RocksDB under power cuts: a batch for each number, acknowledged when it is written.

rocksdb_batches.py run [nosync] and rocksdb_batches.py check. The package is rocksdict, which brings RocksDB with it."""

import os
import sys
from contextlib import closing

from rocksdict import Options, Rdict, WriteBatch, WriteOptions


def opened():
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(64 << 10)
    options.set_max_open_files(64)
    return closing(Rdict("data", options))


def run():
    with opened() as database:
        options = WriteOptions()
        options.sync = "nosync" not in sys.argv
        database.set_write_options(options)
        for number in range(1, 21):
            batch = WriteBatch(raw_mode=True)
            for key in range(10):
                batch.put(b"%d" % key, b"%d " % number * 60)
            database.write(batch)
            if number % 8 == 0:
                database.flush()
            with open(os.environ["WEIR_ACK"], "a") as lines:
                lines.write(f"{number}\n")


def check():
    with open(os.environ["WEIR_ACKED"]) as lines:
        promised = int((lines.read().split() or ["0"])[-1])
    try:
        with opened() as database:
            found = set(database.values())
    except Exception as error:
        sys.exit(f"it cannot be opened: {error}")
    if len(found) > 1:
        sys.exit("a batch is there in part")
    newest = int(found.pop().split()[0]) if found else 0
    if newest < promised:
        sys.exit(f"batch {newest}, and {promised} was written")


{"run": run, "check": check}[sys.argv[1]]()
