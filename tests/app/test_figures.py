"""Figures of a project, from predictions and features."""

import numpy as np
from PIL import Image

from pictures import COLOURS, blotch
from prolip.app.figures import TrainedSnapshot, TrainingSet, duplicate_groups
from prolip.app.state import ClassRow, ImageRow, State
from prolip.features import extract


def test_a_cropped_copy_is_found_and_another_colour_is_not(offline, tmp_path):
    ramp = Image.linear_gradient("L")
    pictures = [blotch(colour, 7, 256) for colour in COLOURS.values()]
    pictures += [ramp.convert("RGB"), ramp.crop((4, 4, 252, 252)).convert("RGB")]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    features = dict(zip("01234", extract(offline, pictures).features[0], strict=True))

    def found(keys):
        state = State(images={key: ImageRow(key) for key in keys})
        snapshot = TrainedSnapshot(0, state, features, TrainingSet.of(state, features), None)
        return duplicate_groups(snapshot, lambda key: tmp_path / f"{key}.png")

    assert found("01234") == [["3", "4"]]
    assert found("01") == found("0") == found("") == []


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
