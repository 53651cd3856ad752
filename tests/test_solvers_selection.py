"""lam = "auto" and the grid search: what is chosen, why, and what it does not depend on."""

import math

import pytest
import torch

from prolip.core import Head, Task, UsageError
from prolip.solvers import adam, automatic, choose, exact, grid_search, path, selection
from prolip.solvers.selection import PRIOR, assign_folds


def make_task(shots=6, classes=5, width=24, dim=16, *, noise=1.0, seed=0, views=1, scale=20.0):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(classes).repeat_interleave(shots)
    weight = torch.randn(width, dim, generator=g) / math.sqrt(width)
    centres = torch.randn(classes, width, generator=g)
    x = centres[y] + noise * torch.randn(views, len(y), width, generator=g) + 0.3
    text = centres @ weight + 0.5 * torch.randn(classes, dim, generator=g)
    return Task(x, y, text, Head(weight), scale)


def logits(task, solution):
    embedded = task.linear.with_weight(solution.weight)(task.x[0])
    return solution.scale * torch.nn.functional.normalize(embedded, dim=1) @ task.text.rows.T


def test_a_choice_says_what_was_tried():
    task = make_task()
    choice = choose(task)
    assert choice.reason == "cross-validation"
    assert choice.lam in [trial.lam for trial in choice.tried]
    assert choice.scale == choice.fit_scale == task.scale
    assert all(0 <= trial.accuracy <= 1 and trial.log_likelihood < 0 for trial in choice.tried)
    lams = [trial.lam for trial in choice.tried]
    assert lams == sorted(lams, reverse=True)


def test_scores_are_those_of_separate_fits(monkeypatch):
    """Hold out each fold by hand, fit the rest alone, and score: the batch of weighted folds agrees."""
    monkeypatch.setattr(selection, "TOL", 1e-3)
    task = make_task(shots=4, noise=1.5)
    choice = choose(task, seed=3)
    fold = assign_folds(task, 5, seed=3)
    trial = choice.tried[1]
    likelihoods, right = [], 0
    for held in range(5):
        train, test = (fold != held).nonzero()[:, 0], (fold == held).nonzero()[:, 0]
        weight = exact(task.subset(train), trial.lam, restrained=True, tol=1e-4).weight
        embedded = task.linear.with_weight(weight)(task.x[0, test])
        logp = (task.scale * torch.nn.functional.normalize(embedded, dim=1) @ task.text.rows.T).log_softmax(1)
        likelihoods += logp.gather(1, task.y[test, None])[:, 0].tolist()
        right += int((logp.argmax(dim=1) == task.y[test]).sum())
    assert trial.log_likelihood == pytest.approx(sum(likelihoods) / task.n, abs=0.002)
    assert trial.accuracy == pytest.approx(right / task.n, abs=1.01 / task.n)


def test_folds_hold_out_every_image_once_and_leave_some_of_its_class():
    task = make_task(shots=4)
    fold = assign_folds(task, 5, seed=0)
    assert set(fold.tolist()) == set(range(5))
    for held in range(5):
        assert set(task.y[fold != held].tolist()) == set(range(5))


def test_the_only_image_of_a_class_is_never_held_out():
    task = make_task(shots=3).subset(torch.tensor([0, 1, 2, 3, 4, 6, 9, 12]))
    fold = assign_folds(task, 5, seed=0)
    counts = torch.bincount(task.y)
    assert torch.equal(fold < 0, counts[task.y] == 1)
    assert choose(task).reason == "cross-validation"


def test_one_image_per_class_takes_the_prior():
    choice = choose(make_task(shots=1), scale="auto")
    assert choice.reason == "one image per class"
    assert choice.lam == pytest.approx(PRIOR * choice.unit)
    assert choice.tried == ()


def test_images_can_overrule_the_prior():
    """Labels that have nothing to do with the images: only a strong pull to zero-shot helps."""
    task = make_task(shots=10, noise=3.0)
    shuffled = task.y[torch.randperm(task.n, generator=torch.Generator().manual_seed(0))]
    choice = choose(Task(task.x, shuffled, task.text, task.head, task.scale))
    assert choice.lam > 10 * PRIOR * choice.unit


def test_the_same_seed_gives_the_same_choice():
    task = make_task(noise=2.0)
    assert choose(task, seed=1) == choose(task, seed=1)


@pytest.mark.parametrize("scale", ["fixed", "auto"])
def test_the_order_of_images_does_not_matter(scale):
    task = make_task(noise=2.0)
    order = torch.randperm(task.n, generator=torch.Generator().manual_seed(5))
    first, choice = automatic(task, scale=scale)
    second, again = automatic(task.subset(order), scale=scale)
    assert again.lam == pytest.approx(choice.lam, rel=1e-6)
    expected = logits(task, first)
    assert float((logits(task, second) - expected).abs().max()) < 1e-4 * float(expected.abs().max())


@pytest.mark.parametrize("factor", [1e-3, 0.3, 700.0])
def test_rescaled_features_are_the_same_problem(factor):
    task = make_task(noise=2.0)
    rescaled = Task(task.x * factor, task.y, task.text, Head(task.head.weight / factor), task.scale)
    first, choice = automatic(task)
    second, again = automatic(rescaled)
    assert again.lam / again.unit == pytest.approx(choice.lam / choice.unit)
    assert again.unit == pytest.approx(choice.unit * factor**2, rel=1e-4)
    expected = logits(task, first)
    assert float((logits(rescaled, second) - expected).abs().max()) < 1e-4 * float(expected.abs().max())


def test_the_fit_stays_within_the_span_of_the_texts():
    task = make_task()
    solution, choice = automatic(task)
    assert choice.restrained
    assert solution.scale == choice.scale
    change = solution.weight - task.head.weight
    inside = torch.linalg.qr(task.text.rows.T)[0]
    outside = change - change @ inside @ inside.T
    assert float(outside.norm()) < 1e-4 * float(change.norm())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shots", [2, 9])
def test_the_restrained_fit_is_the_minimum_that_scipy_finds(shots, bias):
    """Written out, with autograd's gradient, over all of [Do, k]."""
    from scipy.optimize import minimize

    task = make_task(shots=shots, noise=1.5)
    b = torch.linspace(-0.5, 0.5, task.head.weight.shape[1])
    task = Task(task.x, task.y, task.text, Head(task.head.weight, b if bias else None), task.scale)
    x, text, weight = task.x[0].double(), task.text.rows.double(), task.head.weight.double()
    b = b.double() if bias else 0.0
    basis, lam = torch.linalg.qr(text.T)[0], 0.05
    start = (x @ weight + b).square().sum(dim=1).mean()
    anchor = x.norm(dim=1) * (start / x.square().sum(dim=1).mean()).sqrt()

    def objective(flat):
        step = torch.tensor(flat).view(len(weight), -1).requires_grad_()
        v = x @ (weight + step @ basis.T) + b
        logits = task.scale * v @ text.T / (v.norm(dim=1) * anchor).sqrt()[:, None]
        value = torch.nn.functional.cross_entropy(logits, task.y) + lam * step.square().sum()
        (slope,) = torch.autograd.grad(value, step)
        return float(value.detach()), slope.flatten().numpy()

    zero = torch.zeros(basis.shape[1] * len(weight), dtype=torch.float64).numpy()
    best = minimize(objective, zero, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-14})
    solution = exact(task, lam, restrained=True)
    assert solution.objective == pytest.approx(best.fun, rel=1e-5)
    found = weight + torch.tensor(best.x).view(len(weight), -1) @ basis.T
    assert float((solution.weight.double() - found).norm()) < 1e-3 * float((found - weight).norm())


def test_a_chosen_scale_predicts_held_out_images_better():
    task = make_task(shots=8, noise=1.5, scale=200.0)
    held = make_task(shots=8, noise=1.5, scale=200.0, views=2)
    fixed, _ = automatic(task, scale="fixed")
    chosen, _ = automatic(task, scale="auto")
    fresh = Task(held.x[1], held.y, task.text, task.head, task.scale)
    losses = [
        float(torch.nn.functional.cross_entropy(logits(fresh, solution), fresh.y))
        for solution in (fixed, chosen)
    ]
    assert losses[1] < losses[0]


def test_views_of_an_image_are_held_out_together():
    task = make_task(views=3)
    assert choose(task).reason == "cross-validation"
    assert automatic(task)[0].weight.shape == task.head.weight.shape


def test_an_unknown_scale_is_refused():
    with pytest.raises(UsageError, match="scale"):
        choose(make_task(), scale="automatic")


def test_exact_grid_search_keeps_the_best_and_prefers_larger_lam():
    task, validation = make_task(noise=2.0), make_task(noise=2.0, seed=0, views=2)
    validation = Task(validation.x[1], validation.y, task.text, task.head, task.scale)
    found = grid_search(task, validation, "exact", lams=[10.0, 1.0, 0.1, 0.01])
    expected = []
    for solution in path(task, [10.0, 1.0, 0.1, 0.01]):
        embedded = task.linear.with_weight(solution.weight)(validation.x[0])
        predicted = (embedded @ task.text.rows.T).argmax(dim=1)
        expected.append(float((predicted == validation.y).double().mean()))
    assert [accuracy for _, _, accuracy in found.tried] == expected
    assert found.accuracy == max(expected)
    assert found.solution.lam == [10.0, 1.0, 0.1, 0.01][expected.index(max(expected))]
    assert found.rate is None


def test_adam_grid_search_goes_through_rates_then_lams():
    task = make_task(shots=2, width=8, dim=6, classes=3)
    seen = []
    found = grid_search(
        task,
        task,
        "adam",
        rates=[1e-2, 1e-3],
        lams=[1.0, 0.0],
        epochs=5,
        progress=lambda done, of: seen.append((done, of)),
    )
    assert [(rate, lam) for rate, lam, _ in found.tried] == [
        (1e-2, 1.0),
        (1e-2, 0.0),
        (1e-3, 1.0),
        (1e-3, 0.0),
    ]
    assert seen == [(i, 4) for i in range(1, 5)]
    again = adam(task, found.solution.lam, lr=found.rate, epochs=5)
    torch.testing.assert_close(again.weight, found.solution.weight)


def test_the_papers_grid_warns_of_nothing():
    task = make_task(shots=2, width=8, dim=6, classes=3)
    assert len(grid_search(task, task).tried) == 7


def test_grid_search_with_an_unknown_solver():
    task = make_task(shots=2)
    with pytest.raises(UsageError, match="did you mean 'exact'"):
        grid_search(task, task, "exakt")


def test_a_path_ends_where_the_best_is_far_behind():
    g = torch.Generator().manual_seed(3)
    noise = [0.1 * torch.randn(100, generator=g) for _ in range(4)]

    def past(*means):
        return selection.is_past([mean + each for mean, each in zip(means, noise, strict=False)])

    assert past(-1.5, -1.0, -1.3, -1.6)
    assert not past(-1.5, -1.0, -1.3)  # fell once
    assert not past(-1.5, -1.0, -1.6, -1.3)  # rises again
    assert not past(-1.0, -1.01, -1.02)  # within what chance does
    assert not past(-1.5)
