#!/usr/bin/env python3
"""A guest under QEMU, without KVM, whose disks are volumes that `weir serve` serves, by NBD or by vhost-user-blk.

    python3 judge.py --weir PROGRAM --kernel DIRECTORY --busybox PROGRAM [--vhost-user] rate|kill
        [-- SERVER'S OPTIONS]

README.md beside it says what it needs. It ends with 0 if all is well, and with 1 if something is lost or
damaged.
"""

import os
import random
import signal
import time

from ground import (
    Ground,
    Served,
    describe_disk,
    judge_files,
    parse_options,
    print_rates,
    run,
    run_case,
    stop_guest,
)


def serve(ground, name, image, server):
    """A volume with a copy of an image, served for the guest with options."""
    protocol = "--vhost-user" if ground.options.vhost_user else "--nbd"
    return Served(ground.options.weir, os.path.join(ground.work, name), image, server, protocol)


def measure_rates(ground):
    """Rates of append and fsync: on volumes in order and durable, and on an image in a file, in turns."""
    options, work = ground.options, ground.work
    served = [
        serve(ground, f"disk{nth}.weir", image, ["--sync", sync])
        for nth, (image, sync) in enumerate(
            [(ground.root, "durable"), (ground.empty, "order"), (ground.empty, "durable")]
        )
    ]
    raw = os.path.join(work, "raw.img")
    # Each block has its place on the host's disk before.
    run("dd", f"if={ground.empty}", f"of={raw}", "bs=1M", "conv=fsync")
    disks = [one.disk(f"disk{nth}") for nth, one in enumerate(served)]
    file = f"file.driver=file,file.filename={raw},file.cache.direct=on"
    disks.append(describe_disk("disk3", f"driver=raw,{file}"))
    hosts = [ground.measure_host()]
    guest = ground.boot(disks, TASK="rate", ROUNDS=options.rounds, TIME=options.seconds)
    rates = ground.read_rates(guest)
    guest.wait()
    hosts.append(ground.measure_host())
    for one in served:
        one.end()
        print(run(options.weir, "volume", "check", one.path).strip())
    print(f"the host's own filesystem, before and after: {hosts[0]:.0f} and {hosts[1]:.0f} a second")
    print_rates("host's image", *rates.values())
    return ground.judge_console()


def kill_servers(ground):
    """Kills the server of the guest's root again and again. In the end all that was acknowledged is there."""
    options = ground.options
    served = serve(ground, "root.weir", ground.root, options.server)
    guest = ground.boot([served.disk("disk0")], TASK="keep")
    chance, acknowledged = random.Random(options.seed), 0
    for _ in range(options.kills):
        for _ in range(chance.randrange(5, 40)):
            if not guest.stdout.readline():
                break
            acknowledged += 1
        time.sleep(chance.random() * 0.05)
        served.end(signal.SIGKILL)
        served.start()
    numbers = stop_guest(guest)
    ended = "end" in numbers
    acknowledged += len(numbers) - ended
    served.end()
    last = "acknowledged" if ended else "not acknowledged"
    print(f"{options.kills} kills, {acknowledged} records acknowledged, the last sync {last}")
    return ground.judge_console() + judge_files(ground, served, acknowledged, ended)


if __name__ == "__main__":
    given = parse_options(__doc__, ("--vhost-user", "serve by vhost-user-blk [default: NBD]"))
    run_case(given, Ground, {"rate": measure_rates, "kill": kill_servers})
