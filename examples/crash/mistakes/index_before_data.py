"""Mistake: two files in the wrong order: the index points to data that may not be there."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, read, write

ENTRIES = ["first ", "second "]


def setup():
    write("data", "")
    write("index", "00")


def run():
    for entry in ENTRIES:
        data, end = read("data"), len(read("data")) + len(entry)
        if RIGHT:
            write("data", entry, mode="a")
            write("index", f"{end:02}", mode="r+")
        else:
            write("index", f"{end:02}", mode="r+")
            write("data", entry, mode="a")
        acknowledge(data + entry)


def check():
    end = int(read("index"))
    expect("".join(ENTRIES)[:end] == read("data")[:end], "the index points to what is not there")
    expect(end >= sum(map(len, ENTRIES[: len(acknowledged())])) - 1, "an entry was promised")


main(setup, run, check)
