"""Mistake: an fsync fails, and is tried again until it says yes; what the first one was to write is gone all the same."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, write

RECORD = "r" * 100


def setup():
    write("log", "")


def run():
    log = os.open("log", os.O_WRONLY)
    os.pwrite(log, RECORD.encode(), 0)
    try:
        os.fsync(log)
    except OSError:
        if RIGHT:
            os.pwrite(log, RECORD.encode(), 0)
        os.fsync(log)
    acknowledge("1")


def check():
    expect(not acknowledged() or read("log") == RECORD, "the record was promised")


main(setup, run, check)
