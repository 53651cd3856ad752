"""How the numbers are worked out: precision, threads, and what this processor is quick at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

CHUNK = 1 << 12  # numbers that one thread adds up


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """A B, worked out in the lower of their precisions and given in the higher; `out`: memory for it."""
    if a.dtype == b.dtype and (out is None or out.dtype == a.dtype):
        return torch.mm(a, b, out=out)
    low, high = sorted((a.dtype, b.dtype), key=lambda kind: torch.finfo(kind).bits)
    result = a.to(low) @ b.to(low)
    return result.to(high) if out is None else out.copy_(result)


def total(x: Tensor) -> Tensor:
    """Sums [B] of [B, N], added up in the same order with any number of threads."""
    long = x.shape[1] // CHUNK * CHUNK
    if long <= CHUNK:
        return x.sum(dim=1)
    return x[:, :long].unflatten(1, (-1, CHUNK)).sum(dim=2).sum(dim=1) + x[:, long:].sum(dim=1)


def eigh(a: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix."""
    with steady(a):
        e, u = torch.linalg.eigh(a)
    return e, u


def orthonormal(a: Tensor) -> Tensor:
    """An orthonormal basis of the columns of A."""
    with steady(a):
        return torch.linalg.qr(a)[0]


def steady(like: Tensor) -> AbstractContextManager[None]:
    """For decompositions and solves, which round differently with another number of threads.

    In float32, where that would be seen in the result, they have one.
    """
    return single_thread(alone=like.dtype == torch.float32)


def bfloat16_is_quick(like: Tensor) -> bool:
    """Whether this processor multiplies bfloat16 faster than float32."""
    if like.device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return False
    has = torch.cpu.get_capabilities()
    return any(has.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Count numbers below 1e-38 as zero: a CPU handles them ten times slower, and moments decay into them."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def single_thread(alone: bool) -> Iterator[None]:
    """One thread, if `alone`: where work is small, several only wait for each other at every operation."""
    threads = torch.get_num_threads()
    if not alone or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
