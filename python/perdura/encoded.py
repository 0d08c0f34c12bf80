"""A store with keys and values of other types, by codecs that the program chooses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Codec(NamedTuple, Generic[T]):
    """Two functions: one makes bytes of a value, the other makes the value of those bytes."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]


#: Text as UTF-8.
TEXT: Codec[str] = Codec(str.encode, bytes.decode)
#: What JSON can say, in its shortest form.
JSON: Codec[Any] = Codec(
    lambda value: json.dumps(value, separators=(",", ":"), sort_keys=True).encode(), json.loads
)


class Encoded(MutableMapping[K, V]):
    """The entries of a store through codecs of keys and values.

    >>> visits = Encoded(store, TEXT, JSON)
    >>> visits["today"] = {"count": 1}
    """

    def __init__(self, store: MutableMapping[bytes, bytes], keys: Codec[K], values: Codec[V]):
        self.store = store
        self.keys_by = keys
        self.values_by = values

    def __getitem__(self, key: K) -> V:
        try:
            found = self.store[self.keys_by.encode(key)]
        except KeyError:
            raise KeyError(key) from None
        return self.values_by.decode(found)

    def __setitem__(self, key: K, value: V) -> None:
        self.store[self.keys_by.encode(key)] = self.values_by.encode(value)

    def __delitem__(self, key: K) -> None:
        try:
            del self.store[self.keys_by.encode(key)]
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return self.keys_by.encode(key) in self.store  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        return map(self.keys_by.decode, self.store)

    def __len__(self) -> int:
        return len(self.store)

    def clear(self) -> None:
        """Removes all keys, in one step."""
        self.store.clear()
