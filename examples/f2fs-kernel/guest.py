"""A virtual machine whose kernel has f2fs: what it boots, and one run of it."""

import glob
import lzma
import os
import re
import subprocess
import time

# Modules by name, each with those that it depends on: checksums are asked for by the name of the algorithm.
MODULES = ["virtio_blk", "crc32_generic", "crc32c_generic", "f2fs"]
LIST_BYTES = 256 << 20
BOOT_SECONDS = 1800
# It says "invalid crc_offset" of a checkpoint that a cut has left half written, and takes the other.
COMPLAINTS = re.compile(
    r"guest: FAILED|BUG|WARNING|Oops|Kernel panic|I/O error"
    r"|F2FS-fs(?!.*invalid crc_offset).*(rror|orrupt|nvalid|nconsisten|mismatch|fail)"
)


class Missing(Exception):
    """Something that a machine needs is not there."""


class GuestFailed(OSError):
    """The guest, or its kernel, complains."""


def read_module(directory, name):
    """A module's bytes, or None where it is not among those that can be loaded."""
    pattern = name.replace("_", "[-_]")
    for path in glob.glob(f"{directory}/lib/modules/*/kernel/**/{pattern}.ko*", recursive=True):
        with open(path, "rb") as file:
            return lzma.decompress(file.read()) if path.endswith(".xz") else file.read()
    return None


def add_modules(directory, name, added):
    """Adds a module behind all that it depends on."""
    module = None if name in added else read_module(directory, name)
    if module is None:
        return
    for other in re.search(rb"\0depends=([^\0]*)\0", module)[1].decode().split(","):
        if other:
            add_modules(directory, other, added)
    added[name] = module


def build_guest(here, kernel, busybox, work):
    """Builds the program for trees, and the initial file system: the paths of both."""
    tree, root = os.path.join(work, "tree"), os.path.join(work, "root")
    subprocess.run(["gcc", "-O2", "-static", "-o", tree, *glob.glob(os.path.join(here, "*.c"))], check=True)
    for folder in ["bin", "dev", "mnt", "modules", "proc", "sys"]:
        os.makedirs(os.path.join(root, folder))
    added = {}
    for name in MODULES:
        add_modules(kernel, name, added)
    if "f2fs" not in added:
        raise Missing(f"a module f2fs below {kernel}")
    for nth, (name, module) in enumerate(added.items()):
        with open(os.path.join(root, f"modules/{nth:02}-{name}.ko"), "wb") as file:
            file.write(module)
    for source, name in [(busybox, "bin/busybox"), (tree, "bin/tree"), (os.path.join(here, "init"), "init")]:
        subprocess.run(["install", "-m", "755", source, os.path.join(root, name)], check=True)
    initial = os.path.join(work, "initial")
    with open(initial, "wb") as file:
        pack = "find . | bin/busybox cpio -o -H newc 2>/dev/null"
        subprocess.run(pack, shell=True, cwd=root, stdout=file, check=True)
    return tree, initial


class Run:
    """One run of the machine: its process, what it said, and, at its end, the list that it made."""

    def __init__(self, process, console, said, listed):
        self.process, self.console, self.said, self.listed = process, console, said, listed
        self.list = ""

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait(self):
        try:
            self.process.wait(BOOT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        text = self.text()
        complaints = [line for line in text.splitlines() if COMPLAINTS.search(line)]
        if complaints:
            complaints += [line for line in text.splitlines() if "F2FS-fs" in line]
        if complaints or "guest: is done" not in text:
            raise GuestFailed("the guest: " + "\n".join(complaints[:10] or [text[-1500:]]))
        with open(self.listed, "rb") as file:
            self.list = file.read().split(b"\0", 1)[0].decode()

    def text(self):
        with open(self.console, encoding="utf-8", errors="replace") as file:
            return file.read()


class Guest:
    def __init__(self, kernel, initial, work):
        kernels = glob.glob(f"{kernel}/boot/vmlinuz-*")
        if not kernels:
            raise Missing(f"boot/vmlinuz-* below {kernel}")
        self.kernel, self.initial, self.work = kernels[0], initial, work

    def start(self, image, packed=None, snapshot=False, **environment):
        """Starts the machine on an image, or on a snapshot of it. What it has written outlives it."""
        console, said, listed = (os.path.join(self.work, name) for name in ("console", "said", "listed"))
        for path in (console, said, listed):
            if os.path.exists(path):
                os.remove(path)
        with open(listed, "wb") as file:
            file.truncate(LIST_BYTES)
        environment = {"OPTIONS": "rw", **environment}
        settings = " ".join(f"{name}={value}" for name, value in environment.items())
        command = ["qemu-system-x86_64", "-accel", "tcg", "-m", "2048", "-display", "none", "-no-reboot",
                   "-nic", "none", "-kernel", self.kernel, "-initrd", self.initial,
                   "-append", f"console=ttyS0 panic=-1 {settings}",
                   "-serial", f"file:{console}", "-serial", f"file:{said}"]
        for disk in [image, listed] + ([packed] if packed else []):
            temporary = "on" if snapshot and disk == image else "off"
            command += ["-drive", f"file={disk},format=raw,if=virtio,discard=unmap,snapshot={temporary}"]
        return Run(subprocess.Popen(command), console, said, listed)

    def run(self, image, packed=None, **environment):
        """Runs the machine until it ends by itself."""
        run = self.start(image, packed, **environment)
        run.wait()
        return run
