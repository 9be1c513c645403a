"""What judges of served guests share: what a guest boots, a volume and its server, and what is wrong with what is left."""

import argparse
import contextlib
import glob
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../f2fs-kernel"))
from guest import add_modules  # noqa: E402

MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"]
RECORD = 4096
PLAIN = 16
IMAGE_MIB = 768


def run(*command, **more):
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    ).stdout


def describe_disk(name, driver):
    """A disk that QEMU itself reads and writes, as its arguments."""
    node = f"{driver},node-name={name},cache.direct=on"
    return ["-blockdev", node, "-device", f"virtio-blk-pci,drive={name},write-cache=on"]


class Served:
    """A volume, with a copy of an image if there is one, and its server, for a guest by `protocol`."""

    def __init__(self, weir, path, image=None, options=(), protocol="--nbd"):
        self.weir, self.path, self.socket, self.options = weir, path, path + ".sock", list(options)
        self.protocol = protocol
        if not image:
            return
        run(weir, "volume", "create", path, "--size", f"{2 * IMAGE_MIB}M", "--logical", f"{IMAGE_MIB}M")
        self.start(["--sync", "durable"], "--nbd")
        run("nbdcopy", "--flush", image, self.uri())
        self.end()
        self.start()

    def uri(self):
        return f"nbd+unix:///?socket={self.socket}"

    def start(self, options=None, protocol=None):
        """Starts the server: for the guest, or with options and a protocol for something else."""
        told = self.options if options is None else options
        address = [protocol or self.protocol, f"unix:{self.socket}"]
        command = [self.weir, "serve", self.path, *address, "--foreground", *told]
        self.process = subprocess.Popen(command)
        for _ in range(1000):
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(self.socket)
                return
            except OSError:
                time.sleep(0.01)
        sys.exit("the server does not start")

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()

    def disk(self, name):
        """The guest's disk, as arguments of QEMU."""
        if self.protocol == "--vhost-user":
            chardev = f"socket,id={name},path={self.socket},{reconnect_each_second()}"
            return ["-chardev", chardev, "-device", f"vhost-user-blk-pci,chardev={name}"]
        server = f"server.type=unix,server.path={self.socket},reconnect-delay=60"
        return describe_disk(name, f"driver=nbd,{server}")

    def copy_out(self, path):
        """Checks the volume, and copies what it holds to a file."""
        print(run(self.weir, "volume", "check", self.path).strip())
        self.start(["--read-only"], "--nbd")
        run("nbdcopy", self.uri(), path)
        self.end()


def reconnect_each_second():
    """How QEMU has a socket connect again: 9.2 has another option for it, and 10.2 the old one no more."""
    version = re.search(r"version (\d+)\.(\d+)", run("qemu-system-x86_64", "--version"))
    return "reconnect-ms=1000" if tuple(map(int, version.groups())) >= (9, 2) else "reconnect=1"


class Ground:
    """Where it works: what the guest boots, and the images that its disks begin with."""

    modules, task, programs, root_mib = MODULES, os.path.join(HERE, "task"), [], IMAGE_MIB

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.kernel = glob.glob(f"{options.kernel}/boot/vmlinuz-*")[0]
        self.records = os.path.join(work, "records")
        run("gcc", "-O2", "-static", "-o", self.records, os.path.join(HERE, "records.c"))
        self.initial = self.build_initial(os.path.join(work, "first"))
        self.root = self.build_image("root.img", self.build_root(os.path.join(work, "root")), self.root_mib)
        self.empty = self.build_image("empty.img")

    def build_initial(self, tree):
        """The initial file system: modules, and what mounts the root."""
        added = {}
        for module in self.modules:
            add_modules(self.options.kernel, module, added)
        self.make_folders(tree, ["bin", "dev", "proc", "new", "modules"])
        for nth, (name, module) in enumerate(added.items()):
            with open(os.path.join(tree, f"modules/{nth:02}-{name}.ko"), "wb") as file:
                file.write(module)
        self.install(self.options.busybox, tree, "bin/busybox")
        self.install(os.path.join(HERE, "init"), tree, "init")
        path = os.path.join(self.work, "initial")
        with open(path, "wb") as file:
            pack = "find . | bin/busybox cpio -o -H newc 2>/dev/null"
            subprocess.run(pack, shell=True, cwd=tree, stdout=file, check=True)
        return path

    def build_root(self, tree):
        self.make_folders(tree, ["bin", "dev", "proc", "mnt/b", "mnt/c", "mnt/d"])
        self.install(self.options.busybox, tree, "bin/busybox")
        self.install(self.task, tree, "task")
        self.install(self.records, tree, "bin/records")
        for program in self.programs:
            self.install(program, tree, "bin/" + os.path.basename(program))
            for library in re.findall(r"(/\S+) \(0x", run("ldd", program)):
                os.makedirs(tree + os.path.dirname(library), exist_ok=True)
                self.install(library, tree, library[1:])
        return tree

    def build_image(self, name, tree=None, mib=IMAGE_MIB):
        """An image with ext4, of what is in a directory."""
        path = os.path.join(self.work, name)
        content = ["-d", tree] if tree else []
        run("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0", *content, path, f"{mib}M")
        return path

    @staticmethod
    def make_folders(tree, folders):
        for folder in folders:
            os.makedirs(os.path.join(tree, folder))

    @staticmethod
    def install(source, tree, name):
        run("install", "-m", "755", source, os.path.join(tree, name))

    def boot(self, disks, **settings):
        """Starts the guest with disks, each as arguments. Its output is what it acknowledges."""
        told = " ".join(f"{name}={value}" for name, value in settings.items())
        command = [
            "qemu-system-x86_64",
            "-accel",
            "tcg",
            # QEMU 7.2 sometimes gets the flags of cmpxchg16b wrong, and then a newer kernel falls over.
            "-cpu",
            "qemu64,-cx16",
            "-m",
            "1024",
            # Memory that a server of vhost-user can map, too.
            "-object",
            "memory-backend-memfd,id=memory,size=1024M,share=on",
            "-machine",
            "memory-backend=memory",
            "-display",
            "none",
            "-no-reboot",
            "-nic",
            "none",
            "-monitor",
            "none",
            "-kernel",
            self.kernel,
            "-initrd",
            self.initial,
            "-append",
            f"console=ttyS0 quiet panic=-1 {told}",
            "-serial",
            f"file:{self.console()}",
            "-serial",
            "stdio",
        ]
        for disk in disks:
            command += disk
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def read_rates(guest):
        """The rates that a guest tells, each after the path of its file, by mount."""
        rates = {directory: [] for directory in ("/mnt/b", "/mnt/c", "/mnt/d")}
        for line in guest.stdout:
            path, rate = line.split()
            rates[os.path.dirname(path)].append(float(rate))
        return rates

    def measure_host(self):
        """The same calls on the host's own filesystem, a second."""
        return float(run(self.records, "rate", os.path.join(self.work, "appended"), "2").split()[-1])

    def console(self):
        return os.path.join(self.work, "console")

    def judge_console(self):
        """What the guest and its kernel complain about."""
        with open(self.console(), encoding="utf-8", errors="replace") as file:
            text = file.read()
        bad = ("FAILED", "error", "EXT4-fs (", "BUG", "hung", "Oops", "panic")
        lines = [
            line
            for line in text.splitlines()
            if any(word in line for word in bad) and "mounted filesystem" not in line
        ]
        return lines + (
            [] if "guest: is done" in text else ["the guest has not come to its end", text[-600:]]
        )


def tell_guest(guest, word):
    """Tells a guest something, if it has not stopped: one whose flushes fail does (rule N7)."""
    with contextlib.suppress(BrokenPipeError):
        guest.stdin.write(word + "\n")
        guest.stdin.flush()


def stop_guest(guest):
    """Lets a guest end; the rest of what it acknowledges."""
    tell_guest(guest, "stop")
    numbers = guest.stdout.read().split()
    with contextlib.suppress(BrokenPipeError):
        guest.stdin.close()
    guest.wait()
    return numbers


def print_rates(other, *rates):
    """Prints rates of volumes in order and durable, and of something else."""
    for name, found in zip(["order", "durable", other], rates):
        print(f"{name:13} {statistics.median(found):.0f} a second ({min(found):.0f} to {max(found):.0f})")
    ratios = [one / another for one, another in zip(rates[0], rates[2])]
    print(f"order / {other} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def judge_files(ground, served, acknowledged, ended):
    """What is wrong with what the guest has left."""
    image, wrong = os.path.join(ground.work, "out.img"), []
    served.copy_out(image)
    # A guest whose filesystem has stopped leaves a journal, as after a power cut.
    subprocess.run(["e2fsck", "-p", "-E", "journal_only", image], capture_output=True, check=False)
    checked = subprocess.run(["e2fsck", "-fn", image], capture_output=True, text=True, check=False)
    if checked.returncode:
        wrong.append(f"e2fsck: {checked.returncode}\n{checked.stdout[-1500:]}")
    for name, each in [("records", 1), ("plain", PLAIN if ended else 0)]:
        path = os.path.join(ground.work, name)
        with open(path, "wb"):
            pass
        subprocess.run(["debugfs", "-R", f"dump /{name} {path}", image], capture_output=True, check=False)
        with open(path, "rb") as file:
            bad = [
                nth
                for nth in range(acknowledged * each)
                if file.read(RECORD) != (nth // each).to_bytes(8, "little") * (RECORD // 8)
            ]
        print(f"/{name}: {acknowledged * each} records looked at, {len(bad)} are wrong")
        if bad:
            wrong.append(f"/{name}: records that are not as written: {bad[:10]}")
    return wrong


def run_case(options, ground_class, cases):
    """Runs the case that the options name, prints what is wrong, and ends the program."""
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        wrong = cases[options.case](ground_class(options, work))
    print("\n".join(wrong) or "ok")
    sys.exit(1 if wrong else 0)


def parse_options(description, *flags):
    """The options of a judge, some of them its own: a name and a help each."""
    parser = argparse.ArgumentParser(description=description.split("\n\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--weir", required=True, help="the program weir")
    add("--kernel", required=True, help="the directory that a package with a kernel was unpacked to")
    add("--busybox", required=True, help="a busybox that is linked statically")
    add("--work", help="a directory for images, 6 GB [default: that for temporary files]")
    for name, told in flags:
        add(name, action="store_true", help=told)
    add("--rounds", type=int, default=3, help="rounds of rates [default: 3]")
    add("--seconds", type=int, default=5, help="seconds of each rate [default: 5]")
    add("--kills", type=int, default=20, help="kills [default: 20]")
    add("--seed", type=int, default=1, help="which moments the kills are at [default: 1]")
    add("case", choices=["rate", "kill"])
    add("server", nargs="*", help="with kill: options of `weir serve`, after --")
    return parser.parse_args()
