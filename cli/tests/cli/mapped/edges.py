"""Calls on served files that are refused, that end at the end of a file, or that leave a part of a
mapping; run in the directory that is served."""
import ctypes
import errno
import mmap
import os
import shutil
import socket
import sys

PAGE = 4096
READ, BOTH = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
SHARED, FIXED, ANONYMOUS, NOREPLACE, MAYMOVE = 1, 0x10, 0x20, 0x100000, 1
FAILED = 2**64 - 1
c = ctypes.CDLL(None, use_errno=True)
size, number, place = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
c.mmap.restype = c.mremap.restype = place
c.mmap.argtypes = [place, size, number, number, number, ctypes.c_long]
c.mremap.argtypes = [place, size, size, number]
c.munmap.argtypes = [place, size]
c.mprotect.argtypes = [place, size, number]
c.pwrite.argtypes = [number, ctypes.c_char_p, size, ctypes.c_long]
c.preadv2.argtypes = [number, place, number, ctypes.c_long, number]


def served(name, pages=1):
    """A file whose pages begin with letters, a, b, and so on."""
    f = open(name, "w+b", buffering=0)
    f.truncate(pages * PAGE)
    m = mmap.mmap(f.fileno(), pages * PAGE)
    for page in range(pages):
        m[page * PAGE : page * PAGE + 3] = bytes([97 + page % 26]) * 3
    return f, m


def refused(why, act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        assert error.errno == why, (error, why)
    else:
        raise SystemExit(f"{act} of {arguments} was not refused")


def failed(why, result):
    assert result in (-1, FAILED) and ctypes.get_errno() == why, (result, ctypes.get_errno(), why)


def check(found, wanted):
    assert b" ".join(found) == wanted, (found, wanted)


def child(act):
    """A child that waits for ever is ended by a signal."""
    pid = os.fork()
    if pid == 0:
        c.alarm(20)
        try:
            act()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


# What a descriptor was not opened for.
f, m = served("modes", 2)
reader, writer = os.open("modes", os.O_RDONLY), os.open("modes", os.O_WRONLY)
refused(errno.EBADF, os.read, writer, 1)
refused(errno.EBADF, os.pread, writer, 1, 0)
refused(errno.EBADF, os.write, reader, b"x")
refused(errno.EBADF, os.pwrite, reader, b"x", 0)
failed(errno.EACCES, c.mmap(None, PAGE, READ, SHARED, writer, 0))
refused(errno.EINVAL, os.ftruncate, reader, 1)
refused(errno.EBADF, os.posix_fallocate, reader, 0, 3 * PAGE)
assert m[0:3] == b"aaa" and m[PAGE : PAGE + 3] == b"bbb", "what was not cut off is gone"
assert m.size() == os.fstat(reader).st_size == 2 * PAGE
# Who is refused lets the file go.
refused(errno.EBADF, os.read, writer, 1)
child(lambda: os.pwrite(writer, b"c", 2))
assert m[0:3] == b"aac"
failed(errno.EINVAL, c.pwrite(writer, b"x", 1, -2))
assert m[0:3] == b"aac" and os.lseek(writer, 0, os.SEEK_CUR) == 0
assert os.pwrite(writer, b"", 5 * PAGE) == 0 and os.fstat(reader).st_size == 2 * PAGE
c.fallocate.argtypes = [number, number, ctypes.c_long, ctypes.c_long]
failed(errno.EOPNOTSUPP, c.fallocate(f.fileno(), 3, 0, PAGE))
assert m[0:3] == b"aac"
refused(errno.ENOMEM, os.ftruncate, f.fileno(), 1 << 42)

# Nothing is said of these files afterwards: they have this length, and these bytes, at the end.
kept, _ = served("kept")
refused(errno.EBADF, os.posix_fallocate, os.open("kept", os.O_RDONLY), 0, 3 * PAGE)
emptied, _ = served("emptied")
assert c.creat(b"emptied", 0o600) >= 0

# Several parts, which end with the file or within it, and places that are not given.
f, m = served("parts", 3)
end = 3 * PAGE
room = [bytearray(2), bytearray(3), bytearray(b"......")]
assert os.preadv(f.fileno(), room, end - 7) == 7 and room[2] == bytes(2) + b"...."
room = [bytearray(2), bytearray(4)]
m[10:16] = b"012345"
assert os.preadv(f.fileno(), room, 10) == 6 and room == [b"01", b"2345"]
os.lseek(f.fileno(), PAGE, os.SEEK_SET)
byte = ctypes.create_string_buffer(3)


class Part(ctypes.Structure):
    _fields_ = [("base", place), ("len", size)]


part = Part(ctypes.addressof(byte), 3)
assert c.preadv2(f.fileno(), ctypes.addressof(part), 1, -1, 0) == 3 and byte.raw == b"bbb"
assert os.lseek(f.fileno(), 0, os.SEEK_CUR) == PAGE + 3
a = os.open("parts", os.O_WRONLY | os.O_APPEND)
assert os.pwrite(a, b"appended", 0) == 8, "Linux appends, whatever the offset"
assert m[0:3] == b"aaa" and os.pread(f.fileno(), 9, end) == b"appended"
assert os.write(a, b"+") == 1 and os.lseek(a, 0, os.SEEK_CUR) == end + 9

# More pieces than a list has room for, if each were no longer than what it was asked for.
f, m = served("longer")
for count in range(2, 300):
    f.truncate(count << 16)
assert os.pwrite(f.fileno(), b"last", (299 << 16) - 4) == 4

# What is cut off is zeros, however much it is.
f, m = served("cut", 75)
m[:] = b"x" * (75 * PAGE)
f.truncate(5)
f.truncate(75 * PAGE)
assert m[:] == b"xxxxx" + bytes(75 * PAGE - 5)

# All memory that there may be, 256 MiB, also where twice as much as there is would be too much.
for name, most in ("most", 140 << 20), ("rest", 60 << 20):
    with open(name, "w+b") as f:
        f.write(b"-")
        f.flush()
        m = mmap.mmap(f.fileno(), 1)
        f.truncate(most)
        assert os.pwrite(f.fileno(), b"+", most - 1) == 1
        assert os.pread(f.fileno(), 2, most - 1) == b"+"
    os.unlink(name)

# A stream whose bytes find no room says so.
c.fopen.restype = place
c.fseek.argtypes = [place, ctypes.c_long, number]
c.fwrite.argtypes = [ctypes.c_char_p, size, size, place]
c.fflush.argtypes = c.fclose.argtypes = c.ferror.argtypes = [place]
f, m = served("streamed")
stream = c.fopen(b"streamed", b"r+")
assert c.fseek(stream, 1 << 40, 0) == 0 and c.fwrite(b"far", 1, 3, stream) == 3
failed(errno.ENOMEM, c.fflush(stream))
assert c.ferror(stream) and c.fclose(stream) == 0 and os.fstat(f.fileno()).st_size == PAGE

# Copied within the kernel, to a served file.
with open("source", "wb") as source:
    source.write(b"copied" * 1000)
f, m = served("copied")
source = open("source", "rb")
refused(errno.EXDEV, os.copy_file_range, source.fileno(), f.fileno(), 6000)
refused(errno.EINVAL, os.sendfile, f.fileno(), source.fileno(), 0, 6000)
shutil.copyfile("source", "copied")
assert m[0:12] == b"copiedcopied" and os.fstat(f.fileno()).st_size == 6000

# A part is unmapped, and what is left of the mapping goes on as itself.
def map_at(fd, pages, offset=0, at=None, flags=SHARED, protection=BOTH):
    found = c.mmap(at, pages * PAGE, protection, flags, fd, offset)
    assert found not in (None, FAILED), ctypes.get_errno()
    return found


def page_at(address):
    return ctypes.string_at(address, 3)


f, m = served("holes", 8)
at = map_at(f.fileno(), 6)
assert c.munmap(at + 2 * PAGE, PAGE + 1) == 0, "the page in which the range ends goes, too"
held = map_at(-1, 2, at=at + 2 * PAGE, flags=2 | ANONYMOUS | NOREPLACE)
ctypes.memmove(held, b"own", 3)
ctypes.memmove(held + PAGE, b"too", 3)
child(lambda: check([page_at(at + n * PAGE) for n in range(6)], b"aaa bbb own too eee fff"))
assert c.munmap(at + 2 * PAGE, 2 * PAGE) == 0
# The tail becomes longer, and moves.
failed(errno.ENOMEM, c.mremap(at + 4 * PAGE, 2 * PAGE, 4 * PAGE, 0))
moved = c.mremap(at + 4 * PAGE, 2 * PAGE, 4 * PAGE, MAYMOVE)
check([page_at(moved + n * PAGE) for n in range(4)], b"eee fff ggg hhh")
# The memory that it had is another's.
map_at(-1, 2, at=at + 4 * PAGE, flags=2 | ANONYMOUS | NOREPLACE)
child(lambda: check([page_at(at + 4 * PAGE)], bytes(3)))
# A part at the end is given back.
assert c.mremap(moved, 4 * PAGE, PAGE, 0) == moved
map_at(-1, 3, at=moved + PAGE, flags=2 | ANONYMOUS | NOREPLACE)
child(lambda: check([page_at(moved), page_at(moved + PAGE)], b"eee " + bytes(3)))
# The middle of a mapping becomes longer: those bytes, and not the first ones.
middle = c.mremap(map_at(f.fileno(), 8, at=None) + 3 * PAGE, PAGE, 3 * PAGE, MAYMOVE)
check([page_at(middle + n * PAGE) for n in range(3)], b"ddd eee fff")

# A tail that goes on in another piece of memory.
f, m = served("pieces", 16)
between, _ = served("between")
f.truncate(20 * PAGE)
os.pwrite(f.fileno(), b"qqq", 16 * PAGE)
at = map_at(f.fileno(), 16)
assert c.munmap(at + 13 * PAGE, PAGE) == 0
tail = c.mremap(at + 14 * PAGE, 2 * PAGE, 3 * PAGE, MAYMOVE)
check([page_at(tail + n * PAGE) for n in range(3)], b"ooo ppp qqq")

# Mappings over others, and neighbours of which one is not the other's next part.
over, _ = served("over", 4)
at = map_at(f.fileno(), 6)
map_at(over.fileno(), 1, 2 * PAGE, at + PAGE, SHARED | FIXED)
map_at(f.fileno(), 3, 5 * PAGE, at, SHARED | FIXED)
ctypes.memmove(map_at(-1, 1, at=at + 4 * PAGE, flags=2 | ANONYMOUS | FIXED), b"own", 3)
assert c.mprotect(at, 3 * PAGE, READ) == 0 and c.mprotect(at, PAGE, BOTH) == 0
there = b"fff ggg hhh ddd own fff"
check([page_at(at + n * PAGE) for n in range(6)], there)
child(lambda: check([page_at(at + n * PAGE) for n in range(6)], there))
free = map_at(-1, 3, flags=2 | ANONYMOUS)
assert c.munmap(free, 3 * PAGE) == 0
for page in 2, 0, 1:
    wanted = free + page * PAGE
    assert map_at(f.fileno(), 1, page % 2 * PAGE, wanted, SHARED | NOREPLACE) == wanted
failed(errno.EEXIST, c.mmap(free, PAGE, BOTH, SHARED | NOREPLACE, f.fileno(), 0))
assert c.mprotect(free, 3 * PAGE, BOTH) == 0
child(lambda: check([page_at(free + n * PAGE) for n in range(3)], b"aaa bbb aaa"))

# An address that another file's mapping had.
at = map_at(f.fileno(), 2)
ctypes.memmove(at, b"was", 3)
assert c.munmap(at, 2 * PAGE) == 0
map_at(over.fileno(), 2, 0, at, SHARED | NOREPLACE)
ctypes.memmove(at + PAGE, b"now", 3)
assert os.pread(over.fileno(), 3, PAGE) == b"now" and os.pread(f.fileno(), 3, PAGE) == b"bbb"
# What cannot take the place of a mapping leaves it there.
failed(errno.ENOMEM, c.mmap(at, 2 * PAGE, BOTH, SHARED | FIXED, f.fileno(), 1 << 40))
ctypes.memmove(at, b"yet", 3)
assert os.pread(over.fileno(), 3, 0) == b"yet"
child(lambda: check([page_at(at), page_at(at + PAGE)], b"yet now"))
for huge in 2**64 - 1, 2**64 - 2 * PAGE, 2**63:
    failed(errno.ENOMEM, c.mmap(None, huge, BOTH, SHARED, f.fileno(), 0))
    failed(errno.EINVAL, c.munmap(at, huge))
ctypes.memmove(at, b"now", 3)
check([page_at(at), page_at(at + PAGE)], b"now now")

# A file for which there is no memory is used as ever.
with open("beyond", "w+b", buffering=0) as f:
    f.write(b"beyond")
    f.truncate(1 << 40)
    refused(errno.ENOMEM, mmap.mmap, f.fileno(), PAGE)
    assert os.pread(f.fileno(), 6, 0) == b"beyond" and os.pwrite(f.fileno(), b"B", 0) == 1
os.unlink("beyond")

# Numbers of descriptors.
f, m = served("numbers")
zero = os.open("/dev/zero", os.O_RDWR)
for fd in range(700, 720):
    try:
        os.dup2(zero, fd)
    except OSError as error:
        assert error.errno == errno.EBUSY
assert os.pwrite(f.fileno(), b"safe", 0) == 4 and m[0:4] == b"safe"
child(lambda: os.pwrite(f.fileno(), b"kept", 0))
assert m[0:4] == b"kept"
ends = socket.socketpair()
socket.send_fds(ends[0], [b"-"], [f.fileno()])
os.read(zero, 1)
assert c.close_range(zero, zero, 0) == 0
passed = socket.recv_fds(ends[1], 1, 1)[1][0]
assert passed == zero and os.pread(passed, 4, 0) == b"kept"
os.close(passed)
c.opendir.restype, c.opendir.argtypes = place, [ctypes.c_char_p]
c.dirfd.argtypes = c.closedir.argtypes = [place]
opened = c.opendir(b".")
closed = c.dirfd(opened)
os.fsync(closed)
assert c.closedir(opened) == 0
socket.send_fds(ends[0], [b"-"], [f.fileno()])
passed = socket.recv_fds(ends[1], 1, 1)[1][0]
assert passed == closed and os.pread(passed, 4, 0) == b"kept"

# What the system refuses to make durable: MS_SYNC is 4, and MS_ASYNC 1.
c.msync.argtypes = [place, size, number]
address = ctypes.addressof(ctypes.c_char.from_buffer(m))
assert c.msync(address, PAGE, 4) == 0
failed(errno.EINVAL, c.msync(address + 1, PAGE, 4))
failed(errno.EINVAL, c.msync(address, PAGE, 4 | 1))
failed(errno.EINVAL, c.msync(address, PAGE, 8))

# A place that is refused leaves what is there as it was.
failed(errno.EINVAL, c.mmap(address + 1, PAGE, BOTH, SHARED | FIXED, f.fileno(), 0))
failed(errno.EINVAL, c.mremap(address + 1, PAGE - 1, PAGE, MAYMOVE))
f.truncate(3 * PAGE)
three = mmap.mmap(f.fileno(), 3 * PAGE)
begin = ctypes.addressof(ctypes.c_char.from_buffer(three))
move = ctypes.CFUNCTYPE(place, place, size, size, number, place, use_errno=True)(("mremap", c))
for to in begin + PAGE, begin + 2 * PAGE, begin + 4 * PAGE + 1:
    failed(errno.EINVAL, move(begin + PAGE, 2 * PAGE, 2 * PAGE, MAYMOVE | 2, to))
child(lambda: three.__setitem__(slice(0, 3 * PAGE), b"s" * (3 * PAGE)))
assert three[:] == b"s" * (3 * PAGE) and m[:] == b"s" * PAGE
# Another directory, whose name begins with this one's, is not this one.
with open(sys.argv[1] + "/file", "w+b") as beside:
    beside.truncate(PAGE)
    mmap.mmap(beside.fileno(), PAGE)[0:4] = b"here"
    assert os.pread(beside.fileno(), 4, 0) == b"here"
print("all right")
