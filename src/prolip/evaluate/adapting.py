"""Test-time adaptation on images: make the views, encode them once, take the step, image by image."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core import Fitted
from prolip.core.arrays import Array
from prolip.encoders import Encoder
from prolip.features import NoImageLeft, extract

if TYPE_CHECKING:
    from prolip.methods.test_time import TestTime

_IMAGES_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class Adapted:
    """Predictions of images that each took a step of their own.

    Attributes
    ----------
    logits
        Scores [m, K] of the images that could be read.
    kept
        Their places in the input.
    bad
        Name and reason of each of the others.
    encode_seconds, step_seconds
        What the views cost, and what the steps did.
    """

    logits: Array
    kept: list[int]
    bad: list[tuple[str, str]]
    encode_seconds: float
    step_seconds: float


def adapt_images(
    encoder: Encoder,
    start: Fitted,
    images: Sequence[Any],
    way: TestTime,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Adapted:
    """Adapt a model to each image and predict it.

    The views are not kept on disk: 64 rows for an image would soon fill it.
    """
    from prolip.methods.test_time import view_preprocess

    viewing = copy(start.encoder_for(encoder))
    viewing.preprocess = view_preprocess(viewing.preprocess)
    scores: list[Array] = []
    kept: list[int] = []
    bad: list[tuple[str, str]] = []
    encoding = stepping = 0.0
    for first in range(0, len(images), _IMAGES_AT_ONCE):
        some = images[first : first + _IMAGES_AT_ONCE]
        try:
            found = extract(viewing, some, range(way.views), None, skip_bad=skip_bad)
        except NoImageLeft as none:
            bad += none.bad
            continue
        began = time.perf_counter()
        scores.append(way.logits(found.features, start, viewing))
        stepping += time.perf_counter() - began
        encoding += found.seconds
        kept += [first + place for place in found.kept]
        bad += found.bad
        if progress:
            progress(min(first + _IMAGES_AT_ONCE, len(images)), len(images))
    if not kept:
        raise NoImageLeft(bad)
    return Adapted(np.concatenate(scores), kept, bad, encoding, stepping)
