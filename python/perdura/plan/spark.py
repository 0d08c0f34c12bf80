"""The analysis on Apache Spark, over Parquet of any size.

Requests are cut where ranges of pages end (1 GiB), so that one huge volume splits too. A range's pieces come together on one
worker, in the order of time, and are counted there by the native library. What comes out is a part: counts that carry sums by
instant, and so merge exactly; they are merged a few at a time, ranges to volumes and volumes to all. No stage needs all records
in one place, nor their order in the files: Spark sorts.
"""

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from perdura import _native
from perdura.plan.columns import END_MAX, READS, WRITES, Columns
from perdura.plan.settings import SHARES, WINDOWS, Settings

#: Parts that are merged at once.
MERGE = 16
#: Records that a task counts, about; a task costs some tenths of a second besides.
TASK_RECORDS = 4_000_000

PARTS = T.StructType(
    [
        T.StructField("volume", T.StringType()),
        T.StructField("range", T.LongType()),
        T.StructField("part", T.BinaryType()),
    ]
)
PARTS_ARROW = pa.schema([("volume", pa.string()), ("range", pa.int64()), ("part", pa.binary())])


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
    """The figures of ``perdura plan trace --json`` for Parquet files, or directories of them, as one trace.

    A ``ValueError`` names a record that is wrong, with its file; ``skip_bad`` of them are passed over and counted.
    """
    settings = Settings.of(windows, shares, volume_size)
    chosen = columns if isinstance(columns, Columns) else Columns.of(columns)
    rows = _rows(spark.read.parquet(*paths), chosen)
    trace = _survey(rows, paths, skip_bad)
    tasks = max(spark.sparkContext.defaultParallelism, -(-trace.records // TASK_RECORDS))
    parts = _count(rows.where(~F.col("is_bad")), settings, trace.first_ns, tasks).persist()
    try:
        volumes, whole = _merge(parts, tasks)
    finally:
        parts.unpersist()
    files = [(path, trace.bad if at == 0 else 0, trace.first_bad) for at, path in enumerate(paths)]
    report = settings.report(name or ", ".join(paths), files, volumes, whole)
    return json.loads(report)


def _rows(table: DataFrame, columns: Columns) -> DataFrame:
    """Records in one form, each with the file it is from and whether it is one that cannot be counted."""
    names = table.columns

    def column(chosen: Union[str, int]) -> Column:
        return F.col("`" + columns.name(chosen, names).replace("`", "``") + "`")

    def whole(chosen: Union[str, int], unit: int) -> Column:
        """What is no whole number, or does not fit, is null: a bad record."""
        value, of = column(chosen), table.schema[columns.name(chosen, names)].dataType
        if isinstance(of, (T.FloatType, T.DoubleType)):
            value = F.when(value == F.floor(value), value)
        wide = value.try_cast("decimal(20,0)") * F.lit(unit).cast("decimal(18,0)")
        return wide.try_cast("bigint")

    def time(chosen: Union[str, int], unit: int) -> Column:
        value, of = column(chosen), table.schema[columns.name(chosen, names)].dataType
        if isinstance(of, T.TimestampType):
            return F.unix_micros(value) * F.lit(1000)
        if isinstance(of, (T.TimestampNTZType, T.DateType)):
            raise ValueError(f"column {chosen} is of type {of.simpleString()}; give times as numbers, or as UTC timestamps")
        if isinstance(of, (T.FloatType, T.DoubleType)):
            return F.floor(value.cast("double") * F.lit(float(unit))).try_cast("bigint")
        if isinstance(of, T.StringType):
            return F.floor(value.try_cast("decimal(28,9)") * F.lit(unit).cast("decimal(10,0)")).try_cast("bigint")
        return whole(chosen, unit)

    if columns.size is None:
        size = F.lit(columns.size_bytes).cast("bigint")
    else:
        size = whole(columns.size, columns.size_unit_bytes)
    if columns.op is None:
        op, is_write = F.lit(None).cast("string"), F.lit(columns.all_write)
    else:
        op = column(columns.op).cast("string")
        is_write = _is_write(column(columns.op), columns, table.schema[columns.name(columns.op, names)])
    if columns.volume is None:
        # Named like the file, without what stands behind the last dot.
        volume = F.regexp_replace(F.col("_metadata.file_name"), r"(?<=.)\.[^.]*$", "")
    else:
        volume = column(columns.volume).cast("string")
    rows = table.select(
        F.col("_metadata.file_path").alias("file"),
        time(columns.time, columns.time_unit_ns).alias("time_ns"),
        volume.alias("volume"),
        op.alias("op"),
        is_write.alias("is_write"),
        whole(columns.offset, columns.offset_unit_bytes).alias("offset_bytes"),
        size.alias("len_bytes"),
    )
    return rows.withColumn("is_bad", _is_bad())


def _is_write(op: Column, columns: Columns, field: T.StructField) -> Column:
    """As ``Columns.is_write`` has it."""
    if not isinstance(field.dataType, T.StringType):
        number = op.cast("int").cast("string") if isinstance(field.dataType, T.BooleanType) else op.cast("string")
        if columns.write_value is not None:
            return number == columns.write_value
        if columns.has_own_ops:
            return F.when(number == "1", True).when(number == "0", False)
        return F.lit(None).cast("boolean")
    word = F.lower(op)
    meant = F.when(word.isin(*WRITES), True).when(word.isin(*READS), False)
    if columns.write_value is None:
        return meant
    return F.when(op == columns.write_value, True).otherwise(F.coalesce(meant, F.when(op.isNotNull(), False)))


def _is_bad() -> Column:
    offset, size = F.col("offset_bytes"), F.col("len_bytes")
    missing = [F.col(name).isNull() for name in ("time_ns", "volume", "is_write")]
    bad = missing[0] | missing[1] | missing[2] | (F.col("time_ns") < 0) | (offset < 0) | (size <= 0)
    is_long = (F.greatest(size, F.lit(1)) - F.lit(1) > _room()) | (_last_page() - _first_page() >= _native.REQUEST_PAGES_MAX)
    return F.coalesce(bad | is_long, F.lit(True))


# Spark refuses sums that do not fit, of records that are bad as well: so these fit for any.


def _room() -> Column:
    """Bytes that may lie behind the first."""
    return F.lit(END_MAX) - F.greatest(F.col("offset_bytes"), F.lit(0))


def _first_page() -> Column:
    return F.shiftright(F.col("offset_bytes"), 12)


def _last_page() -> Column:
    behind = F.least(F.greatest(F.col("len_bytes"), F.lit(1)) - F.lit(1), _room())
    return F.shiftright(F.col("offset_bytes") + behind, 12)


@dataclass(frozen=True)
class Survey:
    """What one look at all records says."""

    records: int
    first_ns: int
    bad: int
    first_bad: List[str]


BAD_FIELDS = ("file", "time_ns", "volume", "op", "offset_bytes", "len_bytes")


def _survey(rows: DataFrame, paths: Sequence[str], skip_bad: int) -> Survey:
    good_time = F.when(~F.col("is_bad"), F.col("time_ns"))
    bad_row = F.when(F.col("is_bad"), F.struct(*(F.col(name).cast("string") for name in BAD_FIELDS)))
    found = rows.agg(
        F.min(good_time).alias("first_ns"),
        F.count(F.when(F.col("is_bad"), 1)).alias("bad"),
        F.count(good_time).alias("records"),
        F.first(bad_row, ignorenulls=True).alias("example"),
    ).first()
    first_bad = []
    if found["bad"]:
        first_bad = [_said(dict(zip(BAD_FIELDS, found["example"])))]
    if found["bad"] > skip_bad:
        more = f" ({found['bad']} such records; --skip-bad passes over them)"
        raise ValueError(first_bad[0] + more)
    if found["first_ns"] is None:
        raise ValueError(f"{', '.join(paths)}: no record of an access is in there")
    return Survey(
        found["records"], found["first_ns"], found["bad"], first_bad
    )


def _said(record: Dict[str, Optional[str]]) -> str:
    values = ", ".join(f"{name} {record[name]}" for name in BAD_FIELDS[1:])
    return (
        f"{record['file']}: a record that cannot be counted: {values}; expected a volume, a time and an offset from 0 on, a "
        "size above 0 (up to 64 GiB) that ends below 2^63, and read or write"
    )


def _count(rows: DataFrame, settings: Settings, first_ns: int, tasks: int) -> DataFrame:
    """A part for each range of pages of each volume."""
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
        shards = _native.Shards(windows_ns, first_ns)
        for batch in batches:
            yield from _parts(shards.add(batch))
        last = shards.finish()
        yield from _parts([last] if last is not None else [])

    return in_order.mapInArrow(count, PARTS)


RANGE_BITS = _native.RANGE_PAGES.bit_length() - 1


def _parts(done: List[Tuple[str, int, bytes]]) -> Iterator[pa.RecordBatch]:
    # One a batch: a part may be large.
    for volume, number, part in done:
        yield pa.RecordBatch.from_pydict(
            {"volume": [volume], "range": [number], "part": [part]}, PARTS_ARROW
        )


def _merge(parts: DataFrame, tasks: int) -> Tuple[List[Tuple[str, bytes]], bytes]:
    """Parts of the volumes, by name, and that of all."""
    most = parts.agg(F.max("range")).first()[0]
    volumes = _merge_groups(parts, most, tasks).persist()
    try:
        by_name = _settled(volumes)
        if len(by_name) == 1:
            return by_name, by_name[0][1]
        numbers = {volume: number for number, (volume, _) in enumerate(by_name)}
        numbered = volumes.mapInArrow(_numbered(numbers), PARTS)
        [(_, whole)] = _settled(_merge_groups(numbered, len(by_name) - 1, tasks))
        return by_name, whole
    finally:
        volumes.unpersist()


def _merge_groups(parts: DataFrame, most: int, tasks: int) -> DataFrame:
    """One part for each volume, of those with numbers up to ``most``, ``MERGE`` at a time."""
    while most > 0:
        most //= MERGE
        grouped = parts.withColumn("range", F.floor(F.col("range") / F.lit(MERGE)).cast("bigint"))
        together = grouped.repartition(tasks, "volume", "range")
        parts = together.sortWithinPartitions("volume", "range").mapInArrow(_merge_runs, PARTS)
    return parts


def _settled(parts: DataFrame) -> List[Tuple[str, bytes]]:
    settled = parts.select("volume", "part").mapInArrow(_settle, "volume string, part binary")
    return sorted((row["volume"], bytes(row["part"])) for row in settled.collect())


def _merge_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merges parts of the same volume and number, which come one after another."""
    key, run = None, []
    for batch in batches:
        for row in batch.to_pylist():
            if (row["volume"], row["range"]) != key:
                yield from _merged(key, run)
                key, run = (row["volume"], row["range"]), []
            run.append(row["part"])
    yield from _merged(key, run)


def _merged(key: Optional[Tuple[str, int]], run: List[bytes]) -> Iterator[pa.RecordBatch]:
    if key is not None:
        yield from _parts([(*key, _native.merge(run) if len(run) > 1 else run[0])])


def _settle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        settled = [_native.settle(part) for part in batch.column("part").to_pylist()]
        yield pa.RecordBatch.from_pydict({"volume": batch.column("volume"), "part": pa.array(settled, pa.binary())})


def _numbered(numbers: Dict[str, int]):
    """Volumes as ranges of one."""

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _parts([("", numbers[row["volume"]], row["part"])])

    return number
