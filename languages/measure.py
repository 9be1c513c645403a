"""Calls a second that order data, in each language, and commits a second of databases that order them: on a mount and on the host, in turns.

measure.py MOUNT HOST [ROUNDS]: builds the examples (cargo, gcc, go), runs `measure` of each in both directories, and prints medians and
ranges of what is ordered on the mount and of what is durable on the host (and on the mount, for databases), and of the rounds' ratios."""

import os
import statistics
import subprocess
import sys
import tempfile

LANGUAGES = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(LANGUAGES)
EXAMPLES = os.path.join(PROJECT, "examples")


def run(*command, directory=PROJECT):
    return subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True).stdout


def build_examples(scratch):
    """The command of each example."""
    built = f"{scratch}/target/release"
    cargo = ["cargo", "build", "--quiet", "--release", "--target-dir", f"{scratch}/target"]
    run(*cargo, "-p", "weir-capi")
    run("gcc", "-O2", "-Icrates/capi/include", "languages/measure.c", f"-L{built}", "-lweir", "-o", f"{scratch}/measure")
    os.environ["LD_LIBRARY_PATH"] = built
    run(*cargo, "--example", "wal", directory=f"{LANGUAGES}/rust")
    run("go", "build", "-o", f"{scratch}/wal", "./examples/wal", directory=f"{LANGUAGES}/go")
    run(*cargo, directory=f"{EXAMPLES}/redb")
    run("go", "build", "-o", f"{scratch}/go-sqlite", directory=f"{EXAMPLES}/go-sqlite")
    return {
        "C": [f"{scratch}/measure"],
        "Rust": [f"{built}/examples/wal"],
        "Go": [f"{scratch}/wal"],
        "Python": ["python3", f"{LANGUAGES}/python/wal.py"],
        "redb": [f"{built}/redb-ordered"],
        "SQLite in Go": [f"{scratch}/go-sqlite"],
    }


def read_rates(output):
    """A second: `ordered` and `durable`, or one of them."""
    return {way: int(rate) for way, rate in (line.split(": ") for line in output.splitlines())}


def compare(name, ours, theirs):
    """Prints medians and ranges of two sides, and the ratios of the rounds."""
    ratios = [one / other for one, other in zip(ours[1], theirs[1])]
    sides = [f"{side} {statistics.median(found):,.0f} ({min(found):,} to {max(found):,})" for side, found in (ours, theirs)]
    ratio = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    print(f"{name}: {', '.join(sides)}, ratio {ratio}", flush=True)


def main(mount, host, rounds="5"):
    with tempfile.TemporaryDirectory() as scratch:
        examples = build_examples(scratch)
        told = {(name, place): [] for name in examples for place in (mount, host)}
        for nth in range(int(rounds)):
            for name, command in examples.items():
                for place in (mount, host) if nth % 2 else (host, mount):
                    told[name, place].append(read_rates(run(*command, "measure", place)))
    for name in examples:
        ordered = ("mount, ordered", [rates["ordered"] for rates in told[name, mount]])
        for side, place in (("mount", mount), ("host", host)):
            durable = [rates["durable"] for rates in told[name, place] if "durable" in rates]
            if durable:
                compare(name, ordered, (f"{side}, durable", durable))


main(*sys.argv[1:])
