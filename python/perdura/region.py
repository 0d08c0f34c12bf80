"""Memory that survives, for numpy arrays and all else that takes buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Type, Union, Unpack

from perdura import _native
from perdura.options import Name, RegionOptions

if TYPE_CHECKING:
    import numpy as np


class Region(_native.Region):
    """Durable bytes, all zero at first, with the buffer protocol: numpy arrays lie in them.

    Stores are plain stores to memory: the first to a page that is clean is noticed by a page fault.
    They survive ``kill -9``, because the holder keeps the memory; a loss without a warning goes
    back to the last checkpoint, which is the state of one instant.

    Memory with an array in it stays: ``close`` is refused while views live, and a ``with`` block
    closes the region when the last of them is gone. A forked child has no such memory: touching an
    array there ends it. An array that is made by ``numpy.ndarray(buffer=region)`` tells nobody that
    it is a view, as with ``mmap``: use ``array`` or ``numpy.frombuffer``.

    >>> with Region.open("counts-data", memory="64MiB") as region:
    ...     counts = region.array("float64", (1000, 1000))
    ...     counts += 1
    """

    __slots__ = ("__weakref__",)

    @classmethod
    def open(cls, dir: Name, **options: Unpack[RegionOptions]) -> Region:
        """Opens the bytes in a directory, or makes them. ``Store.open`` describes the options.

        ``memory`` is the number of bytes. There is no durability to choose: nobody sees when a
        plain store is done, so ``commit`` makes stores durable when the program says so. Without a
        holder or guard a killed program is back at its last checkpoint.

        Raises:
            SettingError, PromiseError, InUseError, OpenError: as ``Store.open``.
        """
        if "durability" in options:
            raise TypeError("a region has no durability to choose: commit() makes stores durable")
        return cls(dir, **options)

    def array(
        self,
        dtype: Any,
        shape: Union[int, Sequence[int], None] = None,
        offset: int = 0,
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """A numpy array of bytes of the region, from ``offset``. It can be written.

        Without a shape it has as many elements as fit. The region stays open as long as the array
        or another one made from it lives.

        Raises:
            ValueError: the array would leave the region, or the type holds Python objects.
        """
        import numpy as np

        kind = np.dtype(dtype)
        if kind.hasobject:
            raise ValueError(f"{kind}: Python objects do not survive; choose a type of numbers")
        if kind.itemsize == 0:
            raise ValueError(f"{kind}: has no bytes, so nothing of it would survive")
        if not 0 <= offset <= len(self):
            raise ValueError(f"offset {offset}: the region has {len(self)} bytes")
        if shape is None:
            shape = (len(self) - offset) // kind.itemsize
        # An array that numpy makes by `frombuffer` keeps a view of the region. One that is made by
        # `numpy.ndarray(buffer=region)` does not, so `close` could not know of it.
        count = math.prod((shape,) if isinstance(shape, int) else shape)
        if count < 0 or offset + count * kind.itemsize > len(self):
            raise ValueError(
                f"an array of shape {shape} and type {kind} from byte {offset} leaves a region of "
                f"{len(self)} bytes; open it with a larger memory="
            )
        return np.frombuffer(memoryview(self), kind, count, offset).reshape(shape)

    def __enter__(self) -> Region:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Makes everything durable, and closes the region, when its last view is gone.

        The names of a block's arrays outlive the block, and so do those in the frames of an
        exception. So a view that is left is no error here.
        """
        if not self.is_closed:
            if self.views:
                self.commit()
            self._close_with_views()

    def __repr__(self) -> str:
        if self.is_closed:
            return "<perdura.Region, closed>"
        return f"<perdura.Region of {len(self)} bytes, {self.views} views>"
