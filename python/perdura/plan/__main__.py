"""``python -m perdura.plan``: the analysis of traces on Apache Spark."""

import argparse
import json
import os
import sys
from typing import Any, Dict, List, Optional

from perdura import __version__
from perdura.plan.settings import SHARES, WINDOWS


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m perdura.plan",
        description="How much is written in the worst interval, and how skewed writes are: the figures of `perdura plan trace`, "
        "to the last digit, for Parquet of any size, on Apache Spark. All paths are one trace; its records need no order.",
        epilog="Spark is as its own settings have it: run by spark-submit, or set --master. Workers need this package too.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="Parquet files, or directories of them; any path that Spark reads")
    parser.add_argument(
        "--columns",
        metavar="WORDS",
        help="which column is what, as in time=ts:us,offset=lba:512,size=bytes,op=rw,volume=disk "
        "[default: time_ns, volume, op, offset_bytes, len_bytes]",
    )
    parser.add_argument("--windows", metavar="TIMES", default=",".join(WINDOWS), help="intervals whose worst is looked for [default: %(default)s]")
    parser.add_argument(
        "--shares",
        metavar="PERCENTS",
        default=",".join(f"{share:g}" for share in SHARES),
        help="shares of all page writes, in percent [default: %(default)s]",
    )
    parser.add_argument("--volume-size", metavar="SIZE", help="size of each volume [default: what the trace touches of it]")
    parser.add_argument("--skip-bad", metavar="N", type=int, default=0, help="pass over this many records that cannot be counted [default: %(default)s]")
    parser.add_argument("--json", metavar="FILE", help="write all figures as JSON, to standard output with -")
    parser.add_argument("--master", metavar="URL", help="Spark's master, such as local[4] [default: as Spark is set]")
    return parser


def main(words: Optional[List[str]] = None) -> int:
    args = parser().parse_args(words)
    try:
        from pyspark.errors import AnalysisException
        from pyspark.sql import SparkSession
    except ImportError as error:
        print(f"perdura.plan: {error}; install it: pip install 'perdura[spark]'", file=sys.stderr)
        return 2
    from perdura.plan.columns import Columns
    from perdura.plan.settings import Settings
    from perdura.plan.spark import analyze

    try:
        windows = args.windows.split(",")
        shares = [_share(share) for share in args.shares.split(",")]
        # What is wrong with words is said before Spark is started.
        columns = Columns.of(args.columns)
        Settings.of(windows, shares, args.volume_size)
        if args.skip_bad < 0:
            raise ValueError(f"--skip-bad {args.skip_bad}: expected 0 or more")
        builder = SparkSession.builder.appName("perdura.plan")
        if args.master:
            builder = builder.master(args.master)
            if args.master.startswith("local"):
                # Workers on this machine are what we are: `python3` may be another, without this package.
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        was_there = SparkSession.getActiveSession() is not None
        spark = builder.getOrCreate()
        try:
            report = analyze(
                spark,
                args.paths,
                columns=columns,
                windows=windows,
                shares=shares,
                volume_size=args.volume_size,
                skip_bad=args.skip_bad,
            )
        finally:
            # A session of whoever calls us is theirs.
            if not was_there:
                spark.stop()
        if args.json:
            _write(args.json, report)
    except (ValueError, OSError) as error:
        print(f"perdura.plan: {error}", file=sys.stderr)
        return 1
    except AnalysisException as error:
        # A path that is not there, a file that is no Parquet: Spark says which.
        print(f"perdura.plan: {error}", file=sys.stderr)
        return 1
    if args.json != "-":
        _show(report)
    return 0


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--shares {text}: expected a percentage") from None


def _write(path: str, report: Dict[str, Any]) -> None:
    text = json.dumps({"version": __version__, "traces": [report]}, indent=2)
    if path == "-":
        print(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")


def _show(report: Dict[str, Any]) -> None:
    print(
        f"{report['trace']}: {report['records']} records in {report['duration_ns'] / 1e9:.1f} s, {report['touched_pages']} pages "
        f"touched, {report['written_pages']} written {report['page_writes']} times"
    )
    print(f"{'worst interval':>16} {'adversarial':>14} {'unique':>14}  pages of 4096 B (tumbling; sliding below)")
    for seconds, worst in report["worst"].items():
        for kind in ("tumbling", "sliding"):
            most = worst[kind]
            print(f"{seconds + ' s':>16} {most['adversarial_pages']:>14} {most['unique_pages']:>14}")
    for share, pages in report["skew_pages"].items():
        print(f"{share:>14} % of writes go to {pages} pages")
    if "verdict" in report:
        print(report["verdict"]["because"])


if __name__ == "__main__":
    sys.exit(main())
