"""Near-copies: photos of a burst, and an image that was compressed, resized or cropped.

Two images are near-copies if the cosine c of their centred features before the projection, and the
correlation r of their pixels, satisfy one of

    c >= 0.85        c >= 0.8 and r >= 0.85        c >= 0.6 and r >= 0.97

r is that of 16 x 16 greyscale images, one perhaps mirrored. Only images whose cosine leaves it open are
opened, which are few.

Held out, an image is known from its near-copy among the training images. So those of a class are one group,
which stays in one fold, and counts as one image in figures (`near_copy_groups`; `core.Task.groups`).

Measured with `offline` on four photo sets (`benchmarks/bursts.py`): of two or eight photos of each class with
six near-copies each (crops of up to 8 % on each side, brightness, JPEG), the groups that miss an image are
0 to 4 % on three sets and 8 to 12 % on textures. Among the 3 million pairs of different files of the sets, 14
are found, most of which show the same image, pattern or scene.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from prolip.core.arrays import Array, row_lengths, unit_rows
from prolip.features import ImageError, load_image
from prolip.solvers.threads import single_thread

SURE_COSINE = 0.85
LIKELY_COSINE, LIKELY_CORRELATION = 0.8, 0.85
CANDIDATE_COSINE, SURE_CORRELATION = 0.6, 0.97
SIGNATURE_SIDE = 16  # pixels
DECODE_SIDE = 64  # pixels to decode, enough for a signature
COSINE_ROWS = 1024  # rows of the matrix of cosines at a time
# Pairs of an image with near-copies later in the set, the most similar first. Where many images are alike,
# each still has a pair with a later one, so that they remain one group.
MAX_PAIRS_PER_IMAGE = 20
MAX_CANDIDATES = 20_000  # pairs whose pixels are compared, the most similar first
MIN_LENGTH = 1e-3  # of centred features, as a share of that of the features

Pixels = Callable[[int], Array]  # returns the signature of an image by its index


@dataclass(frozen=True)
class Pair:
    """Two images, first < second, that are near-copies; `cosine` is that of their features."""

    first: int
    second: int
    cosine: float


def near_copies(x: Array, pixels: Pixels) -> list[Pair]:
    """Find pairs of near-copies among features x [n, Do], the most similar first."""
    pixels = cache(pixels)
    found = _pairs(_directions(x), CANDIDATE_COSINE)
    pairs = [Pair(*pair) for pair in zip(*(each.tolist() for each in found), strict=True)]
    return [
        pair
        for pair in pairs
        if pair.cosine >= SURE_COSINE
        or correlation(pixels(pair.first), pixels(pair.second))
        >= (LIKELY_CORRELATION if pair.cosine >= LIKELY_COSINE else SURE_CORRELATION)
    ]


@single_thread()  # the classes are small
def near_copy_groups(x: Array, y: Array, pixels: Pixels) -> Array:
    """Number the groups [n] of near-copies within a class, for features x [n, Do] and labels y [n].

    Pixels of images that are in one group already are not compared.
    """
    directions, group, pixels = _directions(x), np.arange(len(x)), cache(pixels)
    for label in np.unique(y):
        images = np.flatnonzero(y == label)
        first, second, cosines = _pairs(directions[images], LIKELY_COSINE)
        sure = cosines >= SURE_COSINE
        own = _components(first[sure], second[sure], len(images))
        for i, j in zip(first[~sure], second[~sure], strict=True):
            if own[i] != own[j] and (
                correlation(pixels(int(images[i])), pixels(int(images[j]))) >= LIKELY_CORRELATION
            ):
                own[own == own[j]] = own[i]
        group[images] = images[own]
    return group


def merge(first: Array, second: Array) -> Array:
    """Number the groups [n] that two groupings [n] of the same images make together."""
    (_, first), (_, second) = (np.unique(each, return_inverse=True) for each in (first, second))
    nodes = _components(first, second + first.max() + 1, int(first.max()) + int(second.max()) + 2)
    return nodes[first]


def _components(first: Array, second: Array, nodes: int) -> Array:
    """Return the component [nodes] of each node of a graph with the edges (first, second)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = coo_array((np.ones(len(first)), (first, second)), (nodes, nodes))
    components: Array = connected_components(edges, directed=False)[1]
    return components


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
        return np.zeros((SIGNATURE_SIDE, SIGNATURE_SIDE), np.float32)


def correlation(first: Array, second: Array) -> float:
    """Return the correlation of two signatures, or that with one mirrored if it is larger."""
    return max(float((first * second).sum()), float((first[:, ::-1] * second).sum()))


def connected(pairs: list[Pair]) -> list[list[int]]:
    """Group images that are connected by pairs, in the order of the pairs; each group is sorted."""
    group_of: dict[int, list[int]] = {}
    for pair in pairs:
        first = group_of.setdefault(pair.first, [pair.first])
        second = group_of.setdefault(pair.second, [pair.second])
        if first is not second:
            first += second
            group_of.update(dict.fromkeys(second, first))
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]


def _directions(x: Array) -> Array:
    """Return centred unit rows; zero where an encoder gives all images the same but for rounding."""
    x = x.astype(np.float32)
    centred = x - x.mean(axis=0)
    return unit_rows(centred) * (row_lengths(centred) > MIN_LENGTH * row_lengths(x))


def _pairs(directions: Array, least: float) -> tuple[Array, Array, Array]:
    """Return pairs of rows with a cosine of at least `least`, and the cosines, the most similar first."""
    first, second, found = np.zeros(0, int), np.zeros(0, int), np.zeros(0, np.float32)
    for start in range(0, len(directions), COSINE_ROWS):
        cosines = np.triu(np.minimum(directions[start : start + COSINE_ROWS] @ directions[start:].T, 1), 1)
        for row in np.flatnonzero(np.count_nonzero(cosines >= SURE_COSINE, axis=1) > MAX_PAIRS_PER_IMAGE):
            rest = np.argpartition(-cosines[row], MAX_PAIRS_PER_IMAGE)[MAX_PAIRS_PER_IMAGE:]
            cosines[row, rest[cosines[row, rest] >= SURE_COSINE]] = 0
        rows, columns = np.nonzero(cosines >= least)
        first, second = np.append(first, rows + start), np.append(second, columns + start)
        found = np.append(found, cosines[rows, columns])
        limit = np.count_nonzero(found >= SURE_COSINE) + MAX_CANDIDATES
        order = np.argsort(-found, kind="stable")[:limit]
        first, second, found = first[order], second[order], found[order]
    return first, second, found
