import os, sys, random, hashlib, fcntl, mmap
# A program that is run with and without the library: all it prints and all that it leaves must be the same.
folder, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
draw = random.Random(seed)
os.chdir(folder)
names = ["a", "b", "sub/c"]
os.makedirs("sub", exist_ok=True)
fds = {}
def say(*words): os.write(1, (" ".join(map(str, words)) + "\n").encode())
def data(n): return draw.randbytes(n)
def size(): return draw.choice([0, 1, 7, 100, 511, 4096, 5000, 65536, draw.randrange(200000)])
def place(): return draw.choice([0, 1, 4095, 4096, draw.randrange(300000), draw.randrange(3000000)])
def digest(b): return len(b), hashlib.md5(b).hexdigest()[:8]
def one():
    what = draw.randrange(24)
    if what == 0 or len(fds) < 2:
        flags = draw.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR])
        for extra in (os.O_CREAT, os.O_TRUNC, os.O_APPEND, os.O_EXCL, os.O_DSYNC):
            if draw.random() < (0.8 if extra == os.O_CREAT else 0.12): flags |= extra
        name = draw.choice(names)
        say("open", name, flags)
        fd = os.open(name, flags, 0o600)
        fds[fd] = name; say("fd", fd); return
    fd = draw.choice(sorted(fds))
    if what == 1: say("close", fd); del fds[fd]; os.close(fd)
    elif what == 2: say("dup", fd); new = os.dup(fd); fds[new] = fds[fd]; say(new)
    elif what == 3:
        to = draw.choice(sorted(fds)); say("dup2", fd, to); os.dup2(fd, to); fds[to] = fds[fd]
    elif what in (4, 5, 6): n = size(); say("read", fd, n); say(digest(os.read(fd, n)))
    elif what in (7, 8, 9): b = data(size()); say("write", fd, len(b)); say(os.write(fd, b))
    elif what in (10, 11, 12): n, at = size(), place(); say("pread", fd, n, at); say(digest(os.pread(fd, n, at)))
    elif what in (13, 14): b, at = data(size()), place(); say("pwrite", fd, len(b), at); say(os.pwrite(fd, b, at))
    elif what == 15: whence, to = draw.randrange(3), draw.randrange(-5000, 300000); say("lseek", fd, to, whence); say(os.lseek(fd, to, whence))
    elif what == 16: n = place(); say("ftruncate", fd, n); os.ftruncate(fd, n)
    elif what == 17: name, n = draw.choice(names), place(); say("truncate", name, n); os.truncate(name, n)
    elif what == 18:
        bufs = [bytearray(size()) for _ in range(draw.randrange(1, 5))]
        at = place()
        say("preadv", fd, at, len(bufs)); say(os.preadv(fd, bufs, at), digest(b"".join(bufs)))
    elif what == 19:
        bufs = [data(size()) for _ in range(draw.randrange(0, 5))]
        say("writev", fd, len(bufs)); say(os.writev(fd, bufs))
    elif what == 20: say("sync", fd); os.fsync(fd); os.fdatasync(fd); say(os.fstat(fd).st_size)
    elif what == 21:
        kind = draw.randrange(6)
        if kind == 0: name = draw.choice(names); say("unlink", name); os.unlink(name)
        elif kind == 1: a, b = draw.choice(names), draw.choice(names); say("rename", a, b); os.rename(a, b)
        elif kind == 2: say("flags", fd); flags = fcntl.fcntl(fd, fcntl.F_GETFL); say(flags); fcntl.fcntl(fd, fcntl.F_SETFL, flags ^ os.O_APPEND)
        elif kind == 3: n, at = size(), place(); say("fallocate", fd, n, at); os.posix_fallocate(fd, at, n)
        elif kind == 4:
            n = os.fstat(fd).st_size; say("mmap", fd, n)
            with mmap.mmap(fd, n) as m: m[n // 2:n // 2 + 1] = b"m"; say(digest(m[:]))
        else:
            with open(draw.choice(names), draw.choice(["rb", "r+b", "ab", "wb"])) as f:
                say("stream", f.name, f.mode); f.seek(draw.randrange(5000))
                if "r" in f.mode: say(digest(f.read(size())))
                if f.mode != "rb": say(f.write(data(size())))
    elif what == 22:
        b = data(size()); say("child", fd, len(b)); child = os.fork()
        if child == 0:
            try: n = os.write(fd, b); r = 0
            except OSError as e: r = e.errno
            os._exit(r)
        say(os.waitpid(child, 0)[1])
    else:
        import subprocess
        say("program", fd); r = subprocess.run(["head", "-c", "1000"], stdin=fd, capture_output=True); say(r.returncode, digest(r.stdout))
for step in range(count):
    try: one()
    except (OSError, ValueError) as e: say("error", type(e).__name__, getattr(e, "errno", e))
for name in names:
    try: b = open(name, "rb").read(); say("left", name, digest(b), os.stat(name).st_size)
    except OSError as e: say("left", name, e.errno)
