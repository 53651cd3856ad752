import copy
import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier
from prolip.api.classifier import TrainingImagesWarning
from prolip.api.fit import DuplicateWarning
from prolip.core import InputError, ModelError, SavedModelError, UsageError
from prolip.export.saved import read_model, write_model
from prolip.features import ImageError


@pytest.fixture
def fitted(photos, offline):
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.01})
    return clf.fit(photos)


def test_a_folder_per_class_is_learned(fitted, photos):
    assert fitted.classes_.tolist() == ["blue", "green", "red"]
    assert fitted.info_["images"] == 18
    assert fitted.score(photos) == 1.0
    assert fitted.predict([photos / "test" / "red" / "0.png"]).tolist() == ["red"]


def test_probabilities_agree_with_the_prediction_and_with_features_by_hand(fitted, photos, offline):
    images = sorted((photos / "test").rglob("*.png"))
    probabilities = fitted.predict_proba(images)
    assert probabilities.shape == (12, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert [fitted.classes_[k] for k in probabilities.argmax(axis=1)] == fitted.predict(images).tolist()
    x = fitted.features(images).features[0]
    v = x @ fitted.fitted_.head.weight
    text = offline.text(["blue", "green", "red"], ["a photo of a {}."]).rows
    scale = fitted.info_["scale"] / fitted.confidence_.temperature
    scores = scale * (v / np.linalg.norm(v, axis=1, keepdims=True)) @ text.T
    expected = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(probabilities, expected / expected.sum(axis=1, keepdims=True), atol=1e-4)


@pytest.mark.parametrize(
    ("labels", "lam", "views"),
    [([True, False], 0.01, 1), (np.array([2.5, 1]), np.float32(0.25), np.int64(2)), ("xy", "1/N", 1)],
)
def test_what_can_be_fitted_can_be_kept(offline, tmp_path, labels, lam, views):
    images = [blotch(colour, i) for colour in list(COLOURS.values())[:2] for i in range(3)]
    clf = FewShotClassifier(
        offline, "prolip", options={"lam": lam}, views=views, seed=np.int64(3), store=False
    )
    clf.fit(images, (each for each in np.repeat(list(labels), 3)))
    clf.save(tmp_path / "model")
    loaded = FewShotClassifier.load(tmp_path / "model", store=False)
    assert loaded.classes_.tolist() == clf.classes_.tolist() == sorted(labels)
    np.testing.assert_allclose(loaded.predict_proba(images), clf.predict_proba(images), atol=1e-3)


@pytest.mark.parametrize(
    "labels",
    [[0, "green"], [None, None], [b"a", b"b"], np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")],
)
def test_labels_that_cannot_be_kept_are_refused(offline, labels):
    images = [blotch(colour, 0) for colour in list(COLOURS.values())[:2]]
    with pytest.raises(InputError):
        FewShotClassifier(offline, store=False).fit(images, labels)


def test_copies_count_once(photos, offline):
    red = photos / "train" / "red"
    for path in list(red.iterdir()):
        shutil.copy(path, red / f"copy-{path.name}")
    shutil.copy(red / "0.png", photos / "train" / "green" / "torn.png")
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.01})
    with pytest.warns(DuplicateWarning) as outcome:
        clf.fit(photos)
    said = " ".join(str(warning.message) for warning in outcome)
    assert "copies of other images: 7 images" in said
    assert "0.png (red) is " in said
    assert "torn.png (green)" in said
    assert clf.info_["images"] == len(set(clf.model_.support.hashes)) == 18


def test_near_copies_and_groups_count_once(offline):
    def saved(picture, quality):
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return file.getvalue()

    pictures = {name: [blotch(colour, 50 + i, 96) for i in range(4)] for name, colour in COLOURS.items()}
    burst = {
        name: [saved(picture, quality) for picture in own for quality in (97, 95, 93)]
        for name, own in pictures.items()
    }
    clf = FewShotClassifier(offline, store=False).fit(burst)
    figures = clf.confidence_.figures
    groups = clf.model_.support.task.groups.reshape(12, 3)
    assert (groups == groups[:, :1]).all()
    alone = len(set(groups[:, 0].tolist()))  # two of the drawn pictures may look alike too
    assert 10 <= alone <= 12
    assert (clf.info_["images"], clf.info_["independent"], clf.info_["near_copies"]) == (36, alone, 36)
    assert (figures.images, figures.independent) == (36, alone)
    images = [picture for own in pictures.values() for picture in own]
    labels = [name for name in pictures for _ in range(4)]
    clf.fit(images, labels, groups=["monday", "monday", "tuesday", "friday"] * 3)
    groups = clf.model_.support.task.groups
    assert len(set(groups[[0, 1, 4, 5, 8, 9]].tolist())) == 1
    assert clf.info_["independent"] <= 9
    with pytest.raises(InputError):
        clf.fit(images, labels, groups=["monday"])


def test_shots_and_seed_choose_the_support_set(photos, offline):
    def support(seed):
        clf = FewShotClassifier(offline, "prolip", options={"lam": 0.01}, shots=2, seed=seed)
        return clf.fit(photos).model_.support.hashes

    assert len(support(1)) == 6
    assert support(1) == support(1)
    assert support(1) != support(2)


def test_save_and_load_give_the_same_probabilities(fitted, photos, tmp_path):
    images = sorted((photos / "test").rglob("*.png"))
    fitted.save(tmp_path / "model")
    loaded = FewShotClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.predict_proba(images), fitted.predict_proba(images), atol=1e-6)
    before, after = fitted.confidence_.held_out, loaded.confidence_.held_out
    np.testing.assert_allclose(after.logits, before.logits, rtol=1e-6)
    np.testing.assert_array_equal((after.y, after.images), (before.y, before.images))
    assert (loaded.model_.recipe, loaded.fitted_.settings) == (fitted.model_.recipe, fitted.fitted_.settings)
    config = json.loads((tmp_path / "model" / "prolip.json").read_text())
    assert config["classes"] == ["blue", "green", "red"]
    assert (config["method"], config["lam"], config["recipe"]["seed"]) == ("prolip", 0.01, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"held_out": np.zeros((18, 2), np.float32)},
        {"held_out": np.full((18, 3), np.nan, np.float32)},
        {"held_out_images": np.zeros(18, np.int64)},
        {"held_out_images": np.arange(18) + 1},
        {"held_out_images": np.arange(18.0).reshape(2, 9)},
    ],
)
def test_answers_about_held_out_images_that_cannot_be_are_refused(photos, offline, tmp_path, wrong):
    FewShotClassifier(offline).fit(photos).save(tmp_path / "model")
    saved = read_model(tmp_path / "model")
    write_model(tmp_path / "other", replace(saved, support={**saved.support, **wrong}))
    with pytest.raises(SavedModelError):
        FewShotClassifier.load(tmp_path / "other")


def test_a_saved_model_answers_without_reading_a_text(fitted, photos, offline, tmp_path, monkeypatch):
    fitted.save(tmp_path / "model")

    def refuse(*_):
        raise AssertionError("the text rows are saved")

    monkeypatch.setattr("prolip.encoders.load", lambda *_: offline)
    monkeypatch.setattr(type(offline), "encode_text", refuse)
    loaded = FewShotClassifier.load(tmp_path / "model", store=False)
    assert loaded.predict(photos / "test" / "red", reject=True).tolist() == ["red"] * 4
    assert loaded.learning_curve().now.shots == 6
    assert len(loaded.suggest(photos / "test", 2)) == 2


def test_evaluation_reports_copies_of_support_images(fitted, photos):
    assert fitted.report(photos).duplicates == 0
    with pytest.warns(TrainingImagesWarning) as caught:
        assert fitted.score(photos / "train") == 1.0
    assert caught[0].filename == __file__
    with pytest.warns(TrainingImagesWarning):
        assert fitted.report(photos / "train", held_out=False).duplicates == 18


def test_other_weights_than_the_model_was_fitted_on_are_refused(fitted, offline, tmp_path, monkeypatch):
    fitted.save(tmp_path / "model")
    other = copy.copy(offline)
    other.fingerprint = "other"
    monkeypatch.setattr("prolip.encoders.load", lambda *_: other)
    with pytest.raises(ModelError):
        FewShotClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("arguments", "call", "error"),
    [
        ({"method": "prolib"}, ("photos",), UsageError),
        ({"views": 0}, ("photos",), UsageError),
        ({"options": {"lam": "1/M"}, "method": "prolip"}, ("photos",), UsageError),
        ({"options": {"learning_rate": 1}}, ("photos",), UsageError),
        ({"templates": "a photo"}, ("photos",), UsageError),
        ({}, (["a.jpg"],), UsageError),
        ({}, (["a.jpg", "b.jpg"], ["cat"]), InputError),
        ({}, (["a.jpg", "b.jpg"], ["cat", "cat"]), InputError),
        ({}, (["a.jpg", "b.jpg"], ["cat", "_"]), InputError),
    ],
)
def test_wrong_use_is_refused_before_any_image_is_read(photos, offline, arguments, call, error, monkeypatch):
    def encode(pixels):
        raise AssertionError("an image was read")

    monkeypatch.setattr(offline, "encode", encode)
    clf = FewShotClassifier(offline, **arguments)
    call = (photos, *call[1:]) if call[0] == "photos" else call
    with pytest.raises(error):
        clf.fit(*call)


def test_an_unreadable_image_is_named_or_skipped(photos, offline):
    bad = photos / "train" / "red" / "0.png"
    bad.write_bytes(bad.read_bytes()[:50])
    clf = FewShotClassifier(offline, "prolip", options={"lam": 0.01})
    with pytest.raises(ImageError, match=r"red/0\.png"):
        clf.fit(photos)
    clf.skip_bad = True
    clf.fit(photos)
    assert [name for name, _ in clf.skipped_] == [str(bad)]
    assert clf.info_["images"] == 17


def test_classes_unknown_to_the_model_are_told(fitted, photos):
    (photos / "test" / "red").rename(photos / "test" / "crimson")
    with pytest.raises(InputError) as caught:
        fitted.score(photos)
    assert "crimson" in str(caught.value)


def test_public_names_are_found_without_looking_for_their_modules():
    import prolip

    assert issubclass(prolip.SavedModelError, prolip.ProlipError)
    assert all(getattr(prolip, name) is not None for name in prolip.__all__)
    assert set(prolip.__all__) <= set(dir(prolip))
