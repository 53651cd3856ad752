"""Fit a model: from labelled images, from class names, or from a support set."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from prolip.api.model import AdaptedModel, Support
from prolip.api.recipe import Recipe
from prolip.api.support import ReadOptions, class_text, encode, read_support
from prolip.core import Fitted, Projected, Task, UsageError
from prolip.core.arguments import as_text
from prolip.core.errors import Parameter
from prolip.core.names import normalize_name
from prolip.data import ImageSet
from prolip.encoders import Encoder
from prolip.evaluate.confidence import Confidence
from prolip.io.progress import Progress
from prolip.methods import Method, create


def fit_images(
    encoder: Encoder,
    recipe: Recipe,
    images: ImageSet,
    reading: ReadOptions,
    *,
    unlabelled: Any = None,
    progress: Progress | None = None,
    training: Progress | None = None,
) -> AdaptedModel:
    """Fit a model on labelled images, then use a pool of unlabelled ones where that helps.

    `progress` counts images as they are encoded, `training` the steps of a method that takes steps.
    """
    if unlabelled is not None and not recipe.calibrate:
        raise UsageError(
            "unlabelled images cannot be used with ",
            Parameter("calibrate", False),
            ": held-out images say whether they help",
        )
    support = read_support(encoder, images, recipe, reading, progress)
    model = fit_support(encoder, recipe, images.classes, support, training)
    return model if unlabelled is None else learn_from_pool(model, unlabelled, reading, progress)


def fit_names(encoder: Encoder, recipe: Recipe, classes: Sequence[str]) -> AdaptedModel:
    """Make a zero-shot model of class names; images that are added later are fitted by the recipe."""
    if isinstance(classes, str):
        raise UsageError(f"classes must be a list, like [{classes!r}]")
    started = time.perf_counter()
    names = [normalize_name(as_text(name, "a class")) for name in classes]
    if len(names) < 2:
        raise UsageError(f"at least two classes are needed, got {len(names)}")
    text = class_text(encoder, recipe, names)
    settings = create("zero_shot").to_settings()
    seconds = time.perf_counter() - started
    report: dict[str, Any] = {"scale": encoder.scale, "parameters": 0, "seconds": seconds}
    fitted = Projected(encoder.head, text, encoder.scale, settings=settings, report=report)
    sizes = {"classes": len(names), "images": 0, "shots": 0, "views": recipe.views}
    report = {"method": settings.method, **report, "model": encoder.name, **sizes}
    return AdaptedModel(encoder, recipe, fitted, tuple(names), text, Confidence(), Support((), None), report)


def learn_from_pool(
    model: AdaptedModel, images: Any, reading: ReadOptions, progress: Progress | None = None
) -> AdaptedModel:
    """Use unlabelled images where that helps held-out labelled ones."""
    from prolip.evaluate.unlabelled import learn_from

    extraction = encode(model.encoder, images, reading, progress=progress)
    known = set(model.support.hashes)
    fresh = [i for i, key in enumerate(extraction.hashes) if key not in known]
    started, task = time.perf_counter(), model.support.require_task()
    pool = extraction.features[0, fresh]
    learned = learn_from(model.fitted, model.confidence, task, pool, seed=model.recipe.seed)
    summary = {"images": len(fresh), **vars(learned.evidence), "seconds": time.perf_counter() - started}
    support = replace(model.support, skipped=(*model.support.skipped, *extraction.bad))
    report = {**model.report, "scale": getattr(learned.fitted, "scale", None), "unlabelled": summary}
    return replace(
        model, fitted=learned.fitted, confidence=learned.confidence, support=support, report=report
    )


def fit_support(
    encoder: Encoder,
    recipe: Recipe,
    classes: Sequence[Any],
    support: Support,
    progress: Progress | None = None,
) -> AdaptedModel:
    """Fit a model on a support set, and calibrate it."""
    method, task = recipe.create(), support.require_task()
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
        "near_copies": int((task.weights < 1).sum()),
        "independent": task.independent,
        "shots": task.shots,
        "views": task.views,
    }
    return AdaptedModel(encoder, recipe, fitted, tuple(classes), task.text, confidence, support, report)


def fit_and_calibrate(
    method: Method, task: Task, seed: int, progress: Progress | None = None
) -> tuple[Fitted, Confidence]:
    """Fit the support set, and calibrate on predictions for held-out images of it."""
    fitted, held_out = method.fit_held_out(task, progress, seed)
    return fitted, Confidence.of(fitted, task, held_out)
