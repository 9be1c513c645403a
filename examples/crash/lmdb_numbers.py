"""LMDB under power cuts: a transaction for each number, acknowledged when it is committed.

lmdb_numbers.py setup, lmdb_numbers.py run [nosync] and lmdb_numbers.py check. Debian's package is python3-lmdb."""

import os
import sys

import lmdb

SPACE = 1 << 20


def setup():
    """LMDB does not make a new database durable by itself: neither its first pages nor its name."""
    lmdb.open("data", map_size=SPACE).close()


def run():
    with lmdb.open("data", map_size=SPACE, sync="nosync" not in sys.argv) as database:
        for number in range(1, 11):
            with database.begin(write=True) as transaction:
                for key in range(10):
                    transaction.put(b"%d" % key, b"%d " % number * 60)
            with open(os.environ["WEIR_ACK"], "a") as lines:
                lines.write(f"{number}\n")


def check():
    with open(os.environ["WEIR_ACKED"]) as lines:
        promised = int((lines.read().split() or ["0"])[-1])
    found = set()
    with lmdb.open("data", map_size=SPACE) as database, database.begin() as transaction:
        found = {value for _, value in transaction.cursor()}
    if len(found) > 1:
        sys.exit("a transaction is there in part")
    newest = int(found.pop().split()[0]) if found else 0
    if newest < promised:
        sys.exit(f"transaction {newest}, and {promised} was committed")


{"setup": setup, "run": run, "check": check}[sys.argv[1]]()
