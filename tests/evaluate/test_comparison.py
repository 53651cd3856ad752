"""Methods side by side: honest figures, a choice that chance does not make, and how it is shown."""

import json
import shlex

import numpy as np
import pytest

from graph_models import write_graphs
from prolip import FewShotClassifier, methods
from prolip.core import Head, InputError, Task, UsageError
from prolip.core.arrays import unit_rows
from prolip.encoders.pretrained import DownloadRequiredError
from prolip.evaluate.comparison import (
    Candidate,
    CandidateScore,
    choose,
    compare_models,
)
from prolip.solvers.folds import assign_folds


def compare_on(task, candidates=None, seed=0):
    return compare_models([("features", task)], candidates, seed=seed)


def make_task(shots=6, classes=4, seed=0, head=True):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), shots)
    centres = rng.normal(size=(classes, 12))
    x = centres[y] + 1.5 * rng.normal(size=(len(y), 12))
    weight = rng.normal(size=(12, 8))
    if not head:
        return Task(x @ weight, y, centres @ weight + rng.normal(size=(classes, 8)))
    return Task(x, y, centres @ weight + rng.normal(size=(classes, 8)), Head(weight), 10.0)


def judged(name, gap, error, open_class=True, model="offline"):
    return CandidateScore(Candidate(name), model, 0.8 + gap, 0.7, 0.9, gap, error, 0.1, 1.0, open_class)


def test_figures_are_those_of_folds_written_out():
    task = make_task()
    found = compare_on(task, [Candidate("zero_shot"), Candidate("gda", {"alpha": 0.1})], seed=3)
    fold, hits = assign_folds(task, 3), {}
    for name, options in (("zero_shot", {}), ("gda", {"alpha": 0.1})):
        right = np.zeros(task.n)
        for k in range(fold.max() + 1):
            fitted = methods.create(name, **options).fit(task.subset(np.flatnonzero(fold != k)))
            held = np.flatnonzero(fold == k)
            right[held] = fitted.logits(task.x[0, held]).argmax(axis=1) == task.y[held]
        hits[name] = right
    by_name = {each.candidate.method: each for each in found.scores}
    direct = unit_rows(task.linear(task.x[0])) @ task.text.rows.T
    assert by_name["zero_shot"].accuracy == np.mean(direct.argmax(axis=1) == task.y)
    # Fits on three quarters of the images are less accurate than one on all.
    share = 1 - 1 / (fold.max() + 1)
    assert by_name["gda"].accuracy == pytest.approx(1 - (1 - hits["gda"].mean()) * share ** (1 / 3))
    gap = hits["gda"] - hits["zero_shot"]
    assert by_name["gda"].gap == pytest.approx(gap.mean())
    assert by_name["gda"].error == pytest.approx(np.std(gap, ddof=1) / np.sqrt(task.n))
    assert found.images == task.n
    assert found.scores[0].accuracy >= found.scores[1].accuracy
    # Every image twice, as near-copies: the same figures as once.
    groups = np.tile(np.arange(task.n), 2)
    twice = Task(np.tile(task.x[0], (2, 1)), np.tile(task.y, 2), task.text, task.head, task.scale, groups)
    again = compare_on(twice, [Candidate("zero_shot")], seed=3)
    assert again.images == task.n
    figures = ("accuracy", "low", "high")
    assert [getattr(again.scores[0], each) for each in figures] == pytest.approx(
        [getattr(by_name["zero_shot"], each) for each in figures]
    )


def test_the_default_stays_unless_another_is_ahead_by_half_a_point_and_beyond_chance():
    default = judged("prolip", 0.0, 0.0)
    assert choose(default, [judged("gda", 0.004, 0.0001)])[0] is default
    assert choose(default, [judged("gda", 0.03, 0.02)])[0] is default
    ahead = judged("gda", 0.03, 0.01)
    assert choose(default, [ahead])[0] is ahead
    # 3 standard errors are much for one, and little for the best of a hundred.
    assert choose(default, [ahead, *(judged(f"m{i}", 0.0, 0.01) for i in range(100))])[0] is default
    better = judged("clap", 0.05, 0.01)
    assert choose(default, [ahead, better])[0] is better


def test_one_image_of_each_class_cannot_be_compared():
    with pytest.raises(InputError):
        compare_on(make_task(shots=1))


def test_every_method_without_a_tower_is_tried_and_what_cannot_be_fitted_is_named():
    found = compare_on(make_task(shots=2, head=False))
    names = {str(each.candidate) for each in found.scores}
    assert {"anchored", "prolip", "linear_probe", "gda", "zero_shot"} <= names
    assert not {"rla", "coop", "full"} & names
    assert "text features" in found.left_out["prolip_text on features"]


def test_the_command_compares_five_methods_in_eighty_columns(prolip, photos):
    code, out, err = prolip("compare", photos)
    assert code == 0, err
    rows = out.partition("\n\n")[0].splitlines()
    assert {row.split()[0] for row in rows[1:]} == {"anchored", "prolip", "gda", "linear_probe", "zero_shot"}
    assert max(map(len, rows)) <= 80
    assert len(json.loads(prolip("compare", photos, "--all", "--shots", "2", "--json")[1])["methods"]) > 15
    assert prolip("compare", photos, "--all", "--method", "gda")[0] == 2


def test_too_few_images_decide_nothing(prolip, photos, tmp_path):
    code, out, err = prolip("compare", photos, "--shots", "2")
    assert code == 0, err
    assert "Cannot tell: 6 held-out images are too few" in out
    assert "Recommended" not in out
    assert "prolip fit" not in out
    few = compare_on(make_task(shots=2, classes=2), [Candidate("zero_shot"), Candidate("gda")])
    assert (few.decided, few.chosen.candidate.method) == (False, "zero_shot")
    assert compare_on(make_task(shots=20), [Candidate("zero_shot"), Candidate("gda")]).decided


def test_the_fit_that_it_advises_is_a_command_that_runs(prolip, photos, tmp_path):
    source = tmp_path / "my photos"
    photos.rename(source)
    code, out, err = prolip("compare", source, "--method", "zero_shot")
    assert code == 0, err
    line = shlex.split(out.splitlines()[-1])
    assert line[:5] == ["prolip", "fit", str(source), "-o", "my-model"]
    line[4] = str(tmp_path / "my-model")
    code, _, err = prolip(*line[1:])
    assert code == 0, err


def test_candidates_in_python_may_be_names(offline, photos):
    clf = FewShotClassifier(offline, store=False)
    comparison = clf.compare(photos, candidates=["gda", Candidate("zero_shot")])
    assert {score.candidate.method for score in comparison.scores} == {"anchored", "gda", "zero_shot"}
    for wrong in (["gad"], "gda"):
        with pytest.raises(UsageError):
            clf.compare(photos, candidates=wrong)


@pytest.fixture
def two_models(tmp_path):
    """A model that knows colours, and one whose images all look the same to it."""
    write_graphs(tmp_path / "good")
    blind = write_graphs(tmp_path / "blind", seed=1)
    (blind / "preprocessor_config.json").write_text(
        json.dumps({"size": 16, "crop_size": 16, "image_mean": [-1e7] * 3, "image_std": [1.0] * 3})
    )
    return [f"onnx:{tmp_path / name}@fp32" for name in ("blind", "good")]


def test_models_are_compared_on_the_same_images(prolip, photos, tmp_path, two_models):
    blind, good = two_models
    flags = ("--model", blind, "--model", good)
    code, out, err = prolip("compare", photos, *flags, "--method", "gda", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert {(each["model"], each["method"]) for each in found["methods"]} == {
        (model, method) for model in two_models for method in ("anchored", "gda")
    }
    assert found["chosen"]["model"] == good
    assert found["images"] == 18
    assert all(0 <= m["low"] <= m["accuracy"] <= m["high"] <= 1 for m in found["methods"])
    # The default on each model is what a fit with it reports, the others are judged against the first.
    by_name = {(each["model"], each["method"]): each for each in found["methods"]}
    score = by_name[blind, "anchored"]
    assert score["accuracy"] == FewShotClassifier(blind).fit(photos).confidence_.figures.accuracy
    difference = by_name[good, "anchored"]["accuracy"] - score["accuracy"]
    assert by_name[good, "anchored"]["gap"] * 0.8 ** (1 / 3) == pytest.approx(difference)


def test_models_in_python_and_wrong_ones(photos, two_models, monkeypatch):
    found = FewShotClassifier().compare(photos, models=two_models, candidates=["zero_shot"])
    assert found.chosen.model == two_models[1]
    assert [row["model"] for row in found.rows()].count(two_models[1]) == 2
    monkeypatch.setattr("prolip.features.extract", lambda *_, **__: pytest.fail("images were encoded"))
    for models, error in (
        ([], UsageError),
        ("offline", UsageError),
        (["offline", "nosuch"], UsageError),
        (["offline", "onnx:owner/absent"], DownloadRequiredError),
    ):
        with pytest.raises(error):
            FewShotClassifier().compare(photos, models=models)


def test_the_first_of_equally_good_models_is_chosen():
    default, small = judged("anchored", 0.0, 0.01), judged("anchored", 0.1, 0.01, model="clip")
    large = judged("anchored", 0.103, 0.01, model="siglip")
    chosen, why = choose(default, [small, large])
    assert chosen is small
    assert "anchored on offline" in why
    better = judged("anchored", 0.12, 0.01, model="siglip")
    assert choose(default, [small, better])[0] is better
