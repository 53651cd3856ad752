"""From labelled images to an adapted model."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prolip.api.model import AdaptedModel, Recipe, Support
from prolip.api.reading import Labelled, Progress, Reading
from prolip.api.texts import check_texts, class_texts
from prolip.core import Fitted, InputError, Task, Text, UsageError
from prolip.core.arrays import Array
from prolip.data import sample_few_shot, warn_of_short_classes
from prolip.encoders import Encoder
from prolip.encoders.precomputed import PrecomputedEmbeddings
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.out_of_distribution import OutOfDistribution
from prolip.features import LazyImages
from prolip.methods import Method


def adapt_to_images(
    encoder: Encoder,
    recipe: Recipe,
    labelled: Labelled,
    reading: Reading,
    *,
    shots: int | None = None,
    unlabelled: Any = None,
    progress: Progress | None = None,
    training: Progress | None = None,
) -> AdaptedModel:
    """Sample images, encode them, name their classes, and fit; then let a pool of unlabelled images move it.

    `progress` counts images as they are encoded, `training` the steps of a method that takes steps.
    """
    recipe.create()  # wrong options are refused before any image is encoded
    if unlabelled is not None and not recipe.calibrate:
        raise UsageError("unlabelled images are used by the evidence of held-out ones: leave calibrate=True")
    encoder, support = read_support(encoder, recipe, labelled, reading, shots=shots, progress=progress)
    model = adapt(encoder, recipe, labelled.classes, support, training)
    return model if unlabelled is None else learn_from_pool(model, unlabelled, reading, progress)


def read_support(
    encoder: Encoder,
    recipe: Recipe,
    labelled: Labelled,
    reading: Reading,
    *,
    shots: int | None = None,
    progress: Progress | None = None,
) -> tuple[Encoder, Support]:
    """Sample images, encode them and name their classes; the encoder of embeddings knows those names then."""
    classes = labelled.classes
    check_texts(encoder, recipe, classes)
    if not encoder.encodes_images:
        encoder = PrecomputedEmbeddings(Text(labelled.text, tuple(map(str, classes))))
    warn_of_short_classes(labelled.y, shots)
    chosen = sample_few_shot(labelled.y, shots, recipe.seed)
    found = reading.features(encoder, [labelled.images[i] for i in chosen], range(recipe.views), progress)
    y = [labelled.y[chosen[i]] for i in found.kept]
    fresh = fresh_images(found.hashes, y, classes, {})
    if copies := len(y) - len(fresh):
        warnings.warn(f"copies of other images, which do not count: {copies}", stacklevel=4)
    places, y = [chosen[found.kept[i]] for i in fresh], [y[i] for i in fresh]
    missing = [name for k, name in enumerate(classes) if k not in set(y)]
    if missing and encoder.encodes_images:
        why = f"{len(found.bad)} are bad" if found.bad else "all are in another class too"
        raise InputError(f"class {missing[0]!r} has no readable image left ({why})")
    text = class_texts(encoder, recipe, classes, found.features[0, fresh], y)
    pictures = LazyImages([labelled.images[i] for i in places]) if encoder.encodes_images else ()
    task = support_task(encoder, recipe, found.features[:, fresh], y, text)
    return encoder, Support(tuple(found.hashes[i] for i in fresh), task, tuple(found.bad), pictures)


def learn_from_pool(
    model: AdaptedModel, images: Any, reading: Reading, progress: Progress | None = None
) -> AdaptedModel:
    """The model moved by unlabelled images, where held-out labelled ones say that this helps."""
    from prolip.evaluate.unlabelled import learn_from

    found = reading.features(model.encoder, images, progress=progress)
    known = set(model.support.hashes)
    fresh = [i for i, key in enumerate(found.hashes) if key not in known]
    started, task = time.perf_counter(), model.support.require_task()
    learned = learn_from(
        model.fitted, model.confidence, task, found.features[0, fresh], seed=model.recipe.seed
    )
    told = {"images": len(fresh), **vars(learned.evidence), "seconds": time.perf_counter() - started}
    support = replace(model.support, skipped=(*model.support.skipped, *found.bad))
    report = {**model.report, "scale": getattr(learned.fitted, "scale", None), "unlabelled": told}
    return replace(
        model, fitted=learned.fitted, confidence=learned.confidence, support=support, report=report
    )


def adapt(
    encoder: Encoder,
    recipe: Recipe,
    classes: Sequence[Any],
    support: Support,
    progress: Progress | None = None,
) -> AdaptedModel:
    """Fit a model on encoded images, and calibrate it."""
    method = recipe.create()
    task = method.prepare(support.require_task(), encoder, recipe.templates, support.images)
    if recipe.calibrate:
        fitted, confidence = fit_and_calibrate(method, task, recipe.seed, progress)
    else:
        fitted, confidence = method.fit(task, progress), Confidence()
    report = {
        "method": recipe.method,
        **fitted.report,
        "model": encoder.name,
        "classes": len(classes),
        "images": task.n,
        "shots": task.shots,
        "views": task.views,
    }
    return AdaptedModel(encoder, recipe, fitted, tuple(classes), task.text, confidence, support, report)


def fit_and_calibrate(
    method: Method, task: Task, seed: int, progress: Progress | None = None
) -> tuple[Fitted, Confidence]:
    """Adapt to the support set, and calibrate on answers about held-out images of it.

    Methods that train through a tower take minutes to fit, not moments: they are not cross-validated, and
    keep temperature 1.
    """
    if method.trains_tower:
        out_of_distribution = None if method.reads_images else OutOfDistribution.of(task)
        return method.fit(task, progress), Confidence(out_of_distribution=out_of_distribution)
    fitted, held_out = method.fit_held_out(task, progress, seed)
    return fitted, Confidence.of(fitted, task, held_out)


def support_task(encoder: Encoder, recipe: Recipe, x: Array, y: Any, text: Text) -> Task:
    """Features [V, n, width] and labels [n] as the task of an encoder; embeddings are a black box."""
    if not encoder.encodes_images:
        return Task(x, y, text, scale=encoder.scale)
    return Task(x, y, text, encoder.head, encoder.scale)


def fresh_images(
    hashes: Sequence[bytes], y: Sequence[int], classes: Sequence[Any], seen: dict[bytes, int]
) -> list[int]:
    """Which pictures are not in their class already: a copy says nothing new, and held out it would be known.

    `seen` has the class of each picture of the model, and takes in these.
    """
    fresh, torn = [], []
    for i, (key, label) in enumerate(zip(hashes, y, strict=True)):
        if key not in seen:
            fresh.append(i)
            seen[key] = label
        elif seen[key] != label:
            torn.append((seen[key], label))
    if torn:
        first, second = (classes[label] for label in torn[0])
        warnings.warn(
            f"pictures in two classes, which count for the one they were first seen in: {len(torn)}, the "
            f"first in {first!r} and {second!r}",
            stacklevel=5,
        )
    return fresh
