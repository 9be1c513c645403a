"""persist-queue under power cuts: the queue can be opened, and its items can be taken out.

Only this is checked, and not that what was acknowledged is there."""

import sys

from persistqueue import Queue
from promise import acknowledge, expect, main


def opened():
    return Queue("queue", tempdir=".", chunksize=4)


def setup():
    opened()


def run():
    queue = opened()
    for number in range(1, 8):
        queue.put(f"{number} " * 300)
        acknowledge(number)


def check():
    try:
        queue = opened()
        found = [int(queue.get(block=False).split()[0]) for _ in range(queue.qsize())]
    except Exception as error:
        sys.exit(f"it cannot be read: {type(error).__name__}: {error}")
    expect(found == list(range(1, len(found) + 1)), f"it holds {found}")


main(setup, run, check)
