"""Sums of methods, and the search behind them."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der
from scipy.special import softmax

from prolip import methods, solvers
from prolip.core import InputError, Settings, UsageError
from prolip.methods import selection
from prolip.methods.clip_adapter import OneSplit
from prolip.methods.logit_bias import Sum
from prolip.methods.selection import Splits
from prolip.solvers.adam import Steps
from prolip.solvers.folds import assign_folds
from prolip.solvers.regression import SoftmaxRegression
from test_methods import (
    ON_FEATURES,
    close,
    create,
    cross_entropy,
    minimise,
    parts_of,
    problem,
    unit,
    zero_shot,
)

# Sums

ALPHA = {"clip_adapter": {"alpha": 0.5}}
LAM = {"task_res": {"lam": "1/N"}}  # not searched


def test_a_sum_adds_the_biases_of_its_terms():
    task = problem()
    fitted = methods.create("prolip+task_res", terms=LAM).fit(task)
    zero, *parts = (part.logits(task.x[0]) for part in fitted.parts)
    assert close(zero, zero_shot(task), atol=1e-4)
    assert close(fitted.logits(task.x[0]), zero + sum(part - zero for part in parts), atol=1e-4)


def test_a_sum_is_trained_jointly_to_the_minimum_of_the_papers_objective():
    task, lam = problem(), 0.25
    f, text, y, s = parts_of(task)
    x = task.x[0].astype(float)

    def loss(both):
        step, residual = both[:48].reshape(8, 6), both[48:].reshape(3, 6)
        v = x @ (task.head.weight + step) + task.head.bias
        logits = s * unit(v) @ text.T + 0.1 * s * f @ residual.T
        pull = lam * np.square(step).sum() + 0.03 * (s / 100) ** 2 * np.square(residual).sum()
        return cross_entropy(logits, y) + pull

    fitted = methods.create("prolip+task_res", terms={"prolip": {"lam": lam}, "task_res": {"lam": 0.03}}).fit(
        task
    )
    assert fitted.report["objective"] == pytest.approx(loss(minimise(loss, (66,))), rel=1e-3)
    assert fitted.report["start_objective"] == pytest.approx(cross_entropy(zero_shot(task), y), rel=1e-4)


def test_the_papers_recipe_takes_steps_instead():
    task = problem()
    fitted = methods.create("prolip+task_res", solver="adam", epochs=30, lr=1e-3).fit(task)
    assert fitted.report["solver"] == "adam"
    assert fitted.report["objective"] < fitted.report["start_objective"]
    assert fitted.settings.options["terms"]["task_res"]["lam"] == 0


def test_a_term_without_a_minimum_needs_steps():
    with pytest.raises(UsageError):
        methods.create("prolip+clip_adapter", solver="exact", terms=ALPHA).fit(problem())
    fitted = methods.create("rla+clip_adapter", terms=ALPHA, epochs=3).fit(problem())
    assert fitted.report["solver"] == "adam"


def test_training_on_batches_and_keeping_the_best_epoch():
    task = problem()
    term = create("task_res", lam=0.0).bias(task, exact=False)
    seen = []

    def judge(parameters):
        seen.append(np.linalg.norm(parameters[0][0]))
        return -abs(len(seen) - 3)  # the third epoch is the best

    trained = Sum(task, [term]).train(Steps(0.1, 5, batch=5), judge)
    assert trained.evaluations == 5 * 3
    assert np.linalg.norm(trained.parameters[0][0]) == seen[2]


# Held-out answers, and options that are settled


def searching(name):
    """The method with its defaults, but for what would only take long."""
    return methods.create(name, **{"epochs": 10} if "clip_adapter" in name else {})


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_fit_can_answer_for_images_that_it_did_not_see(name):
    task = problem(shots=5, noise=0.2, seed=3)
    fitted, held_out = searching(name).fit_held_out(task)
    assert np.array_equal(fitted.logits(task.x[0]), searching(name).fit(task).logits(task.x[0]))
    assert held_out.images.tolist() == list(range(15))
    assert np.array_equal(held_out.y, task.y)
    assert held_out.logits.shape == (15, 3)
    if name not in ("zero_shot", "tip_adapter", "tip_adapter_f", "clip_adapter", "rla+clip_adapter"):
        assert (held_out.logits.argmax(axis=1) == task.y).mean() > 0.8


@pytest.mark.parametrize("seed", [0, 1])  # the seed of the method's own search, and another
@pytest.mark.parametrize(("name", "atol"), [("gda", 1e-5), ("linear_probe", 0.05), ("task_res", 0.1)])
def test_answers_about_a_fold_come_from_a_fit_on_the_others(name, atol, seed):
    task = problem(shots=5, noise=1.0)
    fitted, held_out = methods.create(name).fit_held_out(task, seed=seed)
    settled, fold = methods.from_settings(fitted.settings), assign_folds(task, seed)
    for k in range(fold.max() + 1):
        rest = settled.fit(task.subset(np.flatnonzero(fold != k)))
        held = np.flatnonzero(fold == k)
        assert close(softmax(held_out.logits[held], axis=1), rest.proba(task.x[0, held]), atol=atol)


@pytest.mark.parametrize("name", ON_FEATURES)
def test_a_settled_method_searches_no_more(name, monkeypatch):
    task = problem(shots=5, noise=0.2, seed=3)
    first = searching(name).fit(task)
    settled = methods.from_settings(Settings(**json.loads(json.dumps(asdict(first.settings)))))
    for place in ("methods.selection.fold_parts",):
        monkeypatch.setattr(f"prolip.{place}", lambda *_, **__: pytest.fail("searched again"))
    again = settled.fit(task).logits(task.x[0])
    if name != "tip_adapter_f_star":  # its keys were trained at what the first of its two searches chose
        assert close(again, first.logits(task.x[0]), atol=0.02 * np.abs(again).max())


# The search


def test_every_image_is_held_out_once_and_never_trained_on_then():
    task = problem(shots=7)
    parts = Splits(task).parts
    held = np.concatenate([part.x for part in parts])
    assert sorted(map(tuple, held.tolist())) == sorted(map(tuple, task.x[0].tolist()))
    for part in parts:
        trained = set(map(tuple, part.task.x[0].tolist()))
        assert not trained & set(map(tuple, part.x.tolist()))


def test_very_many_classes_are_searched_on_a_sample_and_answered_for_in_full(monkeypatch):
    monkeypatch.setattr(selection, "MAX_CLASSES", 10)
    task = problem(classes=30, shots=3)
    assert {part.task.classes for part in Splits(task).parts} == {10}
    _, held_out = methods.create("gda").fit_held_out(task)
    assert held_out.logits.shape == (90, 30)


def test_clip_adapter_judges_on_images_that_it_was_not_trained_on():
    task = problem(shots=5)
    (part,) = OneSplit(task).parts
    assert len(part.y) + part.task.n == task.n
    assert not set(map(tuple, part.x.tolist())) & set(map(tuple, part.task.x[0].tolist()))
    assert set(part.task.y) == set(part.y) == {0, 1, 2}


def test_a_validation_set_of_other_classes_is_refused():
    with pytest.raises(InputError):
        methods.create("gda").fit(problem(), validation=problem(classes=4))


# Solvers that methods share


def test_the_smooth_solver_finds_rosenbrocks_minimum():
    found = solvers.minimise(lambda x: (float(rosen(x)), rosen_der(x)), np.zeros(6), tol=1e-14)
    assert found.evaluations < 200
    assert close(found.x, np.ones(6), atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 9), (40, 4)])
def test_both_reductions_of_the_regression_reach_the_minimum(shape):
    rng = np.random.default_rng(1)
    f, y, base = rng.normal(size=shape), rng.integers(0, 3, shape[0]), rng.normal(size=(shape[0], 3))
    found = SoftmaxRegression(f, y, 3, intercept=False).on(base).solve(0.05, tol=1e-12)

    def loss(weight):
        return cross_entropy(base + f @ weight.T, y) + 0.05 * np.square(weight).sum()

    assert loss(found.weight) == pytest.approx(loss(minimise(loss, (3, shape[1]))), abs=1e-8)
