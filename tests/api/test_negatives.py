"""Images of none of the classes: a class `none of these`. And prediction sets."""

import json

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, UsageError

VIOLET = (120, 40, 150)  # between red and blue


def pictures(names, number, seed):
    colours = {**COLOURS, "none_of_these": VIOLET}
    return {
        name: [blotch(colours[name], seed + 50 * k + i) for i in range(number)]
        for k, name in enumerate(names)
    }


@pytest.fixture(scope="module")
def fitted(offline):
    images = pictures([*COLOURS, "none_of_these"], 6, 0)
    return FewShotClassifier(model=offline, store=False).fit(images)


STRANGERS = [blotch(VIOLET, 700 + i) for i in range(20)]


def rejected(clf):
    return np.mean([label is None for label in clf.predict(STRANGERS, reject=True)])


def test_they_are_no_class_and_what_is_like_them_is_rejected(fitted, offline, tmp_path):
    assert fitted.classes_.tolist() == sorted(COLOURS)
    assert (fitted.info_["images"], fitted.info_["negatives"]) == (18, 6)
    without = FewShotClassifier(model=offline, store=False).fit(pictures(COLOURS, 6, 0))
    assert rejected(fitted) > rejected(without) + 0.3
    members = [image for images in pictures(COLOURS, 10, 400).values() for image in images]
    assert np.mean([label is None for label in fitted.predict(members, reject=True)]) < 0.2

    # They are saved, and a fit on more images keeps them.
    fitted.save(tmp_path / "model")
    loaded = FewShotClassifier.load(tmp_path / "model", base=offline)
    assert rejected(loaded) == rejected(fitted)
    loaded.add({"yellow": [blotch((210, 200, 40), 900 + i) for i in range(4)]})
    assert loaded.info_["negatives"] == 6
    without.add({"none of these": pictures(["none_of_these"], 6, 150)["none_of_these"]})
    assert without.info_["negatives"] == 6
    assert rejected(without) > 0.3


def test_an_evaluation_counts_how_many_of_them_are_rejected(fitted, prolip, tmp_path):
    for name, images in {**pictures(COLOURS, 3, 400), "background": STRANGERS}.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i, image in enumerate(images):
            image.save(tmp_path / "photos" / name / f"{i}.png")
    figures = fitted.report(tmp_path / "photos").figures
    assert (figures.images, figures.negatives) == (9, 20)
    assert figures.negatives_rejected == pytest.approx(rejected(fitted), abs=0.051)


def test_a_prediction_set_has_the_classes_down_to_the_threshold_of_held_out_labels(fitted, prolip, tmp_path):
    held_out = fitted.confidence_.held_out
    p = np.exp(held_out.logits / fitted.confidence_.temperature)
    p = np.sort((p / p.sum(axis=1, keepdims=True))[np.arange(18), held_out.y])
    probabilities = fitted.predict_proba(STRANGERS)
    for coverage, k in ((0.8, 3), (0.9, 1)):  # the k-th smallest of 18 at (1 - coverage) * 19 = 3.8 and 1.9
        expected = [max(1, int((row >= p[k - 1]).sum())) for row in probabilities]
        assert [len(classes) for classes in fitted.predict_set(STRANGERS, coverage)] == expected
    assert {len(classes) for classes in fitted.predict_set(STRANGERS)} == {3}  # 18 images cannot say 95 %
    with pytest.raises(UsageError):
        fitted.predict_set(STRANGERS, 1.0)

    fitted.save(tmp_path / "model")
    STRANGERS[0].save(tmp_path / "a.png")
    out = tmp_path / "a.csv"
    assert prolip("predict", tmp_path / "model", tmp_path / "a.png", "--set", "0.9", "--out", out)[0] == 0
    assert "; ".join(fitted.predict_set(STRANGERS[:1], 0.9)[0]) in out.read_text()
    rows = json.loads(prolip("predict", tmp_path / "model", tmp_path / "a.png", "--set", "0.9", "--json")[1])
    assert rows[0]["set"] == fitted.predict_set(STRANGERS[:1], 0.9)[0]
