"""The meaning of a table's columns, and a table's records in one form.

Words are those of ``perdura plan trace --columns``:
``time=ts:us,offset=lba:512,size=bytes,op=rw,volume=disk``.
"""

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple, Union

from perdura import _native

#: The last byte that a request may have.
END_MAX = 2**63 - 1

#: Words for reads and writes, in lower case.
WRITES = ("w", "write")
READS = ("r", "read")


def text_of_time(unit: int) -> Tuple[str, int]:
    """The pattern of a time as text, and how many of its decimals are nanoseconds.

    It is the pattern that ``perdura plan trace`` takes. The decimals behind those are cut; of whole
    nanoseconds there are none but zeros. Units are powers of ten.
    """
    digits = len(str(unit)) - 1
    decimal = "[0-9]" if digits > 0 else "0"
    return rf"(?:[0-9]+(?:\.{decimal}*)?|\.{decimal}+)", digits


@dataclass(frozen=True)
class Columns:
    """The columns that hold the parts of a record.

    A column is given by its name, or by its number from 1. Where it is ``None`` the constant beside
    it holds for all records.
    """

    time: Union[str, int]
    #: ``None`` takes the unit of the column's type.
    time_unit_ns: Optional[int]
    offset: Union[str, int]
    offset_unit_bytes: int
    size: Union[str, int, None] = None
    size_unit_bytes: int = 1
    size_bytes: Optional[int] = None
    op: Union[str, int, None] = None
    #: The value that means a write; ``None`` takes words.
    write_value: Optional[str] = None
    all_write: Optional[bool] = None
    #: ``None`` makes each file one volume.
    volume: Union[str, int, None] = None
    #: Whether numbers have Perdura's meaning: 0 is a read, 1 is a write.
    has_own_ops: bool = False

    @classmethod
    def of(cls, words: Optional[str] = None) -> "Columns":
        """The columns that words choose, or those that Perdura writes.

        These are time_ns, volume, op, offset_bytes and len_bytes.
        """
        return cls(**_native.columns(words), has_own_ops=words is None)

    def is_write(self, value: Any) -> Optional[bool]:
        """Whether a value of the op column means a write; ``None`` where it means nothing.

        Only words and whole numbers mean something.
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
        """The unit of times in nanoseconds, where the type of the column does not say it."""
        if self.time_unit_ns is None:
            raise ValueError(
                f"column {self.time} does not say what unit its times are in: give it, as in "
                f"time={self.time}:us (s, ms, us, 100ns, ns)"
            )
        return self.time_unit_ns

    def has_volume(self, names: List[str]) -> bool:
        """Whether there is a column of volumes.

        Of the columns that Perdura writes it may be missing; a file is one volume then.
        """
        if self.volume is None:
            return False
        return not self.has_own_ops or any(name.lower() == self.volume for name in names)

    def place(self, column: Union[str, int], names: List[str]) -> int:
        """The place of a chosen column among those that a table has.

        It is found by its name, in any case of letters if none has exactly that name.
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
