"""An adapted model is a value; the classifier is a shell in scikit-learn's manner that holds one."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.grow import add_names
from prolip.core import Head, InputError, ProlipError, UsageError
from prolip.encoders import Encoder, Preprocess

RED = blotch(COLOURS["red"], 77)


class Brightness(Encoder):
    """An encoder of one's own: the mean colour of a picture, and class names that are colours."""

    name, fingerprint, scale, device = "brightness", "brightness-1", 10.0, "cpu"
    preprocess = Preprocess(8, (0.0,) * 3, (1.0,) * 3)
    head, text_head = Head(np.eye(3, dtype=np.float32)), Head(np.eye(3, dtype=np.float32))

    def encode(self, pixels):
        return pixels.mean(axis=(1, 2)).astype(np.float32) / 255 + 0.1

    def encode_text(self, prompts):
        rows = [[word in prompt for word in ("red", "green", "blue")] for prompt in prompts]
        return np.array(rows, np.float32) + 0.1


def test_an_encoder_of_ones_own_is_handed_in(photos):
    clf = FewShotClassifier(Brightness(), "prolip", options={"lam": 0.01}, store=False).fit(photos)
    assert clf.score(photos) == 1.0
    assert clf.info_["model"] == "brightness"


def test_a_fitted_model_cannot_be_changed(colour_model):
    model = colour_model.model_
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.classes = ("a", "b", "c")
    grown, _ = add_names(model, ["purple"])
    assert (len(model.classes), len(grown.classes), len(model.text.rows)) == (3, 4, 3)
    assert model.logits(np.zeros((1, model.encoder.width)) + 1).shape == (1, 3)


@pytest.mark.parametrize("change", ["fit", "add", "names", "load"])
def test_a_failure_leaves_the_model_as_it_was(colour_model, tmp_path, monkeypatch, change):
    clf = copy.copy(colour_model)
    before, expected = clf.model_, clf.predict_proba([RED])

    def fails(*_, **__):
        raise InputError("no")

    monkeypatch.setattr("prolip.methods.prolip.ProLIP.fit_held_out", fails)
    calls = {
        "fit": lambda: clf.fit([RED, blotch(COLOURS["blue"], 1)], ["a", "b"]),
        "add": lambda: clf.add([RED, blotch((1, 2, 3), 1)], ["red", "new"]),
        "names": lambda: clf.add(names=["purple"]),
        "load": lambda: FewShotClassifier.load(tmp_path),
    }
    with pytest.raises(ProlipError):
        calls[change]()
    assert clf.model_ is before
    np.testing.assert_array_equal(clf.predict_proba([RED]), expected)


def test_parameters_are_stored_as_they_come_and_can_be_changed(offline):
    clf = FewShotClassifier(offline, shots=4, templates=("a {}",))
    params = clf.get_params()
    assert params["model"] is offline
    assert (params["shots"], params["templates"], params["views"]) == (4, ("a {}",), 1)
    again = FewShotClassifier(**params)
    assert again.get_params() == params
    assert clf.set_params(shots=2, views=3) is clf
    assert (clf.shots, clf.views) == (2, 3)
    with pytest.raises(UsageError):
        clf.set_params(shot=2)


def test_a_repr_tells_what_differs_and_what_was_fitted(colour_model):
    assert repr(FewShotClassifier()) == "<FewShotClassifier()>"
    options = "model='offline', method='prolip', options={'lam': 0.3}, store=False"
    shown = f"<FewShotClassifier({options}), fitted on 12 images of 3 classes>"
    assert repr(colour_model) == shown


def test_copies_and_pickles_answer_alike(colour_model):
    expected = colour_model.predict_proba([RED])
    deep = copy.deepcopy(colour_model)
    assert deep.model_.encoder is not colour_model.model_.encoder
    np.testing.assert_allclose(deep.predict_proba([RED]), expected, atol=1e-6)
    restored = pickle.loads(pickle.dumps(colour_model))
    np.testing.assert_allclose(restored.predict_proba([RED]), expected, atol=1e-6)
    restored.add(names=["purple"])
    assert len(restored.classes_) == len(colour_model.classes_) + 1
