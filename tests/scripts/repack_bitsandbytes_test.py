#!/usr/bin/env python3
"""scripts/repack_bitsandbytes.py on wheels that look like those of PyPI.

    python3 tests/scripts/repack_bitsandbytes_test.py"""

import base64
import hashlib
import importlib.metadata
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "scripts/repack_bitsandbytes.py"
FILES = {"bitsandbytes/__init__.py": b"number = 7\n", "bitsandbytes/optim/adam.py": b"", "bitsandbytes/libbitsandbytes_cpu.so": b"p",
         "bitsandbytes/libbitsandbytes_cuda130.so": b"thirteen", "bitsandbytes/libbitsandbytes_cuda128.so": b"twelve",
         "bitsandbytes/libbitsandbytes_rocm72.so": b"other", "bitsandbytes/libbitsandbytes_xpu2026.so": b"other",
         "bitsandbytes-0.9.dist-info/licenses/LICENSE": b"MIT\n"}
NEEDS = ["torch<3,>=2.4", "numpy>=1.17", "packaging>=20.9", 'scipy<2; extra == "test"']


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Repacked(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "wheels").mkdir()
        self.wheel("bitsandbytes", "0.9", FILES, NEEDS)
        self.wheel("packaging", "26.0", {"packaging/__init__.py": b"", "packaging/version.py": b"v = 1\n"}, [])

    def wheel(self, name, version, files, needed):
        info = f"{name}-{version}.dist-info"
        metadata = "".join(f"{line}\n" for line in ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}",
                                                   *(f"Requires-Dist: {n}" for n in needed), "", "Requires-Dist: prose"])
        files = files | {f"{info}/METADATA": metadata.encode()}
        record = "".join(f"{file},{digest(data)},{len(data)}\n" for file, data in files.items()) + f"{info}/RECORD,,\n"
        with zipfile.ZipFile(self.folder / f"wheels/{name}-{version}-py3-none-any.whl", "w") as z:
            for file, data in (files | {f"{info}/RECORD": record.encode()}).items():
                z.writestr(file, data)

    def repack(self, output, *words):
        return subprocess.run([sys.executable, PROGRAM, self.folder / output, "--wheels", self.folder / "wheels", *words],
                              capture_output=True, text=True)

    def test_one_library_is_kept(self):
        for cuda, library in (("13.0", "cuda130"), ("12.8", "cuda128")):
            with self.subTest(cuda=cuda):
                done = self.repack("out", "--cuda", cuda)
                self.assertEqual(done.returncode, 0, done.stderr)
                kept = {f.name for f in (self.folder / "out").rglob("*.so")}
                self.assertEqual(kept, {"libbitsandbytes_cpu.so", f"libbitsandbytes_{library}.so"})
                self.assertTrue((self.folder / "out/bitsandbytes/optim/adam.py").exists())
                self.assertTrue((self.folder / "out/packaging/version.py").exists())

    def test_the_record_is_of_what_is_there(self):
        self.assertEqual(self.repack("out").returncode, 0)
        for package, files in (("bitsandbytes", 7), ("packaging", 4)):
            (found,) = importlib.metadata.distributions(name=package, path=[str(self.folder / "out")])
            self.assertEqual(len(found.files), files)
            for file in found.files:
                data = file.read_binary()
                if file.hash:
                    self.assertEqual((f"sha256={file.hash.value}", file.size), (digest(data), len(data)))

    def test_an_archive_is_the_same_each_time(self):
        for name in ("one.tar.xz", "two.tar.xz"):
            self.assertEqual(self.repack(name).returncode, 0)
        self.assertEqual((self.folder / "one.tar.xz").read_bytes(), (self.folder / "two.tar.xz").read_bytes())
        with tarfile.open(self.folder / "one.tar.xz") as archive:
            self.assertIn("bitsandbytes/libbitsandbytes_cuda130.so", archive.getnames())
            self.assertEqual({m.uid for m in archive}, {0})

    def test_what_cannot_be_made(self):
        done = self.repack("out", "--cuda", "13.2")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has no library for CUDA 13.2; it has 128, 130", done.stderr)
        for path in (self.folder / "wheels").glob("packaging*"):
            path.unlink()
        done = self.repack("out")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("exactly one wheel of packaging, but has 0", done.stderr)

    def test_folders_of_others_are_not_replaced(self):
        (self.folder / "mine").mkdir()
        (self.folder / "mine/file").touch()
        done = self.repack("mine")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is not empty", done.stderr)
        self.assertTrue((self.folder / "mine/file").exists())


if __name__ == "__main__":
    unittest.main()
