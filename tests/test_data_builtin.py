"""The sets that need no download."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from prolip.core.errors import InputError, UsageError
from prolip.data import BUILTIN, builtin


def pixels(images):
    return np.stack([np.asarray(image) for image in images])


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_pictures_labels_and_names(name):
    part = builtin(name, per_class=3, seed=1)
    assert len(part) == 30
    assert part.labels == [label for label in range(10) for _ in range(3)]
    assert len(set(part.classes)) == 10
    assert all(image.mode == "RGB" and min(image.size) >= 96 for image in part.images)
    assert all("{}" in template for template in part.templates)


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_a_seed_says_which_pictures_and_more_of_them_begin_with_the_same(name):
    few, more = pixels(builtin(name, 2, seed=4).images), pixels(builtin(name, 5, seed=4).images)
    assert np.array_equal(few.reshape(10, 2, -1), more.reshape(10, 5, -1)[:, :2])
    assert not np.array_equal(few, pixels(builtin(name, 2, seed=5).images))


@pytest.mark.parametrize(("name", "train", "test"), [("digits", 100, 74), ("textures", 4, 4)])
def test_no_picture_is_for_both_training_and_testing(name, train, test):
    seen = {image.tobytes() for image in builtin(name, train, seed=0).images}
    assert len(seen) == 10 * train
    unseen = [image.tobytes() for image in builtin(name, test, seed=1, part="test").images]
    assert not any(image in seen for image in unseen)


def test_digits_show_what_their_label_says():
    bunch = load_digits()
    part = builtin("digits", per_class=5, seed=2)
    small = [np.asarray(image.convert("L").resize((10, 10)))[1:9, 1:9].ravel() for image in part.images]
    nearest = KNeighborsClassifier(1).fit(bunch.data, bunch.target)
    assert (nearest.predict(np.stack(small) / 255 * 16) == part.labels).mean() > 0.9
    assert part.classes[7] == "digit seven"


def test_textures_use_the_whole_range_and_differ():
    images = pixels(builtin("textures", per_class=3, seed=0).images).reshape(30, -1)
    assert (images.std(axis=1) > 15).all()
    assert len({image.tobytes() for image in images}) == 30


def test_what_there_is_not():
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        builtin("digit", 1)
    with pytest.raises(InputError, match="101 pictures a class were asked for"):
        builtin("digits", 101)
    with pytest.raises(InputError, match="at least 1"):
        builtin("textures", 0)
    with pytest.raises(UsageError, match="unknown part 'val'"):
        builtin("textures", 1, part="val")
