"""``python -m perdura.plan``: the analysis of traces on Apache Spark."""

import argparse
import json
import os
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional

from perdura import __version__
from perdura.plan.settings import SHARES, WINDOWS


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m perdura.plan",
        description="Count how much is written in the worst interval, and how skewed the writes "
        "are. Runs on Apache Spark over Parquet files of any size, and gives the figures of "
        "`perdura plan trace` to the last digit. All paths are one trace; its records need no "
        "order.",
        epilog="Spark takes its own settings: start this command with spark-submit, or give "
        "--master. The workers need this package too.",
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="Parquet files, or directories of them; any path that Spark reads",
    )
    parser.add_argument(
        "--columns",
        metavar="WORDS",
        help="the columns of the table and their units, as in "
        "time=ts:us,offset=lba:512,size=bytes,op=rw,volume=disk "
        "[default: time_ns, volume, op, offset_bytes, len_bytes]",
    )
    parser.add_argument(
        "--windows",
        metavar="TIMES",
        default=",".join(WINDOWS),
        help="lengths of the intervals; the worst interval of each length is found "
        "[default: %(default)s]",
    )
    parser.add_argument(
        "--shares",
        metavar="PERCENTS",
        default=",".join(f"{share:g}" for share in SHARES),
        help="shares of all page writes, in percent; 99 is always added, because the verdict on "
        "skew needs it [default: %(default)s]",
    )
    parser.add_argument(
        "--volume-size",
        metavar="SIZE",
        help="size of each volume, as in 1TB [default: the pages of it that the trace touches]",
    )
    parser.add_argument(
        "--skip-bad",
        metavar="N",
        type=int,
        default=0,
        help="skip up to this many records that cannot be counted [default: %(default)s]",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write all figures as JSON; - writes to standard output"
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master, such as local[4] [default: Spark's own setting]",
    )
    return parser


def main(words: Optional[List[str]] = None) -> int:
    """Runs the command and returns its exit code.

    ``words`` are the arguments; ``None`` takes those of the process. The code is 0 on success, 1
    where the trace or an option is wrong, and 2 where Spark is not installed.
    """
    args = parser().parse_args(words)
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
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
        # Wrong options are reported before Spark is started.
        columns = Columns.of(args.columns)
        Settings.of(windows, shares, args.volume_size)
        if args.skip_bad < 0:
            raise ValueError(f"--skip-bad {args.skip_bad}: expected 0 or more")
        if args.json not in (None, "-"):
            _named(args.json, _try_out)
        builder = SparkSession.builder.appName("perdura.plan")
        if args.master:
            builder = builder.master(args.master)
            if args.master.startswith("local"):
                # Workers on this machine run this interpreter: Spark's default, `python3`, may be
                # another one that lacks this package.
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
            # A session that the caller has made stays open.
            if not was_there:
                spark.stop()
        # The figures are shown first, so that they are not lost if the file cannot be written.
        if args.json != "-":
            _show(report)
        if args.json == "-":
            print(_text(report), end="")
        elif args.json:
            _named(args.json, lambda path: _write(path, _text(report)))
    except (ValueError, OSError) as error:
        print(f"perdura.plan: {error}", file=sys.stderr)
        return 1
    except (PySparkException, Py4JError) as error:
        # A path that does not exist, a damaged file, or a worker without this package.
        print(f"perdura.plan: Spark: {_cause(error)}", file=sys.stderr)
        return 1
    return 0


def _cause(error: Exception) -> str:
    """The cause of Spark's failure in one line; Spark's log has the stacks of both languages."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    said = []
    while java is not None:
        said.append((java.getMessage() or java.toString()).split("\n", 1)[0])
        java = java.getCause()
    if said:
        # Spark's own errors begin with a bracket and name the file. The last cause says what is
        # wrong with the file.
        own = [text for text in said if text.startswith("[")]
        return ": ".join(dict.fromkeys(own[-1:] + said[-1:]))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A worker's traceback ends with the exception.
    raised = [line for line in lines if line.split(":", 1)[0].endswith("Error")]
    return (raised[-1:] or lines[:1] or [type(error).__name__])[0]


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--shares {text}: expected a percentage") from None


def _named(path: str, step: Callable[[str], None]) -> None:
    try:
        step(path)
    except OSError as error:
        raise ValueError(f"--json {path}: {error.strerror}") from error


def _text(report: Dict[str, Any]) -> str:
    return json.dumps({"version": __version__, "traces": [report]}, indent=2) + "\n"


def _try_out(path: str) -> None:
    """Refuses a path that cannot be written, before the work begins."""
    if os.path.exists(path):
        with open(path, "a", encoding="utf-8"):
            return
    with tempfile.TemporaryFile(dir=os.path.dirname(path) or "."):
        return


def _write(path: str, text: str) -> None:
    """Replaces a file as a whole: the old contents stay until all is written."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    path = os.path.realpath(path)
    mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o666 & ~_umask()
    number, new = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".perdura-")
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(new, mode)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _show(report: Dict[str, Any]) -> None:
    print(report["verdict"]["sentence"])
    print(
        f"{report['trace']}: {report['records']} records in {report['duration_ns'] / 1e9:.1f} s, "
        f"{report['touched_pages']} pages touched, {report['written_pages']} written "
        f"{report['page_writes']} times"
    )
    print(
        f"{'worst interval':>16} {'adversarial':>14} {'unique':>14}  pages of 4096 B (tumbling; "
        "sliding below)"
    )
    for seconds, worst in report["worst"].items():
        for kind in ("tumbling", "sliding"):
            most = worst[kind]
            print(
                f"{seconds + ' s':>16} {most['adversarial_pages']:>14} {most['unique_pages']:>14}"
            )
    for share, pages in report["skew_pages"].items():
        print(f"{share:>14} % of writes go to {pages} pages")
    print(report["verdict"]["because"])


if __name__ == "__main__":
    sys.exit(main())
