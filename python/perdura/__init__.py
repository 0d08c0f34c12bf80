"""Perdura: durable memory for ordinary programs, at the speed of memory.

``Store`` is a mapping of bytes to bytes that survives: ``kill -9``, a loss of power with a warning
and, back to a checkpoint, one without. ``Region`` is memory that survives, for numpy arrays.
``perdura.plan`` says how much battery a server needs, from traces of its writes.
"""

from perdura._native import Flushed, Promise, __version__
from perdura.encoded import JSON, TEXT, Codec, Encoded
from perdura.errors import (
    ClosedError,
    ConflictError,
    DeviceError,
    Error,
    ForkedError,
    FullError,
    InUseError,
    OpenError,
    PromiseError,
    SettingError,
    TooLargeError,
    WrongTypeError,
)
from perdura.region import Region
from perdura.store import Store, Transaction

__all__ = [
    "JSON",
    "TEXT",
    "ClosedError",
    "Codec",
    "ConflictError",
    "DeviceError",
    "Encoded",
    "Error",
    "Flushed",
    "ForkedError",
    "FullError",
    "InUseError",
    "OpenError",
    "Promise",
    "PromiseError",
    "Region",
    "SettingError",
    "Store",
    "TooLargeError",
    "Transaction",
    "WrongTypeError",
    "__version__",
]
