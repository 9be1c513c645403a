"""Mistake: a new version takes the old one's name before its data is durable."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, sync, write

TEXTS = [f"version {n}\n" * 600 for n in range(2)]


def setup():
    write("data", TEXTS[0])


def run():
    write("tmp", TEXTS[1], sync=RIGHT)
    os.rename("tmp", "data")
    sync(".")
    acknowledge("1")


def check():
    found = read("data")
    expect(found in TEXTS, "data is neither the old nor the new version")
    expect(not acknowledged() or found == TEXTS[1], "the new version was promised")


main(setup, run, check)
