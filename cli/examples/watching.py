#!/usr/bin/env python3
"""What watching costs: python3 cli/examples/watching.py DIR [ROUNDS]

Starts the program of $PERDURA, or target/release/perdura, with --http, and calls ten commands so
that metrics have the series of an ordinary server. Then it asks a thousand times for each path,
and, in ROUNDS pairs, has redis-benchmark write while the server is scraped once a second and while
it is not, in random order. Ports: $PORT and the one after it (7200).
"""

import http.client
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time

PROGRAM = os.environ.get("PERDURA", "target/release/perdura")
PORT = int(os.environ.get("PORT", "7200"))
REQUESTS = 1000


def serve(folder, port):
    words = [PROGRAM, "serve", "--dir", folder, "--memory", "256MiB", "--no-holder", "--listen"]
    words += [f"127.0.0.1:{port}", "--http", f"127.0.0.1:{port + 1}"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in server.stdout:
        if "not covered" in line:
            threading.Thread(target=server.stdout.read, daemon=True).start()
            return server
    raise SystemExit("the server did not start")


def get(connection, path):
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def cpu_s(connection):
    text = get(connection, "/metrics")
    return float(re.search(r"^perdura_watch_cpu_seconds_total (\S+)", text, re.M)[1])


def requests(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    began, before = time.time(), cpu_s(connection)
    time.sleep(20)
    tick_s = (cpu_s(connection) - before) / (time.time() - began)
    print(f"a second without requests: {tick_s * 1e6:.0f} us of processor time")
    for path in ["/metrics", "/api/now", "/api/history", "/readyz"]:
        began, before, times = time.time(), cpu_s(connection), []
        for _ in range(REQUESTS):
            asked = time.perf_counter()
            text = get(connection, path)
            times.append(time.perf_counter() - asked)
        own = cpu_s(connection) - before - tick_s * (time.time() - began)
        times.sort()
        p50, p99 = times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3
        print(f"{path}: {len(text)} B; the client waits {p50:.3f} ms (p99 {p99:.3f} ms); "
              f"{own / REQUESTS * 1e6:.0f} us of processor time")


def load(port, requests_sent):
    words = ["redis-benchmark", "-p", str(port), "-t", "set", "-d", "200", "-r", "100000", "-c", "16"]
    words += ["-P", "16", "-n", str(requests_sent), "--csv"]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    return float(lines[-1].split(",")[1].strip('"'))


def scraped(port, stop):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not stop.wait(1):
        get(connection, "/metrics")


def pairs(rounds):
    ratios = []
    for _ in range(rounds):
        found = {}
        for is_scraped in random.sample([True, False], 2):
            stop = threading.Event()
            scraper = threading.Thread(target=scraped, args=(PORT + 1, stop))
            if is_scraped:
                scraper.start()
            found[is_scraped] = load(PORT, 3_000_000)
            stop.set()
            if is_scraped:
                scraper.join()
        ratios.append(found[True] / found[False])
    ratios.sort()
    quarters = statistics.quantiles(ratios, n=4)
    print(f"SETs a second, scraped beside not scraped: {quarters[1]:.3f} "
          f"({quarters[0]:.3f} to {quarters[2]:.3f}), {rounds} pairs")


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 12
    server = serve(folder, PORT)
    try:
        words = ["redis-benchmark", "-p", str(PORT), "-n", "20000", "-r", "100000", "-q", "-t"]
        words += ["set,get,incr,lpush,rpush,lpop,sadd,hset,spop,zadd"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        requests(PORT + 1)
        if rounds > 1:
            pairs(rounds)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
