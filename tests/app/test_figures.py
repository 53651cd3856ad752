"""Figures of a project, from predictions and features."""

import numpy as np

from prolip.app.figures import TrainingSet
from prolip.app.state import ClassRow, ImageRow, State


def test_a_class_without_images_is_one_of_the_classes_after_those_with_images():
    classes = {key: ClassRow(name) for key, name in (("1", "empty"), ("2", "red"), ("3", "blue"))}
    images = {"a": ImageRow("a.png", label="3"), "b": ImageRow("b.png", label="2"), "c": ImageRow("c.png")}
    features = {key: np.full(2, i + 1.0) for i, key in enumerate(images)}
    training = TrainingSet.of(State(classes, images), features)
    assert training.classes == ("2", "3", "1")
    assert (training.images, training.y.tolist()) == (("a", "b"), [1, 0])


def test_a_class_none_of_these_is_no_class_but_negatives():
    classes = {key: ClassRow(name) for key, name in (("1", "red"), ("2", "None of these"), ("3", "blue"))}
    images = {key: ImageRow(f"{key}.png", label=key) for key in "123"}
    features = {key: np.full(2, i + 1.0) for i, key in enumerate(images)}
    training = TrainingSet.of(State(classes, images, 4), features)
    assert (training.classes, training.images, training.negatives.tolist()) == (
        ("1", "3"),
        ("1", "3"),
        [[2, 2]],
    )
