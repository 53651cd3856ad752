"""A model that changes: images and classes added, by a fit on stored features without the old images; classes
renamed; and what would make it better, more images of each class or labels of these images.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prolip.api.fit import encode_negatives, fit_names, fit_support, make_support
from prolip.api.inputs import ReadOptions, encode
from prolip.api.model import AdaptedModel
from prolip.core import HeldOutPredictions, UsageError
from prolip.core.arrays import Array
from prolip.core.errors import check_name
from prolip.data import ImageSet
from prolip.data.imageset import normalize_name
from prolip.evaluate import metrics
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.curve import REPEATS, Curve
from prolip.evaluate.curve import learning_curve as measure_curve
from prolip.evaluate.suggestions import Suggestion
from prolip.evaluate.suggestions import suggest as choose_images
from prolip.io.progress import Progress

CURVE_WORK = 1500  # fits times images of a learning curve, about
MAX_CURVE_IMAGES = 4000  # with more, the learning curve takes too long for a page


def add_images(
    model: AdaptedModel,
    images: ImageSet,
    names: Sequence[str],
    reading: ReadOptions,
    progress: Progress | None = None,
) -> tuple[AdaptedModel, dict[str, Any]]:
    """Add images of new or known classes, and classes by name; return the model and what changed."""
    recipe, encoder = model.recipe, model.encoder
    old = replace(model.support, task=model.task()) if model.support.hashes else None
    names = [normalize_name(name) for name in names]
    images = replace(images, classes=images.classes + [name for name in names if name not in images.classes])
    recipe.names_in_prompts(images.classes)  # refuses names before any image is encoded
    support, duplicates, skipped = model.support, 0, 0
    if len(images) or not images.negatives:
        extraction = encode(encoder, images.images, reading, range(recipe.views), progress)
        support = make_support(encoder, recipe, images, extraction, old)
        duplicates = len(extraction.hashes) - len(support.hashes) + len(model.support.hashes)
        skipped = len(extraction.bad)
    if (negatives := encode_negatives(encoder, images, reading)) is not None:
        known = [] if support.negatives is None else [support.negatives]
        support = replace(support, negatives=np.unique(np.concatenate([*known, negatives]), axis=0))
    elif len(support.hashes) == len(model.support.hashes):
        raise UsageError("all of these images are in the model already")
    grown = fit_support(encoder, recipe, images.classes, support)
    return grown, _changes(model, grown, duplicates, skipped)


def add_names(model: AdaptedModel, names: Sequence[str]) -> tuple[AdaptedModel, dict[str, Any]]:
    """Add classes by their names alone: a fit on the images of the model, if it has any."""
    names = [normalize_name(name) for name in names]
    new = [name for name in dict.fromkeys(names) if name not in model.classes]
    if not new:
        raise UsageError(f"the model has {', '.join(map(repr, names))} already")
    classes = [*model.classes, *new]
    if model.support.hashes:
        task = replace(model.task(), text=model.recipe.class_text(model.encoder, classes))
        grown = fit_support(model.encoder, model.recipe, classes, replace(model.support, task=task))
    else:
        grown = fit_names(model.encoder, model.recipe, classes)
    return grown, _changes(model, grown)


def rename_classes(model: AdaptedModel, names: Mapping[str, str]) -> AdaptedModel:
    """Rename classes, {old: new}.

    Nothing is fitted and no prediction changes: the prompts keep the old names, also when the model grows.
    """
    if not names:
        raise UsageError("no classes to rename were named")
    names = {normalize_name(old): normalize_name(new) for old, new in names.items()}
    known = list(map(str, model.classes))
    for old in names:
        check_name("class", old, known)
    classes = [names.get(str(name), name) for name in model.classes]
    if twice := next((name for name in classes if list(map(str, classes)).count(str(name)) > 1), None):
        raise UsageError(f"class {twice!r} exists already: choose another name")
    in_prompts = model.recipe.prompt_names
    replace(model.recipe, prompt_names={}).names_in_prompts(classes)  # refuses names that read alike
    prompt_names = {name: words for name, words in in_prompts.items() if name not in names}
    prompt_names |= {new: in_prompts.get(old, old) for old, new in names.items()}
    text = replace(model.text, classes=tuple(map(str, classes)))
    support, fitted = model.support, replace(model.fitted, text=text)  # type: ignore[call-arg]
    if support.task is not None:
        support = replace(support, task=replace(support.task, text=text))
    recipe = replace(model.recipe, prompt_names=prompt_names)
    return replace(model, recipe=recipe, fitted=fitted, classes=tuple(classes), text=text, support=support)


def learning_curve(model: AdaptedModel, progress: Progress | None = None, repeats: int = REPEATS) -> Curve:
    """Measure accuracy against images per class inside the support set, and extrapolate."""
    task, confidence = model.task(), model.confidence
    if not confidence.figures.images:  # the fit was not calibrated
        confidence = Confidence.of(model.fitted, task, model.held_out())
    options: dict[str, Any] = {"repeats": repeats, "seed": model.recipe.seed, "progress": progress}
    return measure_curve(model.fitted, task, confidence.figures, **options)


def brief_curve(model: AdaptedModel, progress: Progress | None = None) -> Curve | str:
    """Measure the learning curve for a page, in seconds, or return why there is none."""
    task = model.support.task
    if task is None:
        return "The model was saved without features, so that nothing can be fitted."
    if task.n > MAX_CURVE_IMAGES:
        return f"With {task.n:,} images this takes a while: `prolip curve` draws it."
    try:
        return learning_curve(model, progress, max(1, min(REPEATS, CURVE_WORK // task.n)))
    except UsageError as error:
        return f"Unknown: {error}."


def suggest(
    model: AdaptedModel, images: Any, count: int, reading: ReadOptions, progress: Progress | None = None
) -> list[Suggestion]:
    """Suggest which of these unlabelled images to label next; `index` counts in `images`."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"count must be an integer of at least 1, got {count!r}")
    task, extraction = model.task(), encode(model.encoder, images, reading, progress=progress)
    seen = set(model.support.hashes)
    fresh = [i for i, key in enumerate(extraction.hashes) if key not in seen]
    x, head = extraction.features[0, fresh], model.encoder.head
    (inputs, _), (labelled, _) = head.split(x), head.split(task.x[0])
    chosen = choose_images(inputs, model.probabilities(x), labelled, count)
    return [replace(one, index=extraction.kept[fresh[one.index]]) for one in chosen]


def _changes(old: AdaptedModel, new: AdaptedModel, duplicates: int = 0, skipped: int = 0) -> dict[str, Any]:
    """Return the report of the new fit, and the held-out accuracies on old and new classes."""
    accuracies: dict[str, float | None] = dict.fromkeys(
        ("old_accuracy_before", "old_accuracy", "new_accuracy")
    )
    if new.support.task is not None:
        before, after = old.held_out() if old.support.task is not None else None, new.held_out()
        known = (after.images < len(old.support.hashes)) & (after.y < len(old.classes))
        accuracies = {
            "old_accuracy_before": None if before is None else _accuracy(before, before.images >= 0),
            "old_accuracy": _accuracy(after, known),
            "new_accuracy": _accuracy(after, after.y >= len(old.classes)),
        }
    return {
        **new.report,
        "added_classes": list(new.classes[len(old.classes) :]),
        "added_images": len(new.support.hashes) - len(old.support.hashes),
        **accuracies,
        "duplicates": duplicates,
        "skipped": skipped,
    }


def _accuracy(held_out: HeldOutPredictions, images: Array) -> float | None:
    """Return the accuracy on the marked images [m]; None if there are none."""
    return metrics.accuracy(held_out.logits[images], held_out.y[images]) if images.any() else None
