"""Mistake: the old version is cut off before the new one is there."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, os, read, sync, write

TEXTS = ["setting = old\n", "setting = new\n"]


def setup():
    write("config", TEXTS[0])


def run():
    if RIGHT:
        write("config.new", TEXTS[1])
        os.rename("config.new", "config")
        sync(".")
    else:
        write("config", TEXTS[1])
    acknowledge("new")


def check():
    found = read("config")
    expect(found in TEXTS, "the settings are gone")
    expect(not acknowledged() or found == TEXTS[1], "the new settings were promised")


main(setup, run, check)
