#!/usr/bin/env python3
"""Counts the requests that the kernel sends to a mount, a file, for four jobs. Run as root:

    results/count_requests.py target/release/weir [--writeback-cache ...]

The kernel's tracepoint `fuse:fuse_request_send` counts, so the figures have no noise. FORGET is not in it on all
kernels: it needs no answer. The jobs: unpack an archive of 2,000 files, read each file, open and close each file, remove all.
"""

import collections
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

TRACING = pathlib.Path("/sys/kernel/tracing")
FILES = 2000


def make_archive(path):
    with tarfile.open(path, "w") as archive:
        for number in range(FILES):
            content = bytes([number % 251]) * (200 + 37 * number % 12000)
            entry = tarfile.TarInfo(f"tree/{number // 50:03}/file{number}")
            entry.size, entry.mode, entry.mtime = len(content), 0o644, 1_700_000_000
            archive.addfile(entry, io.BytesIO(content))


def count(job, device):
    """Requests that `job` makes on the mount with this device number, by operation."""
    (TRACING / "trace").write_text("")
    job()
    counts = collections.Counter()
    for line in (TRACING / "trace").read_text().splitlines():
        found = re.search(r"fuse_request_send: connection (\d+) .*\((?:FUSE_)?(\w+)\)", line)
        if found and int(found[1]) == device:
            counts[found[2]] += 1
    return counts


def main():
    weir, *options = sys.argv[1:]
    if not (TRACING / "events").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "none", TRACING], check=True)
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        archive, volume, mount = directory / "a.tar", directory / "v.weir", directory / "m"
        make_archive(archive)
        mount.mkdir()
        subprocess.run([weir, "mkfs", "--volume", volume, "--size", "1G"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([weir, "mount", *options, volume, mount], check=True, stdout=subprocess.DEVNULL)
        event = TRACING / "events/fuse/fuse_request_send/enable"
        try:
            (TRACING / "buffer_size_kb").write_text("32768")
            event.write_text("1")
            device = os.minor(os.stat(mount).st_dev)
            files = [f"{mount}/tree/{number // 50:03}/file{number}" for number in range(FILES)]

            def read_all():
                for name in files:
                    pathlib.Path(name).read_bytes()

            def open_all():
                for name in files:
                    os.close(os.open(name, os.O_RDONLY))

            jobs = {
                "unpack": lambda: subprocess.run(["tar", "xf", archive, "-C", mount], check=True),
                "read": read_all,
                "open": open_all,
                "remove": lambda: subprocess.run(["rm", "-r", f"{mount}/tree"], check=True),
            }
            for name, job in jobs.items():
                counts = count(job, device)
                parts = ", ".join(f"{operation} {number / FILES:.2f}" for operation, number in counts.most_common())
                print(f"{name}: {sum(counts.values()) / FILES:.2f} a file ({parts})")
        finally:
            event.write_text("0")
            subprocess.run([weir, "umount", mount], check=True, stdout=subprocess.DEVNULL)


main()
