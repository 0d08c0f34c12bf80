"""The package as its pages say: the blocks of docs/python.md, the notebook, the types."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Pages(unittest.TestCase):
    def test_the_blocks_of_the_page_run_in_a_new_folder(self):
        text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        blocks = [part.split("```\n", 1)[0] for part in text.split("```python\n")[1:]]
        self.assertEqual(len(blocks), 3)
        with tempfile.TemporaryDirectory() as place:
            for visits in (b"I", b"II"):
                for block in blocks:
                    words = [sys.executable, "-c", block]
                    done = subprocess.run(words, cwd=place, capture_output=True, timeout=60)
                    self.assertEqual((done.returncode, done.stderr), (0, b""))
                    if b"visits" in block.encode():
                        self.assertIn(repr(visits).encode(), done.stdout)

    def test_the_notebook_runs_and_is_committed_without_outputs(self):
        import nbformat
        from nbclient import NotebookClient

        notebook = nbformat.read(ROOT / "python/notebooks/first_steps.ipynb", as_version=4)
        nbformat.validate(notebook)
        for cell in notebook.cells:
            self.assertFalse(cell.get("outputs") or cell.get("execution_count"), cell.source)
        with tempfile.TemporaryDirectory() as place:
            resources = {"metadata": {"path": place}}
            NotebookClient(notebook, timeout=60, resources=resources).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        printed = [output.get("text", "") for output in outputs]
        self.assertIn("10600.0\n", printed)

    def test_the_types_are_those_of_the_code(self):
        modules = ["__init__", "errors", "options", "store", "region", "heap", "encoded", "holder"]
        files = [f"perdura/{name}.py" for name in modules] + ["perdura/_native.pyi"]
        allowed = str(ROOT / "python/tests/stubtest.txt")
        with tempfile.TemporaryDirectory() as place:
            for folder, words in (
                (ROOT / "python", ["mypy", "--strict", "--follow-imports=silent", *files]),
                # This looks at the package that is installed.
                (
                    place,
                    ["mypy.stubtest", "perdura._native", "--ignore-missing-stub"]
                    + ["--allowlist", allowed, "--ignore-unused-allowlist"],
                ),
            ):
                done = subprocess.run(
                    [sys.executable, "-m", *words],
                    env={**os.environ, "MYPY_CACHE_DIR": place},
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=200,
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
