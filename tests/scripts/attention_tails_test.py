#!/usr/bin/env python3
"""When the last blocks of attention end, against schedules by hand.

    python3 tests/scripts/attention_tails_test.py"""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from attention_tails import Blocks, backward_tail, documents_of, forward_tail, item_order, item_spans, starts_of  # noqa: E402


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
        # Each document begins with a new tile: 1, 2 and 1 steps.
        self.assertEqual(forward_tail(2, (250, 6), 1, self.TILES, 0), 1)
        # Documents of few tokens share tiles: the second one begins in the first document, and goes through its keys.
        self.assertAlmostEqual(forward_tail(2, (250, 1, 1, 1, 3), 1, self.TILES, 0), 4 / 3)

    def test_blocks_may_be_ordered(self):
        # 2, 1, 2, 1, 2 and 1 steps on three multiprocessors: 2 + 2, 1 + 1 and 2 + 1, or in order 2 + 1 each.
        self.assertAlmostEqual(forward_tail(3, (256, 256, 256), 1, self.TILES, 0), 4 / 3)
        self.assertEqual(forward_tail(3, (256, 256, 256), 1, Blocks(1, False, 128, 128, True), 0), 1)

    def test_each_block_starts_unless_it_stays(self):
        self.assertAlmostEqual(forward_tail(2, (512,), 1, self.TILES, 0.1), 1.2)
        self.assertAlmostEqual(forward_tail(2, (512,), 1, Blocks(1, True, 128, 128), 0.1), 1.1)


class Backward(unittest.TestCase):
    def test_spans_are_those_of_documents(self):
        self.assertEqual(item_spans((256, 100)), [(0, 4), (2, 4), (5, 7)])
        self.assertEqual(item_spans((200, 100)), [(0, 4), (2, 4), (4, 6)])
        # Documents of few tokens share tiles: the second one has keys of four documents.
        self.assertEqual(item_spans((200, 20, 20, 20, 20, 20)), [(0, 4), (2, 5), (4, 5)])
        self.assertEqual(list(documents_of(starts_of((1, 2, 3)), range(6))), [0, 1, 1, 2, 2, 2])

    def test_one_multiprocessor_never_waits(self):
        self.assertEqual(backward_tail(1, (256, 100), 1, 1, 0), 1)
        self.assertAlmostEqual(backward_tail(1, (256, 100), 1, 1, 0.1), 1.3)

    def test_blocks_take_turns(self):
        # 4 steps, and at the same time 2 steps with the last queries, each half a step after those of the first block.
        self.assertAlmostEqual(backward_tail(2, (256,), 1, 1, 0), 4 / 3)
        # 6 steps, 4 and 2 steps, and half a step of waiting.
        self.assertAlmostEqual(backward_tail(2, (384,), 1, 1, 0), 6.5 / 6)

    def test_the_longest_blocks_begin_first(self):
        # 4, 4, 2 and 2 steps on two multiprocessors, for rows that share no tile of queries.
        self.assertAlmostEqual(backward_tail(2, (256, 256), 1, 1, 0), 1)
        self.assertEqual(item_order(item_spans((128, 256))), [1, 0, 2])
        self.assertEqual(item_order(item_spans((130, 600))), [2, 3, 4, 5, 0, 6, 1])
        # The first tile of keys has those of all documents, so it comes before the others of the last one.
        self.assertEqual(item_order(item_spans((*[6] * 12, 568))), [0, 1, 2, 3, 4])


if __name__ == "__main__":
    unittest.main()
