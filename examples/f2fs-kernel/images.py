"""Images: made, mounted by Weir, listed, and judged by what finds faults in them."""

import contextlib
import os
import subprocess

from lists import Failed

# What fsck.f2fs says of damage.
COMPLAINTS = ["[ASSERT", "[Fail", "[FIX", "rror", "orrupt", "nvalid", "not match", "mismatch"]
FINE = ["[Ok..]", "Info: Force to fix corruption"]
# The features that `weir mkfs` makes, too.
FEATURES = "extra_attr,inode_checksum,inode_crtime,sb_checksum"
MAKERS = ["weir", "mkfs", "mkfs-features"]


def run_any(*command):
    """Runs a command; its exit code, and what it prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def run(*command):
    """Runs a command, which must succeed; what it prints."""
    code, text = run_any(*map(str, command))
    if code:
        raise Failed(f"{' '.join(map(str, command))}: exit code {code}: {text.strip()[-800:]}")
    return text


class Judge:
    """Programs and places that cases need."""

    def __init__(self, options, work, tree, guest, random):
        self.weir, self.work, self.options = os.path.abspath(options.weir), work, options
        self.tree, self.guest, self.random = tree, guest, random
        self.root = self.path("mount")
        os.makedirs(self.root, exist_ok=True)

    def path(self, name):
        return os.path.join(self.work, name)

    def make_image(self, maker, size):
        image = self.path("image")
        if os.path.exists(image):
            os.remove(image)
        if maker == "weir":
            run(self.weir, "mkfs", "--type", "f2fs", "--size", size, image)
            return image
        with open(image, "wb") as file:
            file.truncate(size)
        os.chmod(image, 0o600)
        run("mkfs.f2fs", *(["-O", FEATURES] if maker == "mkfs-features" else []), image)
        return image

    @contextlib.contextmanager
    def mounted(self, image, *options):
        run(self.weir, "mount", *options, image, self.root)
        try:
            yield self.root
        except BaseException:
            run_any(self.weir, "umount", self.root)
            raise
        run(self.weir, "umount", self.root)

    def list_with_weir(self, image):
        with self.mounted(image, "--read-only") as root:
            return run(self.tree, "list", root)

    def check(self, image):
        """Both checks find nothing in the whole of an image, which they do not change."""
        code, text = run_any("fsck.f2fs", "-f", "--dry-run", image)
        found = [line for line in text.splitlines()
                 if any(word in line for word in COMPLAINTS) and not any(word in line for word in FINE)]
        if found or code or "Done:" not in text or "[FSCK] free segment_count matched" not in text:
            raise Failed("fsck.f2fs: " + ("\n".join(found[:10]) or text[-500:]))
        text = run(self.weir, "fsck", image)
        if not text.startswith("clean"):
            raise Failed(f"weir fsck: {text}")
