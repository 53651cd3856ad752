"""`anchored`: what is fitted, what is chosen, why, and what it does not depend on."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from prolip.core import Head, Task, UsageError
from prolip.core.arrays import cross_entropy, log_softmax
from prolip.methods import anchored as module
from prolip.methods.anchored import (
    CLASSES_POWER,
    PRIOR_VARIANCE,
    SHARE_DECAY,
    TEXT_SHARE,
    Anchored,
    Problem,
)
from prolip.methods.prolip import ProLIP, validation_accuracies
from prolip.methods.selection import Splits
from prolip.solvers import path
from prolip.solvers.folds import assign_folds, some_classes


def make_task(shots=6, classes=5, width=24, dim=16, *, noise=1.0, seed=0, views=1, scale=20.0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), shots)
    weight = rng.normal(size=(width, dim)) / math.sqrt(width)
    centres = rng.normal(size=(classes, width))
    x = centres[y] + noise * rng.normal(size=(views, len(y), width)) + 0.3
    text = centres @ weight + 0.5 * rng.normal(size=(classes, dim))
    return Task(*(a.astype(np.float32) for a in (x,)), y, text, Head(weight.astype(np.float32)), scale)


def choose(task, **options):
    return module.choose(Problem.of(task), Anchored(**options), options.get("seed", 0))


def regress(task, rows, text_weight, lam):
    """The regression written out, minimised by SciPy on these images: scores, objective, unit of lengths."""
    x = task.x.astype(float)
    lengths = np.linalg.norm(x, axis=2, keepdims=True)
    bias = 0.0 if task.linear.bias is None else task.linear.bias
    embedded = x @ task.linear.weight.astype(float)
    c = math.sqrt(np.square(embedded + bias).sum() / np.square(lengths).sum())
    base = text_weight * (embedded + bias) @ task.text.rows.T.astype(float) / (c * lengths)
    f, every = x / lengths, np.tile(np.arange(task.n), task.views)
    variances = f.reshape(-1, f.shape[2]).var(axis=0)
    f = f / (variances + variances.mean()) ** (module.VARIANCE_SCALING_POWER / 2)
    f /= math.sqrt(np.square(f).sum(axis=2).mean())
    own = np.isin(every, rows)
    features, scores = f.reshape(-1, f.shape[2])[own], base.reshape(-1, task.classes)[own]
    y = np.tile(task.y, task.views)[own]

    def objective(flat):
        coefficients = flat.reshape(f.shape[2], -1)
        logits = scores + features @ coefficients
        slope = np.exp(log_softmax(logits))
        slope[np.arange(len(y)), y] -= 1
        gradient = features.T @ slope / len(y) + 2 * lam * coefficients
        return cross_entropy(logits, y).mean() + lam * np.square(flat).sum(), gradient.ravel()

    start = np.zeros(f.shape[2] * task.classes)
    options = {"maxiter": 5000, "ftol": 1e-14, "gtol": 1e-10}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    coefficients = found.x.reshape(-1, task.classes)
    return base + f @ coefficients, found.fun, c * lengths / text_weight


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("shots", "classes"), [(2, 3), (12, 3), (3, 8)])
def test_one_matrix_gives_the_scores_of_the_regression(monkeypatch, shots, classes, bias):
    monkeypatch.setattr(module, "FINAL_TOL", 1e-9)
    monkeypatch.setattr(module, "FINAL_MAX_EVALUATIONS", 2000)
    task = make_task(shots=shots, noise=1.5, width=8, dim=8, classes=classes)
    if bias:
        head = Head(task.head.weight, np.linspace(-0.5, 0.5, 8))
        task = Task(task.x, task.y, task.text, head, task.scale)
    scores, value, unit = regress(task, np.arange(task.n), 7.0, 1e-3)
    fitted = Anchored(lam=1e-3, text_weight=7.0, scale="fixed").fit(task)
    assert fitted.report["objective"] == pytest.approx(value, rel=1e-5)
    products = fitted.head(task.x[0]) @ task.text.rows.T
    np.testing.assert_allclose(products / unit[0], scores[0], atol=0.01 * np.abs(scores).max())


def test_the_likeliest_scale_maximises_the_likelihood_of_the_labels_under_the_texts():
    task = make_task(noise=2.0, scale=100.0)
    likeliest = Problem.of(task).likeliest_scale()
    cosines = Problem.of(task).zero_shot()

    def log_posterior(b):
        prior = -0.5 * (np.log(b / task.scale) / module.SCALE_DEVIATION) ** 2
        return prior - cross_entropy(b * cosines, task.y).sum()

    assert likeliest < task.scale
    around = [log_posterior(likeliest * factor) for factor in (0.95, 1.0, 1.05)]
    assert around[1] == max(around)
    misled = Task(task.x, np.roll(task.y, 6), task.text, task.head, task.scale)
    assert Problem.of(misled).likeliest_scale() < 0.1 * likeliest


def test_one_image_that_zero_shot_gets_wrong_does_not_make_texts_worthless():
    text = np.eye(2)
    x = np.array([[0.62, 0.60], [0.64, 0.60]])  # the second is of class 1
    task = Task(x, [0, 1], text, scale=100.0)
    assert Problem.of(task).likeliest_scale() > 10.0


def test_texts_count_no_more_than_under_the_model_itself():
    easy = make_task(noise=0.1, scale=3.0)
    assert Problem.of(easy).likeliest_scale() == 3.0


def test_a_choice_follows_its_formulas():
    task = make_task()
    choice = choose(task, scale="fixed")
    assert choice.reason == "cross-validation"
    assert choice.lam == pytest.approx(task.classes**CLASSES_POWER / (2 * PRIOR_VARIANCE * task.n))
    expected = TEXT_SHARE * Problem.of(task).likeliest_scale() / task.shots**SHARE_DECAY
    assert choice.text_weight == pytest.approx(expected, rel=1e-6)
    assert choice.scale == task.scale
    assert 0 <= choice.accuracy <= 1
    assert choice.log_likelihood < 0


@pytest.mark.parametrize("views", [1, 2])
def test_answers_about_held_out_images_are_those_of_separate_fits(monkeypatch, views):
    """Hold out each fold by hand, fit the rest with SciPy, and ask: folds that are solved as one agree."""
    monkeypatch.setattr(module, "FOLD_TOL", 1e-9)
    monkeypatch.setattr(module, "FOLD_MAX_EVALUATIONS", 2000)
    task = make_task(shots=4, noise=1.5, views=views)
    choice = choose(task, scale="fixed", seed=3)
    fold = assign_folds(task, seed=3)
    right, expected = [], np.zeros((task.n, task.classes))
    for held in range(4):
        scores, _, _ = regress(task, np.flatnonzero(fold != held), choice.text_weight, choice.lam)
        expected[fold == held] = scores[0][fold == held]
        right += (scores[:, fold == held].argmax(axis=2) == task.y[fold == held]).ravel().tolist()
    assert choice.accuracy == pytest.approx(np.mean(right), abs=1.01 / task.n)
    np.testing.assert_array_equal(choice.held_out.images, np.arange(task.n))
    np.testing.assert_array_equal(choice.held_out.y, task.y)
    found = choice.held_out.logits  # the same up to one positive factor for each image
    factors = (found * expected).sum(axis=1) / np.square(expected).sum(axis=1)
    assert (factors > 0).all()
    np.testing.assert_allclose(found, factors[:, None] * expected, atol=0.02 * np.abs(found).max())


@pytest.mark.parametrize(("shots", "folds"), [(2, 2), (4, 4), (9, 5)])
def test_folds_hold_out_every_image_once_and_leave_some_of_its_class(shots, folds):
    task = make_task(shots=shots)
    fold = assign_folds(task, seed=0)
    assert set(fold.tolist()) == set(range(folds))
    for held in range(folds):
        assert set(task.y[fold != held].tolist()) == set(range(5))


def test_the_only_image_of_a_class_is_never_held_out():
    task = make_task(shots=3).subset(np.array([0, 1, 2, 3, 4, 6, 9, 12]))
    fold = assign_folds(task, seed=0)
    np.testing.assert_array_equal(fold < 0, np.bincount(task.y)[task.y] == 1)
    choice = choose(task)
    assert choice.reason == "cross-validation"
    np.testing.assert_array_equal(choice.held_out.images, np.flatnonzero(fold >= 0))


def test_one_image_per_class_is_never_held_out():
    task = make_task(shots=1)
    choice = choose(task)
    assert choice.reason == "one image per class"
    assert (choice.accuracy, choice.log_likelihood, choice.held_out) == (None, None, None)
    fitted = Anchored().fit(task)
    assert fitted.scale == fitted.fit_scale


def test_one_image_per_class_does_not_spoil_texts_that_are_right():
    for seed in range(5):
        task = make_task(shots=1, noise=3.0, width=200, dim=64, scale=100.0, seed=seed)
        fresh = make_task(shots=1, noise=3.0, width=200, dim=64, scale=100.0, seed=seed, views=9).x[1:]
        right = [
            ((fresh @ weight @ task.text.rows.T).argmax(axis=2) == task.y).mean()
            for weight in (task.head.weight, Anchored().fit(task).head.weight)
        ]
        assert right[1] >= right[0] - 0.05


def test_texts_that_say_nothing_are_left_behind():
    task = make_task(shots=10, noise=1.0, width=30)
    rng = np.random.default_rng(0)
    strange = Task(task.x, task.y, rng.normal(size=task.text.rows.shape), task.head, task.scale)
    fresh = make_task(shots=10, noise=1.0, width=30, views=2)
    assert (Anchored().fit(strange).predict(fresh.x[1]) == fresh.y).mean() > 0.9


def test_coordinates_that_are_large_for_no_reason_have_less_to_say(monkeypatch):
    """As those are that CLIP's embeddings have."""

    def right(seed):
        plain = make_task(shots=4, classes=8, width=200, dim=40, noise=3.0, views=2, seed=seed)
        noise = 15 * np.random.default_rng(seed).normal(size=(2, plain.n, 3))
        x, fresh = np.concatenate([plain.x, noise], axis=2)
        head = Head(np.vstack([plain.head.weight, np.zeros((3, 40))]))
        fitted = Anchored().fit(Task(x, plain.y, plain.text, head, plain.scale))
        return (fitted.predict(fresh) == plain.y).mean()

    scaled = np.mean([right(seed) for seed in range(5)])
    monkeypatch.setattr(module, "VARIANCE_SCALING_POWER", 0.0)
    assert scaled > np.mean([right(seed) for seed in range(5)]) + 0.05


@pytest.mark.parametrize("x", [np.ones((4, 6)), np.eye(4, 6)[[0, 0, 0, 1]]])
def test_features_that_hardly_vary_can_be_fitted(x):
    task = Task(x, [0, 0, 1, 1], np.eye(2, 6))
    assert np.isfinite(Anchored().fit(task).head.weight).all()


def test_the_same_seed_gives_the_same_choice():
    task = make_task(noise=2.0)
    first, second = choose(task, seed=1), choose(task, seed=1)
    assert (first.scale, first.log_likelihood) == (second.scale, second.log_likelihood)


@pytest.mark.parametrize("scale", ["fixed", "auto"])
def test_the_order_of_images_does_not_matter(scale):
    task = make_task(noise=2.0)
    order = np.random.default_rng(5).permutation(task.n)
    first = Anchored(scale=scale).fit(task)
    second = Anchored(scale=scale).fit(task.subset(order))
    assert second.report["lam"] == pytest.approx(first.report["lam"], rel=1e-6)
    np.testing.assert_allclose(second.logits(task.x[0]), first.logits(task.x[0]), atol=0.01)


@pytest.mark.parametrize("factor", [1e-3, 0.3, 700.0])
def test_rescaled_features_are_the_same_problem(factor):
    task = make_task(noise=2.0)
    rescaled = Task(task.x * factor, task.y, task.text, Head(task.head.weight / factor), task.scale)
    first, second = Anchored().fit(task), Anchored().fit(rescaled)
    assert second.report["lam"] == first.report["lam"]
    assert second.text_weight == pytest.approx(first.text_weight, rel=1e-3)
    np.testing.assert_allclose(second.logits(rescaled.x[0]), first.logits(task.x[0]), atol=0.05)


def test_the_fit_stays_within_the_span_of_the_texts():
    task = make_task()
    change = Anchored().fit(task).head.weight - task.head.weight
    inside = np.linalg.qr(task.text.rows.T)[0]
    outside = change - change @ inside @ inside.T
    assert np.linalg.norm(outside) < 1e-4 * np.linalg.norm(change)


def test_a_settled_fit_is_the_chosen_one_again():
    task = make_task(noise=1.5)
    fitted = Anchored().fit(task)
    again = Anchored(**fitted.settings.options).fit(task)
    assert again.settings == fitted.settings
    assert again.text_weight == fitted.text_weight
    assert "choice" not in again.report
    expected = fitted.logits(task.x[0])
    np.testing.assert_allclose(again.logits(task.x[0]), expected, atol=0.03 * np.abs(expected).max())


def test_a_chosen_scale_predicts_held_out_images_better():
    task = make_task(shots=8, noise=1.5, scale=200.0)
    both = make_task(shots=8, noise=1.5, scale=200.0, views=2)
    fresh = Task(both.x[1], both.y, task.text, task.head, task.scale)
    losses = [
        -log_softmax(Anchored(scale=scale).fit(task).logits(fresh.x[0]))[np.arange(fresh.n), fresh.y].mean()
        for scale in ("fixed", "auto")
    ]
    assert losses[1] < losses[0]


def test_many_classes_are_sampled(monkeypatch):
    task = make_task(shots=3, classes=12)
    monkeypatch.setattr(module, "MAX_SEARCH_CLASSES", 5)
    choice = choose(task)
    assert choice.held_out is None
    assert Anchored().tune(task, Splits(task)).held_out is None
    assert Anchored().fit(task).head.weight.shape == task.head.weight.shape


def test_a_sample_of_classes_keeps_images_and_texts_together():
    task = make_task(shots=3, classes=6)
    few = some_classes(task, 4, seed=0)
    assert few.classes == 4
    assert few.n == 12
    for k in range(4):
        (label,) = np.flatnonzero(np.isclose(task.text.rows, few.text.rows[k]).all(axis=1))
        np.testing.assert_array_equal(few.x[0, few.y == k], task.x[0, task.y == label])


@pytest.mark.parametrize(
    "options",
    [{"scale": "automatic"}, {"lam": "1/N"}, {"lam": 0.0}, {"text_weight": -1.0}, {"text_weight": "half"}],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(UsageError):
        Anchored(**options)


def test_the_paper_method_needs_a_validation_set_to_choose_lam():
    with pytest.raises(UsageError):
        ProLIP(lam="auto").fit(make_task())


def test_a_validation_set_chooses_the_best_of_the_papers_grid():
    task, both = make_task(noise=2.0), make_task(noise=2.0, seed=0, views=2)
    validation = Task(both.x[1], both.y, task.text, task.head, task.scale)
    lams = [10.0, 1.0, 0.1, 0.01]
    found = validation_accuracies(task, validation, lams)
    expected = []
    for solution in path(task, lams):
        embedded = task.linear.with_weight(solution.weight)(validation.x[0])
        expected.append(float(np.mean((embedded @ task.text.rows.T).argmax(axis=1) == validation.y)))
    assert found == dict(zip(lams, expected, strict=True))
    fitted = ProLIP(lam="auto").fit(task, validation=validation)
    assert fitted.report["validation_accuracy"] == max(validation_accuracies(task, validation).values())


def test_the_papers_grid_warns_of_nothing():
    task = make_task(shots=2, width=8, dim=6, classes=3)
    accuracies = validation_accuracies(task, task)
    assert len(accuracies) == 7
    ties = [lam for lam in accuracies if accuracies[lam] == max(accuracies.values())]
    assert len(ties) > 1
    assert ProLIP(lam="auto").fit(task, validation=task).report["lam"] == max(ties)
