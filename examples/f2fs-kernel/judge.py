#!/usr/bin/env python3
"""Linux's f2fs, in a virtual machine, and f2fs-tools as judges of Weir's F2FS, both ways.

    python3 judge.py --weir PROGRAM --kernel DIRECTORY --busybox PROGRAM [CASE...]

README.md beside it says what it needs, and what the cases are. It ends with 0 if all cases are ok, 1 if one failed,
2 if something that it needs is missing.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import cuts
import trees
from guest import Guest, Missing, build_guest
from images import Judge
from lists import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ["qemu-system-x86_64", "mkfs.f2fs", "fsck.f2fs", "gcc", "git"]
CASES = {**trees.CASES, **cuts.CASES}


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--weir", required=True, help="the program weir")
    add("--kernel", required=True, help="the directory that a package with a kernel was unpacked to")
    add("--busybox", required=True, help="a busybox that is linked statically")
    repository = os.path.join(HERE, "../..")
    add("--repository", default=repository, help="what git clones [default: this one]")
    add("--work", help="a directory for images, 10 GB [default: that for temporary files]")
    add("--keep", metavar="DIRECTORY", help="where copies of images of failed cases are left")
    add("--files", type=int, default=100_000, help="small files of a tree, from 1000 [default: 100000]")
    add("--mib", type=int, default=100, help="size of its large file [default: 100]")
    add("--cuts", type=int, default=5, help="cuts of each case with cuts [default: 5]")
    add("--seed", type=int, default=1, help="which moments the cuts are at [default: 1]")
    names = ", ".join(CASES)
    add("cases", nargs="*", metavar="CASE", help=f"a case, or its beginning: {names} [default: all]")
    return parser.parse_args()


def run_case(judge, name):
    """Runs a case, and says how it went: whether it is ok."""
    case, maker = CASES[name]
    began = time.monotonic()
    try:
        verdict, is_ok = f"ok      {name}: {case(judge, maker)}", True
    except (Failed, OSError) as error:
        verdict, is_ok = f"FAILED  {name}: {error}", False
        if judge.options.keep:
            copy = os.path.join(judge.options.keep, name.replace("/", "-"))
            subprocess.run(["cp", "-r", "--sparse=always", judge.work, copy], check=False)
    print(f"{verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return is_ok


def main():
    options = read_arguments()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    missing += [path for path in (options.weir, options.busybox) if not os.path.exists(path)]
    if os.geteuid() != 0:
        missing.append("the superuser")
    if missing:
        print(f"judge: missing: {', '.join(missing)}", file=sys.stderr)
        return 2
    wanted = [name for name in CASES if not options.cases or name.startswith(tuple(options.cases))]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="f2fs-judge-", dir=options.work) as work:
        try:
            tree, initial = build_guest(HERE, options.kernel, options.busybox, work)
            guest = Guest(options.kernel, initial, work)
        except Missing as error:
            print(f"judge: missing: {error}", file=sys.stderr)
            return 2
        failed = 0
        for name in wanted:
            moments = random.Random(f"{options.seed} {name}")
            failed += not run_case(Judge(options, work, tree, guest, moments), name)
    print(f"{len(wanted)} cases, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
