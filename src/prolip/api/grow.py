"""More classes, more images: a model fitted again from kept features, without the old images."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prolip import methods
from prolip.api.fit import adapt, fresh_images, support_task
from prolip.api.model import AdaptedModel, Support
from prolip.api.predict import features
from prolip.api.reading import Labelled, Progress, Reading
from prolip.api.texts import class_texts
from prolip.core import HeldOutPredictions, Task, Text, UsageError
from prolip.core.names import normalize_name
from prolip.data import class_names
from prolip.evaluate import metrics
from prolip.evaluate.curve import REPEATS, Curve
from prolip.evaluate.curve import learning_curve as draw_learning_curve
from prolip.evaluate.suggest import Suggestion
from prolip.evaluate.suggest import suggest as choose_images
from prolip.methods.common.cross_validation import cross_validate


def add_images(
    model: AdaptedModel,
    labelled: Labelled,
    names: Sequence[str],
    reading: Reading,
    progress: Progress | None = None,
) -> tuple[AdaptedModel, dict[str, Any]]:
    """The model with images of new or known classes, and classes by name, fitted again; and what changed."""
    recipe, task = model.recipe, support_of(model)
    if model.method().trains_tower:
        raise UsageError(
            f"{recipe.method} trains through the model itself, and needs all images to fit again"
        )
    names = [normalize_name(name) for name in names]
    known = labelled.classes + [name for name in names if name not in labelled.classes]
    class_names(map(str, known))
    before = _accuracy(held_out_predictions(model), model)
    found = reading.features(model.encoder, labelled.images, range(recipe.views), progress)
    labels = [labelled.y[i] for i in found.kept]
    seen = dict(zip(model.support.hashes, task.y.tolist(), strict=True))
    fresh = fresh_images(found.hashes, labels, known, seen)
    if not fresh:
        raise UsageError("all of these images are in the model already")
    x = np.concatenate([task.x, found.features[:, fresh]], axis=1)
    y = np.concatenate([task.y, [labels[i] for i in fresh]])
    empty = [known[k] for k in set(labels) - set(y.tolist())]
    if empty:
        raise UsageError(f"every image of {empty[0]!r} is in the model already, under another class")
    text = class_texts(model.encoder, recipe, known, x[0], y)
    grown = support_task(model.encoder, recipe, x, y, text)
    hashes = model.support.hashes + tuple(found.hashes[i] for i in fresh)
    new = adapt(model.encoder, recipe, known, Support(hashes, grown, tuple(found.bad)))
    return new, {
        **_changes(model, new, before, _accuracy(held_out_predictions(new), model)),
        "duplicates": len(found.hashes) - len(fresh),
        "skipped": len(found.bad),
    }


def add_names(model: AdaptedModel, names: Sequence[str]) -> tuple[AdaptedModel, dict[str, Any]]:
    """The model with classes by their names alone: it is asked about more texts, nothing is fitted."""
    names = [normalize_name(name) for name in names]
    new = [name for name in dict.fromkeys(names) if name not in model.classes]
    if not new:
        raise UsageError(f"the model has {', '.join(map(repr, names))} already")
    known = [*model.classes, *new]
    text = _more_texts(model, known)
    fitted, support = model.fitted.with_text(text), model.support
    before = after = None
    if support.task is not None:
        task = support_of(model)
        if not model.method().trains_tower:  # fitting those again takes minutes
            settled, seed = methods.from_settings(model.fitted.settings), model.recipe.seed
            before, after = (
                _accuracy(cross_validate(settled, task, text=asked, seed=seed), model)
                for asked in (None, text)
            )
        support = replace(support, task=support_task(model.encoder, model.recipe, task.x, task.y, text))
    confidence = model.confidence.select([*range(len(model.classes)), *[None] * len(new)])
    grown = replace(
        model, fitted=fitted, classes=tuple(known), text=text, confidence=confidence, support=support,
        report={**model.report, "classes": len(known)},
    )  # fmt: skip
    return grown, {**_changes(model, grown, before, after), "duplicates": 0, "skipped": 0}


def learning_curve(model: AdaptedModel, progress: Progress | None = None, repeats: int = REPEATS) -> Curve:
    """Accuracy against images per class inside the support set, and what more images would bring."""
    task, seed = support_of(model), model.recipe.seed
    return draw_learning_curve(model.fitted, task, repeats=repeats, seed=seed, progress=progress)


def suggest(
    model: AdaptedModel, images: Any, count: int, reading: Reading, progress: Progress | None = None
) -> list[Suggestion]:
    """Which of these unlabelled images to label next; `index` counts in `images`."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"count must be a whole number from 1 on, got {count!r}")
    task, found = support_of(model), features(model, images, reading, progress)
    seen = set(model.support.hashes)
    fresh = [i for i, key in enumerate(found.hashes) if key not in seen]
    x, head = found.features[0, fresh], model.encoder.head
    (inputs, _), (labelled, _) = head.split(x), head.split(task.x[0])
    chosen = choose_images(inputs, model.probabilities(x), labelled, count)
    return [replace(one, index=found.kept[fresh[one.index]]) for one in chosen]


def support_of(model: AdaptedModel) -> Task:
    """The support set, with text features where the method needs them."""
    task = model.support.require_task()
    needed = any(need.startswith("text features") for need in model.method().needs)
    if needed and task.text.features is None:  # a saved model has the text rows alone
        text = class_texts(model.encoder, model.recipe, model.classes)
        task = support_task(model.encoder, model.recipe, task.x, task.y, text)
    return task


def held_out_predictions(model: AdaptedModel) -> HeldOutPredictions:
    """Answers about held-out support images: those of the fit, or of fits with what it settled on."""
    if model.confidence.held_out is not None:
        return model.confidence.held_out
    settled = methods.from_settings(model.fitted.settings)
    return cross_validate(settled, support_of(model), seed=model.recipe.seed)


def _more_texts(model: AdaptedModel, classes: Sequence[Any]) -> Text:
    """The texts of a model and of classes that follow its own; those that images weighted stay."""
    text = class_texts(model.encoder, model.recipe, classes)
    if not model.recipe.descriptions:
        return text
    return Text(np.concatenate([model.text.rows, text.rows[len(model.text) :]]), text.classes)


def _changes(
    old: AdaptedModel, new: AdaptedModel, before: float | None, after: float | None
) -> dict[str, Any]:
    """What came to a model, and what that did to its old classes."""
    return {
        **new.report,
        "added_classes": list(new.classes[len(old.classes) :]),
        "added_images": len(new.support.hashes) - len(old.support.hashes),
        "old_accuracy_before": before,
        "old_accuracy": after,
    }


def _accuracy(out: HeldOutPredictions, old: AdaptedModel) -> float | None:
    """Accuracy on the images and classes that a model had."""
    known = (out.images < len(old.support.hashes)) & (out.y < len(old.classes))
    return metrics.accuracy(out.logits[known], out.y[known]) if known.any() else None
