"""Cases with cuts: what was synchronised before one is there after it, and the other side is the judge."""

import functools
import os
import shutil
import signal
import subprocess
import time

from images import run, run_any
from lists import Claims, Failed, compare

CUT_IMAGE_BYTES = 256 << 20
# More than a case waits for.
STEPS = 100_000
# What a power cut is behind of: so many lines more for each.
LINES_BETWEEN_CUTS = 150


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def wait_for_lines(writer, lines):
    """Waits until a writer has said so many lines. It must not end before."""
    until = time.monotonic() + 600
    while not os.path.exists(writer.said) or read(writer.said).count("\n") < lines:
        if writer.process.poll() is not None or time.monotonic() > until:
            raise Failed("it ended, or said nothing more, before the cut: " + read(writer.said)[-300:])
        time.sleep(0.02)


class MountWriter:
    """`tree sync` on a mount of Weir, whose server can be killed."""

    def __init__(self, judge, image, seed):
        self.judge, self.said = judge, judge.path("said")
        command = [judge.weir, "mount", "--foreground", image, judge.root]
        self.server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not os.path.ismount(judge.root):
            if self.server.poll() is not None or time.monotonic() > until:
                raise Failed("weir mount does not begin")
            time.sleep(0.02)
        with open(self.said, "wb") as file:
            self.process = subprocess.Popen([judge.tree, "sync", judge.root, str(STEPS)], stdout=file,
                                            stderr=subprocess.DEVNULL, env={**os.environ, "SEED": str(seed)})

    def kill(self):
        self.server.kill()
        self.server.wait()
        run_any(self.judge.weir, "umount", self.judge.root)
        self.process.kill()
        self.process.wait()


def start_in_guest(judge, image, seed):
    return judge.guest.start(image, TASK="sync", STEPS=STEPS, SEED=seed)


class WorstDisk:
    """The worst disk that the contract allows, as a file."""

    def __init__(self, judge, content):
        self.judge, self.cuts, self.directory, self.nth = judge, judge.path("cuts"), judge.path("disk"), 0
        for directory in (self.cuts, self.directory):
            shutil.rmtree(directory, ignore_errors=True)
            os.mkdir(directory)
        self.image = os.path.join(self.directory, "disk")
        command = [judge.weir, "disk", "--worst", "--size", str(CUT_IMAGE_BYTES), "--cuts", self.cuts,
                   "--foreground", self.directory]
        self.server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not os.path.exists(self.image):
            if self.server.poll() is not None:
                raise Failed("weir disk ended")
            time.sleep(0.05)
        with open(content, "rb") as source, open(self.image, "r+b") as target:
            while block := source.read(1 << 20):
                if any(block):
                    target.write(block)
                else:
                    target.seek(len(block), os.SEEK_CUR)
            os.fsync(target.fileno())

    def cut(self):
        """An image of what a power cut now would leave. The disk goes on."""
        self.nth += 1
        image = os.path.join(self.cuts, f"cut-{self.nth}.img")
        self.server.send_signal(signal.SIGUSR1)
        while not os.path.exists(image) or os.path.getsize(image) != CUT_IMAGE_BYTES:
            time.sleep(0.1)
        time.sleep(0.5)
        return image

    def end(self):
        run_any(self.judge.weir, "umount", self.directory)
        self.server.kill()
        self.server.wait()


def needs_roll_forward(judge, image):
    """Whether something was synchronised behind the newest checkpoint: then the kernel does not mount without
    roll-forward. Even a mount that only reads deletes orphans and writes a checkpoint, so it gets a snapshot."""
    guest = judge.guest.start(image, snapshot=True, TASK="list", OPTIONS="ro,norecovery")
    guest.process.wait()
    return "Need to recover fsync data" in guest.text()


def check_by_weir(judge, cut, claims, later):
    """Weir finds all that was synchronised, and leaves an image without faults: how many files, and whether it
    rolled forward."""
    rolls = needs_roll_forward(judge, cut)
    image = judge.path("mounted")
    shutil.copyfile(cut, image)
    with judge.mounted(image) as root:
        held = claims.check(run(judge.tree, "list", root), later)
        # What it writes now must take nothing of that.
        os.mkdir(os.path.join(root, "more"))
        run(judge.tree, "make", os.path.join(root, "more"), 500, 1)
    judge.check(image)
    claims.check(judge.list_with_weir(image), later)
    return held, rolls


def check_by_kernel(judge, cut, claims, later):
    """The same with sides changed; Weir finds then what the kernel has found."""
    image = judge.path("mounted")
    shutil.copyfile(cut, image)
    guest = judge.guest.run(image, TASK="list")
    held = claims.check(guest.list, later)
    judge.check(image)
    compare(judge.list_with_weir(image), guest.list)
    return held, "recover_data" in guest.text()


def judge_kills(judge, maker, start, check):
    """The writer is killed; the host keeps all that it has written."""
    found = []
    for nth in range(judge.options.cuts):
        image = judge.make_image(maker, CUT_IMAGE_BYTES)
        writer = start(judge, image, nth)
        try:
            wait_for_lines(writer, judge.random.randrange(200, 1500))
        finally:
            writer.kill()
        claims = Claims(read(writer.said))
        found.append(check(judge, image, claims, claims))
    return summarise(found)


def judge_power_cuts(judge, maker, start, check):
    """The writer writes to the worst disk, of which power cuts make images."""
    disk, cuts = WorstDisk(judge, judge.make_image(maker, CUT_IMAGE_BYTES)), []
    try:
        writer = start(judge, disk.image, judge.options.seed)
        try:
            for nth in range(judge.options.cuts):
                wait_for_lines(writer, (nth + 1) * LINES_BETWEEN_CUTS)
                claims = Claims(read(writer.said))
                cuts.append((disk.cut(), claims, Claims(read(writer.said))))
        finally:
            writer.kill()
    finally:
        disk.end()
    return summarise([check(judge, *cut) for cut in cuts])


def summarise(found):
    held, rolled = (sum(column) for column in zip(*found))
    return f"{len(found)} cuts, {rolled} rolled forward, {held} files as they were synchronised"


MAKERS = ["weir", "mkfs"]
CASES = {
    f"{name}/{maker}": (functools.partial(cut, start=start, check=check), maker)
    for name, cut, start, check in [
        ("kernel-killed", judge_kills, start_in_guest, check_by_weir),
        ("kernel-power-cut", judge_power_cuts, start_in_guest, check_by_weir),
        ("weir-killed", judge_kills, MountWriter, check_by_kernel),
        ("weir-power-cut", judge_power_cuts, MountWriter, check_by_kernel),
    ]
    for maker in MAKERS
}
