"""`anchored`: what is fitted, what is chosen, why, and what it does not depend on."""

import math
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize

from prolip.core import Head, Task, UsageError
from prolip.core.arrays import cross_entropy, log_softmax
from prolip.methods import anchored as module
from prolip.methods import create, from_settings
from prolip.methods.anchored import (
    EXPLAINED,
    OPEN_SCALE,
    PRIOR_LOGIT,
    TEXT_SHARE,
    Anchored,
    Problem,
)
from prolip.methods.base import FitContext
from prolip.methods.prolip import LAMS, ProLIP
from prolip.solvers import exact, path
from prolip.solvers.folds import assign_folds


def make_task(shots=6, classes=5, width=24, dim=16, *, noise=1.0, seed=0, views=1, scale=20.0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), shots)
    weight = rng.normal(size=(width, dim)) / math.sqrt(width)
    centres = rng.normal(size=(classes, width))
    x = centres[y] + noise * rng.normal(size=(views, len(y), width)) + 0.3
    text = centres @ weight + 0.5 * rng.normal(size=(classes, dim))
    return Task(*(a.astype(np.float32) for a in (x,)), y, text, Head(weight.astype(np.float32)), scale)


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
    f = f / np.sqrt(variances + variances.mean())
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
    monkeypatch.setattr(module, "TOL", 1e-9)
    task = make_task(shots=shots, noise=1.5, width=8, dim=8, classes=classes)
    if bias:
        head = Head(task.head.weight, np.linspace(-0.5, 0.5, 8))
        task = Task(task.x, task.y, task.text, head, task.scale)
    scores, value, unit = regress(task, np.arange(task.n), 7.0, 1e-3)
    fitted = Anchored(lam=1e-3, text_weight=7.0).fit(task)
    assert fitted.report["objective"] == pytest.approx(value, rel=1e-5)
    products = fitted.head(task.x[0]) @ task.text.rows.T
    np.testing.assert_allclose(products / unit[0], scores[0], atol=0.01 * np.abs(scores).max())


def test_the_likeliest_scale_maximises_the_likelihood_of_the_labels_under_the_texts():
    task = make_task(noise=2.0, scale=100.0)
    likeliest, explained = Problem.of(task).likeliest_scale()
    cosines = Problem.of(task).zero_shot()

    def log_posterior(b):
        prior = -0.5 * np.log(b / task.scale) ** 2
        return prior - cross_entropy(b * cosines, task.y).sum()

    assert likeliest < task.scale
    around = [log_posterior(likeliest * factor) for factor in (0.95, 1.0, 1.05)]
    assert around[1] == max(around)
    gained = 1 - cross_entropy(likeliest * cosines, task.y).mean() / math.log(task.classes)
    assert explained == pytest.approx(gained, rel=1e-5)
    misled = Task(task.x, np.roll(task.y, 6), task.text, task.head, task.scale)
    assert Problem.of(misled).likeliest_scale()[0] < 0.2 * likeliest
    assert Problem.of(misled).likeliest_scale()[1] < 0.05


def test_penalty_and_text_weight_follow_their_formulas():
    task = make_task()
    report = Anchored().fit(task).report
    assert report["lam"] == pytest.approx(math.log(task.classes) / (PRIOR_LOGIT**2 * task.n))
    assert report["text_weight"] == pytest.approx(TEXT_SHARE * Problem.of(task).likeliest_scale()[0])


@pytest.mark.parametrize("views", [1, 2])
def test_predictions_for_held_out_images_are_those_of_separate_fits(monkeypatch, views):
    """Hold out each fold by hand, fit the rest with SciPy: folds that are solved as one agree."""
    monkeypatch.setattr(module, "FOLD_TOL", 1e-9)
    task = make_task(shots=4, noise=1.5, views=views)
    fitted, held_out = Anchored().fit_held_out(task, seed=3)
    fold = assign_folds(task, seed=3)
    expected = np.zeros((task.n, task.classes))
    for held in range(4):
        rows = np.flatnonzero(fold != held)
        scores, _, _ = regress(task, rows, fitted.report["text_weight"], fitted.report["lam"])
        expected[fold == held] = scores[0][fold == held]
    np.testing.assert_array_equal(held_out.images, np.arange(task.n))
    np.testing.assert_array_equal(held_out.y, task.y)
    found = held_out.logits  # the same up to one positive factor for each image
    factors = (found * expected).sum(axis=1) / np.square(expected).sum(axis=1)
    assert (factors > 0).all()
    np.testing.assert_allclose(found, factors[:, None] * expected, atol=0.02 * np.abs(found).max())


def test_a_repeated_image_in_one_group_changes_nothing():
    task = make_task(noise=1.5)
    twice = np.concatenate([np.arange(task.n), np.full(9, 3)])
    groups = np.concatenate([np.arange(task.n), np.full(9, 3)])
    repeated = Task(task.x[:, twice], task.y[twice], task.text, task.head, task.scale, groups)
    first, second = (Anchored().fit(one).logits(task.x[0]) for one in (task, repeated))
    np.testing.assert_allclose(second, first, atol=0.01 * np.abs(first).max())


def without_images(task, missing):
    """The task without the images of these classes; their texts stay."""
    return task.subset(np.flatnonzero(~np.isin(task.y, missing)))


@pytest.mark.parametrize("name", ["anchored", "prolip", "rla"])
def test_classes_without_images_are_no_negatives(name):
    """The fit is that of the classes with images; the others are scored by their texts beside them."""
    task = make_task(shots=4, width=16, dim=16, noise=1.5)
    part = without_images(task, [1, 4])
    fitted = create(name).fit(part)
    seen = Task(
        part.x, np.searchsorted([0, 2, 3], part.y), part.text.subset([0, 2, 3]), part.head, part.scale
    )
    context = FitContext(unseen=True)
    method = from_settings(fitted.settings)
    alone = method.solve(seen, context).with_text(task.text)
    np.testing.assert_allclose(fitted.logits(task.x[0]), alone.logits(task.x[0]), rtol=1e-4, atol=1e-4)
    assert fitted.logits(task.x[0]).shape == (task.n, 5)


def test_a_class_that_has_only_a_name_is_still_predicted():
    task = make_task(shots=16, width=200, dim=64, noise=3.0, scale=100.0)
    fresh = make_task(shots=16, width=200, dim=64, noise=3.0, scale=100.0, views=2).x[1]
    named = task.y == 2
    zero_shot = ((fresh @ task.head.weight @ task.text.rows.T).argmax(axis=1) == task.y)[named].mean()
    recall = (Anchored().fit(without_images(task, [2])).predict(fresh) == task.y)[named].mean()
    assert zero_shot > 0.8
    assert recall > zero_shot - 0.1


def test_where_texts_explain_the_labels_the_papers_objective_is_fitted_on_standardised_features():
    task = make_task(shots=4, noise=1.0, scale=50.0)
    part = without_images(task, [0])
    fitted = Anchored().fit(part)
    assert fitted.report["open_share"] == 1.0
    assert fitted.report["explained_by_texts"] > EXPLAINED
    x = part.x[0].astype(float)
    f = x / np.linalg.norm(x, axis=1, keepdims=True)
    deviations = np.sqrt(f.var(axis=0) + f.var(axis=0).mean())
    unit = math.sqrt(np.square(f / deviations).sum(axis=1).mean())
    c = math.sqrt(np.square(x @ part.head.weight).sum() / np.square(x).sum())
    start = part.head.weight / c * deviations[:, None] * unit
    standardised = Task(
        f / deviations / unit, part.y - 1, part.text.rows[1:], Head(start), OPEN_SCALE * part.scale
    )
    expected = f / deviations / unit @ exact(standardised, 1 / 4).weight @ task.text.rows.T
    products = f @ fitted.head.weight @ task.text.rows.T
    np.testing.assert_allclose(products / c, expected, atol=2e-3 * np.abs(expected).max())


def test_images_of_one_class_alone_leave_the_model_as_it_is():
    task = make_task(shots=3)
    fitted, held_out = Anchored().fit_held_out(task.subset(np.flatnonzero(task.y == 1)))
    np.testing.assert_array_equal(fitted.head.weight, task.head.weight)
    assert len(held_out) == 0


def test_the_order_of_images_does_not_matter():
    task = make_task(noise=2.0)
    order = np.random.default_rng(5).permutation(task.n)
    first, second = Anchored().fit(task), Anchored().fit(task.subset(order))
    np.testing.assert_allclose(second.logits(task.x[0]), first.logits(task.x[0]), atol=0.01)


@pytest.mark.parametrize("missing", [[], [1]])
def test_a_given_scale_is_a_factor_of_predictions_alone(missing):
    task = without_images(make_task(noise=1.5), missing)
    first, second = Anchored().fit(task), Anchored(scale=3.0).fit(task)
    np.testing.assert_array_equal(first.head.weight, second.head.weight)
    assert second.scale == 3.0
    assert second.fit_scale == first.fit_scale == first.scale


@pytest.mark.parametrize("factor", [1e-3, 0.3, 700.0])
def test_rescaled_features_are_the_same_problem(factor):
    task = make_task(noise=2.0)
    rescaled = Task(task.x * factor, task.y, task.text, Head(task.head.weight / factor), task.scale)
    first, second = Anchored().fit(task), Anchored().fit(rescaled)
    assert second.report["lam"] == first.report["lam"]
    assert second.report["text_weight"] == pytest.approx(first.report["text_weight"], rel=1e-3)
    np.testing.assert_allclose(second.logits(rescaled.x[0]), first.logits(task.x[0]), atol=0.05)


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


def test_a_validation_set_chooses_the_best_of_the_papers_grid_and_warns_of_nothing():
    task, both = make_task(noise=2.0), make_task(noise=2.0, seed=0, views=2)
    validation = Task(both.x[1], both.y, task.text, task.head, task.scale)
    accuracies = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solutions = path(task, LAMS)
    for solution in solutions:
        embedded = task.linear.with_weight(solution.weight)(validation.x[0])
        accuracies.append(float(np.mean((embedded @ task.text.rows.T).argmax(axis=1) == validation.y)))
    fitted = ProLIP(lam="auto").fit(task, validation=validation)
    assert fitted.report["validation_accuracy"] == max(accuracies) > min(accuracies)
    assert fitted.report["lam"] == LAMS[accuracies.index(max(accuracies))]  # of equals the largest
