import array, ctypes, os, socket, sys
# Where reads and writes go on: the same with and without the library. The folder is the first argument.
os.chdir(sys.argv[1])
with open("f", "wb") as f: f.write(b"0123456789abcdef")
def say(*words): os.write(1, (" ".join(map(str, words)) + "\n").encode())
fd = os.open("f", os.O_RDWR | os.O_APPEND)
say("read", os.read(fd, 4), "appended", os.write(fd, b""), "at", os.lseek(fd, 0, os.SEEK_CUR))
say("appended", os.write(fd, b"g"), "at", os.lseek(fd, 0, os.SEEK_CUR))
fd = os.open("f", os.O_RDWR)
here, there = socket.socketpair()
os.read(fd, 4)
socket.send_fds(here, [b"x"], [fd])
received = socket.recv_fds(there, 1, 1)[1][0]
say("received", os.read(received, 4), "sent", os.read(fd, 4))
# No call that the interpreter makes itself: its own words as arguments, more than there are registers for.
words = [b"sh", b"-c", b'head -c 2 <&9; echo " $*"', b"0", b"1", b"2", b"3", b"4", b"5"]
libc = ctypes.CDLL(None)
for call in sys.argv[2:]:
    if os.fork() == 0:
        # Opened after the fork, which handed over all that was open.
        again = os.open("f", os.O_RDONLY)
        os.read(again, 10)
        os.dup2(again, 9, inheritable=True)
        environment = (ctypes.c_char_p * 3)(b"A=1", b"PATH=" + os.environ["PATH"].encode(), None)
        more = [None, environment] if call == "execle" else [None]
        if call != "execle": libc.execl(b"/no/such/program", b"no", None)
        getattr(libc, call)(b"sh" if call == "execlp" else b"/bin/sh", *words, *more)
        os._exit(1)
    say(call, os.wait()[1])
