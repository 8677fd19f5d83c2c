#!/usr/bin/env python3
"""The tracked files stay small, so that a clone is quick: data of tests belongs in archives (scripts/goldens.py).

    python3 tests/scripts/tree_size_test.py"""

import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST, MOST_DATA = 12_000_000, 1_500_000  # bytes of all files, and of those that are neither code nor text
CODE = {".cpp", ".h", ".cu", ".cuh", ".in", ".cmake", ".py", ".sh", ".js", ".css", ".html", ".md", ".txt", ".yaml", ".yml"}


def sizes_of(root):
    """{name: bytes} of the tracked files; {} outside of a repository."""
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return {}
    paths = [root / name for name in listed.split("\0") if name]
    return {str(path.relative_to(root)): path.lstat().st_size for path in paths if path.is_symlink() or path.exists()}


def complaint(sizes, most=MOST):
    """Names the largest files if all together are too large; otherwise an empty text."""
    total = sum(sizes.values())
    if total <= most:
        return ""
    largest = sorted(sizes, key=sizes.get, reverse=True)[:10]
    return "\n".join([f"The tracked files have {total:,} bytes, more than {most:,}. The largest:",
                      *(f"{sizes[name]:9,} {name}" for name in largest)])


class TreeSize(unittest.TestCase):
    def test_the_tracked_files_are_small(self):
        sizes = sizes_of(ROOT)
        if not sizes:
            self.skipTest("not in a repository")
        self.assertGreater(len(sizes), 1000)
        self.assertEqual(complaint(sizes), "")
        self.assertEqual(complaint({n: s for n, s in sizes.items() if Path(n).suffix not in CODE}, MOST_DATA), "")

    def test_the_largest_files_are_named(self):
        self.assertEqual(complaint({"a": 6, "b": 4}, 10), "")
        self.assertEqual(complaint({"a": 4, "b": 7}, 10).splitlines()[1:], ["        7 b", "        4 a"])


if __name__ == "__main__":
    unittest.main()
