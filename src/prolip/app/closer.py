"""Figures that take seconds. Each takes the model and the project, and gives what the page shows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from prolip.api.grow import learning_curve
from prolip.api.model import AdaptedModel
from prolip.app.findings import near_duplicates
from prolip.app.state import State
from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.evaluate.suggest import suggest

Check = Callable[..., None]

SUGGESTED = 12  # pictures at the head of the queue that are chosen; those behind come as they are


def duplicates(
    model: AdaptedModel | None,
    classes: Sequence[str],
    state: State,
    features: Mapping[str, Array],
    check: Check,
) -> dict[str, Any]:
    """Groups of pictures that are nearly the same."""
    known = [key for key in state.images if key in features]
    if not known:
        return {"duplicates": []}
    groups = near_duplicates(np.stack([features[key] for key in known]))
    return {"duplicates": [[known[i] for i in group] for group in groups]}


def queue(
    model: AdaptedModel | None,
    classes: Sequence[str],
    state: State,
    features: Mapping[str, Array],
    check: Check,
) -> dict[str, Any]:
    """Pictures without a label, those most worth one first."""
    open_ = [key for key in state.members(None) if key in features]
    if model is None or len(open_) < 2:
        return {"queue": open_}
    x, task, head = (
        np.stack([features[key] for key in open_]),
        model.support.require_task(),
        model.encoder.head,
    )
    (inputs, _), (labelled, _) = head.split(x), head.split(task.x[0])
    chosen = suggest(inputs, model.probabilities(x), labelled, SUGGESTED)
    first = [open_[one.index] for one in chosen]
    return {"queue": first + [key for key in open_ if key not in set(first)]}


def curve(
    model: AdaptedModel | None,
    classes: Sequence[str],
    state: State,
    features: Mapping[str, Array],
    check: Check,
) -> dict[str, Any]:
    """The learning curve, and whether more labels are worth it; None while a class is too small."""
    if model is None:
        return {"curve": None}
    try:
        return {"curve": learning_curve(model, check).report()}
    except UsageError:
        return {"curve": None}
