"""More classes, more images: fit again from kept features, without the old images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.api.inputs import images_and_labels
from prolip.api.support import Support, fresh_images
from prolip.core import HeldOut, Task, Text, UsageError
from prolip.core.arrays import Array
from prolip.data import as_templates, class_names
from prolip.encoders.arrays import read_arrays
from prolip.evaluate import metrics
from prolip.evaluate.confidence import Confidence
from prolip.methods import from_settings
from prolip.methods.common.cross_validation import cross_validate
from prolip.methods.common.tower_method import TowerMethod

if TYPE_CHECKING:
    from prolip.api.classifier import FewShotClassifier, Progress


def add_images(
    clf: FewShotClassifier, images: Any, labels: Any, names: Sequence[str], progress: Progress | None
) -> dict[str, Any]:
    """Add images of new or known classes, and classes by name, and fit again."""
    if clf.model == "arrays":
        raise UsageError("embeddings are added by fitting again, with all of them")
    task, method = require_task(clf), clf._method()
    if isinstance(method, TowerMethod):
        raise UsageError(f"{clf.method} trains through the model itself, and needs all images to fit again")
    old_classes, old_images = len(clf.classes_), task.n
    before = _old_accuracy(_held_out(clf, task), old_images, old_classes)
    source, given, known = images_and_labels(images, labels, "train", clf.classes_, grow=True)
    known += [name for name in names if name not in known]
    class_names(map(str, known))
    found = clf._extract(source, range(clf.views), progress)
    labels = [given[i] for i in found.kept]
    fresh = fresh_images(found.hashes, labels, known, dict(zip(clf.support_, task.y.tolist(), strict=True)))
    if not fresh:
        raise UsageError("all of these images are in the model already")
    x = np.concatenate([task.x, found.features[:, fresh]], axis=1)
    y = np.concatenate([task.y, [labels[i] for i in fresh]])
    empty = [known[k] for k in set(labels) - set(y.tolist())]
    if empty:
        raise UsageError(f"every image of {empty[0]!r} is in the model already, under another class")
    grown = Task(x, y, _text(clf, known), task.head, task.scale)
    hashes = clf.support_ + [found.hashes[i] for i in fresh]
    clf._adapt(Support(grown, known, hashes, found.bad), method)
    return {
        "added_classes": known[old_classes:],
        "added_images": len(fresh),
        "duplicates": len(found.hashes) - len(fresh),
        "skipped": len(found.bad),
        "old_accuracy_before": before,
        "old_accuracy": _old_accuracy(_held_out(clf, grown), old_images, old_classes),
        **clf.info_,
    }


def add_names(clf: FewShotClassifier, names: Sequence[str]) -> dict[str, Any]:
    """Add classes by their names alone: the adapted model is asked about more texts, nothing is fitted."""
    if clf.model == "arrays":
        raise UsageError("embeddings have no text tower: fit again with rows for the new classes")
    new = [name for name in names if name not in clf.classes_]
    if not new:
        raise UsageError(f"the model has {', '.join(map(repr, names))} already")
    known, old_classes = clf.classes_ + new, len(clf.classes_)
    text = _text(clf, known)
    asked, method = clf.fitted_.with_text(text), clf._method()
    before = after = None
    if clf.task_ is not None:
        task = require_task(clf)
        if not isinstance(method, TowerMethod):  # fitting those again takes minutes
            before = _old_accuracy(_held_out(clf, task), task.n, old_classes)
            out = cross_validate(from_settings(clf.fitted_.settings), task, text=text, seed=clf.seed)
            after = _old_accuracy(out, task.n, old_classes)
        clf.task_ = Task(task.x, task.y, text, task.head, task.scale)
    clf.fitted_, clf.text_, clf.classes_ = asked, text, known
    outsiders = clf.confidence_.outsiders
    report = {**clf.confidence_.report}
    if "per_class" in report:
        report["per_class"] = report["per_class"] + [None] * len(new)
    clf.confidence_ = Confidence(
        clf.confidence_.temperature, outsiders and outsiders.extended(len(known)), report
    )
    clf.info_ = {**clf.info_, "classes": len(known)}
    return {
        "added_classes": new,
        "added_images": 0,
        "duplicates": 0,
        "skipped": 0,
        "old_accuracy_before": before,
        "old_accuracy": after,
        **clf.info_,
    }


def require_task(clf: FewShotClassifier) -> Task:
    """The support set, or what to do without it; with text features where the method needs them."""
    clf._require_fitted()
    if clf.task_ is None:
        raise UsageError(
            "this model was saved without the features of its support set: fit it again from the images, "
            "without --no-support"
        )
    task = clf.task_
    needed = any(need.startswith("text features") for need in clf._method().needs)
    if needed and task.text.features is None:  # a saved model has the text rows alone
        task = Task(task.x, task.y, _text(clf, clf.classes_), task.head, task.scale)
    return task


def unlabelled(clf: FewShotClassifier, images: Any, progress: Progress | None) -> tuple[Array, list[int]]:
    """Features of images that are not in the support set, and their places in the input."""
    if clf.model == "arrays":
        x = read_arrays(images).x
        return x, list(range(len(x)))
    found = clf.features(images, progress=progress)
    seen = set(clf.support_)
    fresh = [i for i, key in enumerate(found.hashes) if key not in seen]
    return found.features[0, fresh], [found.kept[i] for i in fresh]


def _text(clf: FewShotClassifier, classes: Sequence[Any]) -> Text:
    return clf.encoder.text(class_names(map(str, classes)), as_templates(clf.templates))


def _held_out(clf: FewShotClassifier, task: Task) -> HeldOut:
    """Answers about held-out images of this task: those of the fit, where it made them."""
    made = clf.confidence_.held_out
    if made is not None:
        return made
    return cross_validate(from_settings(clf.fitted_.settings), task, seed=clf.seed)


def _old_accuracy(out: HeldOut, images: int, classes: int) -> float | None:
    """Accuracy on the first images, those of the classes that the model had before."""
    old = (out.images < images) & (out.y < classes)
    return metrics.accuracy(out.logits[old], out.y[old]) if old.any() else None
