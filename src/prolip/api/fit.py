"""Fit a model: from labelled images to a support set, and from that to an `AdaptedModel`.

images = read_labelled("photos/train", split="train")
support = read_support(encoder, images, recipe, reading)         # sampled, encoded, without copies
model = fit_support(encoder, recipe, images.classes, support)
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prolip.api.inputs import ReadOptions, encode, image_name, require_every_class
from prolip.api.model import AdaptedModel, Support, make_task
from prolip.api.recipe import Recipe
from prolip.core import Projected, UsageError
from prolip.core.arrays import Array
from prolip.core.errors import as_text
from prolip.data.imageset import ImageSet, normalize_name
from prolip.data.sampling import sample_few_shot, warn_of_short_classes
from prolip.encoders import Encoder
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.near_copies import SIGNATURE_SIDE, merge, near_copy_groups, open_signature
from prolip.evaluate.out_of_distribution import directions
from prolip.features import Extraction
from prolip.io.progress import Progress, counted
from prolip.methods import create


class DuplicateWarning(UserWarning):
    """Images occur more than once, in one class or in two."""


def fit_names(encoder: Encoder, recipe: Recipe, classes: Sequence[str]) -> AdaptedModel:
    """Make a zero-shot model of class names; images that are added later are fitted by the recipe."""
    if isinstance(classes, str):
        raise UsageError(f"classes must be a list, like [{classes!r}]")
    started = time.perf_counter()
    names = [normalize_name(as_text(name, "a class")) for name in classes]
    if len(names) < 2:
        raise UsageError(f"at least two classes are needed, got {len(names)}")
    text = recipe.class_text(encoder, names)
    settings = create("zero_shot").to_settings()
    seconds = time.perf_counter() - started
    report: dict[str, Any] = {"scale": encoder.scale, "parameters": 0, "seconds": seconds}
    fitted = Projected(encoder.head, text, encoder.scale, settings=settings, report=report)
    sizes = {"classes": len(names), "images": 0, "shots": 0, "views": recipe.views}
    report = {"method": settings.method, **report, "model": encoder.name, **sizes}
    return AdaptedModel(encoder, recipe, fitted, tuple(names), text, Confidence(), Support((), None), report)


def read_support(
    encoder: Encoder,
    images: ImageSet,
    recipe: Recipe,
    reading: ReadOptions,
    progress: Progress | None = None,
) -> Support:
    """Sample images, encode them, and make a support set of those that are not copies."""
    recipe.names_in_prompts(images.classes)  # refuses names before any image is encoded
    warn_of_short_classes(images.labels, recipe.shots)
    sample = images.subset(sample_few_shot(images.labels, recipe.shots, recipe.seed))
    extraction = encode(encoder, sample.images, reading, range(recipe.views), progress)
    support = make_support(encoder, recipe, sample, extraction)
    support = replace(support, negatives=encode_negatives(encoder, images, reading))
    if copies := len(extraction.hashes) - len(support.hashes):
        warnings.warn(f"ignored as copies of other images: {counted(copies)}", DuplicateWarning, stacklevel=3)
    return support


def encode_negatives(encoder: Encoder, images: ImageSet, reading: ReadOptions) -> Array | None:
    """Return the directions [j, Do] of images of none of the classes; None without any."""
    if not images.negatives:
        return None
    return directions(encode(encoder, images.negatives, reading).features[0], encoder.head)


def make_support(
    encoder: Encoder, recipe: Recipe, images: ImageSet, extraction: Extraction, old: Support | None = None
) -> Support:
    """Make a support set of images that were encoded, without copies, after the images of an `old` one."""
    task = None if old is None else old.task
    hashes = () if old is None else old.hashes
    known = {} if task is None else dict(zip(hashes, task.y.tolist(), strict=True))
    fresh = _new_images(extraction.hashes, images.subset(extraction.kept), known)
    new = images.subset([extraction.kept[i] for i in fresh])
    x, y = extraction.features[:, fresh], np.array(new.labels, int)
    groups = np.unique(range(len(new)) if new.groups is None else new.groups, return_inverse=True)[1]
    if task is not None:
        x, y = np.concatenate([task.x, x], axis=1), np.concatenate([task.y, y])
        groups = np.concatenate([task.groups, groups + task.groups.max() + 1])
    require_every_class(images, y.tolist())
    before, unseen = len(hashes), np.zeros((SIGNATURE_SIDE, SIGNATURE_SIDE), np.float32)
    copies = near_copy_groups(  # the images of a saved model cannot be opened
        x[0], y, lambda i: unseen if i < before else open_signature(new.images[i - before])
    )
    groups = merge(copies, groups)
    task = make_task(encoder, x, y, recipe.class_text(encoder, images.classes), groups)
    new_hashes = tuple(extraction.hashes[i] for i in fresh)
    negatives = None if old is None else old.negatives
    return Support(hashes + new_hashes, task, tuple(extraction.bad), negatives)


def fit_support(
    encoder: Encoder,
    recipe: Recipe,
    classes: Sequence[Any],
    support: Support,
    progress: Progress | None = None,
) -> AdaptedModel:
    """Fit a model on a support set, and calibrate it on predictions for held-out images of it."""
    method, task = recipe.create(), support.require_task()
    if recipe.calibrate:
        fitted, held_out = method.fit_held_out(task, progress, recipe.seed)
        confidence = Confidence.of(fitted, task, held_out, support.negatives)
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
        "negatives": 0 if support.negatives is None else len(support.negatives),
        "shots": task.shots,
        "views": task.views,
    }
    return AdaptedModel(encoder, recipe, fitted, tuple(classes), task.text, confidence, support, report)


def use_unlabelled(
    model: AdaptedModel, images: Any, reading: ReadOptions, progress: Progress | None = None
) -> AdaptedModel:
    """Use unlabelled images where that helps held-out labelled ones."""
    from prolip.evaluate.unlabelled import fit_with_pool

    extraction = encode(model.encoder, images, reading, progress=progress)
    known = set(model.support.hashes)
    fresh = [i for i, key in enumerate(extraction.hashes) if key not in known]
    started, task = time.perf_counter(), model.support.require_task()
    pool = extraction.features[0, fresh]
    fitted, confidence, evidence = fit_with_pool(
        model.fitted, model.confidence, task, pool, seed=model.recipe.seed
    )
    summary = {"images": len(fresh), **vars(evidence), "seconds": time.perf_counter() - started}
    report = {**model.report, "scale": getattr(fitted, "scale", None), "unlabelled": summary}
    support = replace(model.support, skipped=(*model.support.skipped, *extraction.bad))
    return replace(model, fitted=fitted, confidence=confidence, support=support, report=report)


def _new_images(hashes: Sequence[bytes], images: ImageSet, known: dict[bytes, int]) -> list[int]:
    """Return which images are not copies of others, byte for byte; warn of those in two classes.

    `known` has the class of each image of the model by its hash.
    """
    fresh: list[int] = []
    first = {key: (label, "an image of the model") for key, label in known.items()}
    conflicts = []
    for i, (key, label) in enumerate(zip(hashes, images.labels, strict=True)):
        name = image_name(images.images[i], i)
        if key not in first:
            fresh.append(i)
            first[key] = label, name
        elif first[key][0] != label:
            other = f"{first[key][1]} ({images.classes[first[key][0]]})"
            conflicts.append(f"{name} ({images.classes[label]}) is {other}")
    if conflicts:
        warnings.warn(
            f"in two classes, and counted for the class named last: {counted(len(conflicts))}, like "
            f"{conflicts[0]}: delete the wrong one of each; `prolip check` lists them",
            DuplicateWarning,
            stacklevel=5,
        )
    return fresh
