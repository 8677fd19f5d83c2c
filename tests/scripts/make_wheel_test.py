#!/usr/bin/env python3
"""What a wheel says about itself is readable without the repository (scripts/package/make_wheel.py).

    python3 tests/scripts/make_wheel_test.py"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def metadata_of_a_wheel():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "licenses").mkdir()
        (folder / "qtrain").write_bytes(b"program")
        (folder / "sbom.json").write_text(json.dumps({"components": []}))
        made = subprocess.run(
            [sys.executable, ROOT / "scripts/package/make_wheel.py", "--program", folder / "qtrain", "--version", "1.2.3",
             "--glibc", "2.28", "--kind", "cpu", "--licenses", folder / "licenses", "--sbom", folder / "sbom.json",
             "--output", folder], check=True, capture_output=True, text=True)
        with zipfile.ZipFile(made.stdout.strip()) as wheel:
            return Parser().parsestr(wheel.read("qtrain-1.2.3.dist-info/METADATA").decode())


class WheelDescription(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = metadata_of_a_wheel().get_payload()

    def test_has_no_link_or_picture_of_the_repository(self):
        self.assertTrue(re.search(r"\]\((?!\w+:)", README), "README.md has links to files")
        self.assertEqual(re.findall(r"!?\[[^\]]*\]\((?!\w+:)[^)]*\)", self.text), [])
        self.assertNotIn("<!--", self.text)
        self.assertNotIn("docs/images", self.text)

    def test_keeps_the_words_the_commands_and_the_config(self):
        self.assertTrue(self.text.startswith("# qtrain\n\nFine-tunes"))
        for kept in ("scripts/quickstart.sh", '"model_name_or_path": "model"', "```sh\n", "execution harness",
                     "Apache License 2.0"):
            self.assertIn(kept, self.text)
        for heading in re.findall(r"^#.*", README, re.M):
            self.assertIn(heading, self.text)

    def test_keeps_every_fenced_block_as_it_is(self):
        blocks = re.findall(r"^```.*?^```$", README, re.M | re.S)
        self.assertGreater(len(blocks), 3)
        for block in blocks:
            self.assertIn(block, self.text)


if __name__ == "__main__":
    unittest.main()
