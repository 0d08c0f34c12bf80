"""Commits records in order, and says after each commit how many there are."""
import os
import sys

import lmdb

if len(sys.argv) > 2:
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
env = lmdb.open(sys.argv[1], writemap=True, map_size=64 << 20)
number = 0
while True:
    with env.begin(write=True) as txn:
        txn.put(b"%08d" % (number % 5000), b"%08d" % number + bytes(500))
    number += 1
    os.write(1, b"%d\n" % number)
