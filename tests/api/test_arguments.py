"""None is an absent argument; an empty one, or one of another kind, is an error that says what to give."""

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, encoders, methods
from prolip.api import grow
from prolip.core import InputError, ProlipError, Task
from prolip.data import list_images, read_images
from prolip.features import FeatureStore
from prolip.research.datasets import read_dataset

IMAGES = [blotch(colour, k, size=16) for k, colour in enumerate([*COLOURS.values()] * 2)]
LABELS = [*COLOURS] * 2


@pytest.fixture
def here(photos, monkeypatch):
    """A working folder whose images an empty path would stand for."""
    monkeypatch.chdir(photos / "train")


@pytest.fixture(scope="module")
def fitted(offline):
    return FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"model": ""}, {"model": None}, {"method": ""}, {"method": None}, {"options": {"lam": ""}},
        {"views": None},
        {"seed": None}, {"shots": 0}, {"shots": ""}, {"templates": ""}, {"templates": []},
        {"templates": [""]},
        {"device": ""}, {"device": None}, {"store": ""}, {"options": ""}, {"options": []},
    ],
    ids=str,
)  # fmt: skip
def test_empty_parameters_of_a_classifier_are_refused(offline, here, arguments):
    with pytest.raises(ProlipError):
        FewShotClassifier(**{"model": offline, "store": False, **arguments}).fit(IMAGES, LABELS)


@pytest.mark.parametrize(
    "call",
    [
        lambda clf: clf.fit(""),
        lambda clf: clf.fit([], []),
        lambda clf: clf.fit(IMAGES, []),
        lambda clf: clf.fit(IMAGES, LABELS, unlabelled=""),
        lambda clf: clf.fit(IMAGES, LABELS, unlabelled=[]),
        lambda clf: clf.compare(IMAGES, LABELS, candidates=[]),
        lambda clf: clf.predict(""),
        lambda clf: clf.predict([""]),
        lambda clf: clf.predict([]),
        lambda clf: clf.predict(IMAGES, reject=True, false_reject=None),
        lambda clf: clf.report(""),
        lambda clf: clf.add(""),
        lambda clf: clf.add(names=""),
        lambda clf: clf.add(names=[""]),
        lambda clf: clf.suggest(IMAGES, 0),
        lambda clf: clf.save(""),
        lambda clf: clf.save(None),
        lambda clf: clf.export("", "onnx"),
        lambda clf: clf.export(None, "onnx"),
        lambda clf: clf.export("out", ""),
        lambda clf: clf.export("out", None),
        lambda clf: clf.export("out", []),
        lambda clf: grow.rename_classes(clf.model_, {}),
        lambda clf: grow.rename_classes(clf.model_, {"red": ""}),
    ],
)
def test_empty_arguments_of_a_call_are_refused(fitted, here, call):
    before = fitted.model_
    try:
        with pytest.raises(ProlipError):
            call(fitted)
        assert fitted.model_ is before
    finally:
        fitted.model_ = before


@pytest.mark.parametrize("path", ["", None, 5, b"", []])
def test_a_model_is_loaded_from_a_path(path):
    with pytest.raises(ProlipError):
        FewShotClassifier.load(path)


@pytest.mark.parametrize(
    "call",
    [
        lambda: read_images(""),
        lambda: read_images(".", split=""),
        lambda: list_images(""),
        lambda: list_images([""]),
        lambda: read_dataset("", "."),
        lambda: FeatureStore(""),
        lambda: methods.create(""),
        lambda: methods.create(None),
        lambda: encoders.load(""),
        lambda: encoders.load(None),
        lambda: encoders.load("offline:"),
        lambda: encoders.load("offline", ""),
    ],
)
def test_empty_arguments_of_functions_are_refused(here, call):
    with pytest.raises(ProlipError):
        call()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("power", [-40, -30, -23, -12, -9, 9, 17, 20, 38])
def test_embeddings_of_any_length_are_fitted_or_refused(kind, power):
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(3, 16)), np.arange(12) % 3
    x = centres[y] + 0.3 * rng.normal(size=(12, 16))
    some = np.where(np.arange(12) == 0, 10.0**power, 1.0)[:, None]
    for images, text in ((x * 10.0**power, centres), (x, centres * 10.0**power), (x * some, centres)):
        with np.errstate(over="ignore", under="ignore"):
            images, text = images.astype(kind), text.astype(kind)
        try:
            fitted = methods.create("anchored").fit(Task(images, y, text))
        except InputError:
            assert abs(power) > 9
            continue
        assert abs(power) < 12
        assert fitted.predict(images).tolist() == y.tolist()
