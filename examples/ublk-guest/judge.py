#!/usr/bin/env python3
"""A guest under QEMU, without KVM, in which `weir serve --ublk` shows volumes as block devices.

    python3 judge.py --weir PROGRAM --kernel DIRECTORY --busybox PROGRAM rate|kill [-- SERVER'S OPTIONS]

README.md beside it says what it needs. It ends with 0 if all is well, and with 1 if something is lost or
damaged.
"""

import os
import random
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../nbd-guest"))
from ground import (  # noqa: E402
    Ground,
    Served,
    describe_disk,
    judge_files,
    parse_options,
    print_rates,
    run,
    run_case,
    stop_guest,
    tell_guest,
)


class UblkGround(Ground):
    """A guest whose root has the program weir, and room for volumes."""

    modules = [*Ground.modules, "ublk_drv", "loop"]
    task, root_mib = os.path.join(HERE, "task"), 6144

    def __init__(self, options, work):
        self.programs = [options.weir, shutil.which("mke2fs", path="/usr/sbin:/sbin")]
        super().__init__(options, work)

    def start(self, **settings):
        file = f"file.driver=file,file.filename={self.root},file.cache.direct=on"
        return self.boot([describe_disk("disk0", f"driver=raw,{file}")], **settings)


def measure_rates(ground):
    """Rates of append and fsync: on devices in order and durable, and on a loop device, in turns."""
    guest = ground.start(TASK="rate", ROUNDS=ground.options.rounds, TIME=ground.options.seconds)
    rates = ground.read_rates(guest)
    guest.wait()
    print_rates("loop device", *rates.values())
    return ground.judge_console()


def kill_servers(ground):
    """Kills the server of a mounted device again and again. In the end all that was acknowledged is there."""
    options = ground.options
    guest = ground.start(TASK="keep", SERVER=",".join(options.server))
    chance, acknowledged = random.Random(options.seed), 0
    told = ["kill"] * options.kills
    # In between, the server is ended as a service is, while the device is mounted.
    told[options.kills // 3 : options.kills // 3] = ["end"]
    for word in told:
        for _ in range(chance.randrange(5, 40)):
            if not guest.stdout.readline():
                break
            acknowledged += 1
        time.sleep(chance.random() * 0.3)
        tell_guest(guest, word)
    numbers = stop_guest(guest)
    ended = "end" in numbers
    acknowledged += len(numbers) - ended
    last = "acknowledged" if ended else "not acknowledged"
    print(f"{options.kills} kills, {acknowledged} records acknowledged, the last sync {last}")
    volume = os.path.join(ground.work, "a.weir")
    run("debugfs", "-R", f"dump /a.weir {volume}", ground.root)
    return ground.judge_console() + judge_files(ground, Served(options.weir, volume), acknowledged, ended)


if __name__ == "__main__":
    run_case(parse_options(__doc__), UblkGround, {"rate": measure_rates, "kill": kill_servers})
