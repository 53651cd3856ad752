"""A saved model that gets more classes and images, without those that it was fitted on."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, methods
from prolip.api.fit import DuplicateWarning
from prolip.core import Head, InputError, ProlipError, Task, UsageError
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.curve import CurvePoint, Forecast, extrapolate, learning_curve
from prolip.evaluate.suggestions import suggest

NEW = {"yellow": (210, 200, 40), "grey": (120, 120, 120)}


@pytest.fixture(autouse=True)
def one_encoder(offline, monkeypatch):
    """Load the towers once for all of these tests."""
    monkeypatch.setattr("prolip.encoders.load", lambda *_: offline)


@pytest.fixture
def saved(colour_model, tmp_path):
    colour_model.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def more(tmp_path):
    """Two new classes, and two more pictures of a known one."""
    for k, (name, colour) in enumerate({**NEW, "red": (200, 40, 40)}.items()):
        folder = tmp_path / "more" / name
        folder.mkdir(parents=True)
        for i in range(4 if name in NEW else 2):
            blotch(colour, 300 + 10 * k + i).save(folder / f"{i}.png")
    return tmp_path / "more"


def test_added_classes_end_where_a_fit_from_scratch_ends(saved, more, tmp_path):
    clf = FewShotClassifier.load(saved)  # the old images were never on disk
    outcome = clf.add(more).added_
    assert clf.classes_.tolist() == ["blue", "green", "red", "grey", "yellow"]
    assert (outcome["added_classes"], outcome["added_images"], outcome["images"]) == (
        ["grey", "yellow"],
        10,
        22,
    )
    assert outcome["old_accuracy_before"] == outcome["old_accuracy"] == 1.0

    known = {name: [blotch(c, 10 * k + i) for i in range(4)] for k, (name, c) in enumerate(COLOURS.items())}
    new = {folder.name: sorted(folder.iterdir()) for folder in more.iterdir()}
    pairs = [(name, image) for part in (known, new) for name, images in part.items() for image in images]
    scratch = FewShotClassifier(method="prolip", options={"lam": 0.3}).fit(
        [image for _, image in pairs], [name for name, _ in pairs]
    )
    images = [blotch(colour, 900 + k) for k, colour in enumerate(NEW.values())] + [blotch((200, 40, 40), 950)]
    assert clf.predict(images).tolist() == scratch.predict(images).tolist() == ["yellow", "grey", "red"]
    order = [scratch.model_.classes.index(name) for name in clf.classes_]
    np.testing.assert_allclose(clf.predict_proba(images), scratch.predict_proba(images)[:, order], atol=0.02)


def test_known_images_do_not_make_a_class(saved, more, tmp_path):
    clf = FewShotClassifier.load(saved)
    clf.add(more)
    (more / "yellow").rename(more / "sulphur")
    with pytest.raises(InputError), pytest.warns(DuplicateWarning, match=r"\(sulphur\) is .*\(yellow\)"):
        clf.add(more)
    blotch((1, 2, 3), 1).save(more / "red" / "new.png")
    with pytest.raises(InputError), pytest.warns(DuplicateWarning):
        clf.add(more)
    assert "sulphur" not in clf.classes_


def test_a_name_alone_adds_a_class_and_leaves_the_papers_matrix_as_it_is(saved):
    clf = FewShotClassifier.load(saved)
    weight = clf.fitted_.head.weight.copy()
    outcome = clf.add(names=["a purple elephant"]).added_
    assert clf.classes_[-1] == "a purple elephant"
    np.testing.assert_allclose(clf.fitted_.head.weight, weight, atol=1e-4 * np.abs(weight).max())
    assert clf.predict_proba([blotch((200, 40, 40), 9)]).shape == (1, 4)
    assert outcome["old_accuracy"] is not None
    clf.save(saved)
    assert FewShotClassifier.load(saved).classes_.tolist() == clf.classes_.tolist()
    with pytest.raises(UsageError):
        clf.add(names=["red"])
    with pytest.raises(UsageError):
        clf.add()


def test_class_names_alone_make_a_zero_shot_model_that_grows(photos, tmp_path):
    names, paths = list(COLOURS), sorted((photos / "test").glob("*/*.png"))
    clf = FewShotClassifier(method="prolip", options={"lam": 0.3}).fit(classes=names)
    fitted = FewShotClassifier(method="prolip", options={"lam": 0.3}).fit(photos)
    order = [fitted.classes_.tolist().index(name) for name in names]
    x = clf.features(paths).features[0]
    assert clf.classes_.tolist() == names
    np.testing.assert_allclose(
        clf.fitted_.logits(x), fitted.model_.zero_shot().logits(x)[:, order], atol=1e-4
    )
    assert clf.info_["images"] == 0
    clf.save(tmp_path / "zero")
    again = FewShotClassifier.load(tmp_path / "zero")
    assert again.predict(paths).tolist() == clf.predict(paths).tolist()
    with pytest.raises(UsageError):
        again.learning_curve()
    with pytest.raises(UsageError):
        again.predict(paths, reject=True)
    again.add(photos)
    np.testing.assert_allclose(again.predict_proba(paths), fitted.predict_proba(paths)[:, order], atol=1e-3)
    again.save(tmp_path / "grown")
    assert FewShotClassifier.load(tmp_path / "grown").add(names=["yellow"]).classes_.tolist() == [
        *names,
        "yellow",
    ]


def test_a_zero_shot_model_grows_by_names_and_by_images_of_one_class(photos):
    clf = FewShotClassifier().fit(classes=["red", "green"])
    clf.add(names=["blue"])
    images = sorted((photos / "train" / "red").iterdir())
    clf.add(images, ["red"] * len(images))
    assert clf.classes_.tolist() == ["red", "green", "blue"]
    assert clf.info_["images"] == len(images)


@pytest.mark.parametrize("classes", ["cat", ["cat"], ["cat", "cat"], ["cat", ""], []])
def test_class_names_that_make_no_model(classes):
    with pytest.raises(ProlipError):
        FewShotClassifier().fit(classes=classes)
    with pytest.raises(UsageError):
        FewShotClassifier().fit()
    with pytest.raises(UsageError):
        FewShotClassifier().fit(["a.png"], ["cat"], classes=["cat", "dog"])


def test_fit_of_class_names_on_the_command_line(prolip, photos, tmp_path):
    model = tmp_path / "model"
    code, out, err = prolip("fit", "--classes", "blue, green,red", "-o", model, "--json")
    assert code == 0, err
    outcome = json.loads(out)
    assert (outcome["class_names"], outcome["images"], outcome["method"]) == (
        ["blue", "green", "red"],
        0,
        "zero_shot",
    )
    code, out, _ = prolip("eval", model, photos, "--json")
    figures = json.loads(out)
    assert figures["accuracy"] == figures["zero_shot_accuracy"]
    assert prolip("add", model, photos)[0] == 0
    assert json.loads(prolip("eval", model, photos, "--json")[1])["accuracy"] == 1.0
    out = prolip("fit", "--classes", "blue, green", "-o", tmp_path / "words")[1]
    assert "The model is zero-shot" in out
    for wrong in ((), (photos, "--classes", "a, b"), ("--classes", "a, b", "--unlabelled", photos)):
        assert prolip("fit", *wrong, "-o", tmp_path / "no")[0] == 2


def test_a_model_without_its_support_predicts_but_does_not_grow(colour_model, more, tmp_path):
    colour_model.save(tmp_path / "model", support=False)
    assert not list((tmp_path / "model").glob("support-*"))
    clf = FewShotClassifier.load(tmp_path / "model")
    assert clf.predict([blotch((200, 40, 40), 9)]).tolist() == ["red"]
    with pytest.raises(UsageError):
        clf.add(more)


def test_forecasts_follow_a_power_law_and_are_never_surer_than_today():
    law = {s: 1 - 0.5 * s**-0.7 for s in (1, 2, 4, 8, 16, 32)}
    now = Forecast(8, law[8], law[8] - 0.02, law[8] + 0.02)
    sharp, vague = ([CurvePoint(s, law[s], spread) for s in (1, 2, 4, 8)] for spread in (0.002, 0.1))
    near, far = extrapolate(sharp, now, [16, 32])
    assert (near.accuracy, far.accuracy) == pytest.approx((law[16], law[32]), abs=0.01)
    assert now.high - now.low <= near.high - near.low < far.high - far.low
    (unsure,) = extrapolate(vague, now, [32])
    assert unsure.high - unsure.low > far.high - far.low
    certain = Forecast(8, 0.99, 0.88, 1.0)
    for forecast in extrapolate([CurvePoint(8, 0.99, 0.01)], certain, [10, 80]):
        assert (forecast.low, forecast.high) == (pytest.approx(0.88), 1.0)


def test_learning_curve_rises():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 10)
    centres = rng.normal(size=(5, 20))
    x = (centres[y] + 1.5 * rng.normal(size=(50, 20))).astype(np.float32)
    text = (centres + 3 * rng.normal(size=(5, 20))).astype(np.float32)
    task = Task(x, y, text, Head(np.eye(20)), 20.0)
    method = methods.create("prolip", lam=0.001)
    fitted, out = method.fit_held_out(task)
    figures = Confidence.of(fitted, task, out).figures
    curve = learning_curve(fitted, task, figures, repeats=5)
    assert [p.shots for p in curve.points] == [1, 2, 4, 10]
    assert curve.points[-1].accuracy == curve.now.accuracy == figures.accuracy
    assert (curve.now.low, curve.now.high) == figures.accuracy_interval
    assert curve.points[-1].accuracy > curve.points[0].accuracy
    unlucky = learning_curve(fitted, task, replace(figures, accuracy=0.2), repeats=5)
    assert unlucky.trend == pytest.approx([0.2] * 4, abs=1e-5)
    assert [f.shots for f in curve.forecasts] == [12, 15, 20, 40]
    gains = [f["gain"] for f in curve.report()["forecasts"]]
    assert gains == sorted(gains)
    with pytest.raises(UsageError):
        learning_curve(fitted, task.subset(np.array([0, 1, 10, 11])), figures)
    # Each image twice: the curve counts images that are not near-copies.
    groups = np.tile(np.arange(50), 2)
    twice = Task(np.concatenate([x, x]), np.tile(y, 2), text, Head(np.eye(20)), 20.0, groups)
    fitted, out = method.fit_held_out(twice)
    curve = learning_curve(fitted, twice, Confidence.of(fitted, twice, out).figures, repeats=5)
    assert [p.shots for p in curve.points] == [1, 2, 4, 10]


def test_suggestions_cover_what_is_not_covered():
    rng = np.random.default_rng(0)
    centres = np.eye(12)[:4] * 5
    blobs = [c + 0.3 * rng.normal(size=(20, 12)) for c in centres]
    lone = 5 * np.eye(12)[11:12]
    x, labelled = np.concatenate([*blobs, lone]), blobs[0][:3] + 0.01
    probabilities = np.full((81, 2), 0.5)
    picked = [s.index for s in suggest(x, probabilities, labelled, 3)]
    # One of each blob that has no label, and not the lone one.
    assert sorted(place // 20 for place in picked) == [1, 2, 3]
    gains = [s.gain for s in suggest(x, probabilities, labelled, 6)]
    assert gains == sorted(gains, reverse=True)


def test_another_model_is_not_replaced(prolip, saved, tmp_path):
    other = tmp_path / "other"
    assert prolip("add", saved, "--name-only", "violet", "-o", other)[0] == 0
    before = (other / "prolip.json").read_bytes()
    assert prolip("add", saved, "--name-only", "pink", "-o", other)[0] == 2
    assert prolip("classes", saved, "--rename", "red=pink", "-o", other)[0] == 2
    assert (other / "prolip.json").read_bytes() == before
    assert prolip("add", saved, "--name-only", "violet", "-o", saved)[0] == 0


def test_grow_commands(prolip, colour_model, saved, more, tmp_path):
    code, out, err = prolip("add", saved, more, "-o", tmp_path / "grown", "--json")
    assert code == 0, err
    assert json.loads(out)["added_classes"] == ["grey", "yellow"]
    code, out, _ = prolip("suggest", saved, more, "-n", 3, "--json")
    assert len(json.loads(out)) == 3
    code, out, err = prolip("curve", saved, "--json")
    assert code == 0, err
    assert json.loads(out)["now"]["shots"] == 4
    code, _, err = prolip("add", saved)
    assert (code, "nothing to add" in err) == (2, True)
