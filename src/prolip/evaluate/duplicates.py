"""Near-duplicates: an image and a version of it that was compressed, resized or cropped.

Two images are near-duplicates if the cosine of their centred features before the projection is

    at least 0.9;       or at least 0.6, and the pixels agree

Pixels agree if the correlation of two 16 x 16 greyscale images, one perhaps mirrored, is at least 0.97. Only
images with a cosine between the two limits are opened, which are few.

Measured with `offline` on four photo sets and changed copies of 60 images of each (`benchmarks/adapted.py`):
of copies compressed to quality 40, halved in size, brightened by a quarter or mirrored, 92 to 100 % are
found; cropped by a twentieth on each side, 53 to 87 %; made grey, 62 to 95 %. Among the 3 million pairs of
different files of the sets, six are found, and all six show the same image, pattern or scene; the next
correlation is 0.96.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, unit_rows
from prolip.features import ImageError, load_image

DUPLICATE_COSINE = 0.9
CANDIDATE_COSINE = 0.6
MIN_CORRELATION = 0.97  # of pixels
SIGNATURE_SIDE = 16  # pixels
DECODE_SIDE = 64  # pixels to decode, enough for a signature
COSINE_ROWS = 1024  # rows of the matrix of cosines at a time
# Pairs of an image with duplicates later in the set, the most similar first. Where many images are alike,
# each still has a pair with a later one, so that they remain one group.
MAX_PAIRS_PER_IMAGE = 20
MAX_CANDIDATES = 20_000  # pairs whose pixels are compared, the most similar first


@dataclass(frozen=True)
class Pair:
    """Two images, first < second, that are near-duplicates; `cosine` is that of their features."""

    first: int
    second: int
    cosine: float


def near_duplicates(x: Array, pixels: Callable[[int], Array]) -> list[Pair]:
    """Find pairs of near-duplicates among features x [n, Do], the most similar first.

    `pixels` returns the signature of an image by its index.
    """
    pairs = _pairs(x)
    sure = [pair for pair in pairs if pair.cosine >= DUPLICATE_COSINE]
    candidates = pairs[len(sure) :][:MAX_CANDIDATES]
    images = sorted({i for pair in candidates for i in (pair.first, pair.second)})
    signatures = {i: pixels(i) for i in images}
    return sure + [pair for pair in candidates if _agree(signatures[pair.first], signatures[pair.second])]


def signature(image: Image.Image) -> Array:
    """Reduce an image to 16 x 16 shades of grey, with mean 0 and length 1."""
    size = (SIGNATURE_SIDE, SIGNATURE_SIDE)
    grey = np.asarray(image.convert("L").resize(size, Image.Resampling.BOX), np.float32)
    return unit_rows((grey - grey.mean()).reshape(-1)).reshape(size)


def open_signature(image: Any) -> Array:
    """Compute the signature of an image by its path or content; an unreadable one agrees with none."""
    try:
        return signature(load_image(image, near=DECODE_SIDE))
    except ImageError:  # its features were stored before it was damaged
        return np.zeros((1, 1), np.float32)


def groups(pairs: list[Pair]) -> list[list[int]]:
    """Group images that are connected by pairs, in the order of the pairs; each group is sorted."""
    group_of: dict[int, list[int]] = {}
    for pair in pairs:
        first = group_of.setdefault(pair.first, [pair.first])
        second = group_of.setdefault(pair.second, [pair.second])
        if first is not second:
            first += second
            group_of.update(dict.fromkeys(second, first))
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]


def _agree(first: Array, second: Array) -> bool:
    if first.shape != second.shape:
        return False
    return max(float((first * second).sum()), float((first[:, ::-1] * second).sum())) >= MIN_CORRELATION


def _pairs(x: Array) -> list[Pair]:
    """Return pairs with a cosine of at least `CANDIDATE_COSINE`, the most similar first, up to the limits."""
    x = x.astype(np.float32)
    directions = unit_rows(x - x.mean(axis=0))
    first, second, found = np.zeros(0, int), np.zeros(0, int), np.zeros(0, np.float32)
    for start in range(0, len(x), COSINE_ROWS):
        cosines = np.triu(np.minimum(directions[start : start + COSINE_ROWS] @ directions[start:].T, 1), 1)
        for row in np.flatnonzero(
            np.count_nonzero(cosines >= DUPLICATE_COSINE, axis=1) > MAX_PAIRS_PER_IMAGE
        ):
            rest = np.argpartition(-cosines[row], MAX_PAIRS_PER_IMAGE)[MAX_PAIRS_PER_IMAGE:]
            cosines[row, rest[cosines[row, rest] >= DUPLICATE_COSINE]] = 0
        rows, columns = np.nonzero(cosines >= CANDIDATE_COSINE)
        first, second = np.append(first, rows + start), np.append(second, columns + start)
        found = np.append(found, cosines[rows, columns])
        limit = np.count_nonzero(found >= DUPLICATE_COSINE) + MAX_CANDIDATES
        order = np.argsort(-found, kind="stable")[:limit]
        first, second, found = first[order], second[order], found[order]
    return [Pair(*each) for each in zip(first.tolist(), second.tolist(), found.tolist(), strict=True)]
