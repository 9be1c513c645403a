"""Mistake: a file moves to another directory, and only the one that it leaves is synchronised first.

The name goes from there, so the move must be durable where it leads to: a file system may do the two one by one."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, sync, write


def setup():
    os.mkdir("new")
    os.mkdir("cur")


def run():
    for name in ["1", "2"]:
        write(f"new/{name}", "message")
        sync("new")
        os.link(f"new/{name}", f"cur/{name}")
        if RIGHT:
            sync("cur")
        os.unlink(f"new/{name}")
        sync("new")
        acknowledge(name)


def check():
    for name in acknowledged():
        expect("message" in [read(f"new/{name}"), read(f"cur/{name}")], f"message {name} was promised")


main(setup, run, check)
