"""The figures of `perdura_plan::skew`, vectorised in pandas and in polars, of a dump of `skew_speed
--dump`.

`rivals.py pandas|polars FILE ROUNDS WINDOW_NS...` prints a line of JSON a round: seconds (without
reading the file) and figures.

Both use the fastest form that we found: a write's neighbours of the same page come from one grouped
shift (pandas) or one sort (polars, whose grouped shift was slower); a page enters a window where
its last write is far and leaves it where the next one is, so a window's pages are the difference of
two running sums.
"""

import json
import sys
import time

import numpy as np

SHARES = (90, 95, 99)


def skew(counts, total):
    """The fewest hottest pages for each share of the writes."""
    taken = np.cumsum(np.sort(counts)[::-1])
    return {
        str(s): int(np.searchsorted(taken, -(-total * s // 100))) + 1 if total else 0
        for s in SHARES
    }


def seconds(window):
    return f"{window / 1e9:.9f}".rstrip("0").rstrip(".")


def running(flags):
    """How many of the first n are set, for n from 0."""
    return np.concatenate(([0], np.cumsum(flags)))


def sliding(times, ends, before, after, window):
    """`ends`: how many writes there are up to each one's time; `before` and `after`: times of its
    page's last and next write.
    """
    gone = np.searchsorted(times, times - window, "right")
    unique = running(times - before >= window)[ends] - running(after - times >= window)[gone]
    return int((ends - gone).max(initial=0)), int(unique.max(initial=0))


FAR = 1 << 62


def with_pandas(table, windows):
    import pandas as pd

    frame = pd.DataFrame(
        {"t": table[:, 0] - table[0, 0], "k": table[:, 1] | table[:, 2] << 51, "w": table[:, 3]},
        copy=False,
    )
    touched = len(pd.unique(frame["k"]))
    writes = frame[frame["w"] == 1]
    codes, pages = pd.factorize(writes["k"])
    times = writes["t"].to_numpy()
    grouped = pd.Series(times).groupby(codes, sort=False)
    before = grouped.shift(1, fill_value=-FAR).to_numpy()
    after = grouped.shift(-1, fill_value=FAR).to_numpy()
    ends = np.searchsorted(times, times, "right")
    worst = {}
    for window in windows:
        number = pd.Series(times // window)
        first = times // window != before // window
        worst[seconds(window)] = {
            "tumbling": {
                "adversarial_pages": int(number.value_counts(sort=False).max())
                if len(times)
                else 0,
                "unique_pages": int(number[first].value_counts(sort=False).max())
                if len(times)
                else 0,
            },
            "sliding": dict(
                zip(
                    ("adversarial_pages", "unique_pages"),
                    sliding(times, ends, before, after, window),
                )
            ),
        }
    counts = np.bincount(codes, minlength=len(pages))
    return figures(len(frame), touched, len(pages), len(times), worst, skew(counts, len(times)))


def with_polars(table, windows):
    import polars as pl

    frame = pl.DataFrame(
        {"t": table[:, 0] - table[0, 0], "k": table[:, 1] | table[:, 2] << 51, "w": table[:, 3]}
    )
    touched = frame["k"].n_unique()
    writes = frame.lazy().filter(pl.col("w") == 1).select("t", "k")
    writes = writes.with_row_index("row").collect()
    # By page, then by time: a page's neighbours are its rows above and below. Much faster than
    # `shift().over("k")`.
    by_page = (
        writes.lazy()
        .sort("k", "row")
        .with_columns(
            before=pl.when(pl.col("k") == pl.col("k").shift(1))
            .then(pl.col("t").shift(1))
            .otherwise(-FAR),
            after=pl.when(pl.col("k") == pl.col("k").shift(-1))
            .then(pl.col("t").shift(-1))
            .otherwise(FAR),
        )
    )
    writes = by_page.sort("row").collect()
    times, before, after = (writes[name].to_numpy() for name in ("t", "before", "after"))
    ends = np.searchsorted(times, times, "right")
    worst = {}
    for window in windows:
        number = (pl.col("t") // window).alias("number")
        tumbling = (
            writes.lazy()
            .group_by(number)
            .agg(
                pl.len().alias("all"),
                (pl.col("t") // window != pl.col("before") // window).sum().alias("unique"),
            )
            .select(pl.col("all").max(), pl.col("unique").max())
            .collect()
        )
        worst[seconds(window)] = {
            "tumbling": {
                "adversarial_pages": tumbling["all"][0] or 0,
                "unique_pages": tumbling["unique"][0] or 0,
            },
            "sliding": dict(
                zip(
                    ("adversarial_pages", "unique_pages"),
                    sliding(times, ends, before, after, window),
                )
            ),
        }
    counts = writes.lazy().group_by("k").len().collect()["len"].to_numpy()
    return figures(frame.height, touched, len(counts), len(times), worst, skew(counts, len(times)))


def figures(records, touched, written, writes, worst, skew_pages):
    return {
        "records": records,
        "touched_pages": touched,
        "written_pages": written,
        "page_writes": writes,
        "worst": worst,
        "skew_pages": skew_pages,
    }


def main():
    how = {"pandas": with_pandas, "polars": with_polars}[sys.argv[1]]
    table = np.fromfile(sys.argv[2], dtype="<i8").reshape(-1, 4)
    windows = [int(word) for word in sys.argv[4:]]
    for _ in range(int(sys.argv[3])):
        began = time.perf_counter()
        result = how(table, windows)
        print(json.dumps({"seconds": time.perf_counter() - began, "figures": result}), flush=True)


if __name__ == "__main__":
    main()
