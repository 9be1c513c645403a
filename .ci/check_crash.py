"""Checks two crash runs of one seed: no failure, some states, and the same trace hash."""

import json
import sys


def problems(first, second):
    """Everything wrong with the two runs, as sentences."""
    for run in (first, second):
        if run.get("failures") != 0:
            yield f"failures: {run.get('failures')}"
        if not run.get("states_distinct", 0) > 0:
            yield "no crash state was looked at"
    if not first.get("trace_hash") or first.get("trace_hash") != second.get("trace_hash"):
        yield f"one seed, two trace hashes: {first.get('trace_hash')} and {second.get('trace_hash')}"


def main():
    good = {"failures": 0, "states_distinct": 1, "trace_hash": "a"}
    assert not list(problems(good, good))
    for bad in ({"failures": 1}, {"states_distinct": 0}, {"trace_hash": "b"}):
        assert list(problems(good, good | bad)), "a check that cannot fail proves nothing"

    runs = []
    for path in sys.argv[1:3]:
        with open(path, encoding="utf-8") as file:
            runs.append(json.load(file))
    found = list(problems(*runs))
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{runs[0]['states_distinct']} distinct crash states, trace hash {runs[0]['trace_hash']}, twice")


main()
