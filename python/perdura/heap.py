"""Blocks of bytes that survive and name each other, and plain memory beside them."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import List, Optional, Type, Union, Unpack
from weakref import WeakValueDictionary

from perdura import _native
from perdura.errors import BlockError, Error, NestedError
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

    __slots__ = ("__weakref__", "_blocks", "_naming", "_owner", "_steps", "_turn")

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
        #: The blocks that the program knows, so that all know when one is freed.
        heap._blocks = WeakValueDictionary()
        heap._naming = threading.Lock()
        #: Held by a transaction and by a close.
        heap._turn = threading.Lock()
        heap._owner = None
        heap._steps = None
        return heap

    _blocks: WeakValueDictionary[int, Block]
    _naming: threading.Lock
    _turn: threading.Lock
    _owner: Optional[int]
    _steps: Optional[_native.HeapSteps]

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
        steps = self._own_steps()
        offset = self._root(name) if steps is None else steps.root(name)
        return None if offset is None else self.block(offset)

    def block(self, offset: int) -> Block:
        """The block that begins at ``offset``, which another block names.

        Raises:
            BlockError: no block begins there.
        """
        with self._naming:
            known = self._blocks.get(offset)
            if known is None or not known._is_live:
                known = Block(self, offset, self._length(offset))
                self._blocks[offset] = known
            return known

    def close(self) -> Optional[_native.Flushed]:
        """Flushes everything, gives the memory back, and reports. Capacity memory is forgotten.

        Raises:
            BufferError: arrays or other views of capacity memory live.
            DeviceError: the SSD has failed; repair it and close again.
        """
        if not self.is_closed:
            # A forked process would wait for ever for a thread that it does not have.
            self._check()
        self._take_turn("close")
        try:
            return self._close()
        finally:
            self._end_turn()

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
            self._check()
            self._take_turn("close")
            try:
                self._close_with_views()
            finally:
                self._end_turn()

    def __repr__(self) -> str:
        if self.is_closed:
            return "<perdura.Heap, closed>"
        return f"<perdura.Heap with roots {', '.join(self.roots())}>"

    def _take_turn(self, wish: str) -> None:
        if self._owner == threading.get_ident():
            raise NestedError(
                f"{wish}: this thread is in a transaction of this heap: end that one first"
            )
        self._turn.acquire()
        self._owner = threading.get_ident()

    def _end_turn(self) -> None:
        self._owner = None
        self._turn.release()

    def _own_steps(self) -> Optional[_native.HeapSteps]:
        """The transaction that this thread is in."""
        return self._steps if self._owner == threading.get_ident() else None

    def _made(self, offset: int, length: int) -> Block:
        block = Block(self, offset, length)
        with self._naming:
            self._blocks[offset] = block
        return block

    def _forget(self, block: Block) -> None:
        """A block is gone, under whichever name the program has it."""
        with self._naming:
            for each in (block, self._blocks.pop(block.offset, None)):
                if each is not None:
                    each._is_live = False


class Block:
    """Bytes of a heap that survive; made by ``tx.allocate``, found by ``heap.root``.

    ``len(block)`` is the length asked for, rounded up. ``bytes(block)`` and ``block[a:b]`` read;
    ``tx.write`` writes. ``block.offset`` stays the same for the life of the block, so that other
    blocks may hold it; ``heap.block(offset)`` is the block again.
    """

    __slots__ = ("__weakref__", "_heap", "_is_live", "_length", "_offset")

    def __init__(self, heap: Heap, offset: int, length: int) -> None:
        self._heap = heap
        self._offset = offset
        self._length = length
        self._is_live = True

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
        state = "" if self._is_live else ", freed"
        return f"<perdura.Block of {self._length} bytes at {self._offset}{state}>"

    def _read(self, place: int, length: int) -> bytes:
        self._check()
        if length == 0:
            return b""
        steps = self._heap._own_steps()
        read = self._heap._read if steps is None else steps.read
        return read(self._offset + place, length)

    def _check(self) -> None:
        if not self._is_live:
            raise BlockError(
                f"the block at {self._offset} was freed, or the transaction that made it was "
                "undone: use another"
            )


class HeapTransaction:
    """Changes of a heap that happen all or none; made by ``Heap.transaction``."""

    __slots__ = ("_freed", "_heap", "_made", "_steps")

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._steps: Optional[_native.HeapSteps] = None
        self._made: List[Block] = []
        self._freed: List[Block] = []

    def allocate(self, size: int, *, zeroed: bool = True) -> Block:
        """A new block of at least ``size`` bytes.

        Without ``zeroed`` it holds whatever lay there before, which is quicker for a block that is
        written at once. Name it by a root or in another block: nobody finds it otherwise.

        Raises:
            FullError: the heap has no room; TooLargeError: the size can never fit.
        """
        if size < 1:
            raise ValueError(f"a block of {size} bytes: it must have at least 1")
        offset, length = self._running().allocate(size, zeroed)
        block = self._heap._made(offset, length)
        self._made.append(block)
        return block

    def write(self, block: Block, offset: int, data: Octets) -> None:
        """Changes the bytes of a block from its byte ``offset`` on.

        Raises:
            IndexError: they would leave the block; BlockError: it is freed or of another heap.
            TooLargeError: the transaction is larger than the log (some 30 MB).
        """
        steps = self._of_heap(block)
        size = memoryview(data).nbytes
        if offset < 0 or offset + size > len(block):
            raise IndexError(f"{size} bytes at {offset} leave a block of {len(block)} bytes")
        if size:
            steps.write(block.offset + offset, data)

    def free(self, block: Block) -> None:
        """Frees a block. Whatever names it must be changed by the program.

        Raises:
            BlockError: it is freed already, or of another heap.
        """
        self._of_heap(block).free(block.offset)
        block._is_live = False
        self._freed.append(block)

    def root(self, name: str) -> Optional[Block]:
        """The block that a root names, with the changes of this transaction."""
        offset = self._running().root(name)
        return None if offset is None else self._heap.block(offset)

    def set_root(self, name: str, block: Block) -> None:
        """Lets a root name a block. Its name has 1 to 39 bytes.

        Raises:
            SettingError: the name is empty or too long; FullError: there are too many roots.
        """
        self._of_heap(block).set_root(name, block.offset)

    def remove_root(self, name: str) -> None:
        """Removes a root; its block stays.

        Raises:
            KeyError: there is no such root.
        """
        self._running().remove_root(name)

    def __enter__(self) -> HeapTransaction:
        if self._steps is not None:
            raise NestedError("a transaction is used once: begin another by heap.transaction()")
        heap = self._heap
        heap._check()
        heap._take_turn("transaction")
        try:
            self._steps = heap._steps = heap._begin()
        except BaseException:
            heap._end_turn()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        is_made = False
        try:
            self._running().end(kind is None)
            is_made = kind is None
        finally:
            heap = self._heap
            for block in self._freed:
                block._is_live = True
            for gone in self._freed if is_made else self._made:
                heap._forget(gone)
            heap._steps = None
            heap._end_turn()

    def _running(self) -> _native.HeapSteps:
        if self._steps is None:
            raise Error("begin the transaction: with heap.transaction() as tx")
        return self._steps

    def _of_heap(self, block: Block) -> _native.HeapSteps:
        steps = self._running()
        if block._heap is not self._heap:
            raise BlockError(f"the block at {block.offset} is of another heap: use that one's")
        block._check()
        return steps
