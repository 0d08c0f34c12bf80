"""Writes of numpy to a region, beside the same writes to memory that nobody keeps.

``python python/bench/numpy_writes.py [DIR]``. Both arrays have 4 KiB pages, as long as a region's
pages are watched one by one; the second comparison lets the plain array have huge pages where the
system gives them. The operations of both take turns, in one process, on warm pages. Three figures:
the median of the pairs' quotients, time of plain numpy / time in the region, with the tenth and the
ninetieth percentile; and the quotient of the sums of all times, in which the few pairs count that a
checkpoint made slow.

Which pages of physical memory an array has is worth 20 %: numbers on neighbouring pages are written
faster. Whoever takes memory first gets what is left between other programs' pages. So memory is
filled and kept before both arrays are made (``--before-mib``).
"""

import argparse
import json
import mmap
import statistics
import tempfile
import time

import numpy as np

import perdura

MIB = 1 << 20


def operations(words):
    """The writes by name: each takes an array of ``words`` numbers, and does about the same work"""
    random = np.random.default_rng(1)
    places = random.integers(0, words, words // 8)
    values = random.random(words // 8)
    spare = random.random(words)

    def scatter(array):
        array[places] = values

    def add(array):
        array += 1.0

    def fill(array):
        array.fill(3.0)

    named = {"fill": fill, "add in place": add, "random scatter": scatter}
    for bytes_ in (8, 64, 512, 4096, 65536, MIB, 64 * MIB):
        length = bytes_ // 8
        if length > words:
            continue
        times = max(1, min(4096, words // length))
        starts = [int(start) for start in random.integers(0, words - length + 1, times)]

        def slices(array, length=length, starts=starts):
            source = spare[:length]
            for start in starts:
                array[start : start + length] = source

        unit = f"{bytes_} B" if bytes_ < 1024 else f"{bytes_ >> 10} KiB"
        named[f"slices of {unit if bytes_ < MIB else f'{bytes_ // MIB} MiB'}"] = slices
    return named


def plain(bytes_, huge):
    """Anonymous memory with small or huge pages"""
    memory = mmap.mmap(-1, bytes_, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, "float64")


def filled(bytes_):
    """Memory that takes the scattered pages, so that arrays made later get neighbouring ones"""
    memory = mmap.mmap(-1, max(bytes_, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    np.frombuffer(memory, "uint8").fill(1)
    return memory


def timed(write, array):
    began = time.perf_counter()
    write(array)
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", nargs="?", help="a new directory on the SSD")
    parser.add_argument("--mib", type=int, default=256, help="size of each array, MiB")
    parser.add_argument("--pairs", type=int, default=21, help="fewest measurements of each row")
    parser.add_argument("--seconds", type=float, default=3, help="shortest time of each row")
    parser.add_argument("--before-mib", type=int, default=4096, help="filled before the arrays, MiB")
    parser.add_argument("--checkpoint-every", default="1s", help="a time, or never")
    parser.add_argument("--huge", action="store_true", help="let plain memory have huge pages")
    words = parser.parse_args()
    every = None if words.checkpoint_every == "never" else words.checkpoint_every
    before = filled(words.before_mib * MIB)
    with tempfile.TemporaryDirectory(dir=words.dir) as place:
        region = perdura.Region.open(
            place + "/data",
            memory=words.mib * MIB,
            budget="100%",
            warning="1h",
            checkpoint_every=every,
        )
        kept, free = region.array("float64"), plain(words.mib * MIB, words.huge)
        kept.fill(1.0)
        free.fill(1.0)
        rows = {}
        for name, write in operations(len(kept)).items():
            pairs = []
            write(kept), write(free)
            began = time.perf_counter()
            while len(pairs) < words.pairs or time.perf_counter() - began < words.seconds:
                both = [(kept, 1), (free, 0)]
                took = [0.0, 0.0]
                for array, which in both if len(pairs) % 2 else reversed(both):
                    took[which] = timed(write, array)
                pairs.append(took)
            quotients = sorted(free_s / kept_s for free_s, kept_s in pairs)
            low, high = quotients[len(quotients) // 10], quotients[-1 - len(quotients) // 10]
            rows[name] = statistics.median(quotients)
            sums = [sum(times) for times in zip(*pairs)]
            print(
                f"{name:>22} {rows[name]:.3f} ({low:.3f} to {high:.3f}), "
                f"in all {sums[0] / sums[1]:.3f}",
                flush=True,
            )
        worst = min(rows, key=rows.get)
        print(f"worst: {worst}, {rows[worst]:.3f}")
        print(json.dumps({"mib": words.mib, "pairs": words.pairs, "rows": rows}))
        del kept, both, array
        region.close()
    before.close()


if __name__ == "__main__":
    main()
