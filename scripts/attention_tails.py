"""How much longer attention takes than its work divided by the multiprocessors, because blocks end at different times and
wait for each other. scripts/kernel_times.py uses this, and docs/kernels/times.md explains it. Times are in steps, each
for one tile of queries and one tile of keys."""

import heapq
from dataclasses import dataclass
from functools import cache
from math import ceil

ITEM_KEYS, SUM_QUERIES, TOKENS_PER_DOCUMENT = 128, 64, 64  # constants of the kernels


@dataclass(frozen=True)
class Blocks:
    """The blocks of a kernel."""
    per_processor: int  # how many run on a multiprocessor at the same time
    stays: bool  # whether a block takes one item after another, and copies the next one's tiles before it ends one
    queries: int = 0  # forward: in a tile
    keys: int = 0
    ordered: bool = False  # forward: whether those with the most keys come first, instead of the last of the batch


def starts_of(documents):
    starts = [0]
    for length in documents:
        starts.append(starts[-1] + length)
    return starts


def cuts_of(documents):
    """The parts of a batch that begin with a new tile: its documents, unless they have few tokens on average."""
    return documents if TOKENS_PER_DOCUMENT * len(documents) <= sum(documents) else (sum(documents),)


def tiles_of(documents, rows):
    """For each tile: its first token, the end of its tokens, and the number of its part of the batch."""
    starts = starts_of(cuts_of(documents))
    for part, (start, end) in enumerate(zip(starts, starts[1:])):
        for first in range(start, end, rows):
            yield first, min(first + rows, end), part


def documents_of(starts, tokens):
    """The document of each of some ascending tokens."""
    document = 0
    for token in tokens:
        while starts[document + 1] <= token:
            document += 1
        yield document


@cache
def forward_tail(slots, documents, heads, blocks, start):
    """When the last block ends, divided by the mean of all `slots`, each of which runs one block at a time. `documents`:
    their lengths; `start`: what a block needs before its first product and after its last, as a share of that mean."""
    starts, tiles = starts_of(documents), list(tiles_of(documents, blocks.queries))
    steps = [ceil((end - starts[d]) / blocks.keys)
             for (_, end, _), d in zip(tiles, documents_of(starts, (first for first, _, _ in tiles)))]
    mean, ends = heads * sum(steps) / slots, [0.0] * slots
    for length in sorted(steps, reverse=True) if blocks.ordered else reversed(steps):
        for _ in range(heads):
            heapq.heapreplace(ends, ends[0] + length + (0 if blocks.stays else start * mean))
    return max(ends) / mean + (start if blocks.stays else 0)


def item_spans(documents):
    """Tiles [begin, end) of the queries that see each tile of keys. No two documents have tiles with the same number."""
    starts, origins, tiles = starts_of(documents), starts_of(cuts_of(documents)), list(tiles_of(documents, ITEM_KEYS))
    spans = []
    for (first, _, part), d in zip(tiles, documents_of(starts, (end - 1 for _, end, _ in tiles))):
        origin = origins[part]
        number = origin // SUM_QUERIES + part
        spans.append((number + (first - origin) // SUM_QUERIES, number + ceil((starts[d + 1] - origin) / SUM_QUERIES)))
    return spans


def item_order(spans):
    """The order of order_tiles (kernels/cuda/attention_turns.cuh)."""
    longest = [end - begin for begin, end in spans]
    for t in range(len(spans) - 2, -1, -1):
        if spans[t][1] > spans[t + 1][0]:
            longest[t] = max(longest[t], longest[t + 1])
    return sorted(range(len(spans)), key=lambda t: -longest[t])


@cache
def backward_tail(slots, documents, groups, share, start):
    """Likewise for the gradients: blocks of keys of a key head, for `share` query heads. In the middle of a step, a block
    waits until that of the previous keys has ended its step with the same queries."""
    spans = item_spans(documents)
    mean = groups * share * sum(max(end - begin, 0) for begin, end in spans) / slots
    free, done = [0.0] * slots, {}
    for tile in item_order(spans):
        begin, end = spans[tile]
        before = spans[tile - 1][1] if tile > 0 else 0  # the previous keys are seen by queries up to here
        for group in range(groups):
            now = free[0] + start * mean
            for query in range(end - 1, begin - 1, -1):
                for head in range(share):
                    if query < before:
                        now = max(now, done[tile - 1, group, query, head] - 0.5)
                    now += 1
                    done[tile, group, query, head] = now
            heapq.heapreplace(free, now)
    return max(free) / mean
