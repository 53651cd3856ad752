"""Add classes and images to a model: it is fitted again from stored features, without the old images."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prolip import methods
from prolip.api.fit import fit_support
from prolip.api.model import AdaptedModel, Support
from prolip.api.support import (
    ReadOptions,
    class_text,
    encode,
    group_images,
    make_task,
    new_images,
    require_all_classes,
)
from prolip.core import HeldOutPredictions, Task, UsageError
from prolip.core.capabilities import Capability
from prolip.core.names import normalize_name
from prolip.data import ImageSet, class_names
from prolip.evaluate import metrics
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.curve import REPEATS, Curve
from prolip.evaluate.curve import learning_curve as measure_curve
from prolip.evaluate.suggestions import Suggestion
from prolip.evaluate.suggestions import suggest as choose_images
from prolip.io.progress import Progress
from prolip.methods.selection import cross_validate


def add_images(
    model: AdaptedModel,
    images: ImageSet,
    names: Sequence[str],
    reading: ReadOptions,
    progress: Progress | None = None,
) -> tuple[AdaptedModel, dict[str, Any]]:
    """Add images of new or known classes, and classes by name; return the model and what changed."""
    recipe, encoder = model.recipe, model.encoder
    task = support_of(model) if model.support.hashes else None  # None for a model of class names
    names = [normalize_name(name) for name in names]
    known = images.classes + [name for name in names if name not in images.classes]
    class_names(map(str, known))
    before = None if task is None else _accuracy(held_out_predictions(model), model)
    extraction = encode(encoder, images.images, reading, range(recipe.views), progress)
    require_all_classes(images, extraction)
    images = images.subset(extraction.kept)
    seen = {} if task is None else dict(zip(model.support.hashes, task.y.tolist(), strict=True))
    fresh = new_images(extraction.hashes, replace(images, classes=known), seen)
    if not fresh:
        raise UsageError("all of these images are in the model already")
    new_set = images.subset(fresh)
    numbers = new_set.group_numbers()
    x, y = extraction.features[:, fresh], np.array(new_set.labels)
    groups = np.arange(len(fresh)) if numbers is None else np.array(numbers)
    if task is not None:
        x, y = np.concatenate([task.x, x], axis=1), np.concatenate([task.y, y])
        groups = np.concatenate([task.groups, groups + task.groups.max() + 1])
    groups = group_images(x[0], y, new_set.images, groups)
    if empty := [known[k] for k in set(images.labels) - set(y.tolist())]:
        raise UsageError(f"every image of {empty[0]!r} is in the model already, under another class")
    text = class_text(encoder, recipe, known)
    hashes = model.support.hashes + tuple(extraction.hashes[i] for i in fresh)
    support = Support(hashes, make_task(encoder, x, y, text, groups), tuple(extraction.bad))
    new = fit_support(encoder, recipe, known, support)
    return new, {
        **_changes(model, new, before, _accuracy(held_out_predictions(new), model)),
        "new_accuracy": _new_accuracy(held_out_predictions(new), model),
        "duplicates": len(extraction.hashes) - len(fresh),
        "skipped": len(extraction.bad),
    }


def add_names(model: AdaptedModel, names: Sequence[str]) -> tuple[AdaptedModel, dict[str, Any]]:
    """Add classes by their names alone: a fit on the same images that leaves room for them.

    A model without stored features stays as it is, and scores the new classes by their texts.
    """
    names = [normalize_name(name) for name in names]
    new = [name for name in dict.fromkeys(names) if name not in model.classes]
    if not new:
        raise UsageError(f"the model has {', '.join(map(repr, names))} already")
    classes = [*model.classes, *new]
    text = class_text(model.encoder, model.recipe, classes)
    grown = replace(
        model, fitted=model.fitted.with_text(text), classes=tuple(classes), text=text,
        confidence=model.confidence.select([*range(len(model.classes)), *[None] * len(new)]),
        report={**model.report, "classes": len(classes)},
    )  # fmt: skip
    before = after = None
    if model.support.task is not None:
        support = replace(model.support, task=replace(support_of(model), text=text))
        before = _accuracy(held_out_predictions(model), model)
        grown = fit_support(model.encoder, model.recipe, classes, support)
        after = _accuracy(held_out_predictions(grown), model)
    unchanged = {"new_accuracy": None, "duplicates": 0, "skipped": 0}
    return grown, {**_changes(model, grown, before, after), **unchanged}


def learning_curve(model: AdaptedModel, progress: Progress | None = None, repeats: int = REPEATS) -> Curve:
    """Measure accuracy against images per class inside the support set, and extrapolate."""
    task, confidence = support_of(model), model.confidence
    if not confidence.figures.images:  # the fit was not calibrated
        confidence = Confidence.of(model.fitted, task, held_out_predictions(model))
    options: dict[str, Any] = {"repeats": repeats, "seed": model.recipe.seed, "progress": progress}
    return measure_curve(model.fitted, task, confidence.figures, **options)


def suggest(
    model: AdaptedModel, images: Any, count: int, reading: ReadOptions, progress: Progress | None = None
) -> list[Suggestion]:
    """Suggest which of these unlabelled images to label next; `index` counts in `images`."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"count must be an integer of at least 1, got {count!r}")
    task, extraction = support_of(model), encode(model.encoder, images, reading, progress=progress)
    seen = set(model.support.hashes)
    fresh = [i for i, key in enumerate(extraction.hashes) if key not in seen]
    x, head = extraction.features[0, fresh], model.encoder.head
    (inputs, _), (labelled, _) = head.split(x), head.split(task.x[0])
    chosen = choose_images(inputs, model.probabilities(x), labelled, count)
    return [replace(one, index=extraction.kept[fresh[one.index]]) for one in chosen]


def support_of(model: AdaptedModel) -> Task:
    """Return the support set, with text features if the method needs them."""
    task = model.support.require_task()
    needed = Capability.TEXT_FEATURES in model.method().needs
    if needed and task.text.features is None:  # a saved model has only the text rows
        text = class_text(model.encoder, model.recipe, model.classes)
        task = make_task(model.encoder, task.x, task.y, text, task.groups)
    return task


def held_out_predictions(model: AdaptedModel) -> HeldOutPredictions:
    """Return predictions for held-out training images: those of the fit, or of fits with its settings."""
    if model.confidence.held_out is not None:
        return model.confidence.held_out
    settled = methods.from_settings(model.fitted.settings)
    return cross_validate(settled, support_of(model), seed=model.recipe.seed)


def _changes(
    old: AdaptedModel, new: AdaptedModel, before: float | None, after: float | None
) -> dict[str, Any]:
    return {
        **new.report,
        "added_classes": list(new.classes[len(old.classes) :]),
        "added_images": len(new.support.hashes) - len(old.support.hashes),
        "old_accuracy_before": before,
        "old_accuracy": after,
    }


def _accuracy(out: HeldOutPredictions, old: AdaptedModel) -> float | None:
    """Return the accuracy on the images and classes of the old model."""
    known = (out.images < len(old.support.hashes)) & (out.y < len(old.classes))
    return metrics.accuracy(out.logits[known], out.y[known]) if known.any() else None


def _new_accuracy(out: HeldOutPredictions, old: AdaptedModel) -> float | None:
    """Return the accuracy on the images of classes that the old model does not have."""
    new = out.y >= len(old.classes)
    return metrics.accuracy(out.logits[new], out.y[new]) if new.any() else None
