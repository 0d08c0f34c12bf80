"""A forked child, and a child of that, store to every page, and say so; nobody ends."""
import mmap
import os
import time

PAGES = 512

f = open("forked", "w+b")
f.truncate(PAGES * 4096)
m = mmap.mmap(f.fileno(), PAGES * 4096)
m[0:1] = b"p"
for generation in (b"c", b"g"):
    if os.fork() != 0:
        time.sleep(600)
    for page in range(PAGES):
        at = page * 4096 + (1 if generation == b"c" else 2)
        m[at : at + 1] = generation
    os.write(1, b"%d\n" % ord(generation))
time.sleep(600)
