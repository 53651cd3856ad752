"""Rename, merge and remove classes: functions from one adapted model to another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prolip import methods
from prolip.api.fit import fit_support
from prolip.api.grow import require_quick_fit, support_of
from prolip.api.model import AdaptedModel, Support
from prolip.api.support import EmbeddingSource, ImageSource
from prolip.core import Text, UsageError
from prolip.core.arrays import Array
from prolip.core.errors import check_name
from prolip.core.names import normalize_name


def rename_classes(model: AdaptedModel, names: Mapping[str, str], *, retext: bool = False) -> AdaptedModel:
    """Rename classes, {old: new}.

    Nothing is fitted and no prediction changes: the prompts keep the old names, also when the model grows.
    With `retext` the prompts use the new names, and the model is fitted again from its features.
    """
    if not names:
        raise UsageError("no classes to rename were named")
    names = {normalize_name(old): normalize_name(new) for old, new in names.items()}
    new_names = {_index(model, old): new for old, new in names.items()}
    classes = [new_names.get(k, name) for k, name in enumerate(model.classes)]
    _check(model, classes)
    in_prompts = model.recipe.prompt_names
    others = {name: words for name, words in in_prompts.items() if name not in names}
    if retext:
        model, same = _with_prompt_names(model, others), np.arange(len(classes))
        return _refit(model, classes, same, _texts(model, classes, same))
    old_names = {new: in_prompts.get(old, old) for old, new in names.items()}
    return _select(_with_prompt_names(model, {**others, **old_names}), classes, range(len(classes)))


def merge_classes(model: AdaptedModel, names: Sequence[str], into: str) -> AdaptedModel:
    """Make several classes one, and fit again from the features of the model.

    `into` takes the place of the first of them. If it is one of `names`, its text row stays.
    """
    into = normalize_name(into)
    merged = sorted({_index(model, name) for name in names})
    if len(merged) < 2:
        raise UsageError(f"merging takes at least two classes, got {', '.join(map(repr, names))}")
    left = _left(model, merged[1:])
    classes = [into if k == merged[0] else model.classes[k] for k in left]
    _check(model, classes)
    model = _without_old_prompt_names(model, classes)
    place = left.index(merged[0])
    index_of = np.array([place if k in merged else left.index(k) for k in range(len(model.classes))])
    if into in map(str, model.classes):
        rows = list(left)
        rows[place] = _index(model, into)
        return _refit(model, classes, index_of, model.text.subset(rows))
    if not isinstance(ImageSource.of(model.encoder), EmbeddingSource):
        return _refit(model, classes, index_of, _texts(model, classes, index_of))
    means = model.text.rows[left].copy()  # without a text encoder: the mean of the rows
    means[place] = model.text.rows[merged].mean(axis=0)
    return _refit(model, classes, index_of, Text(means))


def remove_classes(model: AdaptedModel, names: Sequence[str]) -> AdaptedModel:
    """Remove classes and their images, and fit again from the features of the model.

    An open-class model is not fitted again if it was saved without features, or has no image of them.
    """
    if not names:
        raise UsageError("no classes to remove were named")
    removed = [_index(model, name) for name in names]
    left = _left(model, removed)
    classes = [model.classes[k] for k in left]
    model = _without_old_prompt_names(model, classes)
    task = model.support.task
    if task is None or not np.isin(task.y, removed).any():
        return _select(model, classes, left)
    return _refit(model, classes, _new_indices(model, left), model.text.subset(left))


def _index(model: AdaptedModel, name: str) -> int:
    names = list(map(str, model.classes))
    check_name("class", name := normalize_name(name), names)
    return names.index(name)


def _left(model: AdaptedModel, removed: Sequence[int]) -> list[int]:
    """Return the indices of the other classes, of which there must be two."""
    left = [k for k in range(len(model.classes)) if k not in removed]
    if len(left) < 2:
        raise UsageError(f"a model needs two classes: {len(left)} would be left")
    return left


def _new_indices(model: AdaptedModel, left: Sequence[int]) -> Array:
    """Return the new index [K] of each class; -1 for those that are not left."""
    indices = np.full(len(model.classes), -1)
    indices[list(left)] = np.arange(len(left))
    return indices


def _check(model: AdaptedModel, classes: Sequence[Any]) -> None:
    """Refuse names that occur twice, or that prompts cannot tell apart."""
    names = list(map(str, classes))
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"class {twice!r} exists already: merge the two classes instead")
    ImageSource.of(model.encoder).prompt_names(replace(model.recipe, prompt_names={}), names)


def _without_old_prompt_names(model: AdaptedModel, classes: Sequence[Any]) -> AdaptedModel:
    """Forget the prompt names of classes that are not left, or that are new."""
    left = set(map(str, model.classes)) & set(map(str, classes))
    known = model.recipe.prompt_names.items()
    return _with_prompt_names(model, {name: words for name, words in known if name in left})


def _with_prompt_names(model: AdaptedModel, names: dict[str, str]) -> AdaptedModel:
    return replace(model, recipe=replace(model.recipe, prompt_names=names))


def _texts(model: AdaptedModel, classes: Sequence[Any], index_of: Array) -> Text:
    task = model.support.task
    images = () if task is None else (task.x[0], index_of[task.y])
    return ImageSource.of(model.encoder).text(model.recipe, classes, *images)


def _refit(model: AdaptedModel, classes: Sequence[Any], index_of: Any, text: Text) -> AdaptedModel:
    """Fit again; `index_of` [K] has the new index of each class, -1 for one that is removed."""
    require_quick_fit(model)
    task, text = support_of(model), replace(text, classes=tuple(map(str, classes)))
    source, y = ImageSource.of(model.encoder).with_text(text), index_of[task.y]
    left = np.flatnonzero(y >= 0)
    hashes = tuple(model.support.hashes[i] for i in left)
    support = Support(hashes, source.task(task.x[:, left], y[left], text))
    return fit_support(source.encoder, model.recipe, classes, support)


def _select(model: AdaptedModel, classes: Sequence[Any], left: Sequence[int]) -> AdaptedModel:
    """Return the fitted model with new names for the classes `left`, in this order, and no others."""
    text = replace(model.text.subset(list(left)), classes=tuple(map(str, classes)))
    source, fitted = ImageSource.of(model.encoder).with_text(text), model.fitted
    if len(classes) == len(model.classes):
        fitted = methods.restore(
            fitted.kind, fitted.tensors(), fitted.config(), source.encoder.head, text, fitted.settings,
            fitted.report,
        ).bind(source.encoder)  # fmt: skip
    else:
        fitted = fitted.with_text(text)
    support, task = model.support, model.support.task
    if task is not None:
        support = replace(support, task=source.task(task.x, _new_indices(model, left)[task.y], text))
    return replace(
        model, encoder=source.encoder, fitted=fitted, classes=tuple(classes), text=text, support=support,
        confidence=model.confidence.select(left), report={**model.report, "classes": len(classes)},
    )  # fmt: skip
