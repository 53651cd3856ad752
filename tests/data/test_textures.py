"""The drawn set, which needs no download."""

import numpy as np
import pytest

from prolip.core.errors import InputError, UnknownNameError
from prolip.data import draw_textures


def pixels(images):
    return np.stack([np.asarray(image) for image in images])


def test_pictures_labels_and_names():
    drawn = draw_textures(3, seed=1)
    assert drawn.labels == [label for label in range(10) for _ in range(3)]
    assert len(set(drawn.classes)) == 10
    assert all(image.mode == "RGB" for image in drawn.images)
    assert (pixels(drawn.images).reshape(30, -1).std(axis=1) > 15).all()


def test_a_seed_says_which_pictures_and_more_of_them_begin_with_the_same():
    few, more = pixels(draw_textures(2, seed=4).images), pixels(draw_textures(5, seed=4).images)
    assert np.array_equal(few.reshape(10, 2, -1), more.reshape(10, 5, -1)[:, :2])
    assert not np.array_equal(few, pixels(draw_textures(2, seed=5).images))


def test_no_picture_is_for_both_training_and_testing():
    seen = {image.tobytes() for image in draw_textures(4).images}
    assert len(seen) == 40
    assert not any(image.tobytes() in seen for image in draw_textures(4, split="test").images)


def test_what_there_is_not():
    with pytest.raises(InputError):
        draw_textures(0)
    with pytest.raises(UnknownNameError):
        draw_textures(1, split="val")
