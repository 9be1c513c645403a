"""atomicwrites under power cuts: a file that it has written is there, whole."""

import atomicwrites
from promise import acknowledge, acknowledged, expect, main, read, write

TEXTS = [f"version {number}\n" * 600 for number in range(4)]


def setup():
    write("data", TEXTS[0])


def run():
    for number in range(1, 4):
        with atomicwrites.atomic_write("./data", overwrite=True) as file:
            file.write(TEXTS[number])
        acknowledge(number)


def check():
    promised = int((acknowledged() or [0])[-1])
    expect(read("data") in TEXTS[promised:], f"version {promised} was written, and data is none from there on")


main(setup, run, check)
