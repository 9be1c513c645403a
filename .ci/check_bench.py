"""Checks that a document of `weir bench disk --json` makes sense. Says nothing about speed."""

import json
import math
import sys

RATIOS = [
    "ordered_vs_raw_random",
    "ordered_vs_host_fdatasync",
    "flushed_vs_host_fdatasync",
    "ordered_bandwidth_share",
    "cost_of_order",
    "steady_state_vs_raw_random",
]
PERCENTILES = ["p50", "p99", "p999", "p9999"]
MODES_MIN = 4


def positive(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def not_negative(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0


def problems(document):
    """Everything wrong with the document, as sentences."""
    for name in RATIOS:
        if not positive(document.get("ratios", {}).get(name)):
            yield f"ratios.{name} is missing or not above zero"
    for name in ["ms_max", "bytes_max"]:
        if not not_negative(document.get("loss_window", {}).get(name)):
            yield f"loss_window.{name} is missing or negative"
    if not positive(document.get("checked_blocks")):
        yield "checked_blocks: nothing was read back"
    modes = document.get("modes", [])
    names = [mode.get("name") for mode in modes]
    if len(modes) < MODES_MIN or len(set(names)) != len(names) or not all(names):
        yield f"modes: at least {MODES_MIN} with different names expected, not {names}"
    for mode in modes:
        yield from mode_problems(mode)


def mode_problems(mode):
    name = mode.get("name")
    for key in ["iops", "writes", "cpu_us_per_op", "queue_depth_mean"]:
        if not positive(mode.get(key)):
            yield f"{name}: {key} is missing or not above zero"
    latency = mode.get("latency_us", {})
    if not positive(latency.get("mean")):
        yield f"{name}: latency_us.mean is missing or not above zero"
    values = [latency.get(key) for key in PERCENTILES]
    if not all(map(not_negative, values)) or values != sorted(values):
        yield f"{name}: percentiles are missing or not in order: {values}"
    flushes = mode.get("flushes", "missing")
    if flushes is not None and not not_negative(flushes):
        yield f"{name}: flushes is missing or negative"
    # Not known where the system does not count the writes of a disk.
    amplification = mode.get("write_amplification", "missing")
    if amplification is not None and not positive(amplification):
        yield f"{name}: write_amplification is missing or not above zero"


def self_test():
    """A check that cannot fail proves nothing: an empty document must have a problem for each ratio."""
    found = list(problems({"modes": [{"name": "B", "iops": 0, "latency_us": {"p50": 2, "p99": 1}}]}))
    assert len(found) > len(RATIOS), found
    assert any("iops" in problem for problem in found), found


def main():
    self_test()
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    found = list(problems(document))
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        sys.exit(1)
    print(f"{len(document['modes'])} modes, {len(RATIOS)} ratios: the document makes sense")


main()
