"""Probabilities that mean something, and pictures that belong to no class."""

import numpy as np
import pytest

from feature_models import fit_features
from prolip import methods
from prolip.api.evaluate import evaluate_features
from prolip.core import Head, Task, UsageError
from prolip.core.arrays import cross_entropy, softmax
from prolip.data import ImageSet
from prolip.evaluate import metrics
from prolip.evaluate.confidence import ONE_SHOT, Confidence, fit_temperature
from prolip.evaluate.metrics import Figures
from prolip.evaluate.out_of_distribution import OutOfDistribution, directions
from prolip.evaluate.prediction_sets import prediction_sets, set_threshold
from prolip.features import Extraction
from prolip.methods.selection import cross_validate
from prolip.solvers.folds import assign_folds


def crowd(shots, seed=0, noise=1.0, classes=4, dim=24):
    """Features around class centres, texts that know the centres a little, and more of both to test on."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dim))
    texts = centres + 2.0 * rng.normal(size=(classes, dim))

    def draw(count):
        y = np.repeat(np.arange(classes), count)
        return centres[y] + noise * rng.normal(size=(len(y), dim)), y

    x, y = draw(shots)
    task = Task(x.astype(np.float32), y, texts.astype(np.float32), Head(np.eye(dim)), 60.0)
    test_x, test_y = draw(400)
    return task, test_x.astype(np.float32), test_y


def draw_labels(probabilities, rng):
    """A label for each row, by its probabilities."""
    return np.array([rng.choice(len(row), p=row / row.sum()) for row in probabilities])


def test_temperature_is_the_most_likely_one():
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(4000, 5))
    y = draw_labels(softmax(logits / 1.7), rng)
    assert fit_temperature(logits, y) == pytest.approx(1.7, rel=0.05)
    grid = np.linspace(0.5, 4, 200)
    losses = [cross_entropy(logits / t, y).mean() for t in grid]
    assert fit_temperature(logits, y) == pytest.approx(grid[np.argmin(losses)], abs=0.03)
    sure = cross_entropy(logits, y) < 0.5  # those twice
    twice = fit_temperature(np.concatenate([logits, logits[sure]]), np.concatenate([y, y[sure]]))
    assert twice < 1.5
    assert fit_temperature(logits, y, 1.0 + sure) == pytest.approx(twice, rel=1e-4)


def test_many_images_outweigh_the_prior():
    rng = np.random.default_rng(0)
    logits, y = 4 * rng.normal(size=(300, 8)), rng.integers(0, 8, 300)  # labels that nobody can predict

    def loss(t):
        return cross_entropy(logits / t, y).sum()

    assert loss(fit_temperature(logits, y, width=0.2)) < loss(1.0) - 100
    assert loss(fit_temperature(logits, y, width=0.2, own=10.0)) <= loss(10.0) + 2
    copies = np.repeat(np.arange(300), 3)  # near-copies count as one
    again = fit_temperature(logits[copies], y[copies], np.full(900, 1 / 3), width=0.2)
    assert again == pytest.approx(fit_temperature(logits, y, width=0.2), rel=1e-3)


def test_a_model_that_guesses_says_so():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 25)
    for logits, little in ((rng.normal(size=(100, 4)), True), (np.eye(4)[y], False)):
        figures = Figures.of(softmax(logits), y, zero_shot=logits, uncalibrated=softmax(logits), share=0.8)
        assert figures.learned_little == little


def test_held_out_answers_come_from_models_that_did_not_see_the_image():
    task, _, _ = crowd(5)
    method = methods.create("prolip", lam=0.01)
    out = cross_validate(method, task)
    assert sorted(out.images.tolist()) == list(range(task.n))
    assert np.array_equal(out.y, task.y)
    fold = assign_folds(task, 0)
    i = 7
    alone = method.fit(task.subset(np.flatnonzero(fold != fold[i])))
    image = task.x[0, i : i + 1]
    np.testing.assert_allclose(out.logits[i], alone.logits(image)[0], atol=0.02)


def test_calibration_inside_the_support_set_helps_outside_of_it():
    task, x, y = crowd(8, noise=1.6)
    method = methods.create("prolip", lam="1/N")
    fitted, held_out = method.fit_held_out(task)
    confidence = Confidence.of(fitted, task, held_out)
    before = metrics.calibration_error(fitted.proba(x), y)
    after = metrics.calibration_error(softmax(fitted.logits(x) / confidence.temperature), y)
    assert before > 0.1
    assert after < before / 2
    assert confidence.report["calibration_error"] < confidence.report["calibration_error_before"]
    assert confidence.report["accuracy"] == pytest.approx(metrics.accuracy(fitted.logits(x), y), abs=0.15)


@pytest.mark.parametrize("method", ["anchored", "prolip"])
def test_errors_before_and_after_calibration_are_those_of_the_model_s_own_probabilities(method):
    task, x, y = crowd(8, noise=1.6)
    training = task.linear(task.x[0]), task.y, task.text.rows
    calibrated, plain = (fit_features(*training, method, calibrate=each) for each in (True, False))
    tested = task.linear(x)
    numbers = list(range(len(y)))
    extraction = Extraction(tested[None], numbers, [bytes([i % 256]) for i in numbers], [], 0)
    labelled = ImageSet(numbers, y.tolist(), list(calibrated.classes))
    with_temperature, without = (
        evaluate_features(model, labelled, extraction).figures for model in (calibrated, plain)
    )
    for measured, model in ((with_temperature, calibrated), (without, plain)):
        expected = metrics.calibration_error(model.probabilities(tested), y)
        assert measured.calibration_error == pytest.approx(expected, abs=1e-6)
    assert with_temperature.calibration_error_before == pytest.approx(without.calibration_error, abs=1e-6)
    assert without.calibration_error_before == without.calibration_error
    out = calibrated.confidence.held_out
    before = metrics.calibration_error(softmax(out.logits), out.y)
    assert calibrated.confidence.report["calibration_error_before"] == pytest.approx(before, abs=1e-6)


def test_a_few_right_answers_do_not_make_the_model_certain():
    """Nor does a scale of predictions that is given: the temperature takes that back."""
    task, _, _ = crowd(3, noise=0.4)
    method = methods.create("anchored", scale=1000.0)
    fitted, held_out = method.fit_held_out(task)
    confidence = Confidence.of(fitted, task, held_out)
    assert confidence.report["accuracy"] == 1.0
    own = fitted.fit_scale
    assert own / 2 < fitted.scale / confidence.temperature < 2 * own


def test_one_image_per_class_has_a_fixed_temperature():
    task, _, _ = crowd(1)
    for method, temperature in (
        (methods.create("prolip", lam=0.01), ONE_SHOT),
        (methods.create("zero_shot"), 1.0),
    ):
        fitted, held_out = method.fit_held_out(task)
        assert len(held_out) == 0
        assert Confidence.of(fitted, task, held_out).temperature == temperature


def test_out_of_distribution_images_score_by_the_nearest_class_mean_without_the_image_itself():
    task, _, _ = crowd(3)
    out_of_distribution = OutOfDistribution.of(task)
    x = task.x[0] / np.linalg.norm(task.x[0], axis=1, keepdims=True)
    expected = []
    for i in range(task.n):
        rest = [j for j in range(task.n) if j != i]
        means = np.stack([x[[j for j in rest if task.y[j] == k]].mean(axis=0) for k in range(4)])
        cosines = means @ x[i] / np.linalg.norm(means, axis=1)
        expected.append(float(cosines.max()))
    assert out_of_distribution.scores.tolist() == pytest.approx(sorted(expected), abs=1e-5)
    assert out_of_distribution.threshold(0.25) == pytest.approx(np.quantile(expected, 0.25), abs=1e-5)


def test_out_of_distribution_images_are_refused_and_members_mostly_not():
    task, x, _ = crowd(8, noise=0.5)
    fitted = methods.create("prolip", lam=0.01).fit(task)
    out_of_distribution = OutOfDistribution.of(task)
    strangers = np.random.default_rng(1).normal(size=(300, 24))
    head = task.linear
    assert out_of_distribution.reject(x, head, fitted.predict(x)).mean() < 0.15
    assert out_of_distribution.reject(strangers, head, fitted.predict(strangers)).mean() > 0.9
    strict, loose = (out_of_distribution.threshold(rate) for rate in (0.3, 0.01))
    assert strict > loose
    with pytest.raises(UsageError):
        out_of_distribution.threshold(1.5)


def test_negatives_reject_more_of_what_is_like_them_and_no_more_of_the_classes():
    task, x, _ = crowd(8, noise=0.5)
    rng = np.random.default_rng(2)
    stranger = task.x[0, task.y == 0].mean(axis=0) + 0.6 * rng.normal(size=24)  # resembles a class
    strangers = stranger + 0.3 * rng.normal(size=(120, 24))
    negatives = directions(strangers[:20], task.linear)
    scores = []
    for out in (OutOfDistribution.of(task), OutOfDistribution.of(task, negatives)):
        rejected = [out.score(part, task.linear) < out.threshold() for part in (strangers[20:], x)]
        scores.append([part.mean() for part in rejected])
    (before, own_before), (after, own_after) = scores
    assert after > before + 0.2
    assert own_after < own_before + 0.1
    z = strangers[20] / np.linalg.norm(strangers[20])
    means = [task.x[0, task.y == k] for k in range(4)]
    means = [(m / np.linalg.norm(m, axis=1, keepdims=True)).mean(axis=0) for m in means]
    cosines = [m @ z / np.linalg.norm(m) for m in means]
    assert out.score(strangers[20:21], task.linear)[0] == pytest.approx(
        max(cosines) - 0.75 * max(n @ z for n in negatives), abs=1e-5
    )


def test_prediction_sets_hold_the_label_as_often_as_asked_whatever_the_model():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):  # probabilities that are far too sure
        p = rng.dirichlet(np.full(6, 0.3), size=60)
        y = np.array([rng.choice(6, p=(row**0.2) / (row**0.2).sum()) for row in p])
        threshold = set_threshold(p[np.arange(59), y[:59]], np.ones(59), 0.9)
        held.append(y[59] in prediction_sets(p[59:], threshold)[0])
    assert 0.86 < np.mean(held) < 0.94
    assert set_threshold(np.linspace(0.1, 1, 10), np.ones(10), 0.95) == 0.0  # ten images cannot say


def test_a_class_without_images_refuses_nothing():
    task, _, _ = crowd(4)
    text = np.vstack([task.text.rows, np.ones(24)])
    grown = OutOfDistribution.of(Task(task.x, task.y, text, task.head, task.scale))
    strangers = np.random.default_rng(1).normal(size=(50, 24))
    answers = np.full(50, 4)
    assert not grown.reject(strangers, task.linear, answers).any()


def test_floor_is_what_chance_gives():
    rng = np.random.default_rng(1)
    p = softmax(rng.uniform(size=(200, 3)))
    seen = [metrics.calibration_error(p, draw_labels(p, rng)) for _ in range(100)]
    assert metrics.calibration_floor(p) == pytest.approx(np.mean(seen), rel=0.15)
