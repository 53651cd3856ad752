"""Sums of methods, ensembles, the choice among methods, and the search behind them."""

import copy

import pytest
import torch

from prolip import FewShotClassifier, Task, methods, solvers
from prolip.core import InputError, UsageError
from prolip.methods import projection, search
from prolip.methods.bias import AdamW, BiasMethod, Sum
from prolip.methods.ensemble import stack
from prolip.solvers.linear import SoftmaxRegression
from prolip.solvers.smooth import autograd, minimise
from test_methods import create, problem, zero_shot

TERMS = [name for name in methods.names() if issubclass(methods.get(name), BiasMethod) and "+" not in name]


# Biases and their sums


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("exact", [True, False])
def test_a_bias_is_what_the_method_adds_to_zero_shot(name, exact):
    task = problem(views=2)
    _, method, _ = create(name, **{"alpha": 2.0, "beta": 3.0} if "star" in name else {}).settle(task, None)
    bias = method.bias(task, exact)
    generator = torch.Generator().manual_seed(0)
    parameters = [p + 0.1 * torch.randn(p.shape, generator=generator) for p in bias.start]
    added = bias(parameters, slice(12, 24))  # the second view
    fitted = bias.fitted(parameters, {})
    assert torch.allclose(zero_shot(task, task.x[1]) + added, fitted.logits(task.x[1]), atol=1e-4)


def test_a_sum_adds_the_biases_of_its_terms():
    task = problem()
    fitted = methods.create("prolip+task_res", lam="1/N").fit(task)
    zero, *parts = (part.logits(task.x[0]) for part in fitted.parts)
    assert torch.allclose(zero, zero_shot(task), atol=1e-4)
    assert torch.allclose(fitted.logits(task.x[0]), zero + sum(part - zero for part in parts), atol=1e-4)


def test_a_sum_is_trained_jointly_to_the_minimum_of_the_papers_objective():
    task, lam = problem(), 0.25
    x, y, s = task.x[0], task.y, task.scale
    f, text = zero_shot(task), task.text.rows
    unit = torch.nn.functional.normalize(x @ task.head.weight + task.head.bias, dim=1)

    def loss(step, residual):
        v = x @ (task.head.weight + step) + task.head.bias
        logits = s * torch.nn.functional.normalize(v, dim=1) @ text.T + 0.1 * s * unit @ residual.T
        pull = lam * step.square().sum() + 0.03 * (s / 100) ** 2 * residual.square().sum()
        return torch.nn.functional.cross_entropy(logits, y) + pull

    step = torch.zeros(8, 6, requires_grad=True)
    residual = torch.zeros(3, 6, requires_grad=True)
    optimizer = torch.optim.LBFGS([step, residual], max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(step, residual)
        value.backward()
        return value

    optimizer.step(closure)
    fitted = methods.create("prolip+task_res", **{"prolip.lam": lam, "task_res.lam": 0.03}).fit(task)
    assert fitted.info["objective"] == pytest.approx(loss(step, residual).item(), rel=1e-3)
    assert fitted.info["start_objective"] == pytest.approx(
        float(torch.nn.functional.cross_entropy(f, y)), rel=1e-4
    )


def test_the_papers_recipe_takes_steps_instead():
    task = problem()
    fitted = methods.create("prolip+task_res", solver="adam", epochs=30, lr=1e-3).fit(task)
    assert fitted.info["solver"] == "adam"
    assert fitted.info["objective"] < fitted.info["start_objective"]
    assert fitted.info["chosen"]["task_res.lam"] == 0


def test_any_number_of_biases_adds_up():
    fitted = methods.create("rla+task_res+tip_adapter", lam="1/N").fit(problem())
    assert fitted.weights == (-2.0, 1.0, 1.0, 1.0)
    assert methods.get("rla+task_res+tip_adapter").size == "D x D + K x D + 0"


def test_a_term_without_a_minimum_needs_steps():
    with pytest.raises(UsageError, match="clip_adapter has no minimum to go to"):
        methods.create("prolip+clip_adapter", solver="exact", alpha=0.5).fit(problem())


def test_a_copy_of_a_sum_is_the_same_sum():
    method = methods.create("prolip+task_res", lam="1/N", **{"task_res.alpha": 0.2})
    assert copy.deepcopy(method) == method


def test_training_on_batches_and_keeping_the_best_epoch():
    task = problem()
    term = create("task_res", lam=0.0).bias(task, exact=False)
    seen = []

    def judge(parameters):
        seen.append(float(parameters[0][0].norm()))
        return -abs(len(seen) - 3)  # the third epoch is the best

    trained = Sum(task, [term]).adam(lr=0.1, epochs=5, batch=5, judge=judge)
    assert trained.evaluations == 5 * 3
    assert float(trained.parameters[0][0].norm()) == seen[2]


def test_steps_are_those_of_adamw():
    generator = torch.Generator().manual_seed(0)
    start, a = torch.randn(5, 4, generator=generator), torch.randn(4, 3, generator=generator)
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    mine = AdamW([ours], eps=1e-4, decay=0.01)
    reference = torch.optim.AdamW([theirs], eps=1e-4, weight_decay=0.01)
    for step in range(20):
        lr = 0.1 / (1 + step)
        reference.param_groups[0]["lr"] = lr
        reference.zero_grad()
        (theirs @ a).sin().sum().backward()
        reference.step()
        mine.step(torch.autograd.grad((ours @ a).sin().sum(), [ours]), lr)
    assert torch.allclose(ours, theirs, atol=1e-6)


# Ensembles


def test_an_ensemble_is_a_weighted_sum_of_logits():
    task = problem()
    fitted = methods.create("ensemble", members="zero_shot, gda", weights=[0.25, 2.0]).fit(task)
    wanted = 0.25 * zero_shot(task) + 2 * methods.create("gda").fit(task).logits(task.x[0])
    assert torch.allclose(fitted.logits(task.x[0]), wanted, atol=1e-3)


def test_weights_go_to_the_member_that_knows():
    y = torch.arange(3).repeat(20)
    generator = torch.Generator().manual_seed(0)
    knows = torch.nn.functional.one_hot(y).float() + 0.5 * torch.randn(60, 3, generator=generator)
    guesses = 5 * torch.randn(60, 3, generator=generator)
    right, wrong = stack([knows, guesses], y)
    assert right > 1
    assert wrong < 0.1


@pytest.mark.parametrize("name", ["prolip", "linear_probe"])
def test_a_rough_fit_is_good_enough_to_compare_by(name):
    task = problem(shots=8, noise=1.5)
    method = methods.create(name).settled(methods.create(name).fit(task).info)
    close, rough = (m.fit(task).logits(task.x[0]).softmax(1) for m in (method, method.rough()))
    assert torch.allclose(close, rough, atol=0.03)
    assert not torch.equal(close, rough)


def test_equal_weights_where_nothing_can_be_held_out():
    fitted = methods.create("ensemble", members="zero_shot,gda").fit(problem(shots=1))
    assert fitted.weights == (0.5, 0.5)
    assert fitted.info["reason"] == "equal"


# The choice


def test_auto_says_what_it_chose_and_why():
    # Texts that point nowhere near the images: only a method that learns from images can be right.
    task = problem(shots=5, noise=0.2, seed=3)
    info = methods.create("auto", candidates="zero_shot,linear_probe").fit(task).info
    assert info["chose"] in ("linear_probe", "ensemble")
    assert info["candidates"]["zero_shot"]["accuracy"] < info["candidates"][info["chose"]]["accuracy"]
    assert info["why"].startswith("log-likelihood")


@pytest.mark.parametrize("by", ["likelihood", "accuracy"])
def test_auto_takes_the_best_by_its_rule(by):
    info = methods.create("auto", by=by).fit(problem(shots=5)).info
    scores = {name: score[by] for name, score in info["candidates"].items()}
    assert scores[info["chose"]] == max(scores.values())


def test_auto_knows_two_rules():
    with pytest.raises(UsageError, match="unknown by 'luck'"):
        methods.create("auto", by="luck")


def test_auto_keeps_the_only_sensible_method():
    # Labels without meaning and texts that are exactly right: nothing beats zero-shot on held-out images.
    generator = torch.Generator().manual_seed(0)
    text = torch.eye(4)
    x = text.repeat(5, 1) + 0.3 * torch.randn(20, 4, generator=generator)
    task = Task(x, torch.arange(4).repeat(5), text, scale=100.0)
    info = methods.create("auto", candidates="zero_shot,linear_probe").fit(task).info
    assert info["candidates"][info["chose"]]["likelihood"] >= info["candidates"]["zero_shot"]["likelihood"]


def test_auto_with_one_image_a_class_takes_the_first_candidate():
    task = problem(shots=1)
    fitted = methods.create("auto").fit(task)
    assert fitted.info["chose"] == "prolip"
    assert "one image a class" in fitted.info["why"]
    assert torch.allclose(fitted.logits(task.x[0]), methods.create("prolip").fit(task).logits(task.x[0]))


# The search


def test_every_image_is_held_out_once_and_never_trained_on_then():
    task = problem(shots=7)
    parts = search.splits(task)
    held = torch.cat([part.x for part in parts])
    assert sorted(map(tuple, held.tolist())) == sorted(map(tuple, task.x[0].tolist()))
    for part in parts:
        trained = set(map(tuple, part.task.x[0].tolist()))
        assert not trained & set(map(tuple, part.x.tolist()))


def test_the_only_image_of_a_class_is_never_held_out():
    task = problem(shots=3)
    task = task.subset(torch.tensor([0, 1, 2, 3, 6, 7, 8]))  # one image of class 1
    parts = search.splits(task)
    assert parts
    assert all((part.task.y == 1).sum() == 1 for part in parts)


def test_one_image_a_class_leaves_nothing_to_hold_out():
    assert search.splits(problem(shots=1)) == []


def test_very_many_classes_are_searched_on_a_sample():
    task = problem(classes=30, shots=2)
    small = search.some_classes(task, 10, seed=0)
    assert small.classes == 10
    assert small.n == 20
    name = small.text.classes[4]
    images = task.x[0][task.y == task.text.classes.index(name)]
    assert torch.equal(small.x[0][small.y == 4], images)


def test_lam_is_chosen_on_a_sample_of_very_many_classes(monkeypatch):
    monkeypatch.setattr(projection, "CLASSES", 10)
    task = problem(classes=30, shots=3)
    fitted = methods.create("prolip").fit(task)
    assert fitted.info["lam"] == solvers.choose(search.some_classes(task, 10, seed=0)).lam
    assert fitted.logits(task.x[0]).shape == (90, 30)


def test_a_validation_set_of_other_classes_is_refused():
    with pytest.raises(InputError, match="the validation set has 4 classes, the support set 3"):
        methods.create("gda").fit(problem(), validation=problem(classes=4))


def test_lam_comes_from_the_support_set():
    task = problem(shots=5, noise=0.2, seed=3)  # zero-shot is wrong: a strong pull cannot win
    info = methods.create("cross_modal").fit(task).info
    assert info["search"]["values"][0] == "10/N"
    assert info["lam"] < 10 / 5


# Solvers that methods share


def test_the_smooth_solver_finds_rosenbrocks_minimum():
    def rosenbrock(x):
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    start = torch.zeros(6, dtype=torch.float64)
    found = minimise(autograd(rosenbrock, [start.shape]), start, tol=1e-9)
    assert found.converged
    assert torch.allclose(found.x, torch.ones(6, dtype=torch.float64), atol=1e-6)


def test_the_smooth_solver_walks_away_from_infinity():
    def barrier(x):  # log is infinite beyond zero
        return (x - x.log()).sum()

    start = torch.full((3,), 1e-3, dtype=torch.float64)
    found = minimise(autograd(barrier, [start.shape]), start, tol=1e-8)
    assert torch.allclose(found.x, torch.ones(3, dtype=torch.float64), atol=1e-5)


def test_a_start_that_is_the_minimum_stays():
    found = minimise(lambda x: (float(x.square().sum()), 2 * x), torch.zeros(4))
    assert found.evaluations == 1
    assert torch.equal(found.x, torch.zeros(4))


@pytest.mark.parametrize("shape", [(5, 9), (40, 4)])
def test_both_reductions_of_the_regression_reach_the_minimum(shape):
    generator = torch.Generator().manual_seed(1)
    f = torch.randn(shape, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (shape[0],), generator=generator)
    base = torch.randn(shape[0], 3, generator=generator, dtype=torch.float64)
    found = SoftmaxRegression(f, y, 3, base=base, intercept=False).solve(0.05, tol=1e-8)
    weight = found.weight.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(base + f @ weight.T, y) + 0.05 * weight.square().sum()
    (slope,) = torch.autograd.grad(loss, weight)
    assert slope.norm() < 1e-4


# From images to a saved model and back


@pytest.mark.parametrize(
    "method", ["prolip_text", "linear_probe", "tip_adapter_f", "clip_adapter", "prolip+task_res", "auto"]
)
def test_a_saved_classifier_comes_back(offline, photos, tmp_path, monkeypatch, method):
    monkeypatch.setattr("prolip.encoders.load", lambda *_: offline)
    options = {"clip_adapter": {"epochs": 5, "alpha": 0.5}, "auto": {"candidates": "gda,linear_probe"}}
    clf = FewShotClassifier(method=method, shots=3, options=options.get(method), store=False)
    clf.fit(photos / "train")
    clf.save(tmp_path / "saved")
    back = FewShotClassifier.load(tmp_path / "saved", store=False)
    images = sorted((photos / "test").rglob("*.png"))
    assert torch.allclose(back.logits(images), clf.logits(images), atol=1e-3)
    assert clf.score(photos / "test") > 0.8
