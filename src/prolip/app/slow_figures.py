"""Figures that take seconds. Each is made of one snapshot, and gives what the page shows of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.grow import learning_curve
from prolip.api.model import AdaptedModel
from prolip.app.state import State
from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.evaluate.near_duplicates import groups, near_duplicates, open_signature
from prolip.evaluate.suggest import suggest

SUGGESTED = 12  # pictures at the head of the queue that are chosen; those behind come as they are
COMPARED = 4000  # pictures among which near-duplicates are looked for, in pairs


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A project and its model at one moment."""

    model: AdaptedModel | None  # None until two classes have a picture each
    state: State  # classes and pictures
    features: Mapping[str, Array]  # [width], of those that are encoded
    thumbnail: Callable[[str], Path]  # where the small copy of a picture is
    # Called in between, as a progress bar would be; it raises where a newer state waits.
    check: Callable[..., None]


def duplicates(snapshot: Snapshot) -> dict[str, Any]:
    """Groups of pictures that are nearly the same, to the model and to the eye."""
    known = [key for key in snapshot.state.images if key in snapshot.features][:COMPARED]
    if not known:
        return {"duplicates": []}
    x = np.stack([snapshot.features[key] for key in known])
    pairs = near_duplicates(x, lambda i: open_signature(snapshot.thumbnail(known[i])))
    return {"duplicates": [[known[i] for i in group] for group in groups(pairs)]}


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
