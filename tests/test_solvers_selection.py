"""lam = "auto" and the grid search: what is chosen, why, and what it does not depend on."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from prolip.core import Head, Task, UsageError
from prolip.core.arrays import cross_entropy, log_softmax, unit_rows
from prolip.methods.common.projection import validation_accuracies
from prolip.methods.prolip import ProLIP
from prolip.solvers import automatic, choose, exact, path, selection
from prolip.solvers.folds import assign_folds, some_classes
from prolip.solvers.selection import PRIOR


def make_task(shots=6, classes=5, width=24, dim=16, *, noise=1.0, seed=0, views=1, scale=20.0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), shots)
    weight = rng.normal(size=(width, dim)) / math.sqrt(width)
    centres = rng.normal(size=(classes, width))
    x = centres[y] + noise * rng.normal(size=(views, len(y), width)) + 0.3
    text = centres @ weight + 0.5 * rng.normal(size=(classes, dim))
    return Task(*(a.astype(np.float32) for a in (x,)), y, text, Head(weight.astype(np.float32)), scale)


def logits(task, solution):
    embedded = task.linear.with_weight(solution.weight)(task.x[0])
    return solution.scale * unit_rows(embedded) @ task.text.rows.T


def test_a_choice_says_what_was_tried():
    task = make_task()
    choice = choose(task)
    assert choice.reason == "cross-validation"
    assert choice.lam in [trial.lam for trial in choice.tried]
    assert choice.scale == task.scale
    assert all(0 <= trial.accuracy <= 1 and trial.log_likelihood < 0 for trial in choice.tried)
    lams = [trial.lam for trial in choice.tried]
    assert lams == sorted(lams, reverse=True)


@pytest.mark.parametrize("views", [1, 2])
def test_scores_and_answers_are_those_of_separate_fits(monkeypatch, views):
    """Hold out each fold by hand, fit the rest alone, and score: the folds that are solved as one agree."""
    monkeypatch.setattr(selection, "TOL", 1e-7)
    monkeypatch.setattr(selection, "FINE", 1e-8)
    monkeypatch.setattr(selection, "MAX_EVALUATIONS", 400)
    task = make_task(shots=4, noise=1.5, views=views)
    choice = choose(task, seed=3)
    fold = assign_folds(task, seed=3)
    place = [trial.lam for trial in choice.tried].index(choice.lam)
    expected, right, losses = np.zeros((task.n, task.classes)), [], []
    for held in range(4):
        train, test = np.flatnonzero(fold != held), np.flatnonzero(fold == held)
        weight = exact(task.subset(train), choice.lam, restrained=True).weight
        for view in range(views):
            scores = task.scale * unit_rows(task.linear.with_weight(weight)(task.x[view, test]))
            scores = scores @ task.text.rows.T
            losses += cross_entropy(scores, task.y[test]).tolist()
            right += (scores.argmax(axis=1) == task.y[test]).tolist()
            if view == 0:
                expected[test] = scores
    assert choice.tried[place].log_likelihood == pytest.approx(-np.mean(losses), abs=0.01)
    assert choice.tried[place].accuracy == pytest.approx(np.mean(right), abs=1.01 / task.n)
    np.testing.assert_array_equal(choice.held_out.images, np.arange(task.n))
    np.testing.assert_array_equal(choice.held_out.y, task.y)
    np.testing.assert_allclose(choice.held_out.logits, expected, atol=0.3)


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


def test_one_image_per_class_takes_the_prior():
    choice = choose(make_task(shots=1), scale="auto")
    assert choice.reason == "one image per class"
    assert choice.lam == pytest.approx(PRIOR * choice.unit)
    assert choice.tried == ()
    assert choice.held_out is None


def test_images_can_overrule_the_prior():
    """Labels that have nothing to do with the images: only a strong pull to zero-shot helps."""
    task = make_task(shots=10, noise=3.0)
    shuffled = np.random.default_rng(0).permutation(task.y)
    choice = choose(Task(task.x, shuffled, task.text, task.head, task.scale))
    assert choice.lam > 10 * PRIOR * choice.unit


def test_the_same_seed_gives_the_same_choice():
    task = make_task(noise=2.0)
    assert choose(task, seed=1).tried == choose(task, seed=1).tried


@pytest.mark.parametrize("scale", ["fixed", "auto"])
def test_the_order_of_images_does_not_matter(scale):
    task = make_task(noise=2.0)
    order = np.random.default_rng(5).permutation(task.n)
    first, choice = automatic(task, scale=scale)
    second, again = automatic(task.subset(order), scale=scale)
    assert again.lam == pytest.approx(choice.lam, rel=1e-6)
    np.testing.assert_allclose(logits(task, second), logits(task, first), atol=0.01)


@pytest.mark.parametrize("factor", [1e-3, 0.3, 700.0])
def test_rescaled_features_are_the_same_problem(factor):
    task = make_task(noise=2.0)
    rescaled = Task(task.x * factor, task.y, task.text, Head(task.head.weight / factor), task.scale)
    first, choice = automatic(task)
    second, again = automatic(rescaled)
    assert again.lam / again.unit == pytest.approx(choice.lam / choice.unit)
    assert again.unit == pytest.approx(choice.unit * factor**2, rel=1e-4)
    np.testing.assert_allclose(logits(rescaled, second), logits(task, first), atol=0.05)


def test_the_fit_stays_within_the_span_of_the_texts():
    task = make_task()
    solution, choice = automatic(task)
    assert solution.scale == choice.scale
    change = solution.weight - task.head.weight
    inside = np.linalg.qr(task.text.rows.T)[0]
    outside = change - change @ inside @ inside.T
    assert np.linalg.norm(outside) < 1e-4 * np.linalg.norm(change)


def test_the_fit_is_that_of_the_chosen_lam_from_any_start():
    task = make_task(noise=1.5)
    solution, choice = automatic(task, scale="fixed")
    alone = exact(task, choice.lam, restrained=True)
    assert solution.objective == pytest.approx(alone.objective, rel=1e-4)
    np.testing.assert_allclose(logits(task, solution), logits(task, alone), atol=0.1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shots", [2, 9])
def test_the_restrained_fit_is_the_minimum_that_scipy_finds(shots, bias):
    """Written out over all of [Do, k], with SciPy's own differences for a gradient."""
    task = make_task(shots=shots, noise=1.5, width=6, dim=5, classes=3)
    b = np.linspace(-0.5, 0.5, 5) if bias else None
    weight, text = task.head.weight.astype(float), task.text.rows.astype(float)
    task = Task(task.x[0].astype(float), task.y, text, Head(weight, b), task.scale)
    x, basis, lam = task.x[0], np.linalg.qr(text.T)[0], 0.05
    start = np.square(task.linear(x)).sum(axis=1).mean()
    anchor = np.linalg.norm(x, axis=1) * np.sqrt(start / np.square(x).sum(axis=1).mean())

    def objective(flat):
        step = flat.reshape(len(weight), -1)
        v = x @ (weight + step @ basis.T) + (0 if b is None else b)
        scores = task.scale * v @ text.T / np.sqrt(np.linalg.norm(v, axis=1) * anchor)[:, None]
        return cross_entropy(scores, task.y).mean() + lam * np.square(step).sum()

    best = minimize(objective, np.zeros(basis.shape[1] * len(weight)), method="BFGS", options={"gtol": 1e-7})
    solution = exact(task, lam, restrained=True)
    assert solution.objective == pytest.approx(best.fun, rel=1e-5)
    found = weight + best.x.reshape(len(weight), -1) @ basis.T
    assert np.linalg.norm(solution.weight - found) < 1e-2 * np.linalg.norm(found - weight)


def test_a_chosen_scale_predicts_held_out_images_better():
    task = make_task(shots=8, noise=1.5, scale=200.0)
    both = make_task(shots=8, noise=1.5, scale=200.0, views=2)
    fresh = Task(both.x[1], both.y, task.text, task.head, task.scale)
    losses = [
        -log_softmax(logits(fresh, automatic(task, scale=scale)[0]))[np.arange(fresh.n), fresh.y].mean()
        for scale in ("fixed", "auto")
    ]
    assert losses[1] < losses[0]


def test_many_classes_are_sampled(monkeypatch):
    task = make_task(shots=3, classes=12)
    monkeypatch.setattr(selection, "CLASSES", 5)
    choice = choose(task)
    assert choice.held_out is None
    assert automatic(task)[0].weight.shape == task.head.weight.shape


def test_a_sample_of_classes_keeps_images_and_texts_together():
    task = make_task(shots=3, classes=6)
    few = some_classes(task, 4, seed=0)
    assert few.classes == 4
    assert few.n == 12
    for k in range(4):
        (label,) = np.flatnonzero(np.isclose(task.text.rows, few.text.rows[k]).all(axis=1))
        np.testing.assert_array_equal(few.x[0, few.y == k], task.x[0, task.y == label])


def test_an_unknown_scale_is_refused():
    with pytest.raises(UsageError, match="scale"):
        choose(make_task(), scale="automatic")


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
    fitted = ProLIP().fit(task, validation=validation)
    assert fitted.report["validation_accuracy"] == max(validation_accuracies(task, validation).values())


def test_the_papers_grid_warns_of_nothing():
    task = make_task(shots=2, width=8, dim=6, classes=3)
    accuracies = validation_accuracies(task, task)
    assert len(accuracies) == 7
    ties = [lam for lam in accuracies if accuracies[lam] == max(accuracies.values())]
    assert len(ties) > 1
    assert ProLIP().fit(task, validation=task).report["lam"] == max(ties)


def test_a_path_ends_where_the_best_is_far_behind():
    rng = np.random.default_rng(3)
    noise = [0.1 * rng.normal(size=100) for _ in range(4)]

    def past(*means):
        return selection.is_past([mean + each for mean, each in zip(means, noise, strict=False)])

    assert past(-1.5, -1.0, -1.3, -1.6)
    assert not past(-1.5, -1.0, -1.3)  # fell once
    assert not past(-1.5, -1.0, -1.6, -1.3)  # rises again
    assert not past(-1.0, -1.01, -1.02)  # within what chance does
    assert not past(-1.5)
