"""Precision and threads of a problem, by its size.

The size of a problem is what F Z takes, rows x rank x columns of multiplications (all folds together). From
features in float64 all is float64, whatever the size; otherwise:

    size          F and its products   softmax and sums   threads   why
    up to 2^20    float64              float64            1         a float32 copy would save nothing
    up to 2^28    float32              float64            1, or     half the time; as the softmax and the sums
                                                          all from  are float64, order of images and chunks
                                                          2^24 on   move a logit by less than 0.01
    above         float32              float32            all       arrays [rows, classes] are as large as the
                                                                    features; logits within 0.1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.io.environment import cores
from prolip.solvers.threads import n_chunks

SMALL, LARGE = 1 << 20, 1 << 28
MIN_CHUNK_ROWS = 128  # of 64, 128 and 256 the fastest for `anchored` on 228 to 960 images


@dataclass(frozen=True)
class Regime:
    """Precision and threads of a problem. Chunks depend on its size alone: threads change no result."""

    products: Any  # type of F, and of the products with it
    sums: Any  # type of embeddings, softmax and sums
    chunks: int = 1  # that the rows are split into
    threads: int = 1  # chunks that are worked on at once


def choose_regime(rows: int, rank: int, columns: int, features: Any = np.float32) -> Regime:
    """The regime of a problem of this size, from features of this type."""
    size = rows * rank * columns
    if size <= SMALL:
        return Regime(np.float64, np.float64)
    products = np.float64 if features == np.float64 else np.float32
    sums = np.float64 if size <= LARGE else products
    return Regime(products, sums, n_chunks(size, min(rows // MIN_CHUNK_ROWS, 16)), cores())
