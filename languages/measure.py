"""Calls a second that order data, in each language: on a mount, and as fdatasync on the host's filesystem, in turns.

measure.py MOUNT HOST [ROUNDS]: builds the examples (cargo, go, gcc), runs `measure` of each for a second in both directories, and
prints the medians, and the median and the range of the rounds' ratios, mount over host."""

import os
import statistics
import subprocess
import sys
import tempfile

LANGUAGES = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(LANGUAGES)


def run(*command, directory=PROJECT, **more):
    return subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def build_examples(scratch):
    """The command of each language's example."""
    target = os.path.join(scratch, "target")
    cargo = ["cargo", "build", "--quiet", "--release", "--target-dir", target]
    run(*cargo, "--example", "wal", directory=f"{LANGUAGES}/rust")
    run(*cargo, "-p", "weir-capi")
    include = f"{PROJECT}/crates/capi/include"
    library = f"{target}/release"
    run("gcc", "-O2", f"-I{include}", f"{LANGUAGES}/measure.c", f"-L{library}", "-lweir", "-o", f"{scratch}/measure")
    os.environ["LD_LIBRARY_PATH"] = library
    run("go", "build", "-o", f"{scratch}/wal", "./examples/wal", directory=f"{LANGUAGES}/go")
    return {
        "C": [f"{scratch}/measure"],
        "Rust": [f"{library}/examples/wal"],
        "Go": [f"{scratch}/wal"],
        "Python": ["python3", f"{LANGUAGES}/python/wal.py"],
    }


def main():
    mount, host = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    with tempfile.TemporaryDirectory() as scratch:
        examples = build_examples(scratch)
        calls = {(language, place): [] for language in examples for place in (mount, host)}
        for nth in range(rounds):
            for language, command in examples.items():
                for place in (mount, host) if nth % 2 else (host, mount):
                    calls[language, place].append(int(run(*command, "measure", place)))
    for language in examples:
        ours, theirs = calls[language, mount], calls[language, host]
        ratios = [ordered / flushed for ordered, flushed in zip(ours, theirs)]
        print(
            f"{language}: mount {statistics.median(ours):,.0f}, host {statistics.median(theirs):,.0f}, "
            f"mount / host {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        )


if __name__ == "__main__":
    main()
