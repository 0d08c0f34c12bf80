"""A durable mapping of bytes to bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import TracebackType
from typing import Any, Dict, Optional, Type, TypeVar, Union, Unpack, overload

from perdura import _native
from perdura.errors import ClosedError, ConflictError
from perdura.options import Name, StoreOptions

#: Bytes or an object with such a buffer: ``bytes``, ``bytearray``, ``memoryview``, an array.
Octets = Union[bytes, bytearray, memoryview]

_T = TypeVar("_T")
_MISSING: Any = object()
#: Keys that an iterator takes from the store at once.
_AT_ONCE = 256
#: Runs of a function in a transaction before its conflicts are reported.
_RUNS = 1000


class Store(_native.Store, MutableMapping[bytes, bytes]):
    """A durable mapping of bytes to bytes, at the speed of memory.

    Keys have up to 65,535 bytes, values up to 512 MiB. Any thread may use it. Each call is whole or
    absent after a crash. Iteration is in the order of the keys; keys that come or go meanwhile may
    be met or not. ``perdura serve`` serves the same directory to Redis clients, as database 0.

    >>> with Store.open("visits-data") as store:
    ...     store[b"visits"] = b"1"
    """

    __slots__ = ()

    @classmethod
    def open(cls, dir: Name, **options: Unpack[StoreOptions]) -> Store:
        """Opens the store in a directory, or makes it.

        Args:
            dir: the directory of the image; its file system must be on the SSD.
            memory: bytes of keys and values together, about 60 bytes for each key beside its own; a
                store never shrinks. Default: as it is, and 256 MiB for a new one.
            memory_max: bytes to which it may ever grow. Default: four times its first size.
            budget: bytes, or a share such as ``"25%"``, that may be dirty: changed in memory and
                not yet on the SSD. Default: what can be flushed within the warning.
            warning: time from the warning (SIGTERM, a UPS, a notice) to the loss. Default: 30 s.
            reserve: part of the warning that is kept back. Default: a tenth, 50 ms to 2 s.
            durability: ``"warned"``: a call returns when the change is in memory, which the holder
                keeps when this program is killed; a loss without a warning goes back to the last
                checkpoint. ``"fsync"``: a call returns when the change is on the SSD. Default:
                ``"warned"`` with a holder or guard, else ``"fsync"``.
            checkpoint_every: time between checkpoints; ``None``: only when asked. Default: 1 s.
            compression: of what cleaning and checkpoints write. Default: ``"off"``.
            holder: whether a second process keeps the memory when this one is killed: a second run
                of this interpreter, or the program ``perdura`` whose path is given. Default: it does.
            holder_heeds: sources of warnings for the holder besides its SIGTERM, such as
                ``"file:/run/ups/on-battery"``.
            holder_wait: time that a holder whose program is gone waits for another, before it
                flushes. Default: 10 minutes.
            guard: socket of ``perdura guard``, which keeps the memory in the place of a holder.
            key: 32 bytes by which the image is encrypted on the SSD. It is chosen when the image is
                made, and needed at every start; without it the data are lost. Default: no key.
            key_file: a file with the key, of 32 bytes or 64 hexadecimal digits, as ``perdura key
                generate`` writes it, in the place of ``key``.
            memory_dir: directory in ``/dev/shm`` or on persistent memory for the memory.
            flush_threads: threads of a flush. Default: the processors, at most 4.
            prove_again: whether to measure the flush rate again.

        Raises:
            SettingError: an option cannot work; PromiseError: the budget cannot be promised.
            InUseError: another program has the directory.
            WrongKeyError: the image is encrypted by another key, or none was given.
            OpenError: the directory, its image or the holder cannot be had.
        """
        return cls(dir, **options)

    def __iter__(self) -> Iterator[bytes]:
        after: Optional[bytes] = None
        while True:
            some = self._keys(after, _AT_ONCE)
            yield from some
            if len(some) < _AT_ONCE:
                return
            after = some[-1]

    def __reversed__(self) -> Iterator[bytes]:
        raise TypeError("a store is iterated in the order of its keys only")

    def range(
        self, first: Optional[Octets] = None, end: Optional[Octets] = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """The keys from ``first`` and before ``end``, in their order, with their values.

        The first range builds an ordered index, which takes memory of this process for each key.
        """
        is_left_out = False
        while True:
            some = self._range(first, is_left_out, end, _AT_ONCE)
            yield from some
            if len(some) < _AT_ONCE:
                return
            first, is_left_out = some[-1][0], True

    @overload
    def pop(self, key: Octets, /) -> bytes: ...
    @overload
    def pop(self, key: Octets, /, default: _T) -> Union[bytes, _T]: ...
    def pop(self, key: Octets, /, default: Any = _MISSING) -> Any:
        """Removes the key and returns its value. No other thread changes it in between."""

        def pop(tx: Transaction) -> Any:
            return tx.pop(key) if default is _MISSING else tx.pop(key, default)

        return self.transact(pop)

    def popitem(self) -> tuple[bytes, bytes]:
        """Removes the first key and returns it with its value.

        Raises:
            KeyError: the store is empty.
        """
        while True:
            first = self._keys(None, 1)
            if not first:
                raise KeyError("popitem(): the store is empty")
            key = first[0]
            value = self.pop(key, None)
            if value is not None:
                return key, value

    def setdefault(self, key: Octets, default: Octets = b"") -> bytes:
        """The key's value; if there is none, ``default``, which is set. One step for threads."""
        return self.transact(lambda tx: tx.setdefault(key, default))

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Sets the keys of a mapping, or of pairs: all of them or none, after a crash, too.

        Raises:
            TooLargeError: they do not fit the budget at once.
        """
        if more:
            raise TypeError(f"keys must be bytes, not names: {', '.join(more)}")
        with self.transaction() as tx:
            tx.update(other)

    def transaction(self) -> Transaction:
        """A transaction: ``with store.transaction() as tx``.

        Its changes are made at the end of the block, all or none; an exception in the block makes
        none. No lock is held meanwhile: if another thread changes a key that the block has read,
        the end of the block raises ConflictError and changes nothing. ``transact`` tries again.
        """
        return Transaction(self)

    def transact(self, function: Callable[[Transaction], _T]) -> _T:
        """Calls ``function(tx)`` and makes its changes, all or none; returns what it returned.

        It is called again when another thread has changed a key that it had read.

        Raises:
            ConflictError: that has happened a thousand times.
        """
        for _ in range(_RUNS - 1):
            try:
                with self.transaction() as tx:
                    return function(tx)
            except ConflictError:
                continue
        with self.transaction() as tx:
            return function(tx)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.is_closed:
            return "<perdura.Store, closed>"
        return f"<perdura.Store of {len(self)} keys>"


class Transaction:
    """Changes of a store that happen all or none; made by ``Store.transaction``."""

    __slots__ = ("_changes", "_is_over", "_seen", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        #: The values that were read, by which a conflict is found.
        self._seen: Dict[bytes, Optional[bytes]] = {}
        #: The new values; ``None`` removes the key.
        self._changes: Dict[bytes, Optional[Octets]] = {}
        self._is_over = False

    def get(self, key: Octets, default: Any = None, /) -> Any:
        """The key's value with the changes of this transaction; ``default`` if there is none."""
        value = self._value(_key(key))
        return default if value is None else value

    def __getitem__(self, key: Octets) -> bytes:
        value = self._value(_key(key))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Octets, value: Octets) -> None:
        self._check()
        self._changes[_key(key)] = _value(value)

    def __delitem__(self, key: Octets) -> None:
        self.pop(key)

    def __contains__(self, key: Octets) -> bool:
        return self._value(_key(key)) is not None

    def pop(self, key: Octets, /, default: Any = _MISSING) -> Any:
        """Removes the key and returns its value, or ``default``, or raises KeyError."""
        own = _key(key)
        value = self._value(own)
        if value is not None:
            self._changes[own] = None
            return value
        if default is _MISSING:
            raise KeyError(key)
        return default

    def setdefault(self, key: Octets, default: Octets = b"") -> bytes:
        """The key's value; if there is none, ``default``, which is set."""
        value = self._value(_key(key))
        if value is None:
            self[key] = default
            value = _value(default)
        return value

    def update(self, other: Any = (), /) -> None:
        """Sets the keys of a mapping, or of pairs of key and value."""
        pairs = other.items() if isinstance(other, Mapping) else other
        for key, value in pairs:
            self[key] = value

    def __enter__(self) -> Transaction:
        self._check()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._check()
        self._is_over = True
        if kind is not None:
            return
        other = self._store._commit(self._seen, self._changes)
        if other is not None:
            raise ConflictError(
                f"another thread changed {other!r}, which this transaction had read; nothing was "
                "changed: run it again, or use store.transact(function), which does that"
            )

    def _check(self) -> None:
        if self._is_over:
            raise ClosedError("this transaction is over: begin another by store.transaction()")

    def _value(self, key: bytes) -> Optional[bytes]:
        self._check()
        if key in self._changes:
            value = self._changes[key]
            return value if value is None else bytes(value)
        if key not in self._seen:
            self._seen[key] = self._store.get(key)
        return self._seen[key]


def _key(key: Octets) -> bytes:
    return _octets("key", key)


def _value(value: Octets) -> bytes:
    return _octets("value", value)


def _octets(what: str, octets: Octets) -> bytes:
    if isinstance(octets, (str, int)):
        raise TypeError(
            f"a {what} must be bytes, not {type(octets).__name__}: encode it, or use "
            "perdura.Encoded"
        )
    return bytes(octets)
