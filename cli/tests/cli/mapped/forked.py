"""A forked child, and a child of that, store to every page of one file and write to every page of
another, and say so; nobody ends. What was cut off before is clean when it is."""
import ctypes
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
# An address that another file's mapping had: the store is the new one's.
lib = ctypes.CDLL(None)
lib.mmap.restype = ctypes.c_void_p
lib.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
lib.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
again = open("again", "w+b")
again.truncate(4096)
at, NOREPLACE = lib.mmap(None, 4096, 3, 1, w.fileno(), 0), 0x100000
assert lib.munmap(at, 4096) == 0
assert lib.mmap(at, 4096, 3, 1 | NOREPLACE, again.fileno(), 0) == at
ctypes.memmove(at, b"again", 5)
for generation in (b"c", b"g"):
    if os.fork() != 0:
        time.sleep(600)
    for page in range(PAGES):
        at = page * 4096 + (1 if generation == b"c" else 2)
        m[at : at + 1] = generation
        os.pwrite(w.fileno(), generation, at)
    os.write(1, b"%d\n" % ord(generation))
time.sleep(600)
