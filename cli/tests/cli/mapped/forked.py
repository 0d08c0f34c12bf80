"""A forked child, and a child of that, store to every page of one file and write to every page of
another, and say so; nobody ends. What was cut off before is clean when it is."""
import mmap
import os
import time

PAGES = 512

f = open("forked", "w+b")
f.truncate(PAGES * 4096)
m = mmap.mmap(f.fileno(), PAGES * 4096)
m[0:1] = b"p"
cut = open("cut", "w+b")
cut.truncate(16 * 4096)
c = mmap.mmap(cut.fileno(), 16 * 4096)
c[:] = b"x" * len(c)
w = open("written", "w+b", buffering=0)
w.truncate(PAGES * 4096)
mmap.mmap(w.fileno(), 4096).close()
# More than the budget, so that what was stored before is cleaned.
for page in range(PAGES):
    os.pwrite(w.fileno(), b"p", page * 4096)
cut.truncate(5)
cut.truncate(16 * 4096)
for generation in (b"c", b"g"):
    if os.fork() != 0:
        time.sleep(600)
    for page in range(PAGES):
        at = page * 4096 + (1 if generation == b"c" else 2)
        m[at : at + 1] = generation
        os.pwrite(w.fileno(), generation, at)
    os.write(1, b"%d\n" % ord(generation))
time.sleep(600)
