"""Every way to a mapped file that a Python program has; run in the directory that is served."""
import ctypes
import errno
import mmap
import os
import subprocess
import sys

SIZE = 1 << 20


with open("before", "wb") as f:
    f.write(b"old" * 100_000)
f = open("before", "r+b")
m = mmap.mmap(f.fileno(), 0)
assert m[:6] == b"oldold" and m[299_997:] == b"old"

# What is stored is read, and what is written is seen, at once.
m[4:7] = b"new"
assert os.pread(f.fileno(), 3, 4) == b"new"
assert open("before", "rb").read(7)[4:] == b"new"
os.pwrite(f.fileno(), b"written", 50_000)
assert m[50_000:50_007] == b"written"
os.lseek(f.fileno(), 100, os.SEEK_SET)
assert os.write(f.fileno(), b"abc") == 3 and os.lseek(f.fileno(), 0, os.SEEK_CUR) == 103
assert os.read(f.fileno(), 2) == m[103:105] and m[100:103] == b"abc"
assert os.writev(f.fileno(), [b"x", b"yz"]) == 3 and m[105:108] == b"xyz"
assert os.preadv(f.fileno(), [bytearray(2)], 105) == 2
m.flush()
os.fsync(f.fileno())

# A read into the mapping is a system call that stores there.
zero = open("/dev/zero", "rb", buffering=0)
assert zero.readinto(memoryview(m)[200_000:220_000]) == 20_000
assert m[200_000:220_000] == bytes(20_000) and m[220_000:220_001] != b"\0"

# Longer, shorter, longer again: what was cut off is zeros.
f.truncate(SIZE)
m.resize(SIZE)
m[SIZE - 3 :] = b"end"
assert os.fstat(f.fileno()).st_size == SIZE and os.stat("before").st_size == SIZE
assert os.pread(f.fileno(), 10, SIZE - 3) == b"end"
f.truncate(SIZE - 2)
assert os.pread(f.fileno(), 10, SIZE - 3) == b"e"
f.truncate(SIZE)
assert os.pread(f.fileno(), 10, SIZE - 3) == b"e\0\0"
a = os.open("before", os.O_WRONLY | os.O_APPEND)
assert os.write(a, b"appended") == 8 and os.stat("before").st_size == SIZE + 8
os.close(a)
assert os.pread(f.fileno(), 8, SIZE) == b"appended"

# A second mapping, a read-only one, a private one.
second = mmap.mmap(f.fileno(), 8192, offset=4096)
second[0:4] = b"both"
assert m[4096:4100] == b"both"
read_only = mmap.mmap(os.open("before", os.O_RDONLY), 8192, prot=mmap.PROT_READ)
assert read_only[4096:4100] == b"both"
private = mmap.mmap(f.fileno(), 8192, access=mmap.ACCESS_COPY)
private[4096:4100] = b"mine"
assert m[4096:4100] == b"both"

# A mapping that does not begin with the file becomes longer.
with open("moved", "w+b") as moved:
    moved.truncate(65536)
    part = mmap.mmap(moved.fileno(), 4096, offset=8192)
    part[0:3] = b"mov"
    part.resize(8192)
    part[4096:4099] = b"new"
    assert part[0:3] == b"mov" and os.pread(moved.fileno(), 3, 8192) == b"mov"
    assert os.pread(moved.fileno(), 3, 12288) == b"new"

# Descriptors that are copied, and numbers that mean another file afterwards.
copy = os.dup(f.fileno())
assert os.pread(copy, 4, 4096) == b"both"
os.dup2(zero.fileno(), copy)
assert os.read(copy, 4) == bytes(4)
os.close(copy)

# Processes: a forked one, one of the same program, and threads of a fork.
for turn in range(3):
    pid = os.fork()
    if pid == 0:
        m[300_000 + turn : 300_001 + turn] = b"k"
        second[100 + turn] = turn
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
assert m[300_000:300_003] == b"kkk" and bytes(second[100:103]) == bytes([0, 1, 2])
other = """
import mmap, os
f = open("before", "r+b")
m = mmap.mmap(f.fileno(), 0)
assert m[300_000:300_003] == b"kkk"
m[310_000:310_005] = b"other"
assert os.pread(f.fileno(), 4, 4096) == b"both"
"""
subprocess.run([sys.executable, "-c", other], check=True)
assert m[310_000:310_005] == b"other"

# Streams of the C library.
c = ctypes.CDLL(None, use_errno=True)
c.fopen.restype = c.fdopen.restype = c.freopen.restype = ctypes.c_void_p


def call(name, *arguments):
    whole = [ctypes.c_void_p(a) if isinstance(a, int) and a > 1 << 20 else a for a in arguments]
    return getattr(c, name)(*whole)


def fread(stream, size):
    room = ctypes.create_string_buffer(size)
    count = call("fread", room, 1, size, stream)
    return room.raw[:count]


with open("streamed", "w+b") as streamed:
    streamed.truncate(8192)
    s = mmap.mmap(streamed.fileno(), 8192)
    s[0:6] = b"stored"
    stream = c.fopen(b"streamed", b"r+")
    assert fread(stream, 6) == b"stored"
    number = call("fileno", stream)
    assert os.pread(number, 6, 0) == b"stored"
    assert call("fseek", stream, ctypes.c_long(100), os.SEEK_SET) == 0
    assert call("fwrite", b"through", 1, 7, stream) == 7 and call("fflush", stream) == 0
    assert s[100:107] == b"through"
    assert call("fseek", stream, ctypes.c_long(-2), os.SEEK_END) == 0
    assert call("fwrite", b"longer", 1, 6, stream) == 6 and call("ftell", stream) == 8196
    assert call("fclose", stream) == 0 and os.stat("streamed").st_size == 8196
    assert s[8190:8192] == b"lo" and os.pread(streamed.fileno(), 9, 8190) == b"longer"
    try:
        os.fstat(number)
        raise SystemExit("the descriptor of a closed stream is open")
    except OSError:
        pass
    # Appended, by a stream of a descriptor and of a name.
    stream = c.fdopen(os.open("streamed", os.O_WRONLY), b"a")
    assert call("fwrite", b"+", 1, 1, stream) == 1 and call("fclose", stream) == 0
    stream = c.fopen(b"streamed", b"a+e")
    assert os.get_inheritable(call("fileno", stream)) is False
    assert call("fwrite", b"+", 1, 1, stream) == 1 and call("fflush", stream) == 0
    assert os.pread(streamed.fileno(), 9, 8194) == b"er++"
    # A descriptor that may only be read makes no stream that writes.
    read_only = os.open("streamed", os.O_RDONLY)
    assert c.fdopen(read_only, b"w") is None and ctypes.get_errno() == errno.EINVAL
    os.close(read_only)
    # What cannot be opened again is closed, and what it had in its buffer is written.
    assert call("fwrite", b"last", 1, 4, stream) == 4
    assert call("freopen", b"/dev/zero", b"r", stream) is None
    assert ctypes.get_errno() == errno.EOPNOTSUPP and os.stat("streamed").st_size == 8202
    # Another stream may be opened again as such a file, which the C library reads then.
    stream = call("freopen", b"streamed", b"r", c.fopen(b"/dev/zero", b"r"))
    assert os.pread(call("fileno", stream), 6, 0) == b"stored" and call("fclose", stream) == 0
    # More streams than are told apart.
    many = [c.fopen(b"streamed", b"r") for _ in range(300)]
    assert all(many) and [call("fclose", one) for one in many] == [0] * 300
    # Emptied by a stream.
    s[200:204] = b"gone"
    stream = c.fopen(b"streamed", b"w")
    assert call("fwrite", b"new", 1, 3, stream) == 3 and call("fclose", stream) == 0
    streamed.truncate(8192)
    assert s[0:4] == b"new\0" and s[200:204] == bytes(4)
    # A number that another file had, closed inside the C library, and is mapped now.
    stream = c.fopen(b"/dev/zero", b"r")
    number = call("fileno", stream)
    os.read(number, 1)
    call("fclose", stream)
    stream = c.fopen(b"streamed", b"r+")
    assert call("fileno", stream) >= number
    call("fclose", stream)

# Files that are made, renamed, removed, emptied.
with open("made", "w+b") as made:
    made.truncate(8192)
    n = mmap.mmap(made.fileno(), 8192)
    n[0:4] = b"made"
os.rename("made", "renamed")
with open("gone", "w+b") as gone:
    gone.truncate(4096)
    g = mmap.mmap(gone.fileno(), 4096)
    g[0:4] = b"gone"
os.unlink("gone")
with open("emptied", "w+b") as emptied:
    emptied.truncate(4096)
    e = mmap.mmap(emptied.fileno(), 4096)
    e[0:4] = b"full"
open("emptied", "wb").close()
with open("emptied", "ab") as emptied:
    emptied.write(b"again")
os.makedirs("below/deep", exist_ok=True)
with open("below/deep/file", "w+b") as deep:
    deep.truncate(4096)
    d = mmap.mmap(deep.fileno(), 4096)
    d[4090:] = b"bottom"
try:
    mmap.mmap(os.open("renamed", os.O_RDONLY), 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    raise SystemExit("a read-only file was mapped for writing")
except PermissionError:
    pass
# A daemon closes everything that it did not open.
for fd in range(f.fileno() + 50, 1024):
    try:
        os.close(fd)
    except OSError:
        pass
os.closerange(f.fileno() + 50, 1 << 20)
m[320_000:320_006] = b"daemon"
assert os.pread(f.fileno(), 6, 320_000) == b"daemon"
m.close()
print("all right")
