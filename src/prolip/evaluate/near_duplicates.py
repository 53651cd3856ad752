"""The same picture twice: copies of a file, and what is left of one that was compressed, resized or cropped.

Two pictures are near-duplicates where features (before the projection, less their mean) have a cosine of

    at least 0.9;       or at least 0.6, and the pixels agree

Pixels agree where the correlation of two 16 x 16 grey pictures, one perhaps mirrored, is at least 0.97. The
pixels are looked at only where the features leave it open, so few pictures are opened.

Measured with `offline` on four photo sets and changed copies of 60 images of each (`benchmarks/adapted.py`):
of copies compressed to quality 40, halved in size, brightened by a quarter or mirrored, 92 to 100 % are
found; cropped by a twentieth on each side, 53 to 87 %; made grey, 62 to 95 %. Among the 3 million pairs of
different files of the sets, six are found, and all six are the same picture, pattern or scene; the next
correlation is 0.96.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, unit_rows
from prolip.features import BadImage, load_image

SURE = 0.9  # cosine
OPEN = 0.6
PIXELS = 0.97  # correlation
SIDE = 16
NEAR = 64  # pixels a side are enough to decode
ROWS = 1024  # of the matrix of cosines, at a time
# Pairs of an image with sure copies later in the set, the most alike first. Where many images are all alike,
# each still has a pair with a later one, so they remain one group.
COPIES = 20
MAX_OPEN = 20_000  # pairs whose pixels are compared, the most alike first


@dataclass(frozen=True)
class Pair:
    """Two images, first < second, that show the same picture; `cosine` is that of their features."""

    first: int
    second: int
    cosine: float


def near_duplicates(x: Array, pixels: Callable[[int], Array]) -> list[Pair]:
    """Pairs of near-duplicates among features x [n, Do], the most alike first.

    `pixels` gives the signature of an image by its number.
    """
    found = _pairs(x)
    sure = [pair for pair in found if pair.cosine >= SURE]
    undecided = found[len(sure) :][:MAX_OPEN]
    seen = {i: pixels(i) for i in sorted({i for pair in undecided for i in (pair.first, pair.second)})}
    return sure + [pair for pair in undecided if _agree(seen[pair.first], seen[pair.second])]


def signature(picture: Image.Image) -> Array:
    """A picture as 16 x 16 shades of grey, of mean 0 and length 1."""
    grey = np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), np.float32)
    return unit_rows((grey - grey.mean()).reshape(-1)).reshape(SIDE, SIDE)


def open_signature(image: Any) -> Array:
    """The signature of an image by its path, or whatever it is; one that cannot be read agrees with none."""
    try:
        return signature(load_image(image, near=NEAR))
    except BadImage:  # its features were kept; it was damaged since
        return np.zeros((1, 1), np.float32)


def groups(pairs: list[Pair]) -> list[list[int]]:
    """Images that hang together by pairs, each group sorted, in the order of the pairs."""
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
    return max(float((first * second).sum()), float((first[:, ::-1] * second).sum())) >= PIXELS


def _pairs(x: Array) -> list[Pair]:
    """Pairs whose cosine is at least `OPEN`, the most alike first; `COPIES` and `MAX_OPEN` limit them."""
    x = x.astype(np.float32)
    directions = unit_rows(x - x.mean(axis=0))
    first, second, found = np.zeros(0, int), np.zeros(0, int), np.zeros(0, np.float32)
    for start in range(0, len(x), ROWS):
        cosines = np.triu(np.minimum(directions[start : start + ROWS] @ directions[start:].T, 1), 1)
        for row in np.flatnonzero(np.count_nonzero(cosines >= SURE, axis=1) > COPIES):
            rest = np.argpartition(-cosines[row], COPIES)[COPIES:]
            cosines[row, rest[cosines[row, rest] >= SURE]] = 0
        rows, columns = np.nonzero(cosines >= OPEN)
        first, second = np.append(first, rows + start), np.append(second, columns + start)
        found = np.append(found, cosines[rows, columns])
        kept = np.argsort(-found, kind="stable")[: np.count_nonzero(found >= SURE) + MAX_OPEN]
        first, second, found = first[kept], second[kept], found[kept]
    return [Pair(*each) for each in zip(first.tolist(), second.tolist(), found.tolist(), strict=True)]
