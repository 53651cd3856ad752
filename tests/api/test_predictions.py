"""Predictions and figures: the values that every interface shows."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest

from pictures import blotch
from prolip import FewShotClassifier
from prolip.api.predict import Predictions, PredictOptions, predict
from prolip.core import InputError, UsageError
from prolip.evaluate.metrics import Figures

PROBABILITIES = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8]])
Y = np.array([1, 2, 2])


def test_predictions_rank_classes_and_hide_rejected_ones():
    found = Predictions(("a", "b", "c"), PROBABILITIES, np.array([False, True, False]), top=2, reject=True)
    assert found.labels == ["b", None, "c"]
    assert replace(found, reject=False).labels == ["b", "a", "c"]
    first, second, _ = found.to_json(["1.png", "2.png", "3.png"])
    ranked = [{"class": "b", "probability": 0.5}, {"class": "c", "probability": 0.3}]
    expected = {"image": "1.png", "class": "b", "probability": 0.5, "rejected": False, "top": ranked}
    assert first == expected
    assert (second["class"], second["rejected"], second["top"][0]["class"]) == (None, True, "a")


def test_out_of_fold_logits_replace_those_of_the_model(colour_model):
    model = colour_model.model_
    x = model.support.task.x[0]
    assert predict(model, x).labels == [model.classes[k] for k in model.support.task.y]
    shifted = np.roll(model.fitted.logits(x), 1, axis=1)
    turned = [model.classes[(k + 1) % 3] for k in model.support.task.y]
    assert predict(model, x, logits=shifted).labels == turned
    with pytest.raises(UsageError):
        PredictOptions(top=0)


def test_one_held_out_accuracy_for_one_model(prolip, offline, tmp_path):
    """Every command, page, value and file has the same figure."""
    rng = np.random.default_rng(0)
    for k, colour in enumerate([(150, 120, 120), (120, 150, 120), (120, 120, 150)]):
        folder = tmp_path / "photos" / f"colour {k}"
        folder.mkdir(parents=True)
        for i in range(6):
            blotch(np.array(colour) + rng.normal(0, 25, 3), 10 * k + i).save(folder / f"{i}.png")

    def run(*arguments):
        code, out, err = prolip(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    photos, model = tmp_path / "photos", tmp_path / "model"
    held_out = run("fit", photos, "-o", model, "--unlabelled", photos)["held_out"]["accuracy"]
    assert 0.3 < held_out < 1
    (default,) = (
        m for m in run("compare", photos, "--method", "zero_shot")["methods"] if m["method"] == "anchored"
    )
    assert (default["method"], default["accuracy"]) == ("anchored", held_out)
    curve = run("curve", model)
    assert curve["now"]["accuracy"] == curve["points"][-1]["accuracy"] == held_out
    assert run("report", model, "-o", tmp_path / "report.html")["accuracy"] == held_out
    assert run("report", model, photos, "-o", tmp_path / "report.html")["accuracy"] == held_out
    assert run("check", photos)["accuracy"] == held_out
    shown = f"{100 * held_out:.1f}"
    assert run("fit", photos, "-o", model, "--force")["held_out"]["accuracy"] == held_out
    assert f"{shown}\u00a0%" in (tmp_path / "report.html").read_text()
    run("check", photos, "--report", tmp_path / "check.html")
    assert shown in (tmp_path / "check.html").read_text()
    clf = FewShotClassifier.load(model)
    clf.export(tmp_path / "out", "onnx")
    assert f"| this model | **{shown} %** |" in (tmp_path / "out" / "README.md").read_text()
    assert clf.confidence_.figures.accuracy == clf.report().figures.accuracy == held_out
    assert clf.check(photos).accuracy == clf.learning_curve().now.accuracy == held_out
    scores = clf.compare(photos, candidates=["zero_shot"]).scores
    assert held_out in [score.accuracy for score in scores]


def test_figures_are_those_of_the_metrics_and_survive_json():
    about = {"zero_shot": PROBABILITIES[:, ::-1], "uncalibrated": PROBABILITIES, "classes": ("a", "b", "c")}
    found = Figures.of(PROBABILITIES, Y, **about)
    assert (found.accuracy, found.per_class, found.counts) == (2 / 3, (None, 1.0, 0.5), (0, 1, 2))
    assert (found.zero_shot_accuracy, found.balanced_accuracy) == (2 / 3, 0.75)
    assert Figures.from_json(found.to_json()) == found
    assert Figures().to_json() == {"images": 0}


@pytest.mark.parametrize(
    "change",
    [{"accuracy": None}, {"accuracy": "high"}, {"images": -1}, {"images": None}, {"per_class": ["a"]},
     {"calibration_error": float("nan")}, {"counts": 3}],
)  # fmt: skip
def test_figures_of_an_untrusted_file_are_checked(change):
    found = Figures.of(PROBABILITIES, Y, zero_shot=PROBABILITIES, uncalibrated=PROBABILITIES)
    with pytest.raises(InputError):
        Figures.from_json({**found.to_json(), **change})
    assert Figures.from_json({"images": 0, "of another version": 1}) == Figures()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.accuracy = 1.0
