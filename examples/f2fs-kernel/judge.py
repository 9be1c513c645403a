#!/usr/bin/env python3
"""Linux's f2fs, in a virtual machine, and f2fs-tools as judges of Weir's F2FS, both ways.

    python3 judge.py --weir PROGRAM --kernel DIRECTORY --busybox PROGRAM [--files N] [--cuts N] [CASE...]

README.md beside it says what it needs, and what the cases are. It ends with 0 if all cases are ok, 1 if one failed, 2 if something
that it needs is missing.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from guest import Guest, Missing, build_guest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ["qemu-system-x86_64", "mkfs.f2fs", "fsck.f2fs", "gcc", "git"]
IMAGE_BYTES = 4 << 30
CUT_IMAGE_BYTES = 256 << 20
STEPS = 100_000
# What fsck.f2fs says of damage, and what the kernel says.
COMPLAINTS = ["[ASSERT", "[Fail", "[FIX", "rror", "orrupt", "nvalid", "not match", "mismatch", "nconsisten", "BUG", "WARNING", "Oops"]


class Failed(Exception):
    """A case failed, for this reason."""


def run(*command, **options):
    """Runs a command, which must succeed; what it prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout.strip()[-800:]}")
    return done.stdout


def complaints_in(text):
    fine = ["[Ok..]", "Info: Force to fix corruption"]
    return [line for line in text.splitlines()
            if any(word in line for word in COMPLAINTS) and not any(word in line for word in fine)]


# ---- Judgements ----

def check_with_tools(image):
    """fsck.f2fs finds nothing in the whole image, and changes nothing."""
    done = subprocess.run(["fsck.f2fs", "-f", "--dry-run", image], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", check=False)
    text = done.stdout
    found = complaints_in(text)
    if found or done.returncode or "Done:" not in text or "[FSCK] free segment_count matched" not in text:
        raise Failed("fsck.f2fs:\n" + ("\n".join(found[:10]) or text[-500:]))


def check_with_weir(judge, image):
    text = run(judge.weir, "fsck", image)
    if not text.startswith("clean"):
        raise Failed(f"weir fsck: {text}")


def lines_of(text):
    """The lines of a list by path."""
    return {line.split("\t", 1)[0]: line for line in text.splitlines()}


def compare(ours, theirs):
    """Two lists are the same, as `tree list` prints them."""
    ours, theirs = lines_of(ours), lines_of(theirs)
    different = [path for path in sorted(ours.keys() | theirs.keys()) if ours.get(path) != theirs.get(path)]
    if different:
        shown = "\n".join(f"  ours   {ours.get(path)}\n  theirs {theirs.get(path)}" for path in different[:5])
        raise Failed(f"{len(different)} of {len(ours)} names differ:\n{shown[:3000]}")
    return len(ours)


class Claims:
    """What `tree sync` said: for each path, its last word on it and where it stands, None for gone."""

    def __init__(self, text):
        self.said, self.begun = {}, {}
        # The last line may be incomplete.
        for nth, line in enumerate(text.split("\n")[:-1]):
            word, _, rest = line.rstrip("\r").partition("\t")
            path = rest.split("\t", 1)[0]
            if word == "begin":
                self.begun[path] = nth
            elif word in ("done", "data", "gone"):
                self.said[path] = (nth, word, rest)

    def check(self, found, later):
        """What is found holds all that was said, but for what `later` had begun to change; how many files are held."""
        found, wrong, held = lines_of(found), [], 0
        for path, (nth, word, line) in sorted(self.said.items()):
            if later.begun.get(path, -1) > nth:
                continue
            there = found.get(path)
            if word == "data" and there:
                # fdatasync promises no times: the fields from 7 to 9.
                there, line = (self.without_times(one) for one in (there, line))
            if there != (None if word == "gone" else line):
                wrong.append(f"  said {word} {line}\n  is   {there}")
            held += word != "gone"
        if wrong:
            raise Failed(f"{len(wrong)} of {len(self.said)} are not as they were synchronised:\n" + "\n".join(wrong[:4]))
        return held

    @staticmethod
    def without_times(line):
        fields = line.split("\t")
        return fields[:7] + fields[10:]


# ---- The judge ----

class Judge:
    def __init__(self, options, work):
        self.weir, self.work, self.options = os.path.abspath(options.weir), work, options
        self.root = os.path.join(work, "mount")
        os.mkdir(self.root)
        self.tree, initial = build_guest(HERE, options.kernel, options.busybox, work)
        self.guest = Guest(options.kernel, initial, work)

    def path(self, name):
        return os.path.join(self.work, name)

    def make_image(self, maker, size=IMAGE_BYTES):
        image = self.path("image")
        if os.path.exists(image):
            os.remove(image)
        if maker == "weir":
            run(self.weir, "mkfs", "--type", "f2fs", "--size", str(size), image)
            return image
        with open(image, "wb") as file:
            file.truncate(size)
        features = ["-O", "extra_attr,inode_checksum,inode_crtime,sb_checksum"] if maker == "mkfs-features" else []
        run("mkfs.f2fs", *features, image)
        return image

    def mount(self, image, *options):
        run(self.weir, "mount", *options, image, self.root)

    def unmount(self):
        run(self.weir, "umount", self.root)

    def list_with_weir(self, image):
        self.mount(image, "--read-only")
        try:
            return run(self.tree, "list", self.root)
        finally:
            self.unmount()

    def list_with_kernel(self, image, **options):
        guest = self.guest.run(image, TASK="list", **options)
        return guest.list

    def clone(self, directory):
        run("git", "clone", "--quiet", "--no-local", self.options.repository, directory)


def clone_is_whole(directory):
    run("git", "-C", directory, "fsck", "--full", env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"})


def weir_to_kernel(judge, maker):
    """A tree that is made on a mount of Weir: the kernel finds the same."""
    image = judge.make_image(maker)
    judge.mount(image)
    try:
        judge.clone(os.path.join(judge.root, "clone"))
        run(judge.tree, "make", judge.root, str(judge.options.files), str(judge.options.mib))
        before = run(judge.tree, "list", judge.root)
    finally:
        judge.unmount()
    check_with_tools(image)
    check_with_weir(judge, image)
    ours = judge.list_with_weir(image)
    compare(before, ours)
    names = compare(ours, judge.list_with_kernel(image))
    check_with_tools(image)
    check_with_weir(judge, image)
    return f"{names} names"


def kernel_to_weir(judge, maker):
    """A tree that the kernel makes: Weir finds the same, removes some, and the kernel agrees."""
    image = judge.make_image(maker)
    clone, packed = judge.path("clone"), judge.path("packed")
    shutil.rmtree(clone, ignore_errors=True)
    judge.clone(clone)
    run("tar", "-c", "--numeric-owner", "-f", packed, "-C", clone, ".")
    made = judge.guest.run(image, packed, TASK="make", FILES=judge.options.files, MIB=judge.options.mib)
    check_with_tools(image)
    check_with_weir(judge, image)
    names = compare(judge.list_with_weir(image), made.list)
    judge.mount(image)
    try:
        clone_is_whole(os.path.join(judge.root, "unpacked"))
        shutil.rmtree(os.path.join(judge.root, "small", "0"))
        shutil.rmtree(os.path.join(judge.root, "names"))
        run(judge.tree, "make", make_folder(judge.root, "again"), "1000", "1")
    finally:
        judge.unmount()
    check_with_tools(image)
    check_with_weir(judge, image)
    compare(judge.list_with_weir(image), judge.list_with_kernel(image))
    return f"{names} names"


def make_folder(*parts):
    path = os.path.join(*parts)
    os.mkdir(path)
    return path


def wait_for_lines(path, lines, process):
    """Waits until a file has so many lines; the process that writes it must not end before."""
    until = time.monotonic() + 300
    while not os.path.exists(path) or read(path).count("\n") < lines:
        if process.poll() is not None:
            raise Failed("it ended before the cut: " + read(path)[-300:])
        if time.monotonic() > until:
            raise Failed("it says nothing more: " + read(path)[-300:])
        time.sleep(0.02)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Worst:
    """The worst disk that the contract allows, as a file: `cut` makes an image of what a power cut now would leave."""

    def __init__(self, judge):
        self.cuts, self.directory, self.nth = judge.path("cuts"), judge.path("disk"), 0
        for directory in (self.cuts, self.directory):
            shutil.rmtree(directory, ignore_errors=True)
            os.mkdir(directory)
        self.image = os.path.join(self.directory, "disk")
        self.judge = judge
        self.server = subprocess.Popen(
            [judge.weir, "disk", "--worst", "--size", str(CUT_IMAGE_BYTES), "--cuts", self.cuts, "--foreground", self.directory])
        while not os.path.exists(self.image):
            if self.server.poll() is not None:
                raise Failed("weir disk ended")
            time.sleep(0.05)

    def cut(self):
        self.nth += 1
        image = os.path.join(self.cuts, f"cut-{self.nth}.img")
        self.server.send_signal(signal.SIGUSR1)
        size = -1
        while size != CUT_IMAGE_BYTES:
            time.sleep(0.1)
            size = os.path.getsize(image) if os.path.exists(image) else -1
        time.sleep(0.5)
        return image

    def end(self):
        subprocess.run([self.judge.weir, "umount", self.directory], capture_output=True, check=False)
        self.server.kill()
        self.server.wait()


def copy_into(image, disk):
    with open(image, "rb") as source, open(disk, "r+b") as target:
        while block := source.read(1 << 20):
            if any(block):
                target.write(block)
            else:
                target.seek(len(block), os.SEEK_CUR)
        os.fsync(target.fileno())


def check_rolled_forward_by_weir(judge, cut, claims, later):
    """Weir finds all that was synchronised, and leaves an image without faults."""
    image = judge.path("mounted")
    shutil.copyfile(cut, image)
    judge.mount(image)
    try:
        held = claims.check(run(judge.tree, "list", judge.root), later)
        # The space that it takes is free.
        run(judge.tree, "make", make_folder(judge.root, "more"), "500", "1")
    finally:
        judge.unmount()
    check_with_weir(judge, image)
    check_with_tools(image)
    claims.check(judge.list_with_weir(image), later)
    return held


def check_rolled_forward_by_kernel(judge, cut, claims, later):
    """The kernel finds all that was synchronised, and leaves an image that Weir finds the same in. Whether it rolled forward, too."""
    image = judge.path("mounted")
    shutil.copyfile(cut, image)
    guest = judge.guest.run(image, TASK="list")
    held = claims.check(guest.list, later)
    check_with_tools(image)
    check_with_weir(judge, image)
    compare(judge.list_with_weir(image), guest.list)
    return held, "recover_data" in guest.text()


def needs_roll_forward(judge, image):
    """Whether something was synchronised behind the newest checkpoint: then the kernel does not mount without roll-forward. Even a
    mount that only reads deletes orphans and writes a checkpoint, so it gets a snapshot."""
    guest = judge.guest.start(image, snapshot=True, TASK="list", OPTIONS="ro,norecovery")
    guest.process.wait()
    return "Need to recover fsync data" in guest.text()


def kernel_killed(judge, maker):
    """The guest is killed, and Weir takes over."""
    held, rolled = 0, 0
    for nth in range(judge.options.cuts):
        image = judge.make_image(maker, CUT_IMAGE_BYTES)
        guest = judge.guest.start(image, TASK="sync", STEPS=STEPS, SEED=nth)
        try:
            wait_for_lines(guest.said, judge.random.randrange(200, 1500), guest.process)
        finally:
            guest.kill()
        claims = Claims(read(guest.said))
        rolled += needs_roll_forward(judge, image)
        held += check_rolled_forward_by_weir(judge, image, claims, claims)
    return f"{judge.options.cuts} kills, {held} files held, {rolled} rolled forward"


def kernel_power_cut(judge, maker):
    """The guest writes to the worst disk; what power cuts leave is Weir's."""
    held = 0
    worst = Worst(judge)
    try:
        copy_into(judge.make_image(maker, CUT_IMAGE_BYTES), worst.image)
        guest = judge.guest.start(worst.image, TASK="sync", STEPS=STEPS, SEED=77)
        try:
            cuts = []
            for nth in range(judge.options.cuts):
                wait_for_lines(guest.said, (nth + 1) * 150, guest.process)
                claims = Claims(read(guest.said))
                image = worst.cut()
                cuts.append((image, claims, Claims(read(guest.said))))
        finally:
            guest.kill()
    finally:
        worst.end()
    rolled = 0
    for image, claims, later in cuts:
        rolled += needs_roll_forward(judge, image)
        held += check_rolled_forward_by_weir(judge, image, claims, later)
    return f"{len(cuts)} power cuts, {held} files held, {rolled} rolled forward"


def start_synchronising(judge, nth):
    said = judge.path("said")
    with open(said, "wb") as file:
        process = subprocess.Popen([judge.tree, "sync", judge.root, str(STEPS)], stdout=file, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "SEED": str(nth)})
    return said, process


def serve(judge, image):
    server = subprocess.Popen([judge.weir, "mount", "--foreground", image, judge.root])
    until = time.monotonic() + 30
    while not os.path.ismount(judge.root):
        if server.poll() is not None or time.monotonic() > until:
            raise Failed("weir mount does not begin")
        time.sleep(0.02)
    return server


def weir_killed(judge, maker):
    """The server of a mount is killed, and the kernel takes over."""
    held, rolled = 0, 0
    for nth in range(judge.options.cuts):
        image = judge.make_image(maker, CUT_IMAGE_BYTES)
        server = serve(judge, image)
        said, process = start_synchronising(judge, nth)
        try:
            wait_for_lines(said, judge.random.randrange(200, 1500), process)
        finally:
            server.kill()
            server.wait()
            run(judge.weir, "umount", judge.root)
            process.kill()
            process.wait()
        claims = Claims(read(said))
        files, was_needed = check_rolled_forward_by_kernel(judge, image, claims, claims)
        held, rolled = held + files, rolled + was_needed
    return f"{judge.options.cuts} kills, {held} files held, {rolled} rolled forward"


def weir_power_cut(judge, maker):
    """Weir writes to the worst disk; what power cuts leave is the kernel's."""
    held, rolled, cuts = 0, 0, []
    worst = Worst(judge)
    try:
        copy_into(judge.make_image(maker, CUT_IMAGE_BYTES), worst.image)
        server = serve(judge, worst.image)
        said, process = start_synchronising(judge, 77)
        try:
            for nth in range(judge.options.cuts):
                wait_for_lines(said, (nth + 1) * 150, process)
                claims = Claims(read(said))
                image = worst.cut()
                cuts.append((image, claims, Claims(read(said))))
        finally:
            server.kill()
            server.wait()
            run(judge.weir, "umount", judge.root)
            process.kill()
            process.wait()
    finally:
        worst.end()
    for image, claims, later in cuts:
        files, was_needed = check_rolled_forward_by_kernel(judge, image, claims, later)
        held, rolled = held + files, rolled + was_needed
    return f"{len(cuts)} power cuts, {held} files held, {rolled} rolled forward"


CASES = {
    f"{name}/{maker}": (case, maker)
    for name, case, makers in [
        ("weir-to-kernel", weir_to_kernel, ["weir", "mkfs", "mkfs-features"]),
        ("kernel-to-weir", kernel_to_weir, ["weir", "mkfs", "mkfs-features"]),
        ("kernel-killed", kernel_killed, ["weir", "mkfs"]),
        ("kernel-power-cut", kernel_power_cut, ["weir", "mkfs"]),
        ("weir-killed", weir_killed, ["weir", "mkfs"]),
        ("weir-power-cut", weir_power_cut, ["weir", "mkfs"]),
    ]
    for maker in makers
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--weir", required=True, help="the program weir")
    parser.add_argument("--kernel", required=True, help="the directory that a package with a kernel was unpacked to")
    parser.add_argument("--busybox", required=True, help="a busybox that is linked statically")
    parser.add_argument("--repository", default=os.path.join(HERE, "../.."), help="what git clones [default: this one]")
    parser.add_argument("--work", help="a directory for images, some 10 GB [default: that for temporary files]")
    parser.add_argument("--keep", metavar="DIRECTORY", help="copy images, and what the guest said, of cases that failed here")
    parser.add_argument("--files", type=int, default=100_000, help="small files of a tree [default: 100000]")
    parser.add_argument("--mib", type=int, default=100, help="size of the large file [default: 100]")
    parser.add_argument("--cuts", type=int, default=5, help="cuts of each case with cuts [default: 5]")
    parser.add_argument("--seed", type=int, default=1, help="when is killed [default: 1]")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"a case, or its beginning, of {', '.join(CASES)} [default: all]")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if os.geteuid() != 0:
        missing.append("the superuser")
    if missing:
        print(f"judge: missing: {', '.join(missing)}", file=sys.stderr)
        return 2
    wanted = [name for name in CASES if not options.cases or name.startswith(tuple(options.cases))]
    failed = 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="f2fs-judge-", dir=options.work) as work:
        try:
            judge = Judge(options, work)
        except Missing as error:
            print(f"judge: missing: {error}", file=sys.stderr)
            return 2
        for name in wanted:
            judge.random = random.Random(f"{options.seed} {name}")
            began = time.monotonic()
            try:
                verdict = f"ok      {name}: {CASES[name][0](judge, CASES[name][1])}"
            except (Failed, OSError) as error:
                failed += 1
                verdict = f"FAILED  {name}: {error}"
                if options.keep:
                    shutil.copytree(work, os.path.join(options.keep, name.replace("/", "-")), dirs_exist_ok=True)
            print(f"{verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(wanted)} cases, {failed} failed, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
