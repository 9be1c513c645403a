"""Mistake: a record and the mark that it is whole are made durable together, in any order."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, write

RECORD = "r" * 4000


def setup():
    write("log", "0" * 12288)


def run():
    log = os.open("log", os.O_WRONLY)
    os.pwrite(log, RECORD.encode(), 4096)
    if RIGHT:
        os.fsync(log)
    os.pwrite(log, b"1", 0)
    os.fsync(log)
    acknowledge("1")


def check():
    found = read("log")
    expect(found[0] == "0" or found[4096:8096] == RECORD, "a record is marked as whole, and is not")
    expect(not acknowledged() or found[0] == "1", "the record was promised")


main(setup, run, check)
