"""What the small programs share: they acknowledge, synchronise, and read what was acknowledged."""

import os
import sys

RIGHT = "right" in sys.argv


def acknowledge(text):
    """Says what is promised from now on."""
    with open(os.environ["WEIR_ACK"], "a") as lines:
        lines.write(f"{text}\n")


def acknowledged():
    """What was promised before the power cut."""
    with open(os.environ["WEIR_ACKED"]) as lines:
        return lines.read().split()


def write(path, text, mode="w", sync=True):
    """Writes a file, and makes its data durable."""
    with open(path, mode) as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def sync(path):
    """Makes a file's data, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def read(path):
    """What a file holds; None if it is not there."""
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def expect(is_right, what):
    """Ends the check, if something is wrong."""
    if not is_right:
        sys.exit(what)


def main(setup, run, check):
    """Does one of the three, as the command line says."""
    {"setup": setup, "run": run, "check": check}[sys.argv[1]]()
