"""How much longer attention takes than its work divided by the multiprocessors, because blocks end at different times and
wait for each other. scripts/kernel_times.py uses this, and docs/kernels/times.md explains it. Times are in steps, each
for one tile of queries and one tile of keys."""

import heapq
from dataclasses import dataclass
from functools import cache
from math import ceil

ITEM_KEYS, SUM_QUERIES = 128, 64  # kItemKeys and kSumQueries of the kernels


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
    starts = starts_of(documents)
    firsts = range(0, starts[-1], blocks.queries)
    steps = [ceil((min(first + blocks.queries, starts[-1]) - starts[d]) / blocks.keys)
             for first, d in zip(firsts, documents_of(starts, firsts))]
    mean, ends = heads * sum(steps) / slots, [0.0] * slots
    for length in sorted(steps, reverse=True) if blocks.ordered else reversed(steps):
        for _ in range(heads):
            heapq.heapreplace(ends, ends[0] + length + (0 if blocks.stays else start * mean))
    return max(ends) / mean + (start if blocks.stays else 0)


def item_spans(documents):
    """Tiles [begin, end) of the queries that see each tile of keys."""
    starts = starts_of(documents)
    firsts = range(0, starts[-1], ITEM_KEYS)
    lasts = [min(first + ITEM_KEYS, starts[-1]) - 1 for first in firsts]
    return [(first // SUM_QUERIES, ceil(starts[d + 1] / SUM_QUERIES))
            for first, d in zip(firsts, documents_of(starts, lasts))]


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
