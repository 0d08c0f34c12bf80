"""The analysis on Apache Spark, over Parquet of any size.

Requests are cut where ranges of pages end (1 GiB), so that one huge volume is split too. The pieces
of a range come to one worker, in the order of time, and the native library counts them there. The
result is a *part*: counts, with a sum for each instant, so that parts merge exactly. Parts of
ranges are merged to parts of volumes, a few at a time, and parts of volumes to the part of all.

The sums by instant are cut into slices of time. Slices of the same time are merged, and then joined
one after another, so that no message between workers grows with the trace. No stage needs all
records in one place, and files need no order: Spark sorts the records.
"""

import itertools
import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from perdura import _native
from perdura.plan.columns import END_MAX, READS, WRITES, Columns, text_of_time
from perdura.plan.settings import SHARES, WINDOWS, Settings

#: How many parts are merged at once.
MERGE = 16
#: About how many records a slice of time has. A record takes about 11 bytes if all times differ.
SLICE_RECORDS = 1_000_000
#: The largest number of slices: Spark's quantiles are not finer.
SLICES_MAX = 10_000
#: About how many records a task counts. Starting a task costs some tenths of a second.
TASK_RECORDS = 4_000_000

#: The columns of a table of parts: the volume's name, the range's number, the slice's number
#: (``_native.REST`` for a part without its slices), and the part's bytes.
PARTS = T.StructType(
    [
        T.StructField("volume", T.StringType()),
        T.StructField("range", T.LongType()),
        T.StructField("slice", T.LongType()),
        T.StructField("part", T.BinaryType()),
    ]
)
PARTS_ARROW = pa.schema(
    [("volume", pa.string()), ("range", pa.int64()), ("slice", pa.int64()), ("part", pa.binary())]
)


def analyze(
    spark: SparkSession,
    paths: Sequence[str],
    *,
    columns: Union[str, Columns, None] = None,
    windows: Sequence[str] = WINDOWS,
    shares: Sequence[float] = SHARES,
    volume_size: Union[str, int, None] = None,
    skip_bad: int = 0,
    name: Optional[str] = None,
) -> Dict[str, Any]:
    """The figures of a trace, as the dict that ``perdura plan trace --json`` writes for one trace.

    ``paths`` are Parquet files, or directories of them; together they are one trace, in any order.
    ``columns``, ``windows``, ``shares`` and ``volume_size`` are those of ``perdura.plan.analyze``.
    Up to ``skip_bad`` records that cannot be counted are skipped, and their number is reported.
    ``name`` is the name of the trace; ``None`` takes the paths.

    A ``ValueError`` names a wrong setting, or a bad record with its file. Spark's own errors pass
    through.
    """
    settings = Settings.of(windows, shares, volume_size)
    chosen = columns if isinstance(columns, Columns) else Columns.of(columns)
    rows = _rows(_read(spark, paths), chosen)
    trace = _survey(rows, paths, skip_bad)
    tasks = max(spark.sparkContext.defaultParallelism, -(-trace.records // TASK_RECORDS))
    good = rows.where(~F.col("is_bad"))
    bounds_ns = _bounds_ns(good, trace)
    parts = _count(good, settings, trace.first_ns, bounds_ns, tasks).persist()
    try:
        volumes, whole = _merge(parts, tasks)
    finally:
        parts.unpersist()
    files = [(path, trace.bad if at == 0 else 0, trace.first_bad) for at, path in enumerate(paths)]
    report = settings.report(name or ", ".join(paths), files, volumes, whole)
    return json.loads(report)


def _read(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    try:
        return spark.read.parquet(*paths)
    except AnalysisException as error:
        if "TIMESTAMP(NANOS" in str(error):
            raise ValueError(
                f"{', '.join(paths)}: there are times of type TIMESTAMP(NANOS), which Spark does "
                "not read; store them as 64-bit integers "
                "of nanoseconds or as timestamps of microseconds (pyarrow: "
                "coerce_timestamps='us'), or set "
                "spark.sql.legacy.parquet.nanosAsLong=true"
            ) from error
        raise


#: The types of whole numbers. A number with decimals is never rounded: its record is bad.
WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)
FLOATS = (T.FloatType, T.DoubleType)


def _whole(value: Column, of: T.DataType, unit: int, name: str) -> Column:
    """The values of a column, each multiplied by ``unit``.

    A value that is not a whole number, or does not fit, becomes null, and its record is bad.
    """
    if isinstance(of, T.StringType):
        value = F.when(value.rlike(r"^-?[0-9]+\z"), value)
    elif isinstance(of, (T.DecimalType, *FLOATS)):
        value = F.when(value == F.floor(value), value)
    elif not isinstance(of, WHOLE):
        raise ValueError(f"column {name} is of type {of.simpleString()}; expected whole numbers")
    wide = value.try_cast("decimal(20,0)") * F.lit(unit).cast("decimal(18,0)")
    return wide.try_cast("bigint")


def _time(value: Column, of: T.DataType, columns: Columns, name: str) -> Column:
    """A time in nanoseconds; null where it does not fit. A timestamp's own unit is taken."""
    if isinstance(of, T.TimestampType):
        return F.try_multiply(F.unix_micros(value), F.lit(1000))
    if isinstance(of, (T.TimestampNTZType, T.DateType)):
        raise ValueError(
            f"column {name} is of type {of.simpleString()}; give times as numbers, or as UTC "
            "timestamps"
        )
    unit = columns.unit_of_time()
    if isinstance(of, FLOATS):
        scaled = value.cast("double") * F.lit(float(unit))
        # Spark casts NaN to 0, and a number that is too large to the largest integer; both are
        # refused here. Spark orders NaN above all numbers.
        fits = (scaled >= F.lit(0.0)) & (scaled < F.lit(2.0**63))
        if unit == 1:
            # A part of a nanosecond is nearly always another unit.
            fits = fits & (scaled == F.floor(scaled).cast("double"))
        return F.when(fits, F.floor(scaled)).cast("bigint")
    if isinstance(of, (T.StringType, T.BinaryType)):
        return _read_time(_text(value, of), unit)
    if isinstance(of, T.DecimalType) and of.scale > 0:
        raise ValueError(
            f"column {name} is of type {of.simpleString()}; give times as numbers, as text or as "
            "timestamps"
        )
    return _whole(value, of, unit, name)


def _read_time(value: Column, unit: int) -> Column:
    """The nanoseconds of a time that is text, read digit by digit, because a cast would round.

    Decimals below a nanosecond are cut off.
    """
    pattern, digits = text_of_time(unit)
    # Java's $ also matches before a line's end; \z does not.
    pattern = rf"^{pattern}\z"
    # The digits before the point may be missing.
    whole = F.concat(F.lit("0"), F.regexp_extract(value, r"^[0-9]+", 0))
    decimals = F.rpad(F.regexp_extract(value, r"\.([0-9]*)", 1), digits, "0")
    return F.when(value.rlike(pattern), F.concat(whole, decimals).try_cast("bigint"))


def _volume(value: Column, of: T.DataType, name: str) -> Column:
    """The name of a volume: text, or a whole number from 0.

    Values of other types are refused, because they can be written in several ways.
    """
    if isinstance(of, (T.StringType, T.BinaryType)):
        return _text(value, of)
    # Spark has no unsigned integers of 64 bits: it reads a column of them as decimal(20, 0).
    is_unsigned = isinstance(of, T.DecimalType) and (of.precision, of.scale) == (20, 0)
    if not is_unsigned and not isinstance(of, (T.ByteType, T.ShortType, T.IntegerType, T.LongType)):
        raise ValueError(
            f"column {name} is of type {of.simpleString()}; expected volumes as text or whole "
            "numbers"
        )
    return F.when(value >= 0, value.cast("string"))


def _text(value: Column, of: T.DataType) -> Column:
    """The text of a value; null where bytes are not UTF-8."""
    text = value.cast("string")
    if isinstance(of, T.BinaryType):
        return F.when(F.encode(text, "UTF-8") == value, text)
    return text


def _rows(table: DataFrame, columns: Columns) -> DataFrame:
    """The records in one form.

    Each has its file (``file``), its values as text (``stood``), and whether it cannot be counted
    (``is_bad``).
    """
    names = table.columns

    def at(chosen: Union[str, int]) -> Tuple[Column, T.DataType, str]:
        name = names[columns.place(chosen, names)]
        return F.col("`" + name.replace("`", "``") + "`"), table.schema[name].dataType, name

    time, offset = at(columns.time), at(columns.offset)
    stood = {"time": time, "offset": offset}
    if columns.size is None:
        len_bytes = F.lit(columns.size_bytes).cast("bigint")
    else:
        stood["size"] = at(columns.size)
        value, of, name = stood["size"]
        len_bytes = _whole(value, of, columns.size_unit_bytes, name)
    if columns.op is None:
        is_write = F.lit(columns.all_write)
    else:
        stood["op"] = at(columns.op)
        value, of, _ = stood["op"]
        is_write = _is_write(value, columns, of)
    if columns.has_volume(names):
        stood["volume"] = at(columns.volume)
        volume = _volume(*stood["volume"])
    else:
        # The volume has the file's name without its extension.
        volume = F.regexp_replace(F.col("_metadata.file_name"), r"(?<=.)\.[^.]*$", "")
    said = [
        F.concat(F.lit(name + " "), F.coalesce(value.cast("string"), F.lit("without a value")))
        for value, _, name in stood.values()
    ]
    rows = table.select(
        F.col("_metadata.file_path").alias("file"),
        F.concat_ws(", ", *said).alias("stood"),
        _time(time[0], time[1], columns, time[2]).alias("time_ns"),
        volume.alias("volume"),
        is_write.alias("is_write"),
        _whole(offset[0], offset[1], columns.offset_unit_bytes, offset[2]).alias("offset_bytes"),
        len_bytes.alias("len_bytes"),
    )
    return rows.withColumn("is_bad", _is_bad())


def _is_write(op: Column, columns: Columns, of: T.DataType) -> Column:
    """Whether an operation writes, decided as ``Columns.is_write`` decides it."""
    if isinstance(of, T.BinaryType):
        op = _text(op, of)
    elif not isinstance(of, (*WHOLE, T.StringType)):
        raise ValueError(
            f"column {columns.op} is of type {of.simpleString()}; expected words or whole numbers"
        )
    elif not isinstance(of, T.StringType):
        number = (
            op.cast("int").cast("string") if isinstance(of, T.BooleanType) else op.cast("string")
        )
        if columns.write_value is not None:
            return number == columns.write_value
        if columns.has_own_ops:
            return F.when(number == "1", True).when(number == "0", False)
        return F.lit(None).cast("boolean")
    word = F.lower(op)
    meant = F.when(word.isin(*WRITES), True).when(word.isin(*READS), False)
    if columns.write_value is None:
        return meant
    return F.when(op == columns.write_value, True).otherwise(
        F.coalesce(meant, F.when(op.isNotNull(), False))
    )


def _is_bad() -> Column:
    offset, size = F.col("offset_bytes"), F.col("len_bytes")
    missing = [F.col(name).isNull() for name in ("time_ns", "volume", "is_write")]
    bad = missing[0] | missing[1] | missing[2] | (F.col("time_ns") < 0) | (offset < 0) | (size <= 0)
    is_long = (F.greatest(size, F.lit(1)) - F.lit(1) > _room()) | (
        size > F.lit(_native.ACCESS_BYTES_MAX)
    )
    return F.coalesce(bad | is_long, F.lit(True))


# Spark fails where a sum overflows, even in a record that is bad and not counted. So the sums below
# fit for every record.


def _room() -> Column:
    """How many bytes may follow the first byte of an access."""
    return F.lit(END_MAX) - F.greatest(F.col("offset_bytes"), F.lit(0))


def _first_page() -> Column:
    return F.shiftright(F.col("offset_bytes"), 12)


def _last_page() -> Column:
    behind = F.least(F.greatest(F.col("len_bytes"), F.lit(1)) - F.lit(1), _room())
    return F.shiftright(F.col("offset_bytes") + behind, 12)


@dataclass(frozen=True)
class Survey:
    """The result of one pass over all records."""

    #: How many records can be counted.
    records: int
    #: The time of the first of them in nanoseconds.
    first_ns: int
    #: How many records cannot be counted.
    bad: int
    #: A description of one bad record, if there is one.
    first_bad: List[str]


def _survey(rows: DataFrame, paths: Sequence[str], skip_bad: int) -> Survey:
    good_time = F.when(~F.col("is_bad"), F.col("time_ns"))
    bad_row = F.when(F.col("is_bad"), F.struct("file", "stood"))
    found = rows.agg(
        F.min(good_time).alias("first_ns"),
        F.count(F.when(F.col("is_bad"), 1)).alias("bad"),
        F.count(good_time).alias("records"),
        F.first(bad_row, ignorenulls=True).alias("example"),
    ).first()
    first_bad = []
    if found["bad"]:
        first_bad = [_said(found["example"])]
    if found["bad"] > skip_bad:
        more = f" ({found['bad']} such records; --skip-bad passes over them)"
        raise ValueError(first_bad[0] + more)
    if found["first_ns"] is None:
        raise ValueError(
            f"{', '.join(paths)}: no record of an access is in there; is it the right table?"
        )
    return Survey(found["records"], found["first_ns"], found["bad"], first_bad)


def _said(example: Any) -> str:
    return (
        f"{example['file']}: a record that cannot be counted: {example['stood']}; expected a "
        "volume, a time and an offset from 0 on, "
        f"a size above 0 (up to {_native.ACCESS_BYTES_MAX} bytes) that ends below 2^63, and read "
        "or write"
    )


def _bounds_ns(rows: DataFrame, trace: Survey) -> List[int]:
    """The times, in nanoseconds since the first record, at which the trace is cut into slices.

    The slices have about ``SLICE_RECORDS`` records each.
    """
    slices = min(-(-trace.records // SLICE_RECORDS), SLICES_MAX)
    if slices < 2:
        return []
    shares = [number / slices for number in range(1, slices)]
    times = rows.agg(F.percentile_approx("time_ns", shares, 4 * SLICES_MAX).alias("times")).first()[
        "times"
    ]
    return sorted({time_ns - trace.first_ns for time_ns in times})


def _count(
    rows: DataFrame, settings: Settings, first_ns: int, bounds_ns: List[int], tasks: int
) -> DataFrame:
    """Counts each range of pages of each volume: its part and the part's slices.

    ``first_ns`` is the time of the first record; ``bounds_ns`` are times since then.
    """
    last_of_range = F.shiftleft(F.col("range") + F.lit(1), RANGE_BITS) - F.lit(1)
    first_of_range = F.shiftleft(F.col("range"), RANGE_BITS)
    requests = rows.select(
        "volume",
        "time_ns",
        "is_write",
        _first_page().alias("from_page"),
        _last_page().alias("to_page"),
    )
    ranges = F.sequence(
        F.shiftright(F.col("from_page"), RANGE_BITS), F.shiftright(F.col("to_page"), RANGE_BITS)
    )
    cut = requests.withColumn("range", F.explode(ranges))
    first_page = F.greatest(F.col("from_page"), first_of_range)
    pieces = cut.select(
        "volume",
        "range",
        "time_ns",
        first_page.alias("first_page"),
        (F.least(F.col("to_page"), last_of_range) - first_page + F.lit(1)).alias("pages"),
        "is_write",
        (F.col("from_page") >= first_of_range).alias("is_first"),
    )
    together = pieces.repartition(tasks, "volume", "range")
    in_order = together.sortWithinPartitions("volume", "range", "time_ns")
    windows_ns = settings.windows_ns

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shards = _native.Shards(windows_ns, first_ns, bounds_ns)
        for batch in batches:
            yield from _parts(shards.add(batch))
        yield from _parts(shards.finish())

    return in_order.mapInArrow(count, PARTS)


RANGE_BITS = _native.RANGE_PAGES.bit_length() - 1


def _parts(done: List[Tuple[str, int, int, bytes]]) -> Iterator[pa.RecordBatch]:
    for row in done:
        # Each batch has one part, because Arrow limits the bytes of a batch.
        yield pa.RecordBatch.from_pydict(
            {name: [value] for name, value in zip(PARTS_ARROW.names, row)}, PARTS_ARROW
        )


def _merge(parts: DataFrame, tasks: int) -> Tuple[List[Tuple[str, bytes]], bytes]:
    """The parts of the volumes, by name, and the part of all volumes."""
    most = parts.agg(F.max("range")).first()[0]
    volumes = _merge_groups(parts, most, tasks).persist()
    try:
        by_name = _joined(volumes, tasks)
        if len(by_name) == 1:
            return by_name, by_name[0][1]
        numbers = {volume: number for number, (volume, _) in enumerate(by_name)}
        numbered = volumes.mapInArrow(_numbered(numbers), PARTS)
        [(_, whole)] = _joined(_merge_groups(numbered, len(by_name) - 1, tasks), 1)
        return by_name, whole
    finally:
        volumes.unpersist()


def _merge_groups(parts: DataFrame, most: int, tasks: int) -> DataFrame:
    """One part for each volume and slice, merged ``MERGE`` at a time from ranges up to ``most``."""
    while most > 0:
        most //= MERGE
        grouped = parts.withColumn("range", F.floor(F.col("range") / F.lit(MERGE)).cast("bigint"))
        together = grouped.repartition(tasks, "volume", "range", "slice")
        parts = together.sortWithinPartitions("volume", "range", "slice").mapInArrow(
            _merge_runs, PARTS
        )
    return parts


def _joined(parts: DataFrame, tasks: int) -> List[Tuple[str, bytes]]:
    """The volumes' parts, by name, each joined from its slices in the order of time."""
    in_order = parts.repartition(tasks, "volume").sortWithinPartitions("volume", "slice")
    joined = in_order.mapInArrow(_join_runs, "volume string, part binary")
    return sorted((row["volume"], bytes(row["part"])) for row in joined.collect())


def _rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Tuple[str, int, int, bytes]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in PARTS_ARROW.names))


def _merge_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merges the parts of the same volume, range and slice; the rows come sorted by these."""
    for key, run in itertools.groupby(_rows_of(batches), lambda row: row[:3]):
        parts = [part for *_, part in run]
        yield from _parts([(*key, _native.merge(parts) if len(parts) > 1 else parts[0])])


def _join_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins each volume's part with its slices.

    The rows of a volume are its part without slices, and then its slices in the order of time.
    """
    for volume, run in itertools.groupby(_rows_of(batches), lambda row: row[0]):
        _, _, number, rest = next(run)
        if number != _native.REST:
            raise ValueError(f"volume {volume}: slice {number} without the part that it is of")
        joined = _native.Joined(rest)
        for *_, part in run:
            joined.push(part)
        yield pa.RecordBatch.from_pydict({"volume": [volume], "part": [joined.finish()]})


def _numbered(numbers: Dict[str, int]):
    """A step that makes each volume a range of one unnamed volume, so that they merge."""

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _parts([("", numbers[row["volume"]], row["slice"], row["part"])])

    return number
