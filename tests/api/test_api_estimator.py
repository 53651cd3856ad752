"""The conventions of scikit-learn's estimators, as FewShotClassifier follows them."""

import numpy as np
import pytest

import prolip
from pictures import COLOURS, blotch
from prolip import FewShotClassifier, UsageError
from prolip.api.inputs import InputError
from prolip.features import ImageError

IMAGES = [blotch(colour, 500 + k) for k, colour in enumerate(COLOURS.values())]


def test_predictions_and_classes_are_arrays(colour_model):
    predicted = colour_model.predict(IMAGES)
    assert isinstance(predicted, np.ndarray)
    assert predicted.dtype == colour_model.classes_.dtype
    assert predicted.dtype.kind == "U"
    assert (predicted == np.array(list(COLOURS))).all()
    rejecting = colour_model.predict(IMAGES, reject=True)
    assert rejecting.dtype == object
    assert all(label is None or isinstance(label, str) for label in rejecting)


def test_classes_of_several_types_stay_what_they_are(offline):
    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(3)]
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False).fit(
        images, np.repeat([7, 8, 9], 3)
    )
    assert clf.classes_.dtype.kind == "i"
    assert clf.add(names=["dog"]).classes_.tolist() == [7, 8, 9, "dog"]


def test_logits_and_logarithms_agree_with_the_probabilities(colour_model):
    probabilities = colour_model.predict_proba(IMAGES)
    odds = np.exp(colour_model.decision_function(IMAGES))
    np.testing.assert_allclose(odds / odds.sum(axis=1, keepdims=True), probabilities, rtol=1e-4)


def test_transform_gives_the_embeddings_that_classes_are_compared_with(colour_model):
    embeddings = colour_model.transform(IMAGES)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, rtol=1e-4)
    scale = colour_model.info_["scale"] / colour_model.confidence_.temperature
    logits = scale * embeddings @ colour_model.model_.text.rows.T
    np.testing.assert_allclose(logits, colour_model.decision_function(IMAGES), rtol=1e-3)


def test_transform_of_a_method_without_a_projection_is_that_of_the_base_model(offline):
    labels = ["red", "green", "blue"]
    clf = FewShotClassifier(offline, "tip_adapter", store=False).fit(IMAGES, labels)
    embeddings = offline.head(clf.features(IMAGES).features[0])
    expected = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    np.testing.assert_allclose(clf.transform(IMAGES), expected, atol=1e-5)


def test_an_unfitted_classifier_raises_what_scikit_learn_would():
    clf = FewShotClassifier()
    for use in (clf.predict, clf.transform, clf.score):
        with pytest.raises(prolip.NotFittedError) as caught:
            use(["a.jpg"])
        assert isinstance(caught.value, UsageError)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, AttributeError)
    assert not hasattr(clf, "classes_")


def test_a_missing_folder_is_a_file_not_found_error_a_missing_image_an_image_error(colour_model, tmp_path):
    missing = tmp_path / "none"
    with pytest.raises(FileNotFoundError):
        FewShotClassifier().fit(missing)
    with pytest.raises(ImageError, match=r"a\.jpg"):
        colour_model.predict([missing / "a.jpg", missing / "b.jpg"])


def test_a_mapping_is_fitted_as_two_lists_are(offline):
    images = {name: [blotch(c, 10 * k + i) for i in range(3)] for k, (name, c) in enumerate(COLOURS.items())}

    def fit(*data):
        return FewShotClassifier(offline, "prolip", options={"lam": 0.3}, store=False).fit(*data)

    expected = fit([image for each in images.values() for image in each], np.repeat(list(images), 3))
    clf = fit(images)
    assert clf.classes_.tolist() == sorted(COLOURS)
    np.testing.assert_allclose(clf.predict_proba(IMAGES), expected.predict_proba(IMAGES), rtol=1e-4)
    assert clf.score(dict(zip(COLOURS, IMAGES, strict=True))) == 1.0


def test_labels_are_refused_where_they_do_not_belong(colour_model):
    clf = FewShotClassifier(colour_model.model_.encoder, store=False)
    with pytest.raises(InputError):
        clf.fit({"cat": IMAGES[:1], "dog": []})
    with pytest.raises(UsageError):
        clf.fit({"cat": IMAGES[:1], "dog": IMAGES[1:]}, ["cat", "dog", "dog"])
    for labelled in ({"cat": IMAGES}, [(IMAGES[0], "cat")]):
        with pytest.raises(InputError):
            colour_model.predict(labelled)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"method": "prolip", "options": {"lam": "1/N"}, "shots": 2, "seed": 3, "views": 2},
        {"method": "prolip", "templates": "a {}", "options": {"solver": "exact", "lam": 0.5}},
        {"templates": ["a {}", "the {}"], "calibrate": False},
    ],
)
def test_a_loaded_classifier_has_the_parameters_that_it_was_saved_with(photos, tmp_path, params):
    clf = FewShotClassifier(store=False, **params).fit(photos)
    clf.save(tmp_path / "model")
    loaded = FewShotClassifier.load(tmp_path / "model", store=False)
    assert loaded.get_params() == clf.get_params()
    assert repr(loaded) == repr(clf)
    encoder = loaded.model_.encoder
    assert loaded.fit(photos).model_.encoder is encoder


def test_a_loaded_classifier_has_the_base_model_that_it_was_given(colour_model, offline, tmp_path):
    colour_model.save(tmp_path / "model")
    assert FewShotClassifier.load(tmp_path / "model", base=offline).model is offline
    assert FewShotClassifier.load(tmp_path / "model", base="offline").model == "offline"
