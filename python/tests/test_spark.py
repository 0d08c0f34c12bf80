"""Tests of the analysis on Spark, with two executors of one core each, against one process."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession

import perdura.plan
from perdura.plan import spark as jobs
from perdura.plan.__main__ import main
from perdura.plan.spark import analyze
from traces import SCHEMA, TIMES, generate, table

WINDOWS = ("1s", "1m")


def by_volume(report):
    """A report without names, its volumes sorted by name.

    One process reports volumes in the order of the trace, Spark in the order of their names.
    """
    report["volumes"].sort(key=lambda volume: volume["volume"])
    return {key: value for key, value in report.items() if key not in ("trace", "files")}


class SparkAnalysis(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = SparkSession.builder.master("local-cluster[2,1,1024]").config(
            "spark.ui.enabled", "false"
        )
        cls.spark = settings.config("spark.ui.showConsoleProgress", "false").getOrCreate()
        cls.spark.sparkContext.setLogLevel("ERROR")
        cls.place = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.place.name)

    @classmethod
    def tearDownClass(cls):
        cls.spark.stop()
        cls.place.cleanup()

    def files(self, name, records, seed, count=3):
        """A directory with ``count`` files of one trace, whose records are in random order."""
        shuffled = list(records)
        random.Random(seed).shuffle(shuffled)
        (self.dir / name).mkdir()
        for number in range(count):
            parquet.write_table(
                table(shuffled[number::count]), self.dir / name / f"{number}.parquet"
            )
        return str(self.dir / name)

    def test_one_huge_volume_and_several_are_counted_as_in_one_process(self):
        # Ranges are 1 GiB: 100 of them are merged in two steps, and requests of up to 2 GiB lie in
        # several.
        traces = {
            "huge": generate(1, 3000, [("only", 100 << 30)], 30_000_000),
            "several": generate(2, 3000, [(f"v{n}", (n + 1) << 29) for n in range(20)], 30_000_000),
        }
        for name, records in traces.items():
            with self.subTest(name):
                path = self.files(name, records, 3)
                # Small slices, so that the trace is cut by time as a trace of thousands of millions
                # of records would be: windows reach over several slices.
                sliced = mock.patch.object(jobs, "SLICE_RECORDS", 200)
                with sliced, mock.patch.object(jobs, "_count", wraps=jobs._count) as count:
                    found = analyze(self.spark, [path], windows=WINDOWS, shares=(50, 90, 99.9))
                bounds_ns = count.call_args.args[3]
                self.assertEqual(len(bounds_ns), 14)
                expected = perdura.plan.analyze(
                    table(records), windows=WINDOWS, shares=(50, 90, 99.9)
                )
                self.assertEqual(by_volume(found), by_volume(expected))
                self.assertEqual(found["records"], len(records))

    def test_bad_records_are_named_with_their_file_or_counted(self):
        records = generate(4, 50, [("a", 1 << 22)], 30_000_000)
        bad = [
            {"time_ns": 5, "volume": "a", "op": 1, "offset_bytes": -7, "len_bytes": 1},
            {"time_ns": 5, "volume": "a", "op": 9, "offset_bytes": 7, "len_bytes": 1},
            {"time_ns": None, "volume": "a", "op": 1, "offset_bytes": 7, "len_bytes": 1},
            {"time_ns": 5, "volume": "a", "op": 1, "offset_bytes": 7, "len_bytes": 0},
            {
                "time_ns": 5,
                "volume": "a",
                "op": 1,
                "offset_bytes": 2**63 - 1,
                "len_bytes": 2**63 - 1,
            },
        ]
        path = self.dir / "bad.parquet"
        parquet.write_table(
            pa.concat_tables([table(records), pa.Table.from_pylist(bad, SCHEMA)]), path
        )
        with self.assertRaisesRegex(ValueError, r"bad\.parquet: .*offset_bytes -7.*5 such records"):
            analyze(self.spark, [str(path)], windows=WINDOWS, skip_bad=4)
        found = analyze(self.spark, [str(path)], windows=WINDOWS, skip_bad=5)
        expected = perdura.plan.analyze(table(records), windows=WINDOWS)
        self.assertEqual(by_volume(found), by_volume(expected))
        self.assertEqual(found["files"][0]["skipped_bad"], 5)

    def test_numbers_that_spark_would_bend_are_bad_records(self):
        good = generate(8, 40, [("a", 1 << 30)], 30_000_000)
        rows = [(float(r[0]), str(r[3]), r[4], r[2]) for r in good]
        # Spark's casts would make whole numbers of these values, or of most of them.
        bad = [(time, "0", 1, True) for time in (float("nan"), float("inf"), 1e30, -0.5)]
        bad += [
            (5.5, "0", 1, True),
            (5.0, "1.5", 1, True),
            (5.0, "x", 1, True),
            (5.0, "0", (32 << 30) + 1, True),
            (None, "0", 1, True),
        ]
        columns = [list(column) for column in zip(*rows, *bad)]
        path = self.dir / "a.parquet"
        parquet.write_table(pa.table(dict(zip(["t", "o", "n", "w"], columns))), path)
        words = "time=t:ns,offset=o,size=n,op=w:1"
        found = analyze(self.spark, [str(path)], columns=words, windows=WINDOWS, skip_bad=len(bad))
        self.assertEqual(found["files"][0]["skipped_bad"], len(bad))
        self.assertEqual(
            by_volume(found), by_volume(perdura.plan.analyze(table(good), windows=WINDOWS))
        )
        with self.assertRaisesRegex(
            ValueError, "column t is of type double; expected words or whole numbers"
        ):
            analyze(self.spark, [str(path)], columns="time=t:ns,offset=o,size=n,op=t:1")

    def test_times_as_text_and_volumes_are_taken_as_in_one_process(self):
        rows = [(text, 7, index) for index, (text, _, _) in enumerate(TIMES)]
        path = self.dir / "texts.parquet"
        kinds = [pa.string(), pa.binary()]
        columns = {
            f"t{at}": pa.array([row[0] for row in rows], kind) for at, kind in enumerate(kinds)
        }
        columns["v"] = pa.array([row[1] for row in rows], pa.uint64())
        odd = {
            "bool": pa.bool_(),
            "double": pa.float64(),
            "timestamp": pa.timestamp("us"),
            "decimal": pa.decimal128(12, 3),
        }
        columns.update({name: pa.array([None] * len(rows), kind) for name, kind in odd.items()})
        columns["o"] = [row[2] for row in rows]
        parquet.write_table(pa.table(columns), path)
        frame = self.spark.read.parquet(str(path))
        for time in ("t0", "t1"):
            for unit in ("s", "us", "100ns", "ns"):
                words = f"time={time}:{unit},offset=o,size=*1,op=*w,volume=v"
                found = jobs._rows(frame, perdura.plan.Columns.of(words)).collect()
                taken = {row["offset_bytes"]: row["time_ns"] for row in found}
                for index, (text, of, time_ns) in enumerate(TIMES):
                    if of == unit:
                        self.assertEqual(taken[index], time_ns, (text, unit))
                self.assertEqual({row["volume"] for row in found}, {"7"})
        for name in odd:
            with self.assertRaisesRegex(
                ValueError,
                f"column {name} is of type .*; expected volumes as text or whole numbers",
            ):
                jobs._rows(
                    frame,
                    perdura.plan.Columns.of(f"time=t0:s,offset=o,size=*1,op=*w,volume={name}"),
                )
        with self.assertRaisesRegex(ValueError, r"column decimal is of type decimal\(12,3\)"):
            jobs._rows(frame, perdura.plan.Columns.of("time=decimal:s,offset=o,size=*1,op=*w"))

    def test_what_spark_fails_of_is_said_in_one_line_with_its_file(self):
        path = self.dir / "text.parquet"
        path.write_text("no table\n")
        nanos = self.dir / "nanos.parquet"
        parquet.write_table(pa.table({"time_ns": pa.array([1], pa.timestamp("ns", "UTC"))}), nanos)
        for words, said in [
            ([str(path)], "text.parquet"),
            ([str(nanos)], "nanos.parquet: there are times of type TIMESTAMP\\(NANOS\\)"),
            ([str(self.dir / "none.parquet")], "none.parquet"),
            (
                [str(path), "--json", str(self.dir / "no" / "x.json")],
                "--json .*x.json: No such file",
            ),
        ]:
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()) as told:
                self.assertEqual(main(words), 1)
                self.assertRegex(told.getvalue(), said)
                self.assertEqual(told.getvalue().count("\n"), 1, told.getvalue())

    def test_columns_of_others_and_sizes_of_volumes_are_understood(self):
        records = [
            (r[0] // 1000 * 1000, r[1], r[2], r[3] // 512 * 512, 4096)
            for r in generate(6, 500, [("a", 1 << 32)], 30_000_000)
        ]
        path = self.dir / "others.parquet"
        others = {
            "ts": pa.array([r[0] / 1000 for r in records], pa.float64()),
            "lba": pa.array([r[3] // 512 for r in records], pa.uint64()),
            "rw": ["Write" if r[2] else "Read" for r in records],
        }
        parquet.write_table(pa.table(others), path)
        words = "time=ts:us,offset=lba:512,size=*4096,op=rw"
        found = analyze(self.spark, [str(path)], columns=words, windows=WINDOWS, volume_size="8GiB")
        renamed = [(r[0], "others", *r[2:]) for r in records]
        expected = perdura.plan.analyze(table(renamed), windows=WINDOWS, volume_size="8GiB")
        self.assertEqual(by_volume(found), by_volume(expected))
        with self.assertRaisesRegex(
            ValueError, "there is no column time_ns; there are: ts, lba, rw"
        ):
            analyze(self.spark, [str(path)])

    def test_the_command_writes_what_perdura_plan_trace_writes(self):
        path = self.dir / "trace.parquet"
        parquet.write_table(
            table(generate(7, 1000, [("a", 3 << 30), ("b", 1 << 20)], 30_000_000)), path
        )
        words = ["--windows", "1s,1m", "--json"]
        spark, one = self.dir / "spark.json", self.dir / "one.json"
        with contextlib.redirect_stdout(io.StringIO()) as told:
            # The command takes the session that is there, because starting one is slow.
            self.assertEqual(main([str(path), *words, str(spark)]), 0)
        self.assertIn("1000 records", told.getvalue())
        binary = [
            os.environ["PERDURA"],
            "plan",
            "trace",
            str(path),
            "--no-sizing",
            *words,
            str(one),
        ]
        done = subprocess.run(binary, capture_output=True, text=True)
        # A program that was built alone has fewer features than one of the whole workspace.
        if "which this build cannot read" in done.stderr and "CI" not in os.environ:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)
        spark, one = (json.loads(file.read_text()) for file in (spark, one))
        self.assertEqual(spark["version"], one["version"])
        [spark], [one] = spark["traces"], one["traces"]
        self.assertEqual(spark["files"], one["files"])
        self.assertEqual(by_volume(spark), by_volume(one))


class Command(unittest.TestCase):
    def run_module(self, *words):
        return subprocess.run(
            [sys.executable, "-m", "perdura.plan", *words], capture_output=True, text=True
        )

    def test_help_names_every_option_and_wrong_words_are_refused_before_spark_starts(self):
        told = self.run_module("--help").stdout
        for option in (
            "--columns",
            "--windows",
            "--shares",
            "--volume-size",
            "--skip-bad",
            "--json",
            "--master",
        ):
            self.assertIn(option, told)
        for words, said in [
            (("--windows", "tomorrow"), "window tomorrow"),
            (("--shares", "101"), "101"),
            (("--columns", "time=ts"), "must name offset once"),
            (("--volume-size", "much"), "volume_size much"),
            (("--skip-bad", "-1"), "--skip-bad -1"),
        ]:
            done = self.run_module("/nowhere", *words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
