"""Images ranked by words, or by their likeness to another image, in the space that images and texts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prolip.api.inputs import as_images
from prolip.api.support import ImageSource, ReadOptions
from prolip.core import Projected, UsageError
from prolip.core.arrays import Array, unit_rows
from prolip.encoders import Encoder
from prolip.io.progress import Progress

PROMPTS = ("{}", "a photo of {}.", "a picture of {}.")


@dataclass(frozen=True)
class SearchResult:
    """An image that was found."""

    index: int  # place among the images
    image: Any
    score: float  # cosine between the image and the query


def search(
    encoder: Encoder,
    images: Any,
    *,
    words: str | None = None,
    like: Any = None,
    top: int = 20,
    fitted: Projected | None = None,
    reading: ReadOptions = ReadOptions(),  # noqa: B008  (it is frozen)
    progress: Progress | None = None,
) -> list[SearchResult]:
    """Rank images by words, by an image, or by both; the nearest first.

    `fitted` is an adapted model on this encoder, whose projection is then used in place of the encoder's own.
    """
    if words is None and like is None:
        raise UsageError("name what to search for: words, or an image that others should be like")
    if words is not None and not words.strip():
        raise UsageError("the words to search for are empty")
    listed = as_images(images)
    source = ImageSource(encoder, reading)
    found = source.features(listed, progress=progress)
    example = None if like is None else source.features([like]).features[0]
    ranked = rank(encoder, found.features[0], words, example, fitted)[:top]
    return [SearchResult(found.kept[i], listed[found.kept[i]], score) for i, score in ranked]


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
