"""Tests of ``perdura.Heap``."""

import contextlib
import copy
import gc
import os
import pickle
import random
import signal
import struct
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perdura
from programs import Program

SMALL = {"memory": "16MiB"}

#: Makes transactions without end, each after the one before, and says the number of each. A
#: transaction changes a table in place, puts a node before a list, and frees one far behind.
CHAIN = """
import random, struct, sys
import perdura
KEPT = 5
heap = perdura.Heap.open(sys.argv[1], memory="16MiB", budget="1MiB")
print("ready", flush=True)
while True:
    with heap.transaction() as tx:
        table, head = tx.root("table"), tx.root("list")
        if table is None:
            table = tx.allocate(8 * 100)
            tx.set_root("table", table)
        number = struct.unpack("<Q", table[:8])[0] + 1
        tx.write(table, 0, struct.pack("<Q", number))
        for place in random.Random(number).sample(range(1, 100), 7):
            old, = struct.unpack("<Q", table[place * 8 : place * 8 + 8])
            tx.write(table, place * 8, struct.pack("<Q", old + number))
        node = tx.allocate(16 + number % 3000, zeroed=False)
        tx.write(node, 0, struct.pack("<QQ", number, head.offset if head else 0) + b"x" * (number % 3000))
        tx.set_root("list", node)
        far = [node]
        while (before := struct.unpack("<Q", far[-1][8:16])[0]):
            far.append(heap.block(before))
        if len(far) > KEPT:
            tx.write(far[-2], 8, struct.pack("<Q", 0))
            tx.free(far[-1])
    print(number, flush=True)
"""


def expected_table(number):
    table = [number] + [0] * 99
    for each in range(1, number + 1):
        for place in random.Random(each).sample(range(1, 100), 7):
            table[place] += each
    return table


def found_list(heap):
    """The numbers of the list's nodes, the newest first, whose other bytes are checked."""
    numbers, block = [], heap.root("list")
    while block is not None:
        number, before = struct.unpack("<QQ", block[:16])
        assert block[16 : 16 + number % 3000] == b"x" * (number % 3000), number
        numbers.append(number)
        block = heap.block(before) if before else None
    return numbers


def refuses(error, call):
    try:
        call()
    except error as refusal:
        return refusal
    return None


class Heaps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name) / "data"

    def test_blocks_are_there_again_by_roots_and_offsets(self):
        with perdura.Heap(self.dir, **SMALL) as heap:
            self.assertIsNone(heap.root("first"))
            with heap.transaction() as tx:
                first, second = tx.allocate(64), tx.allocate(100)
                self.assertEqual((bytes(first), len(first)), (b"\0" * 64, 64))
                tx.write(second, 10, bytearray(b"second"))
                tx.write(second, len(second), b"")
                self.assertEqual(second[8:18], b"\0\0second\0\0")
                self.assertEqual((second[200:], second[10:16:2]), (b"", b"scn"))
                tx.write(first, 56, struct.pack("<Q", second.offset))
                tx.set_root("first", first)
                self.assertIs(tx.root("first"), first)
            self.assertGreater(heap.dirty_bytes, 0)
            heap.checkpoint()
            self.assertLessEqual(heap.dirty_bytes, heap.promise.budget_bytes)
            self.assertEqual((heap.roots(), heap.root("first")), (["first"], first))
        with perdura.Heap.open(self.dir) as heap:
            first = heap.root("first")
            self.assertIs(heap.root("first"), first)
            second = heap.block(struct.unpack("<Q", first[-8:])[0])
            self.assertEqual((second[10:16], second[10], second[-1]), (b"second", ord("s"), 0))
            with heap.transaction() as tx:
                tx.remove_root("first")
                tx.free(first)
            self.assertEqual(heap.roots(), [])

    def test_an_exception_undoes_everything(self):
        with perdura.Heap.open(self.dir, **SMALL) as heap:
            with heap.transaction() as tx:
                kept = tx.allocate(32)
                tx.write(kept, 0, b"before")
                tx.set_root("kept", kept)
            with self.assertRaises(ZeroDivisionError), heap.transaction() as tx:
                made = tx.allocate(32)
                tx.write(kept, 0, b"after.")
                self.assertEqual(kept[:6], b"after.")
                tx.set_root("made", made)
                tx.free(kept)
                1 // 0
            self.assertEqual((kept[:6], heap.roots()), (b"before", ["kept"]))
            with self.assertRaisesRegex(perdura.BlockError, "undone"):
                bytes(made)

    def test_wrong_use_is_refused_and_changes_nothing(self):
        heap = perdura.Heap.open(self.dir, **SMALL)
        other = perdura.Heap.open(self.dir.with_name("other"), **SMALL)
        with self.assertRaisesRegex(perdura.InUseError, "this program has it open"):
            perdura.Heap.open(self.dir)
        with other.transaction() as tx:
            foreign = tx.allocate(16)
        with heap.transaction() as tx:
            block, freed = tx.allocate(64), tx.allocate(16)
            tx.free(freed)
            for error, call in [
                (perdura.BlockError, lambda: tx.free(freed)),
                (perdura.BlockError, lambda: tx.write(freed, 0, b"x")),
                (perdura.BlockError, lambda: bytes(freed)),
                (perdura.BlockError, lambda: tx.write(foreign, 0, b"x")),
                (perdura.BlockError, lambda: tx.set_root("a", foreign)),
                (perdura.BlockError, lambda: heap.block(block.offset + 8)),
                (IndexError, lambda: tx.write(block, 60, b"12345")),
                (IndexError, lambda: tx.write(block, -1, b"1")),
                (IndexError, lambda: block[64]),
                (TypeError, lambda: tx.write(block, 0, "text")),
                (ValueError, lambda: tx.allocate(0)),
                (perdura.TooLargeError, lambda: tx.allocate(1 << 40)),
                (perdura.FullError, lambda: [tx.allocate(10 << 20) for _ in range(2)]),
                (perdura.SettingError, lambda: tx.set_root("n" * 40, block)),
                (KeyError, lambda: tx.remove_root("none")),
                (perdura.NestedError, lambda: heap.transaction().__enter__()),
                (perdura.NestedError, heap.close),
            ]:
                with self.subTest(error=error), self.assertRaises(error):
                    call()
        self.assertEqual((bytes(block), heap.roots()), (b"\0" * 64, []))
        with self.assertRaises(perdura.ClosedError):
            tx.write(block, 0, b"late")
        with self.assertRaisesRegex(TypeError, "durability"):
            perdura.Heap.open(self.dir, durability="fsync")
        self.assertTrue(heap.close().is_in_time)
        for late in (lambda: bytes(block), heap.roots, heap.transaction().__enter__):
            self.assertRaises(perdura.ClosedError, late)
        other.close()

    def test_capacity_memory_stays_mapped_while_views_live(self):
        heap = perdura.Heap.open(self.dir, **SMALL)
        scratch = heap.capacity(1 << 20)
        array = np.frombuffer(scratch, "uint64")
        self.assertFalse(array.any())
        array[:] = 7
        with self.assertRaisesRegex(BufferError, "views of this heap that live: 1"):
            heap.close()
        with heap:
            del scratch
        self.assertTrue(heap.is_closed)
        self.assertRaises(perdura.ClosedError, heap.capacity, 64)
        array += 1
        self.assertEqual(int(array[-1]), 8)
        with self.assertRaises(perdura.InUseError):
            perdura.Heap.open(self.dir)
        del array
        gc.collect()
        with perdura.Heap.open(self.dir, holder=False) as heap:
            for _ in range(50):
                memoryview(heap.capacity(4 << 20))[0] = 1
            scratch = heap.capacity(1 << 20)
            self.assertFalse(any(memoryview(scratch)))
        self.assertRaises(perdura.ClosedError, memoryview, scratch)

    def test_threads_take_turns(self):
        with perdura.Heap.open(self.dir, **SMALL) as heap:
            with heap.transaction() as tx:
                # So long that a commit can come while it is read.
                pair = tx.allocate(1 << 18)
            end = len(pair) - 8
            torn = []

            def both():
                content = bytes(pair)
                return struct.unpack("<QQ", content[:8] + content[end:])

            def count():
                for _ in range(50):
                    with heap.transaction() as tx:
                        left, right = both()
                        tx.write(pair, 0, struct.pack("<Q", left + 1))
                        tx.write(pair, end, struct.pack("<Q", right + 1))

            def look():
                for _ in range(500):
                    left, right = both()
                    torn.extend([(left, right)] if left != right else [])

            threads = [threading.Thread(target=each) for each in (count, count, count, look)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((both(), torn), ((150, 150), []))

    def test_a_program_killed_among_transactions_leaves_whole_ones(self):
        said = 0
        for life in range(6):
            program = Program(self.dir, CHAIN)
            for _ in range(random.Random(life).randrange(5, 60)):
                said = int(program.answer())
            # Anywhere in a transaction, not only where the program has just spoken.
            time.sleep(random.uniform(0, 0.01))
            left = program.kill()
            said = max([said, *map(int, (line for line in left if line))])
            with perdura.Heap.open(self.dir) as heap:
                table = list(struct.unpack("<100Q", heap.root("table")[:800]))
                # The last transaction may have been made and not said.
                self.assertIn(table[0] - said, (0, 1), f"life {life}")
                said = table[0]
                self.assertEqual(table, expected_table(said), f"life {life}")
                expected = list(range(said, max(0, said - 5), -1))
                self.assertEqual(found_list(heap), expected, f"life {life}")

    def test_an_interrupt_anywhere_leaves_no_turn_taken_and_no_block_in_doubt(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, interrupt))
        dice, content, made = random.Random(1), bytes(1 << 20), 0
        heap = perdura.Heap.open(self.dir, holder=False, **SMALL)
        with heap.transaction() as tx:
            table = tx.allocate(len(content))
        for _ in range(100):
            with heap.transaction() as tx:
                old = tx.allocate(64, zeroed=False)
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0001, 0.004))
                with heap.transaction() as tx:
                    tx.write(table, 0, content)
                    tx.free(old)
                time.sleep(1)
            except KeyboardInterrupt:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            # Another object for the same block, if the heap has it still.
            is_there = refuses(perdura.BlockError, lambda: heap._length(old.offset)) is None
            self.assertEqual(refuses(perdura.BlockError, lambda: bytes(old)) is None, is_there)
            made += not is_there
            begun = threading.Thread(target=lambda: heap.transaction().__enter__(), daemon=True)
            begun.start()
            begun.join(10)
            self.assertFalse(begun.is_alive(), "nobody gets the turn any more")
        self.assertTrue(0 < made < 100, made)
        heap.close()

    def test_a_block_is_neither_copied_nor_seen_before_it_is_made(self):
        with perdura.Heap.open(self.dir, **SMALL) as heap:
            seen = []
            with heap.transaction() as tx:
                block = tx.allocate(64)
                for look in (lambda: bytes(block), lambda: tx.write(block, 0, b"helper")):
                    helper = threading.Thread(
                        target=lambda: seen.append(refuses(perdura.BlockError, look))
                    )
                    helper.start()
                    helper.join()
            self.assertIn("still runs in another thread", str(seen[0]))
            self.assertEqual((seen[1:], block[:6]), ([None], b"helper"))
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                self.assertRaisesRegex(TypeError, "copied or pickled", copied, block)

    def test_a_block_that_is_gone_is_no_other_block_that_has_its_place(self):
        with perdura.Heap.open(self.dir, **SMALL) as heap:
            with self.assertRaises(ZeroDivisionError), heap.transaction() as tx:
                place = tx.allocate(64).offset
                undone = heap.block(place)
                1 // 0
            with heap.transaction() as tx:
                freed = tx.allocate(64)
                self.assertEqual(freed.offset, place)
                tx.write(freed, 0, b"freed")
            with heap.transaction() as tx:
                tx.free(freed)
                self.assertRaises(perdura.BlockError, heap.block, place)
            self.assertRaises(perdura.BlockError, heap.block, place)
            with heap.transaction() as tx:
                block = tx.allocate(64)
                self.assertEqual((block.offset, heap.block(place)), (place, block))
                for gone in (undone, freed):
                    self.assertRaises(perdura.BlockError, tx.write, gone, 0, b"stale")
            for gone in (undone, freed):
                self.assertRaises(perdura.BlockError, bytes, gone)
            self.assertEqual(bytes(block), bytes(64))
            full = mock.patch.object(perdura.HeapTransaction, "_free", side_effect=perdura.FullError)
            with full, heap.transaction() as tx:
                self.assertRaises(perdura.FullError, tx.free, block)
            self.assertEqual(bytes(block), bytes(64))

    def test_a_turn_is_its_threads_only_and_ends_with_the_transaction(self):
        with perdura.Heap.open(self.dir, **SMALL) as heap:
            left, said = [heap.transaction()], []
            ended = threading.Thread(target=left[0].__enter__)
            ended.start()
            ended.join()

            def begin():
                with heap.transaction() as tx:
                    said.append(tx.root("none"))

            # The system gives the number of the thread that ended to the next one.
            waiting = threading.Thread(target=begin)
            waiting.start()
            waiting.join(0.2)
            self.assertEqual((said, waiting.is_alive()), ([], True))
            with self.assertRaisesRegex(perdura.NestedError, "is used once"):
                left[0].__enter__()
            left.clear()
            waiting.join()
            self.assertEqual(said, [None])
            never = heap.transaction()
            self.assertRaisesRegex(perdura.Error, "begin the transaction", never.allocate, 8)

    def test_who_waited_for_a_turn_begins_nothing_in_a_heap_that_closes_with_its_views(self):
        heap, begun = perdura.Heap.open(self.dir, holder=False, **SMALL), []
        view = memoryview(heap.capacity(64))

        def begin():
            with contextlib.suppress(perdura.ClosedError), heap.transaction():
                begun.append(heap.is_closed)

        threads = [threading.Thread(target=heap.__exit__, args=[None] * 3)]
        threads.append(threading.Thread(target=begin))
        with heap.transaction():
            for thread in threads:
                thread.start()
                time.sleep(0.06)
        for thread in threads:
            thread.join()
        self.assertNotIn(True, begun)
        view.release()
        self.assertRaises(perdura.ClosedError, heap.roots)

    def test_a_fork_is_refused_and_disturbs_nothing(self):
        with perdura.Heap.open(self.dir, **SMALL) as heap:
            with heap.transaction() as tx:
                block = tx.allocate(16)
                child = os.fork()
                if child == 0:
                    refused = 0
                    for call in (
                        lambda: tx.write(block, 0, b"child"),
                        lambda: bytes(block),
                        heap.roots,
                        lambda: heap.capacity(64),
                        heap.close,
                        lambda: heap.transaction().__enter__(),
                    ):
                        try:
                            call()
                        except perdura.ForkedError:
                            refused += 1
                    os._exit(refused)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 6)
                tx.write(block, 0, b"parent")
            self.assertEqual(block[:6], b"parent")

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(st.tuples(
        st.sampled_from(["put", "free", "undo", "reopen"]),
        st.sampled_from(["a", "b", "c", "d"]),
        st.binary(min_size=1, max_size=5000),
    ), max_size=6), max_size=8))
    def test_roots_are_those_of_a_dict(self, transactions):
        with tempfile.TemporaryDirectory() as place:
            options = {"holder": False, "memory": "4MiB", "checkpoint_every": None}
            heap, model = perdura.Heap.open(f"{place}/data", **options), {}
            for changes in transactions:
                before = dict(model)
                try:
                    with heap.transaction() as tx:
                        for change, name, data in changes:
                            old = tx.root(name)
                            if change in ("put", "free") and old is not None:
                                tx.free(old)
                                tx.remove_root(name)
                                del model[name]
                            if change == "put":
                                block = tx.allocate(len(data))
                                tx.write(block, 0, data)
                                tx.set_root(name, block)
                                model[name] = data
                            if change == "undo":
                                raise LookupError
                except LookupError:
                    model = before
                if any(change == "reopen" for change, _, _ in changes):
                    heap.close()
                    heap = perdura.Heap.open(f"{place}/data", **options)
                self.assertEqual(heap.roots(), sorted(model))
                for name, data in model.items():
                    self.assertEqual(heap.root(name)[: len(data)], data)
            heap.close()


if __name__ == "__main__":
    unittest.main()
