"""Which images to label next: those that the model is unsure about, and that are unlike each other.

Greedy: each pick has the largest product of

    unsure(x) = 1 - (p1 - p2)         the margin between the two most probable classes
    far(x)    = 1 - max cosine        to the labelled images and to what was picked before

so that ten near-copies of one hard image are one suggestion. Features are those before the projection: there
likeness is about the whole picture, not about the classes alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.core.arrays import unit_rows


@dataclass(frozen=True)
class Suggestion:
    """An image worth a label: its place, and why."""

    place: int
    unsure: float
    far: float


def suggest(x: Tensor, probabilities: Tensor, labelled: Tensor, count: int) -> list[Suggestion]:
    """The `count` images most worth labelling, the best first.

    Parameters
    ----------
    x
        Features of unlabelled images [n, Do].
    probabilities
        Calibrated, [n, K].
    labelled
        Features of the support set [m, Do].
    """
    best = probabilities.topk(2, dim=1).values
    unsure = 1 - (best[:, 0] - best[:, 1])
    directions = unit_rows(x.float())
    far = torch.full_like(unsure, torch.inf)
    known = unit_rows(labelled.float())
    for rows in known.split(4096):
        far = torch.minimum(far, 1 - (directions @ rows.T).amax(dim=1))
    picked: list[Suggestion] = []
    open_ = torch.ones(len(x), dtype=torch.bool)
    for _ in range(min(count, len(x))):
        worth = (unsure * far.clamp_min(0)).masked_fill(~open_, -1.0)
        place = int(worth.argmax())
        picked.append(Suggestion(place, float(unsure[place]), float(far[place])))
        open_[place] = False
        far = torch.minimum(far, 1 - directions @ directions[place])
    return picked
