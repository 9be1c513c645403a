"""Mistake: the reader of a log takes all that is there for records, also one that is there in part."""

from promise import RIGHT, acknowledge, acknowledged, expect, main, read, write

RECORDS = [str(n) * 3000 for n in range(3)]


def setup():
    write("log", "")


def run():
    for n, record in enumerate(RECORDS):
        write("log", f"{len(record)} {record}\n", mode="a")
        acknowledge(n)


def check():
    found = []
    for line in read("log").split("\n"):
        length, _, record = line.partition(" ")
        is_whole = length.isdigit() and len(record) == int(length) and "\0" not in record
        if RIGHT and not is_whole:
            break
        found += [record] if line else []
    expect(found == RECORDS[: len(found)], "a record is not as it was written")
    expect(len(found) >= len(acknowledged()), "a record was promised")


main(setup, run, check)
