"""LevelDB under power cuts: a batch for each number, acknowledged when it is written.

leveldb_batches.py run [nosync] and leveldb_batches.py check. Debian's package is python3-plyvel."""

import sys
from contextlib import closing

import plyvel
from numbered_batches import NUMBERS, acknowledge, main, pairs_of


def run():
    with closing(plyvel.DB("data", create_if_missing=True, write_buffer_size=16 << 10)) as database:
        for number in NUMBERS:
            with database.write_batch(sync="nosync" not in sys.argv) as batch:
                for key, value in pairs_of(number):
                    batch.put(key, value)
            acknowledge(number)


def read_values():
    with closing(plyvel.DB("data", create_if_missing=True)) as database:
        return [value for _, value in database]


main(run, read_values, plyvel.Error)
