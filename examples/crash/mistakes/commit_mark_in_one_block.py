"""Mistake: a record and the mark that it is whole are in one block, and made durable together: a torn block has the mark alone."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, write

RECORD = "r" * 3000


def setup():
    write("log", "0" * 4096)


def run():
    log = os.open("log", os.O_WRONLY)
    os.pwrite(log, RECORD.encode(), 0)
    if RIGHT:
        os.fsync(log)
    os.pwrite(log, b"1", 3584)
    os.fsync(log)
    acknowledge("1")


def check():
    found = read("log")
    expect(found[3584] == "0" or found[:3000] == RECORD, "a record is marked as whole, and is not")
    expect(not acknowledged() or found[3584] == "1", "the record was promised")


main(setup, run, check)
