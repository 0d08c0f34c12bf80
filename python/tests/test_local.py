"""Tests of ``perdura.plan.analyze``, which counts in one process."""

import unittest

import numpy as np
import polars
import pyarrow as pa

import perdura.plan
from perdura.plan import local
from traces import TIMES, generate, naive, table

WINDOWS = ("1s", "7s")


def analyze(data, **words):
    return perdura.plan.analyze(data, windows=WINDOWS, **words)


class LocalAnalysis(unittest.TestCase):
    def test_figures_are_those_of_a_naive_count(self):
        for seed in range(3):
            records = [
                (time_ns, name, is_write, offset, min(length, 100_000))
                for time_ns, name, is_write, offset, length in generate(
                    seed, 400, [("a", 1 << 22), ("b", 1 << 24)], 100_000_000
                )
            ]
            found = analyze(table(records))
            expected = naive(records, (1, 7), (90, 95, 99))
            self.assertEqual({key: found[key] for key in expected}, expected, f"seed {seed}")
            for volume in found["volumes"]:
                own = [record for record in records if record[1] == volume["volume"]]
                expected = naive(own, (1, 7), (90, 95, 99))
                # The windows of a volume begin with the trace, and here with the volume's first
                # record, so worst windows may differ.
                expected.pop("worst")
                self.assertEqual({key: volume[key] for key in expected}, expected, f"seed {seed}")

    def test_arrays_frames_and_other_columns_give_the_same(self):
        records = generate(5, 2000, [("a", 1 << 30)], 10_000_000)
        whole = table(records)
        expected = analyze(whole)
        arrays = {name: whole.column(name).to_numpy() for name in whole.schema.names}
        arrays["volume"] = np.array(arrays["volume"], dtype=object)
        self.assertEqual(analyze(arrays), expected)
        self.assertEqual(analyze(whole.to_pandas()), expected)
        self.assertEqual(analyze(polars.from_arrow(whole)), expected)
        sliced = pa.concat_tables([whole.slice(0, 777), whole.slice(777)]).slice(0, 2000)
        self.assertEqual(analyze(sliced), expected)
        other = pa.table(
            {
                "ts": pa.array([record[0] // 1000 for record in records]),
                "rw": ["Write" if record[2] else "r" for record in records],
                "disk": pa.array([record[1] for record in records]).dictionary_encode(),
                "lba": pa.array([record[3] // 512 for record in records], pa.uint32()),
                "n": [record[4] for record in records],
            }
        )
        words = "time=ts:us,offset=lba:512,size=n,op=rw,volume=disk"
        rounded = [(r[0] // 1000 * 1000, r[1], r[2], r[3] // 512 * 512, r[4]) for r in records]
        self.assertEqual(analyze(other, columns=words), analyze(table(rounded)))

    def test_types_that_mean_the_same_are_counted_alike(self):
        expected = analyze(table([(1500, "a", True, 0, 1), (2500, "a", False, 4096, 1)]))
        # These are all accepted: a category that no row has, words as bytes, times as text, and a
        # table without volumes.
        ops = pa.DictionaryArray.from_arrays(pa.array([0, 1]), ["write", "Read", "flush"])
        for change in [
            {"op": ops},
            {"op": [b"w", b"r"]},
            {"volume": [b"a", b"a"]},
            {"t": ["1.5", "2.5"]},
        ]:
            columns = {
                "t": [1.5, 2.5],
                "volume": ["a", "a"],
                "op": ["w", "r"],
                "offset_bytes": [0, 4096],
                "len_bytes": [1, 1],
            }
            words = "time=t:us,offset=offset_bytes,size=len_bytes,op=op,volume=volume"
            with self.subTest(change):
                self.assertEqual(analyze({**columns, **change}, columns=words), expected)
        with self.assertRaisesRegex(ValueError, "1.5 has a part of a nanosecond"):
            analyze(columns, columns=words.replace(":us", ":ns"))
        # A timestamp has its own unit, whatever unit is given.
        stamped = {**columns, "t": pa.array([1500, 2500], pa.timestamp("ns"))}
        for unit in ("", ":s"):
            self.assertEqual(analyze(stamped, columns=words.replace(":us", unit)), expected)
        # The share of 99 % is always added, because skew is judged by it.
        self.assertEqual(
            list(analyze(stamped, columns=words, shares=(50,))["skew_pages"]), ["50", "99"]
        )
        alone = {
            "Time_ns": [1500, 2500],
            "op": [1, 0],
            "offset_bytes": [0, 4096],
            "len_bytes": [1, 1],
        }
        self.assertEqual(analyze(alone, name="a")["volumes"], expected["volumes"])

    def test_times_as_text_are_cut_to_nanoseconds_and_nothing_but_digits_is_taken(self):
        for text, unit, time_ns in TIMES:
            data = {"t": [text], "o": [0], "n": [1]}
            for kind in (pa.string(), pa.large_string(), pa.binary()):
                with self.subTest(text=text, unit=unit, kind=kind):
                    batch = pa.record_batch([pa.array([text], kind)], ["t"])
                    columns = perdura.plan.Columns.of(f"time=t:{unit},offset=o,size=n,op=*w")
                    if time_ns is None:
                        with self.assertRaisesRegex(ValueError, "column t"):
                            local._times(batch.column(0), columns, 0)
                    else:
                        self.assertEqual(
                            local._times(batch.column(0), columns, 0).to_pylist(), [time_ns]
                        )
        with self.assertRaisesRegex(ValueError, r"column t is of type decimal128\(12, 3\)"):
            analyze(
                {**data, "t": pa.array([1], pa.decimal128(12, 3))},
                columns="time=t:s,offset=o,size=n,op=*w",
            )

    def test_volumes_are_text_or_whole_numbers(self):
        others = {"time_ns": [5, 6], "op": [1, 0], "offset_bytes": [0, 1], "len_bytes": [1, 1]}
        named = [
            volume["volume"] for volume in analyze({**others, "volume": ["7", "8"]})["volumes"]
        ]
        texts = pa.array(["7", "8"])
        alike = [
            pa.array([7, 8], pa.uint64()),
            pa.array([7, 8], pa.int16()),
            texts.cast(pa.binary()),
        ]
        alike += [texts.dictionary_encode(), texts.cast(pa.binary()).dictionary_encode()]
        for values in alike:
            with self.subTest(values.type):
                found = analyze(pa.table({**others, "volume": values}))
                self.assertEqual([volume["volume"] for volume in found["volumes"]], named)
        for values in (
            [True, False],
            [1.0, 2.0],
            pa.array([1, 2], pa.timestamp("us")),
            pa.array([1, 2], pa.decimal128(12, 3)),
        ):
            with (
                self.subTest(values),
                self.assertRaisesRegex(ValueError, "column volume is of type .*; expected volumes"),
            ):
                analyze({**others, "volume": values})
        with self.assertRaisesRegex(ValueError, "column volume, row 1: -8 is below 0"):
            analyze({**others, "volume": [7, -8]})

    def test_what_is_wrong_is_named_with_row_column_and_value(self):
        good = {
            "time_ns": [5, 6],
            "volume": ["a", "a"],
            "op": [1, 0],
            "offset_bytes": [0, 1],
            "len_bytes": [1, 1],
        }
        analyze(good)
        for change, said in [
            ({"offset_bytes": [0, -1]}, "row 1: column offset_bytes: -1 is below 0"),
            ({"len_bytes": [1, 0]}, "row 1: "),
            ({"time_ns": [6, 5]}, "row 1: "),
            ({"op": [1, 2]}, "row 1: 2 is neither read nor write"),
            ({"op": ["write", "flush"]}, "row 1: 'flush' is neither read nor write"),
            ({"volume": ["a", None]}, "column volume, row 1: there is no value"),
            (
                {"volume": pa.DictionaryArray.from_arrays(pa.array([0, 1]), ["a", None])},
                "column volume, row 1: there is no value",
            ),
            ({"op": [1.0, 0.0]}, "row 0: 1.0 is neither read nor write"),
            ({"len_bytes": [1.5, 1]}, "column len_bytes"),
            ({"len_bytes": [1, (32 << 30) + 1]}, "row 1: an access of 34359738369 bytes"),
            ({"time_ns": [5.0, float("nan")]}, "column time_ns"),
            ({"offset_bytes": [0, 2**63 - 1], "len_bytes": [1, 2]}, "row 1: "),
        ]:
            with self.subTest(change), self.assertRaises(ValueError) as raised:
                analyze({**good, **change})
            self.assertIn(said, str(raised.exception))
        with self.assertRaisesRegex(ValueError, "column time_ns does not say what unit"):
            analyze(good, columns="time=time_ns,offset=offset_bytes,size=len_bytes,op=op:1")
        del good["len_bytes"]
        with self.assertRaisesRegex(
            ValueError, "there is no column len_bytes; there are: time_ns, volume, op"
        ):
            analyze(good)
        with self.assertRaisesRegex(ValueError, "window tomorrow"):
            perdura.plan.analyze(good, windows=("tomorrow",))
        with self.assertRaisesRegex(ValueError, "volume_size -1"):
            perdura.plan.analyze(good, volume_size=-1)
        with self.assertRaisesRegex(ValueError, "2 columns op"):
            analyze(pa.table([[5]] * 5, names=["time_ns", "op", "op", "offset_bytes", "len_bytes"]))
        with self.assertRaisesRegex(TypeError, "str is no table"):
            analyze("trace.parquet")
        with self.assertRaisesRegex(ValueError, "no record"):
            analyze(table([(1, "a", True, 0, 1)]).slice(1))


if __name__ == "__main__":
    unittest.main()
