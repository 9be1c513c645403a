"""Mistake: a record is acknowledged when it is written, and synchronised only then."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, write


def setup():
    write("log", "")


def run():
    log = os.open("log", os.O_WRONLY | os.O_APPEND)
    for n in range(3):
        os.write(log, b"%d\n" % n)
        if RIGHT:
            os.fsync(log)
        acknowledge(n)
        os.fsync(log)


def check():
    found = [line for line in read("log").split("\n")[:-1] if "\0" not in line]
    expect(len(found) >= len(acknowledged()), "a record was promised")


main(setup, run, check)
