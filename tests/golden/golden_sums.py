"""Signed sums, which goldens store in place of tensors: distances between sums estimate distances between tensors.

Each of the 16 sums adds up all elements with random signs that are the same for every tensor: sum j subtracts an element
if bit j of a hash of its index is set. Over random signs, the mean square of a sum of x is sum(x^2), so the norm of the
sums of x - y is 4 times the norm of x - y, give or take a fifth (Alon, Matias and Szegedy, 1996). An element that is
wrong by e changes every sum by e. tests/golden/sums.h does the same in C++."""

import numpy as np
import torch

COUNT = 16


def hashes(count):
    """splitmix64 hashes of the indices, counted from 1."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def shortened(x):
    """Rounds to 32 significant bits, a relative error of 2e-10: far below any tolerance, and trailing zeros pack well."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.round(np.ldexp(fraction, 32)), exponent - 32)


def sums(tensor):
    """Returns the signed sums of a tensor in float64, or the tensor itself if it has at most 16 elements."""
    x = tensor.detach().double().flatten().numpy()
    if x.size <= COUNT:
        return torch.from_numpy(shortened(x))
    bits = hashes(x.size)[None, :] >> np.arange(COUNT, dtype=np.uint64)[:, None] & np.uint64(1)
    return torch.from_numpy(shortened(np.where(bits, -x, x).sum(1)))
