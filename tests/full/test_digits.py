"""scikit-learn's handwritten digits as a built-in set."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from prolip.core.errors import InputError
from prolip.data import builtin


def test_digits_show_what_their_label_says():
    bunch = load_digits()
    part = builtin("digits", per_class=5, seed=2)
    assert part.labels == [label for label in range(10) for _ in range(5)]
    small = [np.asarray(image.convert("L").resize((10, 10)))[1:9, 1:9].ravel() for image in part.images]
    nearest = KNeighborsClassifier(1).fit(bunch.data, bunch.target)
    assert (nearest.predict(np.stack(small) / 255 * 16) == part.labels).mean() > 0.9
    assert part.classes[7] == "digit seven"


def test_no_digit_is_for_both_training_and_testing():
    seen = {image.tobytes() for image in builtin("digits", 100, seed=0).images}
    assert len(seen) == 1000
    unseen = [image.tobytes() for image in builtin("digits", 74, seed=1, split="test").images]
    assert not any(image in seen for image in unseen)


def test_a_seed_says_which_digits():
    first, again, other = (builtin("digits", 2, seed=seed).images for seed in (4, 4, 5))
    assert [image.tobytes() for image in first] == [image.tobytes() for image in again]
    assert [image.tobytes() for image in first] != [image.tobytes() for image in other]


def test_there_are_no_more_than_there_are():
    with pytest.raises(InputError):
        builtin("digits", 101)
