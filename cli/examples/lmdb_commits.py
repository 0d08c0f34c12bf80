#!/usr/bin/python3
"""Commits a second of LMDB with a writable map: plain, synchronous, and under `perdura run --dir`.

Usage: lmdb_commits.py DIR [ROUNDS]

Needs python3-lmdb, root, and target/release/perdura with libperdura_interpose.so beside it. All
ways take turns. Prints the median, least and most of each, and its ratio to NOSYNC of the same
round.
"""
import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

RECORDS = 20_000
# Longer than the time between checkpoints.
SECONDS = 12
VALUE = bytes(range(256)) * 4
PERDURA = os.path.join(os.path.dirname(__file__), "../../target/release/perdura")
RUN = [PERDURA, "run", "--dir", "DIR", "--size", "64MiB", "--budget"]
WAYS = {
    "NOSYNC": ([], "nosync"),
    "run, 100 %": (RUN + ["100%", "--"], "sync"),
    "run, 100 %, each second": (RUN + ["100%", "--checkpoint", "1s", "--"], "sync"),
    "run, 11 %": (RUN + ["11%", "--"], "sync"),
    "sync": ([], "sync"),
}


def commit(path, sync, keys):
    """Prints commits a second."""
    import lmdb

    chosen = random.Random(1)
    if keys == "zipf":
        ranks = chosen.sample(range(RECORDS), RECORDS)
        weights = itertools.accumulate(1 / (rank + 1) ** 0.99 for rank in range(RECORDS))
        numbers = chosen.choices(ranks, cum_weights=list(weights), k=200_000)
    else:
        numbers = [chosen.randrange(RECORDS) for _ in range(200_000)]
    names = itertools.cycle([b"k%06d" % number for number in numbers])
    env = lmdb.open(path, writemap=True, sync=sync == "sync", map_size=48 << 20)
    with env.begin(write=True) as txn:
        for number in range(RECORDS):
            txn.put(b"k%06d" % number, VALUE)
    began, commits = time.monotonic(), 0
    while time.monotonic() - began < SECONDS:
        with env.begin(write=True) as txn:
            txn.put(next(names), VALUE)
        commits += 1
    print(commits / (time.monotonic() - began))


def measure(directory, way, keys):
    before, sync = WAYS[way]
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    before = [directory if word == "DIR" else word for word in before]
    script = [sys.executable, os.path.abspath(__file__), "commit"]
    command = before + script + [os.path.join(directory, "db"), sync, keys]
    quiet = dict(os.environ, PERDURA_LOG="error")
    return float(subprocess.run(command, env=quiet, check=True, stdout=subprocess.PIPE).stdout)


def main(directory, rounds):
    for keys in ("evenly", "zipf"):
        rates = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                rates[way].append(measure(os.path.join(directory, "lmdb-commits"), way, keys))
        print(f"keys: {keys}")
        for way, them in rates.items():
            ratio = statistics.median(one / base for one, base in zip(them, rates["NOSYNC"]))
            spread = f"{min(them):9,.0f} to {max(them):9,.0f}"
            print(f"  {way:33} {statistics.median(them):9,.0f} /s ({spread})  {ratio:.3f}")


if __name__ == "__main__":
    if sys.argv[1] == "commit":
        commit(*sys.argv[2:])
    else:
        main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
