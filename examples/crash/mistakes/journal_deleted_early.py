"""Mistake: the journal that would undo a change is deleted before the change is durable."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, sync, write

TEXTS = ["old " * 2048, "new " * 2048]


def setup():
    write("table", TEXTS[0])


def run():
    write("journal", TEXTS[0] + "end")
    sync(".")
    write("table", TEXTS[1], mode="r+", sync=RIGHT)
    os.unlink("journal")
    sync(".")
    acknowledge("new")


def check():
    journal = read("journal") or ""
    if journal.endswith("end") and journal[:-3] in TEXTS:
        write("table", journal[:-3], mode="r+")
    found = read("table")
    expect(found in TEXTS, "half of the table is old, half is new")
    expect(not acknowledged() or found == TEXTS[1], "the new table was promised")


main(setup, run, check)
