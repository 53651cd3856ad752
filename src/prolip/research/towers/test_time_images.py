"""Test-time adaptation on images: make the views, encode them once, take the step, image by image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core import Fitted
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.features import NoImageLeft, extract

if TYPE_CHECKING:
    from prolip.research.towers.test_time import TestTime

_IMAGES_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class AdaptedPredictions:
    """Predictions of images that each took a step of their own."""

    logits: Array  # scores [m, K] of the images that could be read
    kept: list[int]  # their places in the input
    bad: list[tuple[str, str]]  # name and reason of each of the others


def adapt_images(
    encoder: Encoder,
    start: Fitted,
    images: Sequence[Any],
    method: TestTime,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> AdaptedPredictions:
    """Adapt a model to each image and predict it.

    The views are not kept on disk: 64 rows for an image would soon fill it.
    """
    from prolip.research.towers.test_time import view_preprocess

    reader = start.encoder_for(encoder)
    reader = reader.with_preprocess(view_preprocess(reader.preprocess))
    scores: list[Array] = []
    kept: list[int] = []
    bad: list[tuple[str, str]] = []
    for first in range(0, len(images), _IMAGES_AT_ONCE):
        some = images[first : first + _IMAGES_AT_ONCE]
        try:
            found = extract(reader, some, range(method.views), None, skip_bad=skip_bad)
        except NoImageLeft as none:
            bad += none.bad
            continue
        scores.append(method.logits(found.features, start, reader))
        kept += [first + index for index in found.kept]
        bad += found.bad
        if progress:
            progress(min(first + _IMAGES_AT_ONCE, len(images)), len(images))
    if not kept:
        raise NoImageLeft(bad)
    return AdaptedPredictions(np.concatenate(scores), kept, bad)
