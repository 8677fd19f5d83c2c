#!/usr/bin/env python3
"""When the last blocks of attention end, against schedules by hand.

    python3 tests/scripts/attention_tails_test.py"""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from attention_tails import Blocks, backward_tail, documents_of, forward_tail, item_spans, starts_of  # noqa: E402


class Forward(unittest.TestCase):
    TILES = Blocks(1, False, 128, 128)

    def test_the_longest_blocks_begin_first(self):
        # 4, 3, 2 and 1 steps on two multiprocessors: 4 + 1 and 3 + 2.
        self.assertEqual(forward_tail(2, (512,), 1, self.TILES, 0), 1)
        # On three: 4, 3, and 2 + 1 of a mean of 10 / 3.
        self.assertAlmostEqual(forward_tail(3, (512,), 1, self.TILES, 0), 1.2)

    def test_documents_are_short(self):
        # 2, 1, 2 and 1 steps on one multiprocessor, and on two: 2 + 1 each.
        for slots in (1, 2):
            self.assertEqual(forward_tail(slots, (256, 256), 1, self.TILES, 0), 1)
        # A tile that begins in the first document goes through its keys.
        self.assertAlmostEqual(forward_tail(2, (250, 6), 1, self.TILES, 0), 4 / 3)

    def test_each_block_starts_unless_it_stays(self):
        self.assertAlmostEqual(forward_tail(2, (512,), 1, self.TILES, 0.1), 1.2)
        self.assertAlmostEqual(forward_tail(2, (512,), 1, Blocks(1, True, 128, 128), 0.1), 1.1)


class Backward(unittest.TestCase):
    def test_spans_are_those_of_documents(self):
        self.assertEqual(item_spans((256, 100)), [(0, 4), (2, 4), (4, 6)])
        # The second tile has keys of both documents.
        self.assertEqual(item_spans((200, 100)), [(0, 4), (2, 5), (4, 5)])
        self.assertEqual(list(documents_of(starts_of((1, 2, 3)), range(6))), [0, 1, 1, 2, 2, 2])

    def test_one_multiprocessor_never_waits(self):
        self.assertEqual(backward_tail(1, (256, 100), 1, 1, 0), 1)
        self.assertAlmostEqual(backward_tail(1, (256, 100), 1, 1, 0.1), 1.3)

    def test_blocks_take_turns(self):
        # The last keys come first: 2 and 4 steps at once, and the second block is never ahead of the first.
        self.assertAlmostEqual(backward_tail(2, (256,), 1, 1, 0), 4 / 3)
        # 2, 4 and 6 steps on two multiprocessors: 2 + 6 and 4.
        self.assertAlmostEqual(backward_tail(2, (384,), 1, 1, 0), 8 / 6)


if __name__ == "__main__":
    unittest.main()
