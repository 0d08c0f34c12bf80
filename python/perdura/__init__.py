"""Perdura: durable memory for ordinary programs, at the speed of memory.

``Store`` is a mapping of bytes to bytes that survives: ``kill -9``, a loss of power with a warning
and, back to a checkpoint, one without. ``Region`` is memory that survives, for numpy arrays.
``Heap`` is blocks of bytes that survive and name each other.
``perdura.plan`` says how much battery a server needs, from traces of its writes.
"""

from perdura._native import Flushed, Promise, __version__
from perdura.encoded import JSON, TEXT, Codec, Encoded
from perdura.errors import (
    BlockError,
    ClosedError,
    ConflictError,
    DeviceError,
    Error,
    ForkedError,
    FullError,
    InUseError,
    NestedError,
    OpenError,
    PromiseError,
    SettingError,
    TooLargeError,
    WrongKeyError,
    WrongTypeError,
)
from perdura.heap import Block, Heap, HeapTransaction
from perdura.region import Region
from perdura.store import Store, Transaction

__all__ = [
    "JSON",
    "TEXT",
    "Block",
    "BlockError",
    "ClosedError",
    "Codec",
    "ConflictError",
    "DeviceError",
    "Encoded",
    "Error",
    "Flushed",
    "ForkedError",
    "FullError",
    "Heap",
    "HeapTransaction",
    "InUseError",
    "NestedError",
    "OpenError",
    "Promise",
    "PromiseError",
    "Region",
    "SettingError",
    "Store",
    "TooLargeError",
    "Transaction",
    "WrongKeyError",
    "WrongTypeError",
    "__version__",
]
