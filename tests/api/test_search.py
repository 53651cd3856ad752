"""Images ranked by words, or by an image."""

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip.api import FewShotClassifier
from prolip.api.search import search
from prolip.core import UsageError
from prolip.core.arrays import unit_rows


@pytest.fixture(scope="module")
def images():
    return [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(4)]


def test_images_like_another_come_first(offline, images):
    found = search(offline, images, like=images[5], top=4)
    assert found[0].index == 5
    assert found[0].score == pytest.approx(1, abs=1e-4)
    assert {each.index // 4 for each in found} == {1}
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_words_are_compared_in_the_shared_space(offline, images):
    found = search(offline, images, words="red", top=len(images))
    pixels = np.stack([offline.preprocess.centre(image.convert("RGB")) for image in images])
    embeddings = unit_rows(offline.head(offline.encode(pixels)))
    row = offline.text(["red"], ["{}", "a photo of {}.", "a picture of {}."]).rows[0]
    expected = np.argsort(-(embeddings @ row), kind="stable")
    assert [each.index for each in found] == expected.tolist()


def test_an_adapted_model_searches_with_its_own_projection(offline, images):
    labels = np.repeat(list(COLOURS), 4)
    clf = FewShotClassifier(offline, store=False).fit(images, labels)
    found = search(offline, images, words="green", top=4, fitted=clf.fitted_)
    assert {each.index // 4 for each in found} == {list(COLOURS).index("green")}


def test_nothing_to_search_for_is_refused(offline, images):
    with pytest.raises(UsageError):
        search(offline, images)
    with pytest.raises(UsageError):
        search(offline, images, words=" ")
