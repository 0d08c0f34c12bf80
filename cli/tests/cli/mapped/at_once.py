"""Threads and processes that use the same served files at once."""
import ctypes
import mmap
import os
import shutil
import signal
import subprocess
import threading

PAGE = 4096
RECORD = 64
COUNT = 500
c = ctypes.CDLL(None, use_errno=True)


def served(name, size=PAGE):
    f = open(name, "w+b", buffering=0)
    f.truncate(size)
    return f, mmap.mmap(f.fileno(), size)


def in_threads(count, act):
    threads = [threading.Thread(target=act, args=(n,)) for n in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def in_processes(count, act):
    def child(n):
        pid = os.fork()
        if pid == 0:
            act(n)
            os._exit(0)
        return pid

    assert [os.waitpid(pid, 0)[1] for pid in [child(n) for n in range(count)]] == [0] * count


def repeat(act):
    for _ in range(COUNT):
        act()


def records(name, skip=0):
    text = open(name, "rb").read()[skip:]
    assert len(text) == 4 * COUNT * RECORD, len(text)
    parts = [text[at : at + RECORD] for at in range(0, len(text), RECORD)]
    assert all(part == part[:1] * RECORD for part in parts), "a record was torn"
    assert sorted(part[0] for part in parts) == sorted(list(b"abcd") * COUNT)


def append(name):
    def act(n):
        fd = os.open(name, os.O_WRONLY | os.O_APPEND)
        for _ in range(COUNT):
            assert os.write(fd, bytes([97 + n]) * RECORD) == RECORD
        os.close(fd)

    return act


def extend(name):
    def act(n):
        fd = os.open(name, os.O_WRONLY)
        for turn in range(COUNT):
            at = PAGE + (4 * turn + n) * RECORD
            assert os.pwrite(fd, bytes([97 + n]) * RECORD, at) == RECORD
        os.close(fd)

    return act


for run, kind in (in_threads, "threads"), (in_processes, "processes"):
    for act in append, extend:
        name = f"{act.__name__}-{kind}"
        files = served(name)
        run(4, act(name))
        records(name, PAGE)

# Children that share a descriptor, and so its offset.
shared, memory = served("shared")
os.lseek(shared.fileno(), PAGE, os.SEEK_SET)
in_processes(4, lambda n: repeat(lambda: os.write(shared.fileno(), bytes([97 + n]) * RECORD)))
records("shared", PAGE)

# A file that is written to while it is mapped for the first time.
SIZE = 16 << 20
for turn in range(3):
    first = open("first", "w+b", buffering=0)
    first.truncate(SIZE)

    def write(_):
        for at in reversed(range(0, SIZE, PAGE)):
            os.pwrite(first.fileno(), b"here", at)

    writer = threading.Thread(target=write, args=(0,))
    writer.start()
    m = mmap.mmap(first.fileno(), SIZE)
    writer.join()
    lost = [at for at in range(0, SIZE, PAGE) if m[at : at + 4] != b"here"]
    assert not lost, f"{len(lost)} pages"

# The same with threads that append by one descriptor: only the kernel knows where.
for turn in range(10):
    with open("first", "wb"):
        pass
    fd = os.open("first", os.O_RDWR | os.O_APPEND)

    def write(n):
        repeat(lambda: os.write(fd, bytes([97 + n]) * RECORD))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    [thread.start() for thread in threads]
    m = mmap.mmap(fd, PAGE, prot=mmap.PROT_READ) if os.fstat(fd).st_size >= PAGE else None
    late = m or mmap.mmap(os.open("first", os.O_RDWR), 1)
    [thread.join() for thread in threads]
    records("first")
    os.unlink("first")

# Several names, a name that came later, and a file that a child renames.
linked, memory = served("linked")
memory[0:6] = b"linked"
os.link("linked", "linked-too")
late, memory = served("late")
memory[0:4] = b"late"
os.link("late", "later")
os.unlink("late")
unnamed = os.open(".", os.O_TMPFILE | os.O_RDWR)
os.ftruncate(unnamed, PAGE)
memory = mmap.mmap(unnamed, PAGE)
memory[0:7] = b"unnamed"
HERE, FOLLOW = -100, 0x400
assert c.linkat(HERE, f"/proc/self/fd/{unnamed}".encode(), HERE, b"named", FOLLOW) == 0
moved, memory = served("moved")
memory[0:5] = b"moved"
subprocess.run(["mv", "moved", "moved-by-mv"], check=True)
gone, memory = served("removed")
assert c.remove(b"removed") == 0

# Programs that ask where a file's data are, or for its blocks.
copied, memory = served("copied", 16 * PAGE)
memory[9 * PAGE : 9 * PAGE + 6] = b"copied"
subprocess.run(["cp", "copied", "copy"], check=True)
assert open("copy", "rb").read() == memory[:]
shutil.copyfile("copied", "copy")
assert open("copy", "rb").read() == memory[:]
assert os.lseek(copied.fileno(), 5, os.SEEK_DATA) == 5
assert os.lseek(copied.fileno(), 5, os.SEEK_HOLE) == 16 * PAGE
try:
    os.lseek(copied.fileno(), 16 * PAGE, os.SEEK_DATA)
    raise SystemExit("data behind the end")
except OSError:
    pass

# Protections, in a child, too.
c.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 3, ctypes.c_int, ctypes.c_long]
protected, memory = served("protected", 4 * PAGE)
at = c.mmap(None, 4 * PAGE, mmap.PROT_READ, mmap.MAP_SHARED, protected.fileno(), 0)
assert c.mprotect(at + PAGE, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
in_processes(1, lambda _: ctypes.memmove(at + PAGE, b"child", 5))
assert memory[PAGE : PAGE + 5] == b"child"
pid = os.fork()
if pid == 0:
    ctypes.memmove(at + 2 * PAGE, b"child", 5)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == signal.SIGSEGV, "what is read-only was written to"
c.mremap.restype = ctypes.c_void_p
c.mremap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int]
for page in range(4):
    for protection in mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE:
        assert c.mprotect(at + page * PAGE, PAGE, protection) == 0
assert c.mprotect(at + 1, PAGE, mmap.PROT_READ) == -1
in_processes(1, lambda _: ctypes.memmove(at + 3 * PAGE, b"later", 5))
moved_to = c.mremap(at, 4 * PAGE, 8 * PAGE, 1)
assert moved_to not in (None, 2**64 - 1) and ctypes.string_at(moved_to + 3 * PAGE, 5) == b"later"
reader = os.open("protected", os.O_RDONLY)
at = c.mmap(None, PAGE, mmap.PROT_READ, mmap.MAP_SHARED, reader, 0)
assert c.mprotect(at, PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == -1

# What cannot be has no effect on what is there.
huge, memory = served("huge", 16 * PAGE)
try:
    os.pwrite(huge.fileno(), b"far", 1 << 40)
    raise SystemExit("a terabyte of memory")
except OSError:
    pass
for refused in (
    lambda: os.ftruncate(huge.fileno(), 1 << 42),
    lambda: os.truncate("huge", 1 << 42),
    lambda: os.posix_fallocate(huge.fileno(), 0, 1 << 30),
):
    try:
        refused()
        raise SystemExit("more memory than there is")
    except OSError:
        pass
    assert os.fstat(huge.fileno()).st_size == 16 * PAGE
    assert os.pread(huge.fileno(), 4, 0) == bytes(4)
assert os.fstat(huge.fileno()).st_size == 16 * PAGE
assert os.pwrite(huge.fileno(), b"near", 64 * PAGE) == 4
os.truncate("huge", 32 * PAGE)
assert os.pwrite(huge.fileno(), b"near", 64 * PAGE) == 4
print("all right")
