"""The clients of `cargo xtask moving`: who fills, who writes, and who compares.

They speak to both servers by redis-py alone and share no code with Perdura.
"""

import json
import os
import random
import sys
import time

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry

DATABASES = (0, 3)
TRANSFER = """
local n = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('RPUSH', KEYS[2], n)
if n % 7 == 0 then redis.call('DEL', KEYS[2]) end
return n
"""
LIBRARY = """#!lua name=moving
redis.register_function('note', function(keys, args)
  redis.call('HSET', keys[1], args[1], redis.call('HLEN', keys[1]))
  return redis.call('ZADD', keys[2], redis.call('HLEN', keys[1]), args[1])
end)
"""


def connect(port, db=0):
    # A writer whose connection ends must not go on at the source by another one.
    retry = Retry(NoBackoff(), 0)
    redis = Redis(port=int(port), db=db, socket_timeout=60, protocol=2, retry=retry)
    # Replies as they are on the wire, so that both servers' are compared and not redis-py's view.
    redis.response_callbacks.clear()
    return redis


def fill(port, keys):
    """Makes as many keys of all types, and some large values."""
    keys, chance = int(keys), random.Random(1)
    for db in DATABASES:
        redis = connect(port, db)
        pipe = redis.pipeline(transaction=False)
        for number in range(keys // len(DATABASES)):
            name = f"old:{number}"
            few = [f"e{chance.randrange(1000)}" for _ in range(1 + chance.randrange(20))]
            match number % 6:
                case 0 | 1:
                    pipe.set(name, chance.randbytes(chance.randrange(400)))
                case 2:
                    pipe.rpush(name, *few)
                case 3:
                    pipe.hset(name, mapping={e: chance.randrange(10**9) for e in few})
                case 4:
                    pipe.sadd(name, *(few if number % 4 else range(len(few))))
                case 5:
                    pipe.zadd(name, {e: chance.random() * 1e6 for e in few})
            if number % 5 == 0:
                pipe.pexpire(name, 3_600_000 + chance.randrange(3_600_000))
            if number % 1000 == 0:
                pipe.execute()
        pipe.execute()
    redis = connect(port)
    redis.function_load(LIBRARY, replace=True)
    redis.set("large:string", chance.randbytes(96 << 20))
    pipe = redis.pipeline(transaction=False)
    for part in range(80):
        names = [f"{part}:{at}:{'x' * chance.randrange(60)}" for at in range(1000)]
        pipe.rpush("large:list", *names)
        pipe.hset("large:hash", mapping={name: name[::-1] for name in names})
        pipe.sadd("large:set", *names)
        pipe.zadd("large:sorted", {name: chance.random() for name in names})
        for name in names:
            pipe.xadd("large:stream", {"name": name, "part": part})
        pipe.execute()
    pipe.rpush("large:element", b"a" * (24 << 20), b"b", b"c" * (3 << 20))
    pipe.hset("large:field", mapping={"big": b"f" * (24 << 20), "small": "1"})
    pipe.xgroup_create("large:stream", "group", "0")
    for consumer in range(20):
        pipe.xreadgroup("group", f"c{consumer}", {"large:stream": ">"}, count=500)
    pipe.execute()


def change(pipe, chance, pre):
    """Adds one change of a kind that is drawn. Keys of a kind of value share a beginning."""
    def key(kind):
        return f"{pre}{kind}:{chance.randrange(300)}"

    def word():
        return f"w{chance.randrange(400)}"

    some = [word() for _ in range(1 + chance.randrange(6))]
    number = chance.randrange(-1000, 1000)
    changes = {
        "SET": lambda: ("SET", key("s"), chance.randbytes(chance.randrange(300))),
        "SET PX": lambda: ("SET", key("s"), word(), "PX", 200 + chance.randrange(4000)),
        "SET EX": lambda: ("SET", key("s"), word(), "EX", 3600),
        "SET KEEPTTL": lambda: ("SET", key("s"), word(), "KEEPTTL"),
        "APPEND": lambda: ("APPEND", key("s"), word()),
        "SETRANGE": lambda: ("SETRANGE", key("s"), chance.randrange(500), word()),
        "GETEX": lambda: ("GETEX", key("s"), "PX", 3_000_000),
        "GETDEL": lambda: ("GETDEL", key("s")),
        "INCRBY": lambda: ("INCRBY", key("n"), number),
        "INCRBYFLOAT": lambda: ("INCRBYFLOAT", key("f"), number / 8),
        "SETBIT": lambda: ("SETBIT", key("b"), chance.randrange(4000), 1),
        "BITFIELD": lambda: ("BITFIELD", key("b"), "INCRBY", "u8", chance.randrange(100), 3),
        "BITOP": lambda: ("BITOP", "XOR", key("b"), key("b"), key("b")),
        "PFADD": lambda: ("PFADD", key("p"), *some),
        "PFMERGE": lambda: ("PFMERGE", key("p"), key("p")),
        "LPUSH": lambda: ("LPUSH", key("l"), *some),
        "RPUSH": lambda: ("RPUSH", key("l"), *some),
        "RPOP": lambda: ("RPOP", key("l"), 2),
        "LTRIM": lambda: ("LTRIM", key("l"), 0, 60),
        "LINSERT": lambda: ("LINSERT", key("l"), "BEFORE", word(), "in"),
        "LSET": lambda: ("LSET", key("l"), 0, "set"),
        "LMOVE": lambda: ("LMOVE", key("l"), key("l"), "LEFT", "RIGHT"),
        "LREM": lambda: ("LREM", key("l"), 1, word()),
        "BLPOP": lambda: ("BLPOP", key("l"), 0.001),
        "HSET": lambda: ("HSET", key("h"), word(), chance.randbytes(chance.randrange(100))),
        "HDEL": lambda: ("HDEL", key("h"), *some),
        "HINCRBY": lambda: ("HINCRBY", key("hn"), word(), number),
        "HINCRBYFLOAT": lambda: ("HINCRBYFLOAT", key("hf"), word(), number / 8),
        "SADD": lambda: ("SADD", key("S"), *some),
        "SADD numbers": lambda: ("SADD", key("SI"), number, number * 70_000),
        "SREM": lambda: ("SREM", key("S"), *some),
        "SPOP": lambda: ("SPOP", key("S")),
        "SPOP some": lambda: ("SPOP", key("S"), 3),
        "SMOVE": lambda: ("SMOVE", key("S"), key("S"), word()),
        "SINTERSTORE": lambda: ("SINTERSTORE", key("S"), key("S"), key("S")),
        "SORT": lambda: ("SORT", key("SI"), "STORE", key("l")),
        "ZADD": lambda: ("ZADD", key("z"), number / 7, word(), 1e300, word()),
        "ZADD inf": lambda: ("ZADD", key("z"), "inf", word()),
        "ZADD GT": lambda: ("ZADD", key("z"), "GT", "CH", number, word()),
        "ZINCRBY": lambda: ("ZINCRBY", key("zi"), number / 3, word()),
        "ZREM": lambda: ("ZREM", key("z"), *some),
        "ZPOPMIN": lambda: ("ZPOPMIN", key("z"), 2),
        "ZREMRANGEBYRANK": lambda: ("ZREMRANGEBYRANK", key("z"), 0, 1),
        "ZUNIONSTORE": lambda: ("ZUNIONSTORE", key("zi"), 2, key("zi"), key("zi")),
        "GEOADD": lambda: ("GEOADD", key("g"), chance.uniform(-170, 170), 45.5, word()),
        "XADD": lambda: ("XADD", key("x"), "MAXLEN", "~", 200, "*", "f", word(), "g", number),
        "XADD exact": lambda: ("XADD", key("x"), "MAXLEN", 150, "*", *some, *some),
        "XGROUP": lambda: ("XGROUP", "CREATE", key("x"), f"g{number % 2}", "0", "MKSTREAM"),
        "XREADGROUP": lambda: (
            "XREADGROUP", "GROUP", f"g{number % 2}", word(), "COUNT", 5, "STREAMS", key("x"), ">",
        ),
        "XAUTOCLAIM": lambda: ("XAUTOCLAIM", key("x"), f"g{number % 2}", word(), 0, "0"),
        "XTRIM": lambda: ("XTRIM", key("x"), "MAXLEN", 100),
        "EXPIRE": lambda: ("EXPIRE", key(chance.choice("slhSzxb")), 3000),
        "PEXPIRE": lambda: ("PEXPIRE", key(chance.choice("lhSz")), 500 + chance.randrange(3000)),
        "PERSIST": lambda: ("PERSIST", key(chance.choice("slhSz"))),
        "DEL": lambda: ("DEL", key(chance.choice("slhSzxpb"))),
        "RENAME": lambda: ("RENAME", key("h"), key("h")),
        "COPY": lambda: ("COPY", key("z"), key("z"), "REPLACE"),
        "MOVE": lambda: ("MOVE", key("h"), 3),
        "EVAL": lambda: ("EVAL", TRANSFER, 2, key("en"), key("el"), 1 + number % 5),
        "FCALL": lambda: ("FCALL", "note", 2, key("fh"), key("fz"), word()),
        "FUNCTION": lambda: ("FUNCTION", "LOAD", "REPLACE", LIBRARY + f"-- {number % 3}"),
    }
    if pre == "new:":
        # The library has no name of its own for the time after the move.
        del changes["FUNCTION"]
    pipe.execute_command(*changes[chance.choice(list(changes))]())


def write(port, folder, writer):
    """Writes until the server ends the connection; then waits for another one and writes there.

    What is written there has names of its own, so that the rest can still be compared.
    """
    chance, redis, count, changes = random.Random(int(writer)), connect(port), 0, 0
    while True:
        try:
            pipe = redis.pipeline(transaction=count % 3 == 0)
            for _ in range(1 + chance.randrange(40)):
                change(pipe, chance, "live:")
            pipe.execute_command("INCR", f"count:{writer}")
            size = len(pipe)
            pipe.execute(raise_on_error=False)
            count, changes, last = count + 1, changes + size, time.time()
        except (ConnectionError, TimeoutError, ResponseError):
            break
    while not os.path.exists(f"{folder}/moved"):
        time.sleep(0.002)
    with open(f"{folder}/moved") as file:
        other = connect(file.read())
    found = int(other.get(f"count:{writer}"))
    other.incr(f"new:{writer}")
    gap, until = time.time() - last, time.time() + 2
    while time.time() < until:
        pipe = other.pipeline(transaction=False)
        for _ in range(20):
            change(pipe, chance, "new:")
        pipe.execute(raise_on_error=False)
    with open(f"{folder}/writer-{writer}", "w") as file:
        json.dump({"acked": count, "found": found, "changes": changes, "gap": gap}, file)


def listed(redis):
    """All keys that are not of the time after the move, each with its type and expiry."""
    keys = [key for key in redis.execute_command("KEYS", "*") if not key.startswith(b"new:")]
    found = {}
    for at in range(0, len(keys), 1000):
        pipe = redis.pipeline(transaction=False)
        for key in keys[at : at + 1000]:
            pipe.execute_command("TYPE", key)
            pipe.execute_command("PEXPIRETIME", key)
        replies = pipe.execute()
        for number, key in enumerate(keys[at : at + 1000]):
            # A key that has expired since it was listed has no type.
            if replies[2 * number] != b"none":
                found[key] = (replies[2 * number], replies[2 * number + 1])
    return found


READ = {
    b"string": lambda key: [("GET", key)],
    b"list": lambda key: [("LRANGE", key, 0, -1)],
    b"hash": lambda key: [("HGETALL", key)],
    b"set": lambda key: [("SMEMBERS", key)],
    b"zset": lambda key: [("ZRANGE", key, 0, -1, "WITHSCORES")],
    b"stream": lambda key: [
        ("XRANGE", key, "-", "+"),
        ("XINFO", "STREAM", key, "FULL", "COUNT", 0),
    ],
}
# The layout is the server's own. The others differ between a Redis 7.0 and its replica, too: the
# times, and the count of the entries that a group has read, from which the lag follows.
NOT_COMPARED = {
    b"radix-tree-keys",
    b"radix-tree-nodes",
    b"seen-time",
    b"active-time",
    b"entries-read",
    b"lag",
}


def plain(kind, replies):
    """Replies in a form in which equal values are equal."""
    match kind:
        case b"set":
            return sorted(replies[0])
        case b"hash":
            return dict(zip(replies[0][::2], replies[0][1::2]))
        case b"zset":
            return [(name, float(score)) for name, score in zip(replies[0][::2], replies[0][1::2])]
        case b"stream":
            return [replies[0], named(replies[1])]
        case _:
            return replies[0]


def named(reply):
    """What XINFO says, without what is not compared: names and values as maps."""
    if not isinstance(reply, list):
        return reply
    names = reply[::2]
    if b"last-generated-id" in names or b"pel-count" in names or b"seen-time" in names:
        pairs = zip(names, reply[1::2])
        return {name: named(value) for name, value in pairs if name not in NOT_COMPARED}
    # A consumer that has got nothing is not always made at a replica of Redis, either.
    return [part for part in map(named, reply) if not has_nothing(part)]


def has_nothing(part):
    return isinstance(part, dict) and part.get(b"pel-count") == 0 and b"pending" in part


def values(redis, keys):
    pipe = redis.pipeline(transaction=False)
    for key, kind in keys:
        for command in READ[kind](key):
            pipe.execute_command(*command)
    replies = iter(pipe.execute(raise_on_error=False))
    return [plain(kind, [next(replies) for _ in READ[kind](key)]) for key, kind in keys]


def unlike(x, y, path=""):
    """The first parts of two values that differ, and where they are."""
    if isinstance(x, dict) and isinstance(y, dict):
        for name in x.keys() | y.keys():
            if x.get(name) != y.get(name):
                return unlike(x.get(name), y.get(name), f"{path}.{name}")
    if isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
        for at, (one, other) in enumerate(zip(x, y)):
            if one != other:
                return unlike(one, other, f"{path}[{at}]")
    return f"{path} {str(x)[:300]}, in the new {str(y)[:300]}"


def differences(old, new, folder):
    compared, kinds = 0, {}
    for db in DATABASES:
        a, b = connect(old, db), connect(new, db)
        in_b, in_a = listed(b), listed(a)
        soon = time.time() * 1000 + 5000

        def goes(about):
            return 0 < about[1] < soon

        for key in in_b.keys() - in_a.keys():
            if not goes(in_b[key]):
                yield f"db {db}: {key} is only in the new server: {in_b[key]}"
        both = []
        for key, about in in_a.items():
            if goes(about):
                continue
            if in_b.get(key) != about:
                yield f"db {db}: {key}: type and expiry {about}, in the new {in_b.get(key)}"
                continue
            both.append((key, about[0]))
        for at in range(0, len(both), 200):
            some = both[at : at + 200]
            for (key, kind), x, y in zip(some, values(a, some), values(b, some)):
                compared += 1
                kinds[kind] = kinds.get(kind, 0) + 1
                if x != y:
                    yield f"db {db}: {kind} {key}: {unlike(x, y)}"
    ask = ("FUNCTION", "LIST", "WITHCODE")
    libraries = [sorted(connect(port).execute_command(*ask), key=str) for port in (old, new)]
    if libraries[0] != libraries[1]:
        yield f"functions: {libraries[0]}, in the new {libraries[1]}"
    gaps, changes = [0.0], 0
    for name in sorted(os.listdir(folder)):
        if name.startswith("writer-"):
            with open(f"{folder}/{name}") as file:
                ledger = json.load(file)
            gaps.append(ledger["gap"])
            changes += ledger["changes"]
            if ledger["found"] < ledger["acked"]:
                yield f"{name}: {ledger['acked']} acknowledged, {ledger['found']} found"
    counts = ", ".join(f"{count} {kind.decode()}" for kind, count in sorted(kinds.items()))
    print(f"{compared} keys compared ({counts}); {changes} changes by writers, "
          f"who stood for {max(gaps):.2f} s at most")


def compare(old, new, folder):
    count = 0
    for count, difference in enumerate(differences(old, new, folder), start=1):
        if count <= 10:
            print(difference)
    if count:
        sys.exit(f"{count} differences")


if __name__ == "__main__":
    {"fill": fill, "write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
