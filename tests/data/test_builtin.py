"""The sets that need no download."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from prolip.core.errors import InputError, UnknownNameError
from prolip.data import builtin
from prolip.io.environment import MissingPackageError

DRAWN = ("textures", "numbers")


def pixels(images):
    return np.stack([np.asarray(image) for image in images])


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_labels_and_names(name):
    part = builtin(name, per_class=3, seed=1)
    assert len(part) == 30
    assert part.labels == [label for label in range(10) for _ in range(3)]
    assert len(set(part.classes)) == 10
    assert all(image.mode == "RGB" and min(image.size) >= 96 for image in part.images)
    assert all("{}" in template for template in part.templates)


@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_says_which_pictures_and_more_of_them_begin_with_the_same(name):
    few, more = pixels(builtin(name, 2, seed=4).images), pixels(builtin(name, 5, seed=4).images)
    assert np.array_equal(few.reshape(10, 2, -1), more.reshape(10, 5, -1)[:, :2])
    assert not np.array_equal(few, pixels(builtin(name, 2, seed=5).images))


@pytest.mark.parametrize("name", DRAWN)
def test_no_picture_is_for_both_training_and_testing(name):
    seen = {image.tobytes() for image in builtin(name, 4, seed=0).images}
    assert len(seen) == 40
    unseen = [image.tobytes() for image in builtin(name, 4, seed=0, split="test").images]
    assert not any(image in seen for image in unseen)


@pytest.mark.parametrize("name", DRAWN)
def test_pictures_use_the_range_and_differ(name):
    images = pixels(builtin(name, per_class=3, seed=0).images).reshape(30, -1)
    assert (images.std(axis=1) > 15).all()
    assert len({image.tobytes() for image in images}) == 30


def test_numbers_show_what_their_label_says():
    """As ink on ground, cut out and made as large, most are nearest to a plain digit of their kind."""
    part = builtin("numbers", per_class=6, seed=2)
    found = [outline(image) for image in part.images]
    font = ImageFont.load_default(80)
    plain = []
    for digit in "0123456789":
        image = Image.new("L", (128, 128))
        ImageDraw.Draw(image).text((64, 64), digit, 255, font, anchor="mm", stroke_width=3)
        plain.append(outline(image))
    answers = (np.stack(found) @ np.stack(plain).T).argmax(axis=1)
    assert (answers == part.labels).mean() > 0.6
    assert part.classes[7] == "digit seven"


def outline(image):
    """Unit vector of the middle's ink, cut out and brought to 24 x 24."""
    grey = np.asarray(image.convert("L"), dtype=float)
    ground = np.median(np.concatenate([grey[:8].ravel(), grey[-8:].ravel()]))
    ink = np.abs(grey - ground)
    ink = (ink > 0.5 * ink.max()).astype(np.uint8)
    rows, columns = (np.flatnonzero(ink.sum(axis=axis) > 3) for axis in (1, 0))
    cut = Image.fromarray(255 * ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
    values = np.asarray(cut.resize((24, 24)), dtype=float).ravel()
    return (values - values.mean()) / np.linalg.norm(values - values.mean())


def test_digits_name_the_package_that_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingPackageError) as raised:
        builtin("digits", 1)
    assert (raised.value.package, raised.value.extra) == ("scikit-learn", "sklearn")


def test_what_there_is_not():
    with pytest.raises(UnknownNameError):
        builtin("digit", 1)
    with pytest.raises(InputError):
        builtin("textures", 0)
    with pytest.raises(UnknownNameError):
        builtin("textures", 1, split="val")
