"""Unlabelled images: classes as clusters that both kinds share, used where held-out images say so."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from pictures import COLOURS, blotch
from prolip import FewShotClassifier, Head, Task, methods
from prolip.core import UsageError
from prolip.core.arrays import cross_entropy, unit_rows
from prolip.evaluate.clusters import Axes, fit_gaussians
from prolip.evaluate.confidence import Confidence
from prolip.evaluate.unlabelled import fit_with_pool, move

CLASSES, WIDTH, DIM = 4, 40, 12


def world(seed=0, noise=0.9):
    """A head, class rows, and a draw of (features, labels): classes that overlap around a common mean."""
    rng = np.random.default_rng(seed)
    centres = 3 + rng.normal(size=(CLASSES, WIDTH))
    spread = noise * rng.gamma(1.0, size=WIDTH)  # unlike in its directions
    head = Head(rng.normal(size=(WIDTH, DIM)) / 6)
    text = unit_rows(
        centres @ head.weight - (centres @ head.weight).mean(axis=0) + 0.6 * rng.normal(size=DIM)
    )

    def draw(count, labels=range(CLASSES)):
        y = np.repeat(list(labels), count)
        x = centres[y] + spread * rng.normal(size=(len(y), WIDTH))
        return x.astype(np.float32), y

    return head, text, draw


def fitted(task, method="anchored"):
    model, held_out = methods.create(method).fit_held_out(task)
    return model, Confidence.of(model, task, held_out)


def accuracy(scores, y):
    return float((scores.argmax(axis=1) == y).mean())


@pytest.fixture(scope="module", params=[(1, 0.9), (4, 1.6)], ids=["one image a class", "four"])
def problem(request):
    shots, noise = request.param
    head, text, draw = world(noise=noise)
    x, y = draw(shots)
    task = Task(x, y, text, head, scale=10.0)
    return task, *fitted(task), draw


def test_axes_are_those_of_a_singular_value_decomposition():
    x = np.random.default_rng(0).normal(size=(300, 200)) * np.linspace(3, 0.1, 200) + 1
    axes = Axes.of(x, classes=3)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    values, rows = np.linalg.svd(unit - unit.mean(axis=0))[1:]
    assert axes.axes.shape == (200, 96)
    np.testing.assert_allclose(axes.variances[:20], values[:20] ** 2 / 300, rtol=0.02)
    inside = rows[:20] @ axes.axes  # the first axes are found, whatever their signs
    np.testing.assert_allclose(np.linalg.norm(inside, axis=1), 1, atol=0.01)
    np.testing.assert_allclose(axes(x), (unit - unit.mean(axis=0)) @ axes.axes, atol=1e-5)


def test_clusters_of_images_that_are_certain_are_a_discriminant_analysis():
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(3), 60)
    f = (np.eye(5)[y] + rng.normal(size=(180, 5))).astype(np.float32)
    labelled = np.arange(180) % 6 == 0
    certain = 1000 * np.eye(3, dtype=np.float32)[y[~labelled]]
    found = fit_gaussians(f[labelled], y[labelled], f[~labelled], certain, np.ones(150))
    means = np.stack([f[y == k].mean(axis=0) for k in range(3)])
    within = sum((f[y == k] - means[k]).T @ (f[y == k] - means[k]) for k in range(3)) / (180 - 3)
    share = 10 / (10 + 180)
    covariance = (1 - share) * within + share * np.trace(within) / 5 * np.eye(5)
    precision = np.linalg.inv(covariance)
    np.testing.assert_allclose(found.weight, means @ precision, rtol=2e-3, atol=2e-4)
    offset = -0.5 * np.einsum("kd,de,ke->k", means, precision, means) + np.trace(precision @ within) / 120
    np.testing.assert_allclose(found.offset, offset, rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(found.counts, 50, atol=1e-3)


def test_a_pool_moves_the_matrix_for_images_that_it_did_not_have(problem):
    task, model, confidence, draw = problem
    (pool, _), (x, y) = draw(100), draw(250)
    with_pool, sure, evidence = fit_with_pool(model, confidence, task, pool)
    assert evidence.used
    assert with_pool.as_projected() is with_pool  # a matrix, which exports
    assert with_pool.with_text(np.eye(DIM)[:2]).logits(x).shape == (len(x), 2)
    assert accuracy(with_pool.logits(x), y) > accuracy(model.logits(x), y) + 0.02
    loss, plain_loss = (
        cross_entropy(fit.logits(x) / calibration.temperature, y).mean()
        for fit, calibration in ((with_pool, sure), (model, confidence))
    )
    assert loss < plain_loss


def test_as_many_out_of_distribution_images_do_no_harm(problem):
    task, model, confidence, draw = problem
    (pool, _), (x, y) = draw(100), draw(250)
    foreign = 3 + np.random.default_rng(5).normal(size=pool.shape) * 2 - 4 * (np.arange(WIDTH) % 2)
    both = np.concatenate([pool, foreign]).astype(np.float32)
    weights = confidence.out_of_distribution.weights(both, task.linear)
    assert weights[: len(pool)].mean() > 0.8
    assert weights[len(pool) :].mean() < 0.1
    with_pool, _, _ = fit_with_pool(model, confidence, task, both)
    assert accuracy(with_pool.logits(x), y) >= accuracy(model.logits(x), y)


def test_the_matrix_gives_the_sum_of_both_answers():
    head, text, draw = world(noise=0.3)
    task = Task(*draw(4), text, head, scale=10.0)
    model, confidence = fitted(task)
    x, _ = draw(50)
    axes = Axes.of(x, CLASSES)
    logits = model.logits(x) / confidence.temperature
    found = fit_gaussians(axes(x[:16]), task.y, axes(x), logits, np.ones(len(x)))
    moved = move(model, axes, found, confidence.temperature, x, labelled=0)
    expected = 0.5 * (logits + found.beta * (axes(x) @ found.weight.T + found.offset))
    centred = [scores - scores.mean(axis=1, keepdims=True) for scores in (moved.logits(x), expected)]
    assert np.corrcoef(centred[0].ravel(), centred[1].ravel())[0, 1] > 0.97
    assert accuracy(moved.logits(x), expected.argmax(axis=1)) > 0.95
    half = move(model, axes, found, confidence.temperature, x, labelled=len(x))
    less = move(model, axes, replace(found, beta=found.beta / 2), confidence.temperature, x, labelled=0)
    np.testing.assert_allclose(half.logits(x), less.logits(x), rtol=1e-4, atol=1e-4)


def test_a_pool_that_misleads_is_left_alone():
    head, text, draw = world(noise=1.6)
    x, y = draw(6)
    task = Task(x, y, text, head, scale=10.0)
    model, confidence = fitted(task)
    rng = np.random.default_rng(7)
    between = rng.dirichlet(0.3 * np.ones(len(x)), size=400) @ x  # mixtures of all classes
    between[:, :8] += 12 * rng.integers(0, 2, size=(400, 8))  # clusters that cut across all classes
    sure = replace(
        confidence, out_of_distribution=replace(confidence.out_of_distribution, scores=np.zeros(1))
    )
    *unchanged, evidence = fit_with_pool(model, sure, task, between.astype(np.float32))
    assert not evidence.used
    assert evidence.after < evidence.before
    assert unchanged == [model, sure]


def test_a_hundred_held_out_images_are_enough():
    head, text, draw = world(noise=1.6)
    task = Task(*draw(50), text, head, scale=10.0)  # five folds of 40
    model, confidence = fitted(task)
    *_, evidence = fit_with_pool(model, confidence, task, draw(100)[0])
    assert evidence.held_out == 120
    assert evidence.used == (evidence.gain >= 0.5 * evidence.error)


def test_what_cannot_be_used_is_said(problem):
    task, model, confidence, draw = problem
    probe = methods.create("linear_probe", C=10.0).fit(task)
    for fit, images, why in ((model, 3, "too few, it takes 30"), (probe, 100, "no projection")):
        same, _, evidence = fit_with_pool(fit, confidence, task, draw(images)[0])
        assert same is fit
        assert not evidence.used
        assert why in evidence.why


def test_memory_grows_with_the_pool_and_not_with_its_square():
    head, text, draw = world()
    task = Task(*draw(4), text, head, scale=10.0)
    model, confidence = fitted(task)
    x, _ = draw(5000)
    tracemalloc.start()
    fit_with_pool(model, confidence, task, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * x.nbytes  # 64 MB; a matrix of all pairs has 1.6 GB


@pytest.fixture(scope="module")
def pool():
    """Twelve pictures of each colour, and three grey ones."""
    coloured = [
        blotch(colour, 500 + 20 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(12)
    ]
    return [*coloured, *(blotch((120, 120, 120), 700 + i) for i in range(3))]


@pytest.fixture(scope="module")
def labelled():
    images = [blotch(colour, 10 * k + i) for k, colour in enumerate(COLOURS.values()) for i in range(4)]
    return images, [name for name in COLOURS for _ in range(4)]


def test_a_classifier_learns_from_a_pool(offline, labelled, pool, tmp_path):
    images, labels = labelled
    clf = FewShotClassifier(offline, store=False).fit(images, labels, unlabelled=[*pool, images[0]])
    outcome = clf.info_["unlabelled"]
    assert outcome["images"] == len(pool)  # a copy of a labelled image is none
    assert outcome["used"]
    new = [blotch(colour, 950 + k) for k, colour in enumerate(COLOURS.values())]
    assert clf.predict(new).tolist() == list(COLOURS)
    clf.save(tmp_path / "model")
    back = FewShotClassifier.load(tmp_path / "model")
    np.testing.assert_allclose(back.predict_proba(new), clf.predict_proba(new), atol=1e-4)
    assert back.info_["unlabelled"] == outcome
    with pytest.raises(UsageError):
        FewShotClassifier(offline, store=False, calibrate=False).fit(images, labels, unlabelled=pool)
