"""The analysis of a trace in one process."""

import contextlib
import json
from typing import Any, Dict, Iterator, Sequence, Union

import pyarrow as pa
import pyarrow.compute as pc

from perdura import _native
from perdura.plan.columns import Columns, text_of_time
from perdura.plan.settings import SHARES, WINDOWS, Settings

#: How many rows are converted at once.
BATCH_ROWS = 1 << 16


def analyze(
    data: Any,
    *,
    columns: Union[str, Columns, None] = None,
    windows: Sequence[str] = WINDOWS,
    shares: Sequence[float] = SHARES,
    volume_size: Union[str, int, None] = None,
    name: str = "trace",
) -> Dict[str, Any]:
    """The figures of a trace, as the dict that ``perdura plan trace --json`` writes for one trace.

    ``data`` has one row for each access, in the order of time: a ``pyarrow.Table``, a dict of
    arrays of equal length by column name, or an object that pyarrow can make a table of (a pandas
    or polars frame). ``columns`` says which columns hold time, offset, size, operation and volume,
    and their units (see ``Columns.of``). ``windows`` are lengths of time such as ``10m``,
    ``shares`` are percentages of all page writes, and ``volume_size`` is the size of each volume,
    in bytes or as text such as ``1TB``; ``None`` takes the pages that the trace touches. ``name``
    is the name of the trace, and of its volume where there is no column of volumes.

    Keys of the result end with their unit; pages have 4096 bytes, times are nanoseconds.

    A ``ValueError`` names the setting, or the row (from 0), the column and the value that is wrong.
    A ``TypeError`` says that ``data`` is not a table.
    """
    settings = Settings.of(windows, shares, volume_size)
    chosen = columns if isinstance(columns, Columns) else Columns.of(columns)
    table = _table(data)
    numbers: Dict[str, int] = {}
    analysis = _native.Analysis(settings.windows_ns, settings.shares)
    row = 0
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        analysis.add(_records(batch, chosen, numbers, name, row))
        row += batch.num_rows
    found = analysis.finish()
    if found is None:
        raise ValueError(f"{name}: no record of an access is in there; is it the right table?")
    parts, whole = found
    names = list(numbers)
    volumes = [(names[number], part) for number, part in parts]
    return json.loads(settings.report(name, [], volumes, whole))


def _table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, dict):
        return pa.table(data)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    try:
        return pa.Table.from_pandas(data, preserve_index=False)
    except AttributeError:
        expected = "a pyarrow Table, a dict of arrays by column name, or a pandas or polars frame"
        raise TypeError(f"{type(data).__name__} is no table: expected {expected}") from None


def _records(
    batch: pa.RecordBatch, columns: Columns, numbers: Dict[str, int], name: str, row: int
) -> pa.RecordBatch:
    names = batch.schema.names

    def column(chosen: Union[str, int]) -> pa.Array:
        return batch.column(columns.place(chosen, names))

    rows = batch.num_rows
    if columns.size is None:
        sizes = pa.repeat(pa.scalar(columns.size_bytes, pa.int64()), rows)
    else:
        sizes = _longs(column(columns.size), columns.size_unit_bytes, columns.size, row)
    if columns.op is None:
        writes = pa.repeat(pa.scalar(columns.all_write), rows)
    else:
        writes = _writes(_text(column(columns.op), columns.op, row), columns, row)
    if columns.has_volume(names):
        volume = _text(column(columns.volume), columns.volume, row)
        volume = _present(volume, columns.volume, row)
    else:
        volume = pa.repeat(pa.scalar(name), rows)
    volumes = _numbered(volume, numbers, columns.volume, row)
    arrays = {
        "time_ns": _times(column(columns.time), columns, row),
        "volume": volumes,
        "is_write": writes,
        "offset_bytes": _longs(
            column(columns.offset), columns.offset_unit_bytes, columns.offset, row
        ),
        "len_bytes": sizes,
    }
    return pa.RecordBatch.from_pydict(arrays)


def _is_text(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _text(values: pa.Array, column: Union[str, int], row: int) -> pa.Array:
    """Bytes as text; values of other types are returned unchanged."""
    kind = values.type
    if pa.types.is_dictionary(kind) and pa.types.is_binary(kind.value_type):
        values = values.dictionary_decode()
        kind = values.type
    if not (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return values
    with _refusing(column, row):
        return values.cast(pa.binary()).cast(pa.string())


def _present(values: pa.Array, column: Union[str, int], row: int) -> pa.Array:
    if pa.types.is_dictionary(values.type) and values.dictionary.null_count:
        # The dictionary may have a null that no row uses, so the rows are looked at.
        values = values.dictionary_decode()
    if values.null_count:
        missing = pc.index(pc.is_null(values), True).as_py()
        raise ValueError(f"column {column}, row {row + missing}: there is no value")
    return values


def _times(values: pa.Array, columns: Columns, row: int) -> pa.Array:
    """The times in nanoseconds. A timestamp has a unit of its own, which is taken."""
    values = _text(_present(values, columns.time, row), columns.time, row)
    kind = values.type
    if pa.types.is_timestamp(kind):
        with _refusing(columns.time, row):
            return values.cast(pa.timestamp("ns", kind.tz)).cast(pa.int64())
    unit = columns.unit_of_time()
    if pa.types.is_decimal(kind) and kind.scale > 0:
        raise ValueError(
            f"column {columns.time} is of type {kind}; give times as numbers, as text or as "
            "timestamps"
        )
    with _refusing(columns.time, row):
        if pa.types.is_floating(kind):
            scaled = pc.multiply(values.cast(pa.float64()), float(unit))
            whole = pc.floor(scaled)
            at = pc.index(pc.equal(scaled, whole), False).as_py() if unit == 1 else -1
            if at >= 0:
                value = values[at].as_py()
                raise ValueError(
                    f"column {columns.time}, row {row + at}: {value} has a part of a nanosecond; "
                    "is it another unit?"
                )
            return whole.cast(pa.int64())
    if _is_text(kind):
        return _read_times(values, unit, columns.time, row)
    return _longs(values, unit, columns.time, row)


def _read_times(values: pa.Array, unit: int, column: Union[str, int], row: int) -> pa.Array:
    """The nanoseconds of times that are text; ``unit`` is their unit in nanoseconds.

    Digits are read one by one, because floating-point numbers would not be exact. Decimals below a
    nanosecond are cut off.
    """
    pattern, digits = text_of_time(unit)
    found = pc.match_substring_regex(values, f"^{pattern}$")
    at = pc.index(found, False).as_py()
    if at >= 0:
        raise ValueError(
            f"column {column}, row {row + at}: {values[at].as_py()!r} is no time in units of "
            f"{unit} ns"
        )
    # The digits before the point may be missing.
    whole = pc.replace_substring_regex(values, r"^([0-9]*).*$", r"0\1")
    decimals = pc.replace_substring_regex(values, r"^[0-9]*\.?", "")
    if digits > 0:
        decimals = pc.utf8_slice_codeunits(pc.utf8_rpad(decimals, digits, "0"), 0, digits)
        whole = pc.binary_join_element_wise(whole, decimals, pa.scalar("", whole.type))
    with _refusing(column, row):
        return whole.cast(pa.int64())


def _longs(values: pa.Array, unit: int, column: Union[str, int], row: int) -> pa.Array:
    """Whole numbers, each multiplied by ``unit``."""
    values = _present(values, column, row)
    with _refusing(column, row):
        longs = values.cast(pa.int64())
        return longs if unit == 1 else pc.multiply_checked(longs, pa.scalar(unit, pa.int64()))


@contextlib.contextmanager
def _refusing(column: Union[str, int], row: int) -> Iterator[None]:
    """Turns Arrow's refusal of a value into a ``ValueError`` with the column and the first row.

    Arrow refuses values that are not whole numbers, are not text, or do not fit, and names them.
    """
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {column}, from row {row} on: {error}") from error


def _writes(values: pa.Array, columns: Columns, row: int) -> pa.Array:
    values = _present(values, columns.op, row)
    coded = values.dictionary_encode() if not pa.types.is_dictionary(values.type) else values
    meaning = [columns.is_write(word) for word in coded.dictionary.to_pylist()]
    for code, is_write in enumerate(meaning):
        if is_write is None:
            at = pc.index(coded.indices, pa.scalar(code, coded.indices.type)).as_py()
            if at < 0:
                # A category that no row has.
                continue
            word = coded.dictionary[code].as_py()
            raise ValueError(
                f"column {columns.op}, row {row + at}: {word!r} is neither read nor write; name "
                "the value that means a write, as "
                f"in op={columns.op}:1"
            )
    return pa.array(meaning, pa.bool_()).take(coded.indices)


def _no_negative(values: pa.Array, column: Union[str, int, None], row: int) -> None:
    values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    at = pc.index(pc.less(values, 0), True).as_py()
    if at >= 0:
        raise ValueError(f"column {column}, row {row + at}: {values[at].as_py()} is below 0")


def _numbered(
    values: pa.Array, numbers: Dict[str, int], column: Union[str, int, None], row: int
) -> pa.Array:
    """The numbers of volumes, from 0 in the order in which their names appear.

    Names are text or whole numbers, because values of other types can be written in several ways.
    """
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not (_is_text(kind) or pa.types.is_integer(kind)):
        raise ValueError(
            f"column {column} is of type {kind}; expected volumes as text or whole numbers"
        )
    if pa.types.is_signed_integer(kind):
        _no_negative(values, column, row)
    coded = values.dictionary_encode() if not pa.types.is_dictionary(values.type) else values
    of = [numbers.setdefault(str(name), len(numbers)) for name in coded.dictionary.to_pylist()]
    return pa.array(of, pa.int32()).take(coded.indices)
