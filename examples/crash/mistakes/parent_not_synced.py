"""Mistake: a new directory is synchronised, and the one that has its name is not."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, sync, write


def setup():
    pass


def run():
    os.mkdir("mail")
    write("mail/1", "message")
    sync("mail")
    if RIGHT:
        sync(".")
    acknowledge("1")


def check():
    expect(not acknowledged() or read("mail/1") == "message", "a message was promised")


main(setup, run, check)
