"""Images ranked by words, or by an image."""

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.search import rank
from prolip.core.arrays import unit_rows


@pytest.fixture(scope="module")
def images():
    return [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(4)]


@pytest.fixture(scope="module")
def x(offline, images):
    return offline.encode(np.stack([offline.preprocess.centre(image.convert("RGB")) for image in images]))


def test_images_like_another_come_first(offline, x):
    found = rank(offline, x, None, x[5:6])[:4]
    assert found[0][0] == 5
    assert found[0][1] == pytest.approx(1, abs=1e-4)
    assert {index // 4 for index, _ in found} == {1}
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)


def test_words_are_compared_in_the_shared_space(offline, x):
    row = offline.text(["red"], ["{}", "a photo of {}.", "a picture of {}."]).rows[0]
    expected = np.argsort(-(unit_rows(offline.head(x)) @ row), kind="stable")
    assert [index for index, _ in rank(offline, x, "red", None)] == expected.tolist()


def test_an_adapted_model_searches_with_its_own_projection(offline, images, x):
    clf = FewShotClassifier(offline, store=False).fit(images, np.repeat(list(COLOURS), 4))
    found = rank(offline, x, "green", None, clf.fitted_)[:4]
    assert {index // 4 for index, _ in found} == {list(COLOURS).index("green")}
