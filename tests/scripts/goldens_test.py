#!/usr/bin/env python3
"""scripts/goldens.py: what it packs, shows and compares, and that the archives match the files next to them.

    python3 tests/scripts/goldens_test.py"""

import contextlib
import importlib.util
import io
import json
import struct
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("goldens", ROOT / "scripts/goldens.py")
goldens = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(goldens)


def safetensors(name, values):
    header = json.dumps({name: dict(dtype="F32", shape=[len(values)], data_offsets=[0, 4 * len(values)])}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(values)}f", *values)


class Archive(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "data").mkdir()
        (self.folder / "data/a.json").write_text('{"loss": 1.5}\n')
        (self.folder / "data/w.safetensors").write_bytes(safetensors("weight", [0.25, -2.0]))
        (self.folder / "data/link.json").symlink_to("a.json")
        self.archive = self.folder / "data.tar.xz"
        self.pack()

    def pack(self):
        names = [str(p.relative_to(self.folder)) for p in (self.folder / "data").iterdir()]
        self.archive.write_bytes(goldens.packed(self.folder, names))

    def test_unpacking_gives_the_files_and_links_back(self):
        self.assertEqual(goldens.check(self.archive), [])
        for path in (self.folder / "data").iterdir():
            path.unlink()
        self.assertEqual(len(goldens.check(self.archive)), 3)
        goldens.unpack(self.archive)
        self.assertEqual(goldens.check(self.archive), [])
        self.assertEqual((self.folder / "data/link.json").read_text(), '{"loss": 1.5}\n')
        self.assertTrue((self.folder / "data/link.json").is_symlink())

    def test_a_changed_file_is_noticed(self):
        (self.folder / "data/a.json").write_text('{"loss": 1.6}\n')
        self.assertEqual(goldens.check(self.archive), ["changed: data/a.json"])

    def test_the_lines_that_differ_are_shown(self):
        old = {"a.json": b"{\n1\n}\n", "same": b"1", "link": "a.json", "w.bin": b"\0\1"}
        new = {"a.json": b"{\n2\n}\n", "same": b"1", "added": b"3\n", "w.bin": b"\0\2"}
        shown = list(goldens.changed_lines(old, new))
        self.assertEqual([line for line in shown if line[0] in "+-"],
                         ["--- a/a.json", "+++ b/a.json", "-1", "+2", "--- a/added", "+++ b/added", "+3"])

    def test_the_same_files_give_the_same_bytes(self):
        before = self.archive.read_bytes()
        (self.folder / "data/a.json").write_text('{"loss": 1.5}\n')
        self.pack()
        self.assertEqual(self.archive.read_bytes(), before)

    def test_tensors_are_shown_with_their_values(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            goldens.show(goldens.entries(self.archive.read_bytes())["data/w.safetensors"])
        self.assertEqual(out.getvalue(), "weight F32 [2]: 0.25 -2\n")


class Archives(unittest.TestCase):
    def test_match_the_files_next_to_them(self):
        """Fails if goldens were changed but not packed."""
        for archive in goldens.archives():
            folder = archive.parent / archive.name.removesuffix(".tar.xz")
            if (archive.parent / f".{folder.name}.unpacked").exists():
                self.assertEqual(goldens.check(archive), [], archive)


if __name__ == "__main__":
    unittest.main()
