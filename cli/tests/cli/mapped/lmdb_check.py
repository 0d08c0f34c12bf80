"""The number of the last commit of `lmdb_writer.py` that is there, with everything before it."""
import sys

import lmdb

env = lmdb.open(sys.argv[1], writemap=True, map_size=64 << 20)
with env.begin() as txn:
    found = {int(key): int(value[:8]) for key, value in txn.cursor()}
last = max(found.values(), default=-1)
for key in range(5000):
    newest = last - (last - key) % 5000
    assert found.get(key, newest if newest < 0 else None) == newest or newest < 0, (key, last)
print(last + 1)
