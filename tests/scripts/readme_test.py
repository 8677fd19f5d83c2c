#!/usr/bin/env python3
"""The first screen of README.md shows what qtrain is, how to install it and how to run it; pictures and pages exist.

    python3 tests/scripts/readme_test.py"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCREEN = README.splitlines()[:40]
MOST_LINES, MOST_IN_A_CELL = 125, 200


class Readme(unittest.TestCase):
    def test_first_screen_fits_a_terminal_and_shows_how_to_begin(self):
        badges = [line for line in SCREEN if line.startswith("[![")]
        self.assertLessEqual(max(len(line) for line in SCREEN if line not in badges), 80)
        for shown in ("times", "tokens/s", "pip install", "qtrain config.json", "scripts/quickstart.sh", "scripts/test.sh"):
            self.assertIn(shown, "\n".join(SCREEN))

    def test_is_short(self):
        self.assertLessEqual(len(README.splitlines()), MOST_LINES)
        self.assertEqual(README.count("measured on a real GPU"), 1)

    def test_files_that_it_links_to_exist(self):
        links = re.findall(r"\]\((?!\w+:)([^)#]+)", README)
        self.assertGreater(len(links), 15)
        for link in links:
            self.assertTrue((ROOT / link).exists(), link)

    def test_every_folder_is_in_its_tree(self):
        tree = README.split("## Where things are")[1]
        for folder in sorted(file.parent.name for file in ROOT.glob("*/CMakeLists.txt")):
            self.assertIn(f"{folder}/", tree)

    def test_cells_of_moved_tables_are_short(self):
        for page in ("README.md", "docs/features.md", "docs/commands.md", "docs/comparison.md", "docs/guides/quickstart.md"):
            for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
                if line.startswith("|"):
                    self.assertLessEqual(max(map(len, re.split(r"(?<!\\)\|", line))), MOST_IN_A_CELL, f"{page}: {line}")


if __name__ == "__main__":
    unittest.main()
