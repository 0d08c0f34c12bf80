#!/usr/bin/env python3
"""What a guard costs its servers, and what servers that share a battery get.

Usage: tenants.py DIR cost|noise [ROUNDS]
       tenants.py DIR take-back [ROUNDS [GRACE [CLIENTS PIPELINE]]]    (the load of each server)
       tenants.py DIR curve [ROUNDS [BURST [BATTERIES...]]]    (a burst in SETs)

Needs redis-benchmark and target/release/perdura; writes some GiB below DIR. redis-benchmark makes
the load, so no code is shared with what is measured.
"""
import contextlib
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

PERDURA = os.path.join(os.path.dirname(__file__), "../../target/release/perdura")
PORT = 7401
MIB = 1 << 20


class Server:
    """A server with its own directory, started, and stopped at the end."""

    def __init__(self, directory, number, *options):
        self.port = PORT + number
        place = os.path.join(directory, f"server-{number}")
        command = [PERDURA, "serve", "--dir", place, "--port", str(self.port), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=quiet())
        while self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.connection = socket.create_connection(("127.0.0.1", self.port))
                break
            time.sleep(0.05)
        else:
            sys.exit(f"{command} ended")
        self.replies = self.connection.makefile("rb")

    def info(self):
        self.connection.sendall(b"INFO\r\n")
        text = self.replies.read(int(self.replies.readline()[1:])).decode()
        self.replies.readline()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def figure(self, name):
        return float(self.info()[name])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def quiet():
    return dict(os.environ, PERDURA_LOG="error")


def load(server, requests, keys, size=1000, clients=16, pipeline=16):
    """SETs a second, and the 99th percentile of their latency in milliseconds."""
    options = ["-t", "set", "-n", str(requests), "-r", str(keys), "-d", str(size)]
    options += ["-c", str(clients), "-P", str(pipeline), "--csv"]
    command = ["redis-benchmark", "-p", str(server.port), *options]
    words = subprocess.check_output(command, text=True).splitlines()[-1].split(",")
    numbers = [float(word.strip('"')) for word in words[1:]]
    return numbers[0], numbers[5]


@contextlib.contextmanager
def guard(directory, name, *options):
    path = os.path.join(directory, name)
    command = [PERDURA, "guard", "--socket", path, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=quiet())
    while not os.path.exists(path):
        time.sleep(0.05)
    try:
        yield path
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def loud(server, keys, clients=16, pipeline=16):
    """A server that is written to all the time."""
    is_over = threading.Event()

    def write():
        while not is_over.is_set():
            load(server, 200_000, keys, clients=clients, pipeline=pipeline)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()


def spread(values, form=".2f"):
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:{form}} ({least:{form}} to {most:{form}})"


def cost(directory, rounds):
    """A server alone, with a holder, with a guard, and with a guard that shares a battery."""
    with guard(directory, "plain") as plain, guard(directory, "shared", "--grace", "30s") as shared:
        ways = {
            "alone": ["--no-holder"],
            "holder": [],
            "guard": ["--guard", plain],
            "guard that shares": ["--guard", shared],
        }
        common = ["--memory", "1GiB", "--grace", "10s"]
        servers = {
            name: Server(directory, number, *common, *options)
            for number, (name, options) in enumerate(ways.items())
        }
        rates = {name: [] for name in ways}
        for turn in range(rounds + 1):
            for name in random.sample(list(ways), len(ways)):
                rate, _ = load(servers[name], 1_500_000, 1_000_000, size=200)
                if turn > 0:
                    rates[name].append(rate)
        for name, them in rates.items():
            ratios = [one / base for one, base in zip(them, rates["alone"])]
            print(f"{name:18} {spread(them, ',.0f')} SET/s; beside alone {spread(ratios, '.3f')}")
        for server in servers.values():
            server.stop()


def take_back(directory, rounds, grace="300ms", *load_of_each):
    """The time until a server has its half again, beside the flush time of what was lent."""
    how = [int(number) for number in load_of_each]
    common = ["--memory", "768MiB", "--grace", "10s", "--checkpoint", "off"]
    with guard(directory, "shared", "--grace", grace) as path:
        lender, borrower = (
            Server(directory, number, *common, "--guard", path) for number in range(2)
        )
        rates = [one.figure("proven_rate_bytes_per_s") for one in (lender, borrower)]
        shares, times = [], []
        for _ in range(rounds):
            with loud(borrower, 600_000, *how):
                time.sleep(4)
                had, small = (one.figure("budget_now_bytes") for one in (borrower, lender))
                began, taken, ends = None, None, time.monotonic() + 10
                with loud(lender, 600_000, *how):
                    while taken is None and time.monotonic() < ends:
                        facts = lender.info()
                        if began is None and float(facts["dirty_bytes"]) >= 0.5 * small:
                            began = time.monotonic()
                        left = borrower.figure("budget_now_bytes")
                        own = float(facts["budget_now_bytes"])
                        # Nothing is lent once both may flush for the same time.
                        if began is not None and own / rates[0] >= 0.9 * left / rates[1]:
                            taken = time.monotonic() - began
                if taken is None:
                    sys.exit(f"the share did not come back: {own / MIB:.0f} MiB of the lender, "
                             f"{left / MIB:.0f} MiB of the borrower, bytes/s proven {rates}")
            flush = max(had - left, 1) / rates[1]
            times.append(taken)
            shares.append(taken / flush)
            print(f"lent {(had - left) / MIB:,.0f} MiB, {flush * 1e3:.0f} ms to flush at the "
                  f"proven rate; back after {taken * 1e3:.0f} ms", flush=True)
            # The lender becomes idle.
            time.sleep(4)
        print(f"back after {spread([1e3 * one for one in times], '.0f')} ms, "
              f"{spread(shares)} flushes")
        lender.stop()
        borrower.stop()


def curve(directory, rounds, burst="300000", *batteries):
    """Eight servers that write in turn and share batteries, each beside one with its own."""
    own_ms, burst, keys = 160, int(burst), 200_000
    own_time = ["--grace", f"{own_ms * 10 // 9}ms"]
    common = ["--memory", "320MiB", "--checkpoint", "off", *own_time]

    # All with the rate that one has proven: measured rates differ more than what is compared.
    one = Server(directory, 0, *common, "--no-holder")
    one.stop()
    rate = os.path.join(directory, "server-0", "rate.toml")

    def start(first, *options):
        for n in range(8):
            place = os.path.join(directory, f"server-{first + n}")
            os.makedirs(place, exist_ok=True)
            if first + n > 0:
                shutil.copy(rate, place)
        servers = [Server(directory, first + n, *common, *options) for n in range(8)]
        # Until nearly all keys are there: the first touch of memory is not what is compared.
        for server in servers:
            load(server, 4 * keys, keys)
        return servers

    own = start(0, "--no-holder")
    budgets = [server.figure("budget_bytes") / MIB for server in own]
    print(f"a battery of its own: {own_ms} ms, {spread(budgets, '.0f')} MiB", flush=True)
    for count in [float(count) for count in batteries] or (0.75, 1, 1.5, 2, 4, 8):
        time_ms = round(own_ms * count)
        with guard(directory, "shared", "--grace", f"{time_ms * 10 // 9}ms") as path:
            shared = start(8, "--guard", path)
            time.sleep(1)
            pairs = []
            for _ in range(rounds):
                for one, other in zip(own, shared):
                    alone, _ = load(one, burst, keys)
                    pairs.append(load(other, burst, keys)[0] / alone)
            for server in shared:
                server.stop()
        for n in range(8):
            shutil.rmtree(os.path.join(directory, f"server-{8 + n}"))
        print(f"{count} batteries for eight, bursts of {burst:,}: {spread(pairs)} of the SETs/s "
              "with its own", flush=True)
    for server in own:
        server.stop()


def pin(server, processor):
    if processor is not None:
        for thread in os.listdir(f"/proc/{server.process.pid}/task"):
            os.sched_setaffinity(int(thread), {processor})


def latencies(server, requests, processor=None):
    """The 50th, 95th and 99th percentile of a SET by the only client, in milliseconds."""
    command = ["redis-benchmark", "-p", str(server.port), "-t", "set", "-n", str(requests)]
    command += ["-r", "10000", "-d", "100", "-c", "1", "--csv"]
    if processor is not None:
        command = ["taskset", "-c", str(processor)] + command
    words = subprocess.check_output(command, text=True).splitlines()[-1].split(",")
    return [float(word.strip('"')) for word in words[4:7]]


@contextlib.contextmanager
def written_to(server, keys, processor=None):
    """Writes to a server all the time."""
    command = ["redis-benchmark", "-p", str(server.port), "-t", "set", "-n", "1000000000"]
    command += ["-r", str(keys), "-d", "1000", "-c", "16", "-P", "16"]
    if processor is not None:
        command = ["taskset", "-c", str(processor)] + command
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def noise(directory, rounds):
    """A quiet server's latency while its neighbour writes and cleans, beside one that only writes.

    Only writes: to so few keys that all of them may be dirty.
    """
    for durability, requests in (("warned", 20_000), ("fsync", 3_000)):
        for processors in ((None, None), (0, 1)):
            common = ["--memory", "768MiB", "--grace", "200ms", "--checkpoint", "off"]
            ways = {"writes": 20_000, "cleans": 600_000}
            found = {way: [] for way in ways}
            with guard(directory, "shared", "--grace", "200ms") as path:
                quiet_one = Server(directory, 0, *common, "--guard", path,
                                   "--durability", durability)
                noisy_one = Server(directory, 1, *common, "--guard", path)
                pin(quiet_one, processors[0])
                pin(noisy_one, processors[1])
                load(noisy_one, 600_000, 600_000)
                for _ in range(rounds):
                    for way in random.sample(list(ways), len(ways)):
                        with written_to(noisy_one, ways[way], processors[1]):
                            latencies(quiet_one, 200, processors[0])
                            found[way].append(latencies(quiet_one, requests, processors[0]))
                quiet_one.stop()
                noisy_one.stop()
            shared = "processors of their own" if processors[1] else "shared processors"
            print(f"A SET, durability {durability}, {shared}, ms, quartiles:")
            for number, share in enumerate(("50 %", "95 %", "99 %")):
                alone, beside = ([them[number] for them in found[way]] for way in ways)
                ratios = [one / base for one, base in zip(beside, alone)]
                print(f"  {share}: writes {middle(alone)}, cleans {middle(beside)}, "
                      f"ratio {middle(ratios)}", flush=True)


def middle(values):
    """Median and quartiles."""
    low, median, high = statistics.quantiles(values)
    return f"{median:.3f} ({low:.3f} to {high:.3f})"


def main(directory, what, rounds=5, *more):
    measure = {"cost": cost, "take-back": take_back, "curve": curve, "noise": noise}[what]
    place = os.path.join(directory, "perdura-tenants")
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    try:
        measure(place, int(rounds), *more)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
