"""Threads that sleep while they wait; and precision and threads by the size of a problem.

OpenBLAS lets its threads wait in a loop: on a machine with other work to do, a fit with two of them took ten
times as long as with one (7.1 s against 0.7 s, 752 images, four other processes). So BLAS has one thread in
every fit, and where a problem is large enough to share, its rows are split into chunks for threads of our
own, each with BLAS calls of its own.

The size of a problem is what F Z takes, rows x rank x columns of multiplications (all folds together). Up to
SMALL all is float64, a matter of milliseconds; above it is as precise as the features: float32 takes half the
time, and moves logits by less than 0.1. Chunks depend on the size alone: threads change no result.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from prolip.core.arrays import Array
from prolip.io.environment import cores

CHUNK_MULTIPLICATIONS = 1 << 24  # multiplications: half a millisecond, which is worth waking a thread for
SMALL = 1 << 20
MIN_CHUNK_ROWS = 128  # of 64, 128 and 256 the fastest for `anchored` on 228 to 960 images


def precision_and_chunks(rows: int, rank: int, columns: int, features: Any) -> tuple[Any, int]:
    """The precision of a problem of this size, and how many chunks its rows are split into."""
    size = rows * rank * columns
    precision = np.float64 if size <= SMALL or features == np.float64 else np.float32
    return precision, n_chunks(size, min(rows // MIN_CHUNK_ROWS, 16))


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit BLAS to one thread, in a block or a decorated function."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


def parallel_for(work: Callable[[slice], Any], parts: list[slice]) -> None:
    """Run `work` on every part, on as many threads as there are cores, the caller's among them.

    A caller that only waited would leave its core to one of the threads it has just woken, and often to both:
    two products of 76 images took 9 ms in a fit where they take 5.
    """
    left = iter(parts)

    def take() -> None:
        for part in left:
            work(part)

    others = [_pool(cores()).submit(take) for _ in range(min(cores(), len(parts)) - 1)]
    take()
    for other in others:
        other.result()


def parallel_matmul(a: Array, b: Array) -> Array:
    """Return A B; where it is large, threads share the rows of A or the columns of B, the longer side."""
    out = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    by_rows = len(a) >= b.shape[1]

    def work(part: slice) -> None:
        share = out[part] if by_rows else out[:, part]
        np.matmul(a[part] if by_rows else a, b if by_rows else b[:, part], out=share)

    parallel_for(work, split_range(max(out.shape), n_chunks(a.size * b.shape[1])))
    return out


def n_chunks(size: int, most: int = 16) -> int:
    """Return the number of chunks for so many multiplications: an even number, for two threads."""
    return max(1, min(size // CHUNK_MULTIPLICATIONS, most) // 2 * 2)


def split_range(length: int, parts: int) -> list[slice]:
    """Split a range into nearly equal slices."""
    edges = [length * i // parts for i in range(parts + 1)]
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
