"""Features of images ranked by words, or by their likeness to others, in the space that they share."""

from __future__ import annotations

import numpy as np

from prolip.core import Projected
from prolip.core.arrays import Array, unit_rows
from prolip.encoders import Encoder

PROMPTS = ("{}", "a photo of {}.", "a picture of {}.")


def rank(
    encoder: Encoder, x: Array, words: str | None, like: Array | None, fitted: Projected | None = None
) -> list[tuple[int, float]]:
    """Rank features [n, width] by words, or by the features [m, width] of examples, or by the mean of both.

    Returns indices and cosines, the nearest first.
    """
    rows = []
    if words is not None:
        rows.append(text_row(encoder, words))
    if like is not None:
        rows.append(unit_rows(embed(encoder, like, fitted).mean(axis=0, keepdims=True))[0])
    scores = embed(encoder, x, fitted) @ unit_rows(np.mean(rows, axis=0, keepdims=True))[0]
    return [(int(i), float(scores[i])) for i in np.argsort(-scores, kind="stable")]


def embed(encoder: Encoder, x: Array, fitted: Projected | None = None) -> Array:
    """Return unit embeddings [n, D] of features [n, width]."""
    return unit_rows(encoder.head(x)) if fitted is None else fitted.embed(x)


def text_row(encoder: Encoder, words: str) -> Array:
    """Return the unit row [D] of words, the mean over prompts."""
    row: Array = encoder.text([words], PROMPTS).rows[0]
    return row
