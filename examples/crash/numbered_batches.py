"""Batches of a key-value store, each of ten keys with one number, for leveldb_batches.py and rocksdb_batches.py."""

import os
import sys

NUMBERS = range(1, 21)


def pairs_of(number):
    """What the batch of a number puts."""
    return [(b"%d" % key, b"%d " % number * 60) for key in range(10)]


def acknowledge(number):
    with open(os.environ["WEIR_ACK"], "a") as lines:
        lines.write(f"{number}\n")


def check(read_values, error_of_store):
    """Whether one whole batch is there, none before the newest that was acknowledged."""
    with open(os.environ["WEIR_ACKED"]) as lines:
        promised = int((lines.read().split() or ["0"])[-1])
    try:
        found = set(read_values())
    except error_of_store as error:
        sys.exit(f"it cannot be opened: {error}")
    if len(found) > 1:
        sys.exit("a batch is there in part")
    newest = int(found.pop().split()[0]) if found else 0
    if newest < promised:
        sys.exit(f"batch {newest}, and {promised} was written")


def main(run, read_values, error_of_store):
    """Runs or checks, as the command line says."""
    if sys.argv[1] == "run":
        run()
    else:
        check(read_values, error_of_store)
