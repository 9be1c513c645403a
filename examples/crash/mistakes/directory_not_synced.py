"""Mistake: a new file is made durable, and its name is not."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, read, sync, write


def setup():
    pass


def run():
    for name in ["a", "b"]:
        write(name, "content")
        if RIGHT:
            sync(".")
        acknowledge(name)


def check():
    for name in acknowledged():
        expect(read(name) == "content", f"{name} was promised")


main(setup, run, check)
