"""LevelDB under power cuts: a batch for each number, acknowledged when it is written.

leveldb_batches.py run [nosync] and leveldb_batches.py check. Debian's package is python3-plyvel."""

import os
import sys
from contextlib import closing

import plyvel


def run():
    with closing(plyvel.DB("data", create_if_missing=True, write_buffer_size=16 << 10)) as database:
        for number in range(1, 21):
            with database.write_batch(sync="nosync" not in sys.argv) as batch:
                for key in range(10):
                    batch.put(b"%d" % key, b"%d " % number * 60)
            with open(os.environ["WEIR_ACK"], "a") as lines:
                lines.write(f"{number}\n")


def check():
    with open(os.environ["WEIR_ACKED"]) as lines:
        promised = int((lines.read().split() or ["0"])[-1])
    try:
        with closing(plyvel.DB("data", create_if_missing=True)) as database:
            found = {value for _, value in database}
    except plyvel.Error as error:
        sys.exit(f"it cannot be opened: {error}")
    if len(found) > 1:
        sys.exit("a batch is there in part")
    newest = int(found.pop().split()[0]) if found else 0
    if newest < promised:
        sys.exit(f"batch {newest}, and {promised} was written")


{"run": run, "check": check}[sys.argv[1]]()
