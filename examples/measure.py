"""Commits a second of the databases with commits that only order (redb, go-sqlite): on a mount and on the host's filesystem, in turns.

measure.py MOUNT HOST [ROUNDS]: builds the examples, runs `measure` of each in both directories, and prints medians and ranges of
ordered commits on the mount and of durable ones on both, and of the rounds' ratios."""

import os
import statistics
import subprocess
import sys
import tempfile

EXAMPLES = os.path.dirname(os.path.abspath(__file__))


def run(*command, directory=EXAMPLES):
    return subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout


def build_examples(scratch):
    """The command of each example."""
    run("cargo", "build", "--quiet", "--release", "--target-dir", f"{scratch}/target", directory=f"{EXAMPLES}/redb")
    run("go", "build", "-o", f"{scratch}/go-sqlite", directory=f"{EXAMPLES}/go-sqlite")
    return {"redb": f"{scratch}/target/release/redb-ordered", "SQLite in Go": f"{scratch}/go-sqlite"}


def compare(name, ours, theirs):
    """A line with medians and ranges, and the ratios of the rounds."""
    ratios = [one / other for one, other in zip(ours[1], theirs[1])]
    sides = [f"{side} {statistics.median(found):,.0f} ({min(found):,} to {max(found):,})" for side, found in (ours, theirs)]
    ratio = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    print(f"{name}: {', '.join(sides)}, ratio {ratio}", flush=True)


def main(mount, host, rounds="5"):
    with tempfile.TemporaryDirectory() as scratch:
        examples = build_examples(scratch)
        told = {(name, place): [] for name in examples for place in (mount, host)}
        for nth in range(int(rounds)):
            for name, program in examples.items():
                for place in (mount, host) if nth % 2 else (host, mount):
                    lines = run(program, "measure", place).splitlines()
                    told[name, place].append({way: int(rate) for way, rate in (line.split(": ") for line in lines)})
    for name in examples:
        of = lambda place, way: [round[way] for round in told[name, place]]
        ordered = ("mount, ordered", of(mount, "ordered"))
        compare(name, ordered, ("mount, durable", of(mount, "durable")))
        compare(name, ordered, ("host, durable", of(host, "durable")))


main(*sys.argv[1:])
