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

    def embed(rows: Array) -> Array:
        return unit_rows(encoder.head(rows)) if fitted is None else fitted.embed(rows)

    targets = []
    if words is not None:
        targets.append(encoder.text([words], PROMPTS).rows[0])
    if like is not None:
        targets.append(unit_rows(embed(like).mean(axis=0, keepdims=True))[0])
    scores = embed(x) @ unit_rows(np.mean(targets, axis=0, keepdims=True))[0]
    return [(int(i), float(scores[i])) for i in np.argsort(-scores, kind="stable")]
