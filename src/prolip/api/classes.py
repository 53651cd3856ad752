"""Classes renamed, merged and removed: functions from one adapted model to another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prolip import methods
from prolip.api.fit import adapt, support_task
from prolip.api.grow import support_of
from prolip.api.model import AdaptedModel, Support
from prolip.api.texts import class_texts
from prolip.core import Text, UsageError
from prolip.core.arrays import Array
from prolip.core.errors import check_name
from prolip.core.names import normalize_name
from prolip.data import class_names
from prolip.encoders import Encoder
from prolip.encoders.precomputed import PrecomputedEmbeddings


def rename_classes(model: AdaptedModel, names: Mapping[str, str], *, retext: bool = False) -> AdaptedModel:
    """The model with other names for some classes, {old: new}.

    Nothing is fitted and no answer changes: prompts go on calling them by their old names, when the model
    grows too. With `retext` the new names are read, and the model is fitted again from the kept features.
    """
    if not names:
        raise UsageError("no classes to rename were named")
    names = {normalize_name(old): normalize_name(new) for old, new in names.items()}
    places = {_place(model, old): new for old, new in names.items()}
    classes = [places.get(k, name) for k, name in enumerate(model.classes)]
    _check(model, classes)
    spoken = model.recipe.spoken
    others = {name: words for name, words in spoken.items() if name not in names}
    if retext:
        model, unmoved = _with_spoken(model, others), np.arange(len(classes))
        return _refit(model, classes, unmoved, _texts(model, classes, unmoved))
    model = _with_spoken(model, {**others, **{new: spoken.get(old, old) for old, new in names.items()}})
    return _with_classes(model, classes, range(len(classes)))


def merge_classes(model: AdaptedModel, names: Sequence[str], into: str) -> AdaptedModel:
    """The model with several classes as one, fitted again from the kept features.

    `into` takes the place of the first of them. Where it is one of `names`, its text row stays.
    """
    into = normalize_name(into)
    merged = sorted({_place(model, name) for name in names})
    if len(merged) < 2:
        raise UsageError(f"merging takes at least two classes, got {', '.join(map(repr, names))}")
    kept = [k for k in range(len(model.classes)) if k not in merged[1:]]
    if len(kept) < 2:
        raise UsageError("a model needs two classes: one would be left")
    classes = [into if k == merged[0] else model.classes[k] for k in kept]
    _check(model, classes)
    model = _speaking_of(model, classes)
    place_of = np.array([kept.index(merged[0] if k in merged else k) for k in range(len(model.classes))])
    rows = list(kept)
    if into in map(str, model.classes):
        rows[kept.index(merged[0])] = _place(model, into)
        return _refit(model, classes, place_of, model.text.subset(rows))
    if model.encoder.encodes_images:
        return _refit(model, classes, place_of, _texts(model, classes, place_of))
    means = model.text.rows[kept].copy()  # there is no text tower: the mean of the rows that there are
    means[kept.index(merged[0])] = model.text.rows[merged].mean(axis=0)
    return _refit(model, classes, place_of, Text(means))


def remove_classes(model: AdaptedModel, names: Sequence[str]) -> AdaptedModel:
    """The model without some classes and their images.

    It is fitted again from the kept features. Where it was saved without them, or none of its images are of
    these classes, an open-class model is asked about fewer texts, and nothing is fitted.
    """
    if not names:
        raise UsageError("no classes to remove were named")
    gone = {_place(model, name) for name in names}
    kept = [k for k in range(len(model.classes)) if k not in gone]
    if len(kept) < 2:
        raise UsageError(f"a model needs two classes: {len(kept)} would be left")
    classes = [model.classes[k] for k in kept]
    model = _speaking_of(model, classes)
    task = model.support.task
    if task is None or not np.isin(task.y, list(gone)).any():
        return _with_classes(model, classes, kept)
    place_of = np.full(len(model.classes), -1)
    place_of[kept] = np.arange(len(kept))
    return _refit(model, classes, place_of, model.text.subset(kept))


def _place(model: AdaptedModel, name: str) -> int:
    names = list(map(str, model.classes))
    check_name("class", name := normalize_name(name), names)
    return names.index(name)


def _check(model: AdaptedModel, classes: Sequence[Any]) -> None:
    """Refuse classes that are twice there, or that no prompt can tell apart."""
    names = list(map(str, classes))
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"class {twice!r} is there already: merge them instead")
    if model.encoder.encodes_images:
        class_names(names)


def _speaking_of(model: AdaptedModel, classes: Sequence[Any]) -> AdaptedModel:
    """The model without what prompts called classes that are not among these, or that are new."""
    left = set(map(str, model.classes)) & set(map(str, classes))
    return _with_spoken(model, {name: it for name, it in model.recipe.spoken.items() if name in left})


def _with_spoken(model: AdaptedModel, spoken: dict[str, str]) -> AdaptedModel:
    """The model with other words for its classes in prompts, by name."""
    return replace(model, recipe=replace(model.recipe, spoken=spoken))


def _texts(model: AdaptedModel, classes: Sequence[Any], place_of: Array) -> Text:
    if not model.encoder.encodes_images:
        raise UsageError("embeddings have no text tower that could read a name: the text rows stay")
    task = model.support.task
    images = () if task is None else (task.x[0], place_of[task.y])
    return class_texts(model.encoder, model.recipe, classes, *images)


def _refit(model: AdaptedModel, classes: Sequence[Any], place_of: Any, text: Text) -> AdaptedModel:
    """The model fitted again; `place_of` [K] has the new place of each class, -1 for one that goes."""
    if model.method().trains_tower:
        raise UsageError(
            f"{model.recipe.method} trains through the model itself, and needs all images to fit again"
        )
    task, text = support_of(model), _named(text, classes)
    y, encoder = place_of[task.y], _encoder(model, text)
    kept = np.flatnonzero(y >= 0)
    new = support_task(encoder, model.recipe, task.x[:, kept], y[kept], text)
    hashes = tuple(model.support.hashes[i] for i in kept)
    return adapt(encoder, model.recipe, classes, Support(hashes, new))


def _with_classes(model: AdaptedModel, classes: Sequence[Any], kept: Sequence[int]) -> AdaptedModel:
    """The fitted model as it is, with new names for the classes `kept`, in this order, and no others."""
    text = _named(model.text.subset(list(kept)), classes)
    encoder, fitted = _encoder(model, text), model.fitted
    if len(classes) == len(model.classes):
        fitted = methods.restore(
            fitted.kind, fitted.tensors(), fitted.config(), encoder.head, text, fitted.settings,
            fitted.report,
        ).bind(encoder)  # fmt: skip
    else:
        fitted = fitted.with_text(text)
    support, task = model.support, model.support.task
    if task is not None:
        place_of = np.full(len(model.classes), -1)
        place_of[list(kept)] = np.arange(len(kept))
        new = support_task(encoder, model.recipe, task.x, place_of[task.y], text)
        support = replace(support, task=new)
    return replace(
        model, encoder=encoder, fitted=fitted, classes=tuple(classes), text=text, support=support,
        confidence=model.confidence.select(kept),
        report={**model.report, "classes": len(classes)},
    )  # fmt: skip


def _named(text: Text, classes: Sequence[Any]) -> Text:
    return replace(text, classes=tuple(map(str, classes)))


def _encoder(model: AdaptedModel, text: Text) -> Encoder:
    """The base model; embeddings have a stand-in for it, which holds the text rows."""
    return model.encoder if model.encoder.encodes_images else PrecomputedEmbeddings(text)
