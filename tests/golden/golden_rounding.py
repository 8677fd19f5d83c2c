"""GEMMs as qtrain computes them in bf16: operands are rounded, sums are not."""

import contextlib

import torch
from torch.nn import functional as F


def to_bf16(x):
    return x.to(torch.bfloat16).to(x.dtype)


class RoundedLinear(torch.autograd.Function):
    """x W^T and its gradients, all GEMMs with operands that are rounded to bf16."""

    @staticmethod
    def forward(ctx, x, w):
        x, w = to_bf16(x), to_bf16(w)
        ctx.save_for_backward(x, w)
        return torch.matmul(x, w.t())

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = to_bf16(dy)
        rows = lambda t: t.reshape(-1, t.shape[-1])
        return torch.matmul(dy, w), torch.matmul(rows(dy).t(), rows(x))


@contextlib.contextmanager
def rounded_gemms():
    """In this context F.linear and `@` of two matrices (experts of gpt-oss) round their operands. Attention, whose
    operands have more dimensions, and torch.matmul do not."""
    linear, matmul = F.linear, torch.Tensor.__matmul__

    def rounded_linear(x, w, bias=None):
        y = RoundedLinear.apply(x, w)
        return y if bias is None else y + bias

    def rounded_matmul(a, b):
        return RoundedLinear.apply(a, b.t()) if a.ndim == b.ndim == 2 else matmul(a, b)

    F.linear, torch.Tensor.__matmul__ = rounded_linear, rounded_matmul
    try:
        yield
    finally:
        F.linear, torch.Tensor.__matmul__ = linear, matmul
