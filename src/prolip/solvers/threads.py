"""Threads that do not spin.

OpenBLAS lets its threads wait in a loop: on a machine with other work to do, a fit with two of them took ten
times as long as with one (7.1 s against 0.7 s, 752 images, four other processes). So BLAS has one thread in
all that is done here, and where a problem is large enough to share, its rows are cut into pieces that threads
of our own work on, each with BLAS calls of its own; those wait asleep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from prolip.core.arrays import Array
from prolip.core.machine import cores

PIECE = 1 << 26  # multiplications: some milliseconds, which is worth waking a thread for


@contextmanager
def single_thread() -> Iterator[None]:
    """One BLAS thread, in a block or a decorated function."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


def run_all(work: Callable[[slice], Any], pieces: list[slice], threads: int) -> None:
    """`work` on every piece, on so many threads at once."""
    if threads == 1 or len(pieces) == 1:
        for piece in pieces:
            work(piece)
    else:
        for done in [_pool(threads).submit(work, piece) for piece in pieces]:
            done.result()


def product(a: Array, b: Array) -> Array:
    """A B; where it is large, the rows of A are shared among threads."""
    size = a.shape[0] * a.shape[1] * b.shape[1]
    out = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    pieces = cut(len(a), max(1, min(size // PIECE, 16)))
    run_all(lambda rows: np.matmul(a[rows], b, out=out[rows]), pieces, cores())
    return out


def cut(length: int, pieces: int) -> list[slice]:
    """A range in nearly equal pieces."""
    edges = [length * i // pieces for i in range(pieces + 1)]
    return [slice(a, b) for a, b in pairwise(edges) if a < b]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="prolip-solve")


@cache
def _controller() -> Any:
    """Finding the BLAS libraries takes milliseconds: once, after SciPy has loaded its own."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
