"""Mistake: two blocks that belong together are overwritten in place, with no journal."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, sync, write

TEXTS = ["old " * 2048, "new " * 2048]


def setup():
    write("table", TEXTS[0])


def recover():
    """A journal that is whole counts."""
    journal = read("journal") or ""
    if journal.endswith("end") and journal[:-3] in TEXTS:
        write("table", journal[:-3], mode="r+")


def run():
    if RIGHT:
        write("journal", TEXTS[1] + "end")
        sync(".")
    write("table", TEXTS[1], mode="r+")
    if RIGHT:
        os.unlink("journal")
    acknowledge("new")


def check():
    if RIGHT:
        recover()
    found = read("table")
    expect(found in TEXTS, "half of the table is old, half is new")
    expect(not acknowledged() or found == TEXTS[1], "the new table was promised")


main(setup, run, check)
