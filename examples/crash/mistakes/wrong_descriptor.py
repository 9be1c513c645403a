"""Mistake: `fsync` of a descriptor that is of another file since the log was rotated."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, sync


def setup():
    pass


def run():
    old = os.open("log.1", os.O_WRONLY | os.O_CREAT)
    new = os.open("log.2", os.O_WRONLY | os.O_CREAT)
    sync(".")
    for n in range(3):
        os.write(new, b"%d\n" % n)
        os.fsync(new if RIGHT else old)
        acknowledge(n)


def check():
    found = (read("log.2") or "").split("\n")[:-1]
    expect(len(found) >= len(acknowledged()), "a record was promised")


main(setup, run, check)
