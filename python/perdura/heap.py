"""Blocks of bytes that survive and name each other, and plain memory beside them."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import NoReturn, Optional, Self, Type, Union, Unpack
from weakref import WeakValueDictionary

from perdura import _native
from perdura.errors import BlockError, Error
from perdura.options import Name, RegionOptions
from perdura.store import Octets


class Heap(_native.Heap):
    """Durable blocks of bytes, which are found again by named roots and by their offsets.

    Blocks change in transactions only: all of it or nothing, also after ``kill -9``. A heap makes
    one transaction at a time; those of other threads wait. A loss without a warning goes back to
    the last checkpoint, which is the state of one instant.

    >>> with Heap.open("list-data", memory="64MiB") as heap:
    ...     with heap.transaction() as tx:
    ...         block = tx.allocate(64)
    ...         tx.write(block, 0, b"first")
    ...         tx.set_root("list", block)
    """

    __slots__ = ("__weakref__", "_blocks", "_naming")

    @classmethod
    def open(cls, dir: Name, **options: Unpack[RegionOptions]) -> Heap:
        """Opens the heap in a directory, or makes it. ``Store.open`` describes the options.

        ``memory`` is the bytes of blocks and capacity memory together; 1 GiB if it is left out for
        a new heap. There is no durability to choose, as for a region.

        Raises:
            SettingError, PromiseError, InUseError, OpenError: as ``Store.open``.
        """
        return cls(dir, **options)

    def __new__(cls, dir: Name, **options: Unpack[RegionOptions]) -> Heap:
        if "durability" in options:
            raise TypeError("a heap has no durability to choose: leave durability= out")
        heap = super().__new__(cls, dir, **options)
        #: The blocks that the program knows: one object for each, so that all know its end.
        heap._blocks = WeakValueDictionary()
        heap._naming = threading.Lock()
        return heap

    _blocks: WeakValueDictionary[int, Block]
    _naming: threading.Lock

    def transaction(self) -> HeapTransaction:
        """A transaction: ``with heap.transaction() as tx``.

        Its changes are made at the end of the block, all or none; an exception in the block makes
        none. Reads of this thread see them at once, those of other threads when all are made.

        Raises:
            NestedError: this thread is in a transaction of this heap already.
        """
        return HeapTransaction(self)

    def root(self, name: str) -> Optional[Block]:
        """The block that a root names; ``None`` if there is no such root.

        Raises:
            WrongTypeError: a program in another language made this root, for a type of its own.
        """
        offset = self._root(name)
        return None if offset is None else self.block(offset)

    def block(self, offset: int) -> Block:
        """The block that begins at ``offset``, which another block names.

        Raises:
            BlockError: no block begins there.
        """
        with self._naming:
            known = self._blocks.get(offset)
            if known is not None and known._is_live():
                return known
            return self._known(offset, self._length(offset), None)

    def __enter__(self) -> Heap:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        """Closes the heap, when the last view of its capacity memory is gone."""
        if not self.is_closed:
            self._close_with_views()

    def __repr__(self) -> str:
        if self.is_closed:
            return "<perdura.Heap, closed>"
        return f"<perdura.Heap with roots {', '.join(self.roots())}>"

    def _known(self, offset: int, length: int, maker: Optional[HeapTransaction]) -> Block:
        block = Block(self, offset, length)
        block._maker = maker
        self._blocks[offset] = block
        return block


class Block:
    """Bytes of a heap that survive; made by ``tx.allocate``, found by ``heap.root``.

    ``len(block)`` is the length asked for, rounded up. ``bytes(block)`` and ``block[a:b]`` read;
    ``tx.write`` writes. ``block.offset`` stays the same for the life of the block, so that other
    blocks may hold it; ``heap.block(offset)`` is the block again.
    """

    __slots__ = ("__weakref__", "_ender", "_heap", "_length", "_maker", "_offset")

    def __init__(self, heap: Heap, offset: int, length: int) -> None:
        self._heap = heap
        self._offset = offset
        self._length = length
        #: The transactions that made and that freed it, if that is known: their outcomes decide
        #: whether it is there.
        self._maker: Optional[HeapTransaction] = None
        self._ender: Optional[HeapTransaction] = None

    @property
    def offset(self) -> int:
        """Bytes from the heap's first byte; never 0."""
        return self._offset

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return self._read(0, self._length)

    def __getitem__(self, part: Union[slice, int]) -> Union[bytes, int]:
        if not isinstance(part, slice):
            place = part + self._length if part < 0 else part
            if not 0 <= place < self._length:
                raise IndexError(f"byte {part} of a block of {self._length} bytes")
            return self._read(place, 1)[0]
        start, end, step = part.indices(self._length)
        if step != 1:
            return bytes(self)[part]
        return self._read(start, max(0, end - start))

    def __repr__(self) -> str:
        state = "" if self._is_live() else ", freed"
        return f"<perdura.Block of {self._length} bytes at {self._offset}{state}>"

    def _read(self, place: int, length: int) -> bytes:
        self._check()
        if length == 0:
            return b""
        return self._heap._read(self._offset + place, length)

    def __reduce__(self) -> NoReturn:
        # A copy would not know of the block's end.
        raise TypeError("a block cannot be copied or pickled: keep its offset, or its bytes")

    def _is_live(self, tx: Optional[HeapTransaction] = None) -> bool:
        """Whether it is there, as this thread or the transaction ``tx`` sees it."""
        maker, ender = self._maker, self._ender
        is_made = maker is None or maker is tx or maker._counts
        return is_made and not (ender is not None and ender._counts)

    def _check(self, tx: Optional[HeapTransaction] = None) -> None:
        if not self._is_live(tx):
            raise BlockError(
                f"the block at {self._offset} was freed, or the transaction that made it was "
                "undone or still runs in another thread: use another"
            )


class HeapTransaction(_native.HeapSteps):
    """Changes of a heap that happen all or none; made by ``Heap.transaction``."""

    __slots__ = ("_heap",)

    def __new__(cls, heap: Heap) -> Self:
        tx = super().__new__(cls, heap)
        tx._heap = heap
        return tx

    _heap: Heap

    def allocate(self, size: int, *, zeroed: bool = True) -> Block:
        """A new block of at least ``size`` bytes.

        Without ``zeroed`` it holds whatever lay there before, which is quicker for a block that is
        written at once. Name it by a root or in another block: nobody finds it otherwise.

        Raises:
            FullError: the heap has no room; TooLargeError: the size can never fit.
        """
        if size < 1:
            raise ValueError(f"a block of {size} bytes: it must have at least 1")
        offset, length = self._allocate(size, zeroed)
        with self._heap._naming:
            block = self._heap._known(offset, length, self)
        self._blocks.append(block)
        return block

    def write(self, block: Block, offset: int, data: Octets) -> None:
        """Changes the bytes of a block from its byte ``offset`` on.

        Raises:
            IndexError: they would leave the block; BlockError: it is freed or of another heap.
            TooLargeError: the transaction is larger than the log. It has room for some 16 MB of
                changes to blocks that were there before.
        """
        self._of_heap(block)
        # As long as the view lives, no other thread changes the size.
        with memoryview(data) as view:
            size = view.nbytes
            if offset < 0 or offset + size > len(block):
                raise IndexError(f"{size} bytes at {offset} leave a block of {len(block)} bytes")
            if size:
                self._write(block.offset + offset, view)

    def free(self, block: Block) -> None:
        """Frees a block. Whatever names it must be changed by the program.

        Raises:
            BlockError: it is freed already, or of another heap.
        """
        self._of_heap(block)
        # First, so that an interrupt in between leaves no block that seems to be there.
        before, block._ender = block._ender, self
        try:
            self._free(block.offset)
        except Error:
            block._ender = before
            raise

    def root(self, name: str) -> Optional[Block]:
        """The block that a root names, with the changes of this transaction."""
        offset = self._root(name)
        return None if offset is None else self._heap.block(offset)

    def set_root(self, name: str, block: Block) -> None:
        """Lets a root name a block. Its name has 1 to 39 bytes.

        Raises:
            SettingError: the name is empty or too long; FullError: there are too many roots.
        """
        self._of_heap(block)
        self._set_root(name, block.offset)

    def remove_root(self, name: str) -> None:
        """Removes a root; its block stays.

        Raises:
            KeyError: there is no such root.
        """
        self._remove_root(name)

    def _of_heap(self, block: Block) -> None:
        if block._heap is not self._heap:
            raise BlockError(f"the block at {block.offset} is of another heap: use that one's")
        block._check(self)
