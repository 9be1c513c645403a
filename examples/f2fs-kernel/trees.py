"""Cases with a tree that one side makes: the other finds the same, changes it, and the first finds that."""

import os
import shutil

from images import MAKERS, run
from lists import compare

IMAGE_BYTES = 4 << 30


def clone(judge, directory):
    run("git", "clone", "--quiet", "--no-local", judge.options.repository, directory)


def judge_weir(judge, maker):
    """Weir makes the tree, and the kernel changes it."""
    image = judge.make_image(maker, IMAGE_BYTES)
    with judge.mounted(image) as root:
        clone(judge, os.path.join(root, "clone"))
        run(judge.tree, "make", root, judge.options.files, judge.options.mib)
        before = run(judge.tree, "list", root)
    judge.check(image)
    ours = judge.list_with_weir(image)
    compare(before, ours)
    names = compare(ours, judge.guest.run(image, TASK="list").list)
    changed = judge.guest.run(image, TASK="change")
    judge.check(image)
    compare(judge.list_with_weir(image), changed.list)
    return f"{names} names"


def judge_kernel(judge, maker):
    """The kernel makes the tree, and Weir changes it."""
    image, packed, cloned = judge.make_image(maker, IMAGE_BYTES), judge.path("packed"), judge.path("cloned")
    shutil.rmtree(cloned, ignore_errors=True)
    clone(judge, cloned)
    run("tar", "-c", "--numeric-owner", "-f", packed, "-C", cloned, ".")
    made = judge.guest.run(image, packed, TASK="make", FILES=judge.options.files, MIB=judge.options.mib)
    judge.check(image)
    names = compare(judge.list_with_weir(image), made.list)
    with judge.mounted(image) as root:
        run("git", "-C", os.path.join(root, "unpacked"), "fsck", "--full")
        shutil.rmtree(os.path.join(root, "small", "0"))
        shutil.rmtree(os.path.join(root, "names"))
        run(judge.tree, "change", root)
        os.mkdir(os.path.join(root, "again"))
        run(judge.tree, "make", os.path.join(root, "again"), 1000, 1)
    judge.check(image)
    compare(judge.list_with_weir(image), judge.guest.run(image, TASK="list").list)
    return f"{names} names"


CASES = {
    f"{name}/{maker}": (case, maker)
    for name, case in [("weir-to-kernel", judge_weir), ("kernel-to-weir", judge_kernel)]
    for maker in MAKERS
}
