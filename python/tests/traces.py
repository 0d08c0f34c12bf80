"""Generated traces, and a naive count of their records as the tests' oracle."""

import random
from collections import Counter
from typing import Any, Dict, List, Sequence, Tuple

import pyarrow as pa

#: The bytes of a page.
PAGE = 4096
#: An access: time in nanoseconds, volume, whether it writes, offset in bytes, size in bytes.
Record = Tuple[int, str, bool, int, int]

SCHEMA = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("volume", pa.string()),
        ("op", pa.int32()),
        ("offset_bytes", pa.int64()),
        ("len_bytes", pa.int64()),
    ]
)


def generate(
    seed: int, records: int, volumes: Sequence[Tuple[str, int]], gap_ns: int
) -> List[Record]:
    """Random accesses to ``volumes``, which are (name, size in bytes), in the order of time.

    ``gap_ns`` bounds the time between two accesses. Some accesses are large, some come at the same
    time, and some pages are hot.
    """
    rng = random.Random(seed)
    time_ns, out = 10**9 + seed, []
    for _ in range(records):
        time_ns += rng.choice([0, rng.randrange(gap_ns), rng.randrange(gap_ns)])
        name, size = rng.choice(volumes)
        length = rng.randrange(1, 40_000)
        if rng.random() < 0.002:
            length = rng.randrange(1, 1 << 31)
        offset = rng.randrange(size) if rng.random() < 0.5 else int(size * rng.random() ** 8)
        out.append((time_ns, name, rng.random() < 0.7, offset, length))
    return out


def table(records: List[Record]) -> pa.Table:
    columns = [list(column) for column in zip(*records)]
    columns[2] = [int(is_write) for is_write in columns[2]]
    return pa.table(dict(zip(SCHEMA.names, columns)), SCHEMA)


def naive(records: List[Record], windows_s: Sequence[int], shares: Sequence[int]) -> Dict[str, Any]:
    """The figures of a trace, counted straight from the definitions, in quadratic time."""
    start = records[0][0]
    touched, writes, events = set(), Counter(), []
    for time_ns, volume, is_write, offset, length in records:
        pages = [
            (volume, page) for page in range(offset // PAGE, (offset + length - 1) // PAGE + 1)
        ]
        touched.update(pages)
        events.append((time_ns, pages if is_write else []))
        if is_write:
            writes.update(pages)
    worst = {}
    for seconds in windows_s:
        length = seconds * 10**9
        tumbling: Dict[int, List[Any]] = {}
        for time_ns, pages in events:
            tumbling.setdefault((time_ns - start) // length, []).extend(pages)
        sliding = [
            [
                page
                for other_ns, pages in events
                if time_ns - length < other_ns <= time_ns
                for page in pages
            ]
            for time_ns, _ in events
        ]
        worst[str(seconds)] = {
            name: {
                "adversarial_pages": max(len(window) for window in kind),
                "unique_pages": max(len(set(window)) for window in kind),
            }
            for name, kind in (("tumbling", list(tumbling.values())), ("sliding", sliding))
        }
    total, skew = sum(writes.values()), {}
    for share in shares:
        left, count = total * share, 0
        for times in sorted(writes.values(), reverse=True):
            if left <= 0:
                break
            left -= times * 100
            count += 1
        skew[str(share)] = count
    return {
        "records": len(records),
        "touched_pages": len(touched),
        "written_pages": len(writes),
        "page_writes": total,
        "worst": worst,
        "skew_pages": skew,
    }


#: Times as text, their unit, and the nanoseconds that are expected; ``None`` expects a refusal.
TIMES = [
    ("1.9999999999", "s", 1_999_999_999),
    ("1.", "s", 1_000_000_000),
    ("12345678901.123456789", "us", 12_345_678_901_123),
    ("0.0009", "us", 0),
    ("7.129", "100ns", 712),
    ("9223372036854775807", "ns", 2**63 - 1),
    ("5.000", "ns", 5),
    ("5.5", "ns", None),
    ("9223372036854775808", "ns", None),
    ("9223372036.854775808", "s", None),
    ("+1", "s", None),
    ("-1", "s", None),
    (" 1", "s", None),
    ("1 ", "s", None),
    ("1\n", "s", None),
    ("1e3", "s", None),
    (".5", "s", 500_000_000),
    ("", "s", None),
    ("1,5", "s", None),
]
