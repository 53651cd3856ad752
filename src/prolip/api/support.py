"""What a classifier is fitted on: the sampled images or embeddings as a task, and the classes behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prolip.api.inputs import images_and_labels
from prolip.core import InputError, Task, Text
from prolip.data import as_templates, class_names, sample_few_shot
from prolip.encoders.arrays import Arrays
from prolip.features import Pictures
from prolip.methods.towers import TowerTask

if TYPE_CHECKING:
    from prolip.api.classifier import FewShotClassifier, Progress


def task_of_images(clf: FewShotClassifier, images: Any, labels: Any, progress: Progress | None) -> Task:
    """Sample images, encode them, name their classes; `clf` keeps classes, hashes and what was skipped."""
    source, y, classes = images_and_labels(images, labels, "train")
    class_names(map(str, classes))  # bad names are refused before any image is encoded
    chosen = sample_few_shot(y, clf.shots, clf.seed)
    found = clf._extract([source[i] for i in chosen], range(clf.views), progress)
    places = [chosen[i] for i in found.kept]
    y = [y[i] for i in places]
    missing = [name for k, name in enumerate(classes) if k not in set(y)]
    if missing:
        raise InputError(f"class {missing[0]!r} has no readable image left ({len(found.bad)} are bad)")
    encoder, templates = clf.encoder, as_templates(clf.templates)
    text = encoder.text(class_names(map(str, classes)), templates)
    clf.classes_, clf.skipped_, clf.support_ = classes, found.bad, found.hashes
    pictures = Pictures([source[i] for i in places])
    return TowerTask(
        found.features, y, text, encoder.head, encoder.scale, encoder, tuple(templates), pictures
    )


def task_of_arrays(clf: FewShotClassifier, arrays: Arrays) -> Task:
    """The same from embeddings, which are a black box."""
    if arrays.text is None or arrays.y is None:
        lacking = "class text rows (text)" if arrays.text is None else "labels"
        raise InputError(f"embeddings need {lacking}: an array in the file, or an argument of fit")
    chosen = sample_few_shot(arrays.y.tolist(), clf.shots, clf.seed)
    clf.classes_ = list(arrays.classes or range(len(arrays.text)))
    clf.skipped_, clf.support_ = [], []
    return Task(arrays.x[chosen], arrays.y[chosen], Text(arrays.text, tuple(map(str, clf.classes_))))
