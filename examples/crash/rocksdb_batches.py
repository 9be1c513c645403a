"""RocksDB under power cuts: a batch for each number, acknowledged when it is written.

rocksdb_batches.py run [nosync] and rocksdb_batches.py check. The package is rocksdict, which brings RocksDB with it."""

import sys
from contextlib import closing

from numbered_batches import NUMBERS, acknowledge, main, pairs_of
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
        for number in NUMBERS:
            batch = WriteBatch(raw_mode=True)
            for key, value in pairs_of(number):
                batch.put(key, value)
            database.write(batch)
            if number % 8 == 0:
                database.flush()
            acknowledge(number)


def read_values():
    with opened() as database:
        return list(database.values())


main(run, read_values, Exception)
