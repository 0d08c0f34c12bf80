"""The meaning of a table's columns, and a table's records in one form.

The syntax is that of ``perdura plan trace --columns``, as in
``time=ts:us,offset=lba:512,size=bytes,op=rw,volume=disk``.
"""

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple, Union

from perdura import _native

#: The highest offset, in bytes, that a request may reach in its volume.
END_MAX = 2**63 - 1

#: The words that mean a write, in lower case.
WRITES = ("w", "write")
#: The words that mean a read, in lower case.
READS = ("r", "read")


def text_of_time(unit: int) -> Tuple[str, int]:
    """The pattern of a time as text, and how many of its decimals are read.

    ``unit`` is the unit of the times in nanoseconds, a power of ten. ``perdura plan trace`` takes
    the same pattern. Decimals below a nanosecond are cut off; where the unit is the nanosecond, all
    decimals must be zeros.
    """
    digits = len(str(unit)) - 1
    decimal = "[0-9]" if digits > 0 else "0"
    return rf"(?:[0-9]+(?:\.{decimal}*)?|\.{decimal}+)", digits


@dataclass(frozen=True)
class Columns:
    """The columns of a table that hold time, offset, size, operation and volume of its records.

    A column is given by its name, or by its number from 1.
    """

    #: The column of times.
    time: Union[str, int]
    #: The unit of times in nanoseconds; ``None`` takes the unit of the column's type.
    time_unit_ns: Optional[int]
    #: The column of offsets in the volume.
    offset: Union[str, int]
    #: The unit of offsets in bytes.
    offset_unit_bytes: int
    #: The column of sizes; ``None`` takes ``size_bytes`` for all records.
    size: Union[str, int, None] = None
    #: The unit of sizes in bytes.
    size_unit_bytes: int = 1
    #: The size of each record in bytes, where there is no column of sizes.
    size_bytes: Optional[int] = None
    #: The column of operations; ``None`` takes ``all_write`` for all records.
    op: Union[str, int, None] = None
    #: The value that means a write; ``None`` takes the words ``WRITES`` and ``READS``.
    write_value: Optional[str] = None
    #: Whether all records write, where there is no column of operations.
    all_write: Optional[bool] = None
    #: The column of volumes; ``None`` makes each file one volume.
    volume: Union[str, int, None] = None
    #: Whether an operation may be a number as Perdura writes it: 0 for a read, 1 for a write.
    has_own_ops: bool = False

    @classmethod
    def of(cls, words: Optional[str] = None) -> "Columns":
        """The columns that ``words`` choose, in the syntax of ``--columns``.

        ``None`` takes the columns that Perdura writes: time_ns, volume, op, offset_bytes and
        len_bytes. A ``ValueError`` names the word that is wrong.
        """
        return cls(**_native.columns(words), has_own_ops=words is None)

    def is_write(self, value: Any) -> Optional[bool]:
        """Whether a value of the op column is a write; ``None`` for a value without a meaning.

        Only words, whole numbers and booleans can have a meaning.
        """
        if not isinstance(value, (bool, int, str)):
            return None
        if isinstance(value, (bool, int)):
            if self.write_value is not None:
                return str(int(value)) == self.write_value
            return bool(value) if self.has_own_ops and int(value) in (0, 1) else None
        if value == self.write_value or value.lower() in WRITES:
            return True
        return False if value.lower() in READS or self.write_value is not None else None

    def unit_of_time(self) -> int:
        """The unit of times in nanoseconds, for a column whose type has no unit.

        A ``ValueError`` says that no unit was given.
        """
        if self.time_unit_ns is None:
            raise ValueError(
                f"column {self.time} does not say what unit its times are in: give it, as in "
                f"time={self.time}:us (s, ms, us, 100ns, ns)"
            )
        return self.time_unit_ns

    def has_volume(self, names: List[str]) -> bool:
        """Whether a table with columns of these names has a column of volumes.

        Perdura's own tables may lack one; each file is one volume then.
        """
        if self.volume is None:
            return False
        return not self.has_own_ops or any(name.lower() == self.volume for name in names)

    def place(self, column: Union[str, int], names: List[str]) -> int:
        """The index, from 0, of a chosen column among the ``names`` of a table's columns.

        A name is compared with upper and lower case first, and without if no column has exactly
        that name. A ``ValueError`` says that there is no such column, or more than one.
        """
        if isinstance(column, int):
            found = [column - 1] if 1 <= column <= len(names) else []
        else:
            found = [at for at, name in enumerate(names) if name == column]
            found = found or [at for at, name in enumerate(names) if name.lower() == column.lower()]
        if len(found) > 1:
            raise ValueError(
                f"there are {len(found)} columns {column}; choose one by its number, which is "
                f"{found[0] + 1} for the first"
            )
        if found:
            return found[0]
        raise ValueError(
            f"there is no column {column}; there are: {', '.join(names)}. "
            "Choose columns as in time=ts:us,offset=lba:512,size=bytes,op=rw,volume=disk"
        )
