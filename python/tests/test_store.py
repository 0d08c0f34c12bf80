"""Tests of ``perdura.Store``."""

import collections.abc
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

import perdura
from programs import Program

SMALL = {"memory": "16MiB"}


class Stores(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name) / "data"

    def test_it_is_a_mutable_mapping_in_the_order_of_its_keys(self):
        with perdura.Store.open(self.dir, **SMALL) as store:
            self.assertIsInstance(store, collections.abc.MutableMapping)
            many = {b"%06d" % number: b"x" * (number % 7) for number in range(1000)}
            store.update(many)
            self.assertEqual(store, many)
            self.assertEqual(list(store), sorted(many))
            with unittest.mock.patch.object(perdura.Store, "_range", side_effect=AssertionError):
                self.assertEqual(list(store), sorted(many), "no value is copied for it")
            self.assertEqual([k for k, _ in store.range(b"000998")], [b"000998", b"000999"])
            self.assertEqual(list(store.range(b"0", b"000001")), [(b"000000", b"")])
            self.assertIn(bytearray(b"000001"), store)
            self.assertEqual(store[memoryview(b"000001")], b"x")
            self.assertIsNone(store.get(b"none"))
            self.assertEqual(store.get(b"none", 7), 7)
            for wrong in (lambda: store[b"none"], lambda: store.pop(b"none")):
                self.assertRaises(KeyError, wrong)
            with self.assertRaises(KeyError):
                del store[b"none"]
            with self.assertRaisesRegex(TypeError, "a key must be bytes, not str: encode it"):
                store["text"] = b""
            store.clear()
            self.assertRaises(KeyError, store.popitem)
            self.assertEqual(len(store), 0)

    def test_a_key_encrypts_and_no_other_key_opens(self):
        secret = b"nobody is to read this"
        key, other = bytes(range(32)), bytes(32)
        digits = self.dir.with_name("key")
        digits.write_text(f"{key.hex()}\n")

        def keep(kind, folder, **words):
            with kind.open(folder, holder=False, **SMALL, **words) as kept:
                if kind is perdura.Store:
                    kept[b"k"] = secret
                elif kind is perdura.Region:
                    memoryview(kept)[: len(secret)] = secret
                else:
                    with kept.transaction() as tx:
                        block = tx.allocate(len(secret))
                        tx.write(block, 0, secret)
                        tx.set_root("k", block)

        def found(kind, folder, **words):
            with kind.open(folder, holder=kind is perdura.Store, **words) as kept:
                if kind is perdura.Store:
                    return kept[b"k"]
                held = kept if kind is perdura.Region else kept.root("k")
                if kind is perdura.Region:
                    return bytes(memoryview(held)[: len(secret)])
                return held[: len(secret)]

        for kind in (perdura.Store, perdura.Region, perdura.Heap):
            with self.subTest(kind.__name__):
                folder = self.dir.with_name(kind.__name__)
                keep(kind, folder, key=key)
                self.assertNotIn(secret, (folder / "image.perdura").read_bytes())
                for wrong in ({"key": other}, {}):
                    with self.assertRaisesRegex(perdura.WrongKeyError, "key= or key_file="):
                        kind.open(folder, **wrong)
                self.assertEqual(found(kind, folder, key_file=digits), secret)
        plain = self.dir.with_name("plain")
        keep(perdura.Store, plain)
        self.assertIn(secret, (plain / "image.perdura").read_bytes())
        self.assertRaises(perdura.WrongKeyError, perdura.Store.open, plain, key=key)
        for words, said in (
            ({"key": key[1:]}, "key: expected 32 bytes, got 31"),
            ({"key": key, "key_file": digits}, "give one of both"),
            ({"key_file": __file__}, "expected 32 bytes, or 64 hexadecimal digits"),
            ({"key_file": "/none/key"}, "/none/key: No such file"),
        ):
            with self.assertRaisesRegex(perdura.SettingError, said) as refused:
                perdura.Store.open(self.dir, **words)
            self.assertNotIn(str(key[1:]), str(refused.exception))
        self.assertFalse(self.dir.exists())

    def test_keys_go_away_when_their_time_is_over(self):
        with perdura.Store.open(self.dir, **SMALL) as store:
            store.set(b"soon", b"", expires_in=0)
            store.set(b"late", b"", expires_in="1h")
            self.assertNotIn(b"soon", store)
            self.assertGreater(store.expires_in(b"late"), 3590)
            self.assertTrue(store.persist(b"late"))
            self.assertIsNone(store.expires_in(b"late"))

    def test_a_transaction_is_whole_or_absent_and_sees_conflicts(self):
        with perdura.Store.open(self.dir, **SMALL) as store:
            store[b"alice"] = b"7"
            with self.assertRaises(ZeroDivisionError), store.transaction() as tx:
                tx[b"alice"] = b"0"
                self.assertEqual(tx[b"alice"], b"0")
                1 // 0
            self.assertEqual(store[b"alice"], b"7")
            with self.assertRaisesRegex(perdura.ConflictError, "b'alice'.*transact"):
                with store.transaction() as tx:
                    tx[b"bob"] = tx.pop(b"alice")
                    store[b"alice"] = b"8"
            self.assertEqual(dict(store), {b"alice": b"8"})
            with self.assertRaises(perdura.ClosedError):
                tx[b"bob"]

    def test_threads_lose_nothing_and_the_lock_of_the_interpreter_is_free_meanwhile(self):
        with perdura.Store.open(self.dir, durability="fsync", **SMALL) as store:

            def count(tx):
                for key in (b"left", b"right"):
                    tx[key] = b"%d" % (int(tx.get(key, b"0")) + 1)

            threads = [
                threading.Thread(target=lambda: [store.transact(count) for _ in range(20)])
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(dict(store), {b"left": b"80", b"right": b"80"})

    def test_errors_say_what_to_do_and_are_the_usual_ones(self):
        store = perdura.Store.open(self.dir, **SMALL)
        with self.assertRaisesRegex(perdura.InUseError, "this program has it open") as raised:
            perdura.Store.open(self.dir)
        self.assertIsInstance(raised.exception, OSError)
        with self.assertRaisesRegex(perdura.FullError, "larger memory="):
            for number in range(100):
                store[b"%d" % number] = b"x" * (1 << 20)
        with self.assertRaisesRegex(perdura.TooLargeError, "65535"):
            store[b"k" * 70000] = b""
        self.assertTrue(store.close().is_in_time)
        with self.assertRaisesRegex(perdura.ClosedError, "open its directory again"):
            store[b"late"] = b""
        for options, said in [
            ({"memory": "64 Xb"}, "memory = \"64 Xb\""),
            ({"warning": -1.0}, "warning = -1.0: expected a time"),
            ({"budget": "a%"}, "budget = 'a%'"),
            ({"durability": "soon"}, "\"warned\" or \"fsync\""),
            ({"warning": 0.001}, "longer warning"),
        ]:
            with self.subTest(options), self.assertRaisesRegex(perdura.SettingError, said):
                perdura.Store.open(self.dir, **options)
        with self.assertRaisesRegex(perdura.OpenError, "holder="):
            perdura.Store.open(self.dir, holder="/none/perdura")
        with self.assertRaisesRegex(TypeError, "there is no option \"memroy\""):
            perdura.Store.open(self.dir, memroy="64MiB")
        with self.assertRaisesRegex(TypeError, "no durability to choose"):
            perdura.Region.open(self.dir, durability="fsync")

    def test_codecs_make_other_types_of_it(self):
        with perdura.Store.open(self.dir, **SMALL) as store:
            visits = perdura.Encoded(store, perdura.TEXT, perdura.JSON)
            visits["today"] = {"count": [1, 2]}
            self.assertEqual(store[b"today"], b'{"count":[1,2]}')
            self.assertEqual(dict(visits), {"today": {"count": [1, 2]}})
            with self.assertRaisesRegex(KeyError, "'none'"):
                visits["none"]

    def test_a_killed_program_loses_nothing_with_a_holder_and_with_fsync(self):
        for options in ({}, {"holder": False}):
            with self.subTest(options):
                dir = self.dir.with_name(f"data{len(options)}")
                program = Program(dir, **options)
                program.ask("for n in range(200): store[b'%d' % n] = b'x' * n")
                program.kill()
                with perdura.Store.open(dir) as store:
                    expected = {b"%d" % n: b"x" * n for n in range(200)}
                    self.assertEqual(dict(store), expected)

    def test_a_program_that_ends_in_any_way_but_a_kill_leaves_no_holder(self):
        for end in ("", "sys.exit(3)", "1 // 0", "os.kill(os.getpid(), signal.SIGINT)"):
            with self.subTest(end):
                code = (
                    "import os, signal, sys, perdura\n"
                    "store = perdura.Store.open(sys.argv[1], memory='16MiB')\n"
                    "region = perdura.Region.open(sys.argv[1] + 'r', memory='16MiB')\n"
                    "heap = perdura.Heap.open(sys.argv[1] + 'h', memory='16MiB')\n"
                    "scratch = memoryview(heap.capacity(100))\n"
                    "with heap.transaction() as tx:\n"
                    "    tx.set_root('kept', tx.allocate(10))\n"
                    "open_tx = heap.transaction().__enter__()\n"
                    "open_tx.set_root('undone', open_tx.allocate(10))\n"
                    f"store[b'a'] = b'1'\nview = memoryview(region)\nview[0] = 7\n{end}\n"
                )
                words = [sys.executable, "-c", code, str(self.dir)]
                subprocess.run(words, stderr=subprocess.DEVNULL, timeout=60)
                # Opened without a holder of its own, so a holder that is left would be in the way.
                with perdura.Store.open(self.dir, holder=False) as store:
                    self.assertEqual(dict(store), {b"a": b"1"})
                with perdura.Region.open(str(self.dir) + "r", holder=False) as region:
                    self.assertEqual(memoryview(region)[0], 7)
                with perdura.Heap.open(str(self.dir) + "h", holder=False) as heap:
                    self.assertEqual(heap.roots(), ["kept"])

    def test_a_fork_is_refused_and_disturbs_nothing(self):
        with perdura.Store.open(self.dir, **SMALL) as store:
            store[b"a"] = b"1"
            child = os.fork()
            if child == 0:
                try:
                    store[b"a"] = b"2"
                except perdura.ForkedError:
                    del store
                    os._exit(17)
                os._exit(1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 17)
            store[b"b"] = b"2"
        with perdura.Store.open(self.dir) as store:
            self.assertEqual(dict(store), {b"a": b"1", b"b": b"2"})


if __name__ == "__main__":
    unittest.main()
