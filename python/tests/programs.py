"""Programs that the tests start and kill."""

import subprocess
import sys

#: Reads lines of Python, runs each, and answers with the value of ``result``.
WORKER = """
import sys
import perdura
store = perdura.Store.open(sys.argv[1], memory="16MiB", **eval(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    result = None
    scope = {"store": store, "perdura": perdura}
    exec(eval(line), scope)
    print(repr(scope.get("result")), flush=True)
"""


class Program:
    """A program that has a store open, and does what it is told until it is killed."""

    def __init__(self, dir, code=WORKER, **options):
        words = [sys.executable, "-c", code, str(dir), repr(options)]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A program that is to lose something says so at length.
            stderr=None if options.get("holder", True) else subprocess.DEVNULL,
            text=True,
        )
        if self.answer() != "ready":
            raise AssertionError("the program did not open its directory")

    def tell(self, code):
        self.process.stdin.write(repr(code) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, code):
        self.tell(code)
        return eval(self.answer())

    def kill(self):
        """Kills it by SIGKILL. Returns the answers that it had given and nobody had read."""
        self.process.kill()
        left = self.process.stdout.read().splitlines()
        self.end()
        return left

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()
