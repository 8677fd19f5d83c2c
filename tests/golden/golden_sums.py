"""Signed sums of a tensor, which are stored in its place: their distance is that of the tensors.

Each of the 16 sums adds up all elements with signs that are random, but the same for every tensor: bit j of a hash of the
element's index is set where sum j subtracts it. Over random signs, the square of a sum has the mean sum(x^2), so the norm
of the sums of x - y is 4 times the norm of x - y, give or take a fifth (Alon, Matias and Szegedy, 1996), and an element
that is wrong by e changes every sum by e. tests/golden/sums.h is the same in C++."""

import numpy as np
import torch

COUNT = 16


def hashes(count):
    """The finalizer of splitmix64, of 1, 2, ..."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def shortened(x):
    """Rounded to 32 significant bits, 2e-10 relative: far below any tolerance, and zeros at the end pack well."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.round(np.ldexp(fraction, 32)), exponent - 32)


def sums(tensor):
    """The sums of a tensor's elements in float64; a tensor with at most 16 elements is kept as it is."""
    x = tensor.detach().double().flatten().numpy()
    if x.size <= COUNT:
        return torch.from_numpy(shortened(x))
    bits = hashes(x.size)[None, :] >> np.arange(COUNT, dtype=np.uint64)[:, None] & np.uint64(1)
    return torch.from_numpy(shortened(np.where(bits, -x, x).sum(1)))
