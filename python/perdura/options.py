"""The keywords of ``Store.open`` and ``Region.open``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from os import PathLike
from typing import Literal, Optional, TypedDict, Union

#: A size: bytes, or text such as ``"64MB"``.
Size = Union[int, str]
#: A time: seconds, text such as ``"500ms"``, or a ``timedelta``.
Time = Union[float, str, timedelta]
#: A name in the file system.
Name = Union[str, PathLike[str]]


class RegionOptions(TypedDict, total=False):
    """How the memory of a directory is kept; ``Store.open`` describes each option.

    An option that is left out, or ``None``, has its default, but for ``checkpoint_every``, where
    ``None`` means that no checkpoint is made by time.
    """

    memory: Optional[Size]
    memory_max: Optional[Size]
    budget: Optional[Size]
    warning: Optional[Time]
    reserve: Optional[Time]
    checkpoint_every: Optional[Time]
    compression: Optional[Literal["off", "lz4"]]
    holder: Union[bool, Name, None]
    holder_heeds: Optional[Sequence[str]]
    holder_wait: Optional[Time]
    guard: Optional[Name]
    key: Optional[bytes]
    key_file: Optional[Name]
    memory_dir: Optional[Name]
    flush_threads: Optional[int]
    prove_again: Optional[bool]


class StoreOptions(RegionOptions, total=False):
    """The same, and when a change of a store is durable."""

    durability: Optional[Literal["warned", "fsync"]]
