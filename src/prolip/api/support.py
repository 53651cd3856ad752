"""What a classifier is fitted on: the sampled images or embeddings as a task, and the classes behind it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prolip.api.inputs import images_and_labels
from prolip.core import InputError, Task, Text
from prolip.data import as_templates, class_names, sample_few_shot
from prolip.encoders.arrays import Arrays
from prolip.features import Pictures
from prolip.methods.common.tower_method import TowerTask

if TYPE_CHECKING:
    from prolip.api.classifier import FewShotClassifier, Progress


@dataclass(frozen=True, eq=False)
class Support:
    """Labelled images, encoded.

    Attributes
    ----------
    task
        Their features and labels, and the class texts.
    classes
        The labels as the user has them, in the order of the class texts.
    hashes
        SHA-256 of each image's content; none for embeddings.
    skipped
        (image, reason) of images that could not be read.
    """

    task: Task
    classes: list[Any]
    hashes: list[bytes]
    skipped: list[tuple[str, str]]


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
            f"{len(torn)} pictures are in two classes, the first in {first!r} and {second!r}: "
            f"each counts for the class it was first seen in",
            stacklevel=3,
        )
    return fresh


def support_of_images(clf: FewShotClassifier, images: Any, labels: Any, progress: Progress | None) -> Support:
    """Sample images, encode them, and name their classes."""
    source, y, classes = images_and_labels(images, labels, "train")
    class_names(map(str, classes))  # bad names are refused before any image is encoded
    chosen = sample_few_shot(y, clf.shots, clf.seed)
    found = clf._extract([source[i] for i in chosen], range(clf.views), progress)
    places = [chosen[i] for i in found.kept]
    y = [y[i] for i in places]
    fresh = fresh_images(found.hashes, y, classes, {})
    if len(fresh) < len(y):
        warnings.warn(f"{len(y) - len(fresh)} images are copies of others and do not count", stacklevel=2)
        places, y = [places[i] for i in fresh], [y[i] for i in fresh]
    missing = [name for k, name in enumerate(classes) if k not in set(y)]
    if missing:
        why = f"{len(found.bad)} are bad" if found.bad else "all are in another class too"
        raise InputError(f"class {missing[0]!r} has no readable image left ({why})")
    encoder, templates = clf.encoder, as_templates(clf.templates)
    text = encoder.text(class_names(map(str, classes)), templates)
    pictures = Pictures([source[i] for i in places])
    x, scale = found.features[:, fresh], encoder.scale
    task = TowerTask(x, y, text, encoder.head, scale, encoder, tuple(templates), pictures)
    return Support(task, classes, [found.hashes[i] for i in fresh], found.bad)


def support_of_arrays(clf: FewShotClassifier, arrays: Arrays) -> Support:
    """The same from embeddings, which are a black box."""
    if arrays.text is None or arrays.y is None:
        lacking = "class text rows (text)" if arrays.text is None else "labels"
        raise InputError(f"embeddings need {lacking}: an array in the file, or an argument of fit")
    chosen = sample_few_shot(arrays.y.tolist(), clf.shots, clf.seed)
    classes = list(arrays.classes or range(len(arrays.text)))
    text = Text(arrays.text, tuple(map(str, classes)))
    return Support(Task(arrays.x[chosen], arrays.y[chosen], text), classes, [], [])
