"""How long dpkg takes to install a package of many small files, in two directories in turns.

measure_dpkg.py MOUNT HOST [ROUNDS [FILES]]: with dpkg's own syncs, and with `--force-unsafe-io`. It prints for each the medians in
seconds, the median and the range of the rounds' ratios, host over mount, and the host's best over the mount's median."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

CONTROL = "Package: many\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a test\n"
WAYS = {"with its syncs": "--no-force-unsafe-io", "--force-unsafe-io": "--force-unsafe-io"}


def make_package(scratch, files):
    """Files of 500 to 8,000 bytes, fifty a directory."""
    os.makedirs(f"{scratch}/tree/DEBIAN")
    with open(f"{scratch}/tree/DEBIAN/control", "w") as control:
        control.write(CONTROL)
    for nth in range(files):
        directory = f"{scratch}/tree/usr/share/many/{nth // 50}"
        os.makedirs(directory, exist_ok=True)
        with open(f"{directory}/{nth}", "w") as file:
            file.write(f"{nth}\n" * (100 + nth * 7919 % 1400))
    package = f"{scratch}/many.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "-b", f"{scratch}/tree", package]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return package


def install(directory, package, option):
    """Seconds for one installation into a new root."""
    root = f"{directory}/root"
    os.makedirs(f"{root}/var/lib/dpkg/info")
    os.makedirs(f"{root}/var/lib/dpkg/updates")
    open(f"{root}/var/lib/dpkg/status", "w").close()
    os.sync()
    began = time.monotonic()
    command = ["dpkg", f"--root={root}", "--force-script-chrootless", "--log=/dev/null", option, "-i", package]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    shutil.rmtree(root)
    os.sync()
    return seconds


def main(mount, host, rounds="5", files="4000"):
    with tempfile.TemporaryDirectory() as scratch:
        package = make_package(scratch, int(files))
        for way, option in WAYS.items():
            times = [(install(mount, package, option), install(host, package, option)) for _ in range(int(rounds))]
            ratios = [of_host / of_mount for of_mount, of_host in times]
            of_mount, of_host = (statistics.median(side) for side in zip(*times))
            best = min(seconds for _, seconds in times)
            print(f"{way}: mount {of_mount:.2f} s, host {of_host:.2f} s, host / mount {statistics.median(ratios):.2f}", end="")
            print(f" ({min(ratios):.2f} to {max(ratios):.2f}), host's best {best:.2f} s, over mount {best / of_mount:.2f}", flush=True)


main(*sys.argv[1:])
