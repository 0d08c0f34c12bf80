"""Tests of ``perdura.Region``."""

import faulthandler
import gc
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np

import perdura

SMALL = {"memory": "16MiB"}

KILLED = """
import faulthandler, os, signal, sys
import numpy as np
faulthandler.enable()
import perdura
region = perdura.Region.open(sys.argv[1], memory="16MiB", budget="1MiB", checkpoint_every=None)
grid = region.array("float64", (1000, 1000))
grid += np.arange(1000)
grid[::7] *= 2
os.kill(os.getpid(), signal.SIGKILL)
"""


class Regions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name) / "data"

    def test_arrays_of_a_killed_program_are_there_again(self):
        done = subprocess.run([sys.executable, "-c", KILLED, str(self.dir)], timeout=60)
        self.assertEqual(done.returncode, -9)
        expected = np.zeros((1000, 1000)) + np.arange(1000)
        expected[::7] *= 2
        with perdura.Region.open(self.dir) as region:
            found = region.array("float64", (1000, 1000))
            np.testing.assert_array_equal(found, expected)
            del found

    def test_contents_are_those_of_numpy_after_random_writes_and_checkpoints(self):
        random = np.random.default_rng(7)
        model = np.zeros(1 << 20, "uint32")
        for life in range(3):
            region = perdura.Region.open(self.dir, budget="2MiB", **SMALL)
            array = region.array("uint32", 1 << 20, offset=4096 * 3)
            np.testing.assert_array_equal(array, model, f"life {life}")
            for step in range(20):
                start, length = random.integers(0, 1 << 19, 2)
                for each in (array, model):
                    each[start : start + length] += np.uint32(step)
                places = random.integers(0, 1 << 20, 500)
                array[places] = model[places] = np.uint32(step * life)
                if step % 7 == 3:
                    region.checkpoint()
            del array, each
            region.close()

    def test_a_close_is_refused_while_a_view_lives(self):
        region = perdura.Region.open(self.dir, **SMALL)
        array = region.array("int16", (3, 4))
        part = array[1:, ::2]
        del array
        self.assertEqual(region.views, 1)
        with self.assertRaisesRegex(BufferError, "live: 1: delete the arrays"):
            region.close()
        part[:] = 5
        del part
        self.assertTrue(region.close().is_in_time)
        self.assertTrue(region.is_closed)
        for late in (lambda: memoryview(region), region.commit, lambda: len(region)):
            self.assertRaises(perdura.ClosedError, late)

    def test_a_block_ends_well_with_views_that_outlive_it(self):
        for error in (None, LookupError):
            try:
                with perdura.Region.open(self.dir, **SMALL) as region:
                    array = region.array("int64", 10)
                    array += 1
                    if error:
                        raise error
            except LookupError:
                pass
            self.assertRaises(perdura.ClosedError, memoryview, region)
            array[0] = 100
            with self.assertRaises(perdura.InUseError):
                perdura.Region.open(self.dir)
            del array
            gc.collect()
        with perdura.Region.open(self.dir) as region:
            self.assertEqual(bytes(memoryview(region)[:16]), b"\x64" + b"\0" * 7 + b"\2" + b"\0" * 7)

    def test_arrays_fit_the_region_and_hold_no_objects(self):
        with perdura.Region.open(self.dir, **SMALL) as region:
            self.assertEqual(region.array("float32").shape, (4 << 20,))
            self.assertEqual(region.array("float32", ()).shape, ())
            self.assertEqual(region.array([("a", "i4"), ("b", "f8")], 3)["b"].shape, (3,))
            for words, said in [
                (("float64", (2 << 20, 2)), "larger memory="),
                (("float64", 1, 16 << 20), "larger memory="),
                (("float64", 1, -8), "offset -8"),
                (("object",), "objects do not survive"),
            ]:
                with self.subTest(words), self.assertRaisesRegex(ValueError, said):
                    region.array(*words)

    def test_the_kernel_writes_through_a_transfer(self):
        with perdura.Region.open(self.dir, **SMALL) as region:
            region.checkpoint()
            path = self.dir.with_name("file")
            path.write_bytes(b"abc" * 1000)
            with open(path, "rb", buffering=0) as file:
                self.assertEqual(region.transfer(file.readinto, 100, 3000), 3000)
            self.assertEqual(bytes(memoryview(region)[99:103]), b"\0abc")
            with self.assertRaises(IndexError):
                region.transfer(print, 16 << 20, 1)

    def test_threads_store_through_a_budget_of_a_few_pages(self):
        region = perdura.Region.open(self.dir, budget="1MiB", checkpoint_every=0.01, **SMALL)
        array = region.array("uint64", (4, 1 << 17))

        def fill(row):
            for number in range(5):
                array[row] = number * 10 + row

        threads = [threading.Thread(target=fill, args=(row,)) for row in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(array[:, ::4096].max(axis=1), [40, 41, 42, 43])
        self.assertLessEqual(region.dirty_bytes, 1 << 20)
        del array
        region.close()


if __name__ == "__main__":
    faulthandler.enable()
    unittest.main()
