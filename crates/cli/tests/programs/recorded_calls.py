"""Random calls on two directories at once, WEIR_DIR and another one: both have to answer the same.

recorded_calls.py SEED DIRECTORY CALLS; it acknowledges its end."""

import mmap
import os
import random
import sys

chance = random.Random(int(sys.argv[1]))
places = [os.environ["WEIR_DIR"], sys.argv[2]]
names = [f"{d}{n}" for d in ["", "d/", "e/"] for n in "abc"]
for place in places:
    for name in ["d", "e"]:
        os.makedirs(f"{place}/{name}")


def both(call):
    results = []
    for place in places:
        os.chdir(place)
        try:
            results.append(call())
        except OSError as error:
            results.append(error.errno)
    assert results[0] == results[1], results


def write(name, offset, data, flags):
    file = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o640)
    os.pwrite(file, data, offset)
    found = os.pread(file, 70000, 0)
    os.close(file)
    return found


def mapped(name, offset, data):
    size = os.path.getsize(name) if os.path.isfile(name) else 0
    if size < offset + len(data):
        return size
    with open(name, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[offset:offset + len(data)] = data


def allocate(name, offset, length):
    file = os.open(name, os.O_RDWR)
    try:
        os.posix_fallocate(file, offset, length)
    finally:
        os.close(file)


for _ in range(int(sys.argv[3])):
    one, two = chance.choice(names), chance.choice(names)
    offset, data = chance.randrange(40000), bytes([chance.randrange(1, 256)]) * chance.randrange(1, 12000)
    bits = chance.choice([0o600, 0o644])
    flags = chance.choice([0, 0, os.O_TRUNC, os.O_APPEND, os.O_SYNC])
    both(chance.choice([
        lambda: write(one, offset, data, flags),
        lambda: write(one, offset, data, flags),
        lambda: os.truncate(one, offset),
        lambda: mapped(one, offset // 2, data),
        lambda: allocate(one, offset, len(data)),
        lambda: os.rename(one, two),
        lambda: os.link(one, two),
        lambda: os.unlink(one),
        lambda: os.symlink(one, two),
        lambda: os.chmod(one, bits),
        lambda: os.mkdir(one) if offset % 4 == 0 else os.rmdir(one),
        lambda: sorted(os.listdir("d")),
        lambda: os.stat(one).st_size if os.path.isfile(one) else None,
    ]))
with open(os.environ["WEIR_ACK"], "w") as lines:
    lines.write("done\n")
