#!/usr/bin/env python3
"""What a start gains by loading first what was hot, on a disk as slow as clouds give.

Usage: hot_restart.py DIR [ROUNDS]      (as root; cgroups of version 1)

Fills 2 GiB, reads a tenth of the keys 95 % of the time, stops the server, and starts it again with
cold caches and reads of 125 MiB/s at most: with the file that says what was hot, and without it.
"""
import contextlib
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

PERDURA = os.path.join(os.path.dirname(__file__), "../../target/release/perdura")
PORT = 7391
KEYS, VALUE_BYTES = 2_000_000, 1000
HOT_KEYS, HOT_SHARE = KEYS // 10, 0.95
READ_BYTES_PER_S = 125 << 20
GROUP = "/sys/fs/cgroup/blkio/perdura-hot-restart"
# Reads are fast again when 90 % of those of a window took no longer than this.
FAST_S, WINDOW_S, FAST_SHARE = 0.001, 0.5, 0.9


class Server:
    def __init__(self, directory, slow):
        command = [PERDURA, "serve", "--dir", directory, "--port", str(PORT), "--no-holder"]
        command += ["--memory", "3GiB", "--grace", "60s"]
        env = dict(os.environ, PERDURA_LOG="error")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env,
                                        preexec_fn=enter_group if slow else None)
        while True:
            with contextlib.suppress(OSError):
                self.connection = socket.create_connection(("127.0.0.1", PORT))
                break
            time.sleep(0.002)
        self.replies = self.connection.makefile("rb", buffering=1 << 20)

    def get(self, keys):
        self.connection.sendall(b"".join(
            b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key) for key in keys))
        for _ in keys:
            length = int(self.replies.readline()[1:])
            assert length == VALUE_BYTES, length
            self.replies.read(length + 2)

    def set(self, keys):
        self.connection.sendall(b"".join(
            b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n"
            % (len(key), key, VALUE_BYTES, os.urandom(VALUE_BYTES)) for key in keys))
        for _ in keys:
            assert self.replies.readline() == b"+OK\r\n"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait() == 0


def enter_group():
    with open(os.path.join(GROUP, "cgroup.procs"), "w") as group:
        group.write(str(os.getpid()))


def make_group(directory):
    os.makedirs(GROUP, exist_ok=True)
    device = os.stat(directory).st_dev
    with open(os.path.join(GROUP, "blkio.throttle.read_bps_device"), "w") as limit:
        limit.write(f"{os.major(device)}:{os.minor(device)} {READ_BYTES_PER_S}")


def key(number):
    return b"key:%d" % number


def wanted(first_hot):
    if random.random() < HOT_SHARE:
        return key(first_hot + random.randrange(HOT_KEYS))
    return key(random.randrange(KEYS))


def until_fast(server, first_hot, began):
    """Seconds until the first answer and until reads are fast; the share of fast ones so far."""
    first, share, windows = None, 0, []
    while share < FAST_SHARE:
        times, ends = [], time.monotonic() + WINDOW_S
        while time.monotonic() < ends:
            sent = time.monotonic()
            server.get([wanted(first_hot)])
            times.append(time.monotonic() - sent)
            first = first or time.monotonic() - began
        share = sum(one <= FAST_S for one in times) / len(times)
        windows.append(f"{share:.2f}")
    return first, time.monotonic() - began, " ".join(windows)


def main(directory, rounds=3):
    place = os.path.join(directory, "perdura-hot-restart")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    make_group(place)
    try:
        server = Server(place, slow=False)
        for at in range(0, KEYS, 1000):
            server.set([key(number) for number in range(at, min(at + 1000, KEYS))])
        found = {"with": [], "without": []}
        first_hot = random.randrange(KEYS - HOT_KEYS)
        for _ in range(int(rounds)):
            for way in random.sample(list(found), len(found)):
                until = time.monotonic() + 15
                while time.monotonic() < until:
                    server.get([wanted(first_hot) for _ in range(20)])
                server.stop()
                if way == "without":
                    os.remove(os.path.join(place, "heat.perdura"))
                subprocess.run(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], check=True)
                began = time.monotonic()
                server = Server(place, slow=True)
                result = until_fast(server, first_hot, began)
                found[way].append(result)
                print(f"{way:8} first answer {result[0]:.2f} s, fast after {result[1]:.1f} s: "
                      f"{result[2]}", flush=True)
                # All is loaded before the next round.
                while True:
                    server.connection.sendall(b"INFO persistence\r\n")
                    text = server.replies.read(int(server.replies.readline()[1:]) + 2)
                    if b"loading:0" in text:
                        break
                    time.sleep(0.5)
        server.stop()
        for way, results in found.items():
            times = [result[1] for result in results]
            print(f"{way:8} fast after {statistics.median(times):.1f} s "
                  f"({min(times):.1f} to {max(times):.1f})")
    finally:
        shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(GROUP)


if __name__ == "__main__":
    main(*sys.argv[1:])
