"""Figures that take seconds. Each is made of one snapshot, and gives what the page shows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.grow import learning_curve
from prolip.api.model import AdaptedModel
from prolip.app.findings import near_duplicates
from prolip.app.state import State
from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.evaluate.suggest import suggest
from prolip.features import BadImage, load_image

SUGGESTED = 12  # pictures at the head of the queue that are chosen; those behind come as they are
COARSE = 16  # pixels of the side at which two pictures are compared


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A project and its model at one moment."""

    model: AdaptedModel | None  # None until two classes have a picture each
    # classes and pictures, and the features [width] of those that are encoded
    state: State
    features: Mapping[str, Array]
    thumbnail: Callable[[str], Path]  # where the small copy of a picture is
    # called in between, as a progress bar would be; it raises where a newer state waits
    check: Callable[..., None]


def duplicates(snapshot: Snapshot) -> dict[str, Any]:
    """Groups of pictures that are nearly the same, to the model and to the eye."""
    known = [key for key in snapshot.state.images if key in snapshot.features]
    if not known:
        return {"duplicates": []}
    seen: dict[int, Array | None] = {}

    def coarse(i: int) -> Array | None:
        if i not in seen:
            seen[i] = _coarse(snapshot.thumbnail(known[i]))
        return seen[i]

    groups = near_duplicates(np.stack([snapshot.features[key] for key in known]), coarse)
    return {"duplicates": [[known[i] for i in group] for group in groups]}


def _coarse(path: Path) -> Array | None:
    """A picture as a few pixels [16, 16, 3], 0 to 255; None where it cannot be read."""
    try:
        return np.asarray(load_image(path).resize((COARSE, COARSE)), np.float32)
    except BadImage:
        return None


def queue(snapshot: Snapshot) -> dict[str, Any]:
    """Pictures without a label, those most worth one first."""
    model, features = snapshot.model, snapshot.features
    unlabelled = [key for key in snapshot.state.members(None) if key in features]
    if model is None or len(unlabelled) < 2:
        return {"queue": unlabelled}
    x = np.stack([features[key] for key in unlabelled])
    task, head = model.support.require_task(), model.encoder.head
    (inputs, _), (labelled, _) = head.split(x), head.split(task.x[0])
    chosen = suggest(inputs, model.probabilities(x), labelled, SUGGESTED)
    first = [unlabelled[one.index] for one in chosen]
    return {"queue": first + [key for key in unlabelled if key not in set(first)]}


def curve(snapshot: Snapshot) -> dict[str, Any]:
    """The learning curve, and whether more labels are worth it; None while a class is too small."""
    if snapshot.model is None:
        return {"curve": None}
    try:
        return {"curve": learning_curve(snapshot.model, snapshot.check).report()}
    except UsageError:
        return {"curve": None}
