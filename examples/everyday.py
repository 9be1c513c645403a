#!/usr/bin/env python3
"""What everyday programs do, in turns on directories that are given: seconds, medians of all rounds.

    python3 examples/everyday.py [--rounds N] [--sources DIRECTORY] DIRECTORY...

Each directory is on a filesystem that is to be compared, such as the host's, a mount, and a mount with the kernel's
writeback cache. Everything is made below them in `everyday`, and deleted. `--sources` is what is packed, unpacked and
compared; the C headers, if it is left out.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def appends(root):
    """8,000 pages of 8 KiB, the end asked for after each, as databases do."""
    page = b"x" * 8192
    with open(os.path.join(root, "appends"), "wb", buffering=0) as file:
        for _ in range(8000):
            file.write(page)
            file.seek(0, os.SEEK_END)


def small(root):
    """60,000 writes of 100 bytes."""
    with open(os.path.join(root, "small"), "wb", buffering=0) as file:
        for _ in range(60000):
            file.write(b"x" * 100)


def unpack(root):
    """The sources, from a tar."""
    tree = os.path.join(root, "tree")
    os.mkdir(tree)
    subprocess.run(["tar", "xf", ARCHIVE, "-C", tree], check=True)


def compare(root):
    """The sources with a second copy of them, both read before."""
    subprocess.run(["diff", "-r", os.path.join(root, "tree"), os.path.join(root, "kept")], check=True)


TRIALS = [appends, small, unpack, compare]


def prepare(directory):
    root = os.path.join(directory, "everyday")
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(os.path.join(root, "kept"))
    subprocess.run(["tar", "xf", ARCHIVE, "-C", os.path.join(root, "kept")], check=True)
    return root


def one_round(root, seconds):
    for trial in TRIALS:
        if trial is compare:
            compare(root)
        began = time.monotonic()
        trial(root)
        seconds.setdefault(trial.__name__, []).append(time.monotonic() - began)
    shutil.rmtree(os.path.join(root, "tree"))
    for name in "appends", "small":
        os.remove(os.path.join(root, name))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--sources", default="/usr/include")
parser.add_argument("directories", nargs="+")
arguments = parser.parse_args()

with tempfile.NamedTemporaryFile(suffix=".tar") as packed:
    ARCHIVE = packed.name
    subprocess.run(["tar", "cf", ARCHIVE, "-C", arguments.sources, "."], check=True)
    roots = [prepare(directory) for directory in arguments.directories]
    found = [{} for _ in roots]
    for _ in range(arguments.rounds):
        for root, seconds in zip(roots, found):
            one_round(root, seconds)
            last = ", ".join(f"{name} {each[-1]:.2f}" for name, each in seconds.items())
            print(f"{root}: {last}", file=sys.stderr)
    for root in roots:
        shutil.rmtree(root)

print(f"{'seconds':<12}" + "".join(f"{directory[-20:]:>24}" for directory in arguments.directories))
for trial in TRIALS:
    columns = []
    for seconds in found:
        each = sorted(seconds[trial.__name__])
        columns.append(f"{statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f})")
    print(f"{trial.__name__:<12}" + "".join(f"{column:>24}" for column in columns))
