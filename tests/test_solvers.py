"""The exact solver against independent computations: autograd, scipy, the problem without its reductions."""

import math

import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prolip.core import Head, Task, UsageError
from prolip.solvers import adam, automatic, exact, lam_value, minimise, path
from prolip.solvers.objective import loss_gradient, softmax_losses, value_and_gradient

FIXED = [HealthCheck.function_scoped_fixture]  # `steps` is the same for every example


def make_task(n=20, classes=4, width=12, dim=8, *, views=1, bias=False, residual=False, seed=0, scale=20.0):
    """Features that cluster by class, and texts that lie near the clusters, as a CLIP-like model gives."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    weight = torch.randn(width, dim, generator=g, dtype=torch.float64) / math.sqrt(width)
    centres = torch.randn(classes, width, generator=g, dtype=torch.float64)
    x = centres[y] + 0.8 * torch.randn(views, n, width, generator=g, dtype=torch.float64) + 0.3
    text = centres @ weight + 0.5 * torch.randn(classes, dim, generator=g, dtype=torch.float64)
    b = 0.1 * torch.randn(dim, generator=g, dtype=torch.float64) if bias else None
    if residual:
        x = torch.cat([x, 0.3 * torch.randn(views, n, dim, generator=g, dtype=torch.float64)], dim=-1)
    return Task(x, y, text, Head(weight, b, residual), scale)


def single(task):
    """The same task in float32."""
    return Task(task.x.float(), task.y, task.text.rows.float(), Head(task.head.weight.float()), task.scale)


def naive_objective(task, weight, lam):
    """The paper's equation, written with torch's own functions and left to autograd."""
    rows, y = task.rows()
    inputs, fixed = task.linear.split(rows)
    v = inputs @ weight if fixed is None else inputs @ weight + fixed
    logits = task.scale * torch.nn.functional.normalize(v, dim=1) @ task.text.rows.T
    penalty = lam * (weight - task.linear.weight).square().sum()
    return torch.nn.functional.cross_entropy(logits, y) + penalty


def by_scipy(task, lam, start=None):
    """The minimum over the whole matrix, found by someone else's optimizer from autograd's gradient."""

    def fun(flat):
        weight = torch.tensor(flat.reshape(task.linear.weight.shape), requires_grad=True)
        value = naive_objective(task, weight, lam)
        (gradient,) = torch.autograd.grad(value, weight)
        return float(value.detach()), gradient.numpy().ravel()

    result = scipy.optimize.minimize(
        fun,
        (task.linear.weight if start is None else start).numpy().ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 5000, "gtol": 1e-10, "ftol": 1e-15},
    )
    return result.fun, torch.tensor(result.x.reshape(task.linear.weight.shape))


@pytest.fixture(params=[0, minimise.LITTLE], ids=["L-BFGS", "Newton"])
def steps(request, monkeypatch):
    """Problems of the size of a test are Newton's: have them solved either way."""
    monkeypatch.setattr(minimise, "LITTLE", request.param)


SHAPES = {
    "few rows": {"n": 8, "classes": 4, "width": 30, "dim": 20},
    "few rows, many classes": {"n": 12, "classes": 9, "width": 30, "dim": 10},
    "more classes than dimensions": {"n": 24, "classes": 12, "width": 16, "dim": 6},
    "more rows than features": {"n": 40, "classes": 4, "width": 10, "dim": 14},
    "more rows than features, many classes": {"n": 40, "classes": 10, "width": 8, "dim": 6},
    "views": {"n": 8, "classes": 4, "width": 30, "dim": 20, "views": 3},
    "bias": {"n": 8, "classes": 4, "width": 30, "dim": 20, "bias": True},
    "offset": {"n": 8, "classes": 4, "width": 30, "dim": 20, "residual": True},
    "bias and offset, more rows than features": {
        "n": 40,
        "classes": 4,
        "width": 10,
        "dim": 14,
        "bias": True,
        "residual": True,
        "views": 2,
    },
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_gradient_is_autograds(shape):
    task = make_task(**shape)
    weight = (task.linear.weight + 0.05).requires_grad_(True)
    value = naive_objective(task, weight, 0.3)
    (gradient,) = torch.autograd.grad(value, weight)
    ours, closed_form = value_and_gradient(task, weight.detach(), 0.3)
    assert ours == pytest.approx(float(value.detach()), rel=1e-12)
    torch.testing.assert_close(closed_form, gradient, rtol=1e-10, atol=1e-12)


def test_gradient_with_length_outside_the_text():
    g = torch.Generator().manual_seed(0)
    v = torch.randn(5, 3, generator=g, dtype=torch.float64, requires_grad=True)
    text = torch.randn(4, 3, generator=g, dtype=torch.float64)
    rest = torch.rand(5, generator=g, dtype=torch.float64).requires_grad_(True)
    y = torch.tensor([0, 1, 2, 3, 0])
    logits = 7 * v @ text.T / (v.square().sum(dim=1) + rest).sqrt()[:, None]
    expected = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    slope_v, slope_rest = torch.autograd.grad(expected.sum(), (v, rest))
    products, squared = v @ text.T, v.square().sum(dim=1) + rest
    losses, residual, c = softmax_losses(products.detach(), squared.detach(), y, 7.0)
    gradient = loss_gradient(v.detach(), residual, c, text)
    torch.testing.assert_close(losses, expected.detach())
    torch.testing.assert_close(gradient, slope_v)
    torch.testing.assert_close(c / 2, slope_rest)


@pytest.mark.parametrize("lam", [0.02, 0.5])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_reduced_problem_has_the_full_problems_minimum(shape, lam, steps):
    task = make_task(**shape)
    value, weight = by_scipy(task, lam)
    ours = exact(task, lam, tol=1e-6)
    assert ours.converged
    assert ours.objective == pytest.approx(value, rel=1e-7)
    torch.testing.assert_close(ours.weight, weight, rtol=1e-4, atol=1e-4)


def test_black_box_is_the_identity_head():
    task = make_task(n=10, classes=3)
    alone = Task(task.embeddings(), task.y, task.text, None, task.scale)
    value, weight = by_scipy(
        Task(alone.x, task.y, task.text, Head(torch.eye(8, dtype=torch.float64)), task.scale), 0.1
    )
    ours = exact(alone, 0.1, tol=1e-6)
    assert ours.objective == pytest.approx(value, rel=1e-7)
    torch.testing.assert_close(ours.weight, weight, rtol=1e-4, atol=1e-4)


def test_what_a_solution_says_is_true_of_its_weight():
    task = make_task(n=12, classes=4, width=30, dim=20)
    ours = exact(task, 0.05)
    value, gradient = value_and_gradient(task, ours.weight, 0.05)
    start, slope = value_and_gradient(task, task.linear.weight, 0.05)
    assert ours.objective == pytest.approx(value, rel=1e-9)
    assert ours.start_objective == pytest.approx(start, rel=1e-12)
    assert ours.gradient == pytest.approx(float(gradient.norm() / slope.norm()), rel=1e-3)
    assert ours.objective < ours.start_objective


def test_a_solution_can_be_trained_on():
    for shape in ({"n": 12, "width": 30}, {"n": 40, "width": 10}):
        task = make_task(classes=4, dim=20, **shape)
        for weight in (exact(task, 0.1).weight, automatic(task)[0].weight):
            weight.requires_grad_()
            (task.x @ weight).square().sum().backward()
            assert bool((weight.grad != 0).any())


def test_path_gives_what_separate_fits_give():
    task = make_task(n=16, classes=4, width=30, dim=20)
    lams = [10.0, 1.0, 0.1, 0.01]
    for lam, solution in zip(lams, path(task, lams, tol=1e-6), strict=True):
        alone = exact(task, lam, tol=1e-6)
        assert solution.lam == lam
        torch.testing.assert_close(solution.weight, alone.weight, rtol=1e-4, atol=1e-4)


def test_a_start_at_the_solution_ends_at_once():
    task = make_task(n=16, classes=4, width=30, dim=20)
    first = exact(task, 0.1, tol=1e-4)
    again = exact(task, 0.1, tol=1e-3, start=first.weight)
    assert again.evaluations < first.evaluations
    assert again.objective == pytest.approx(first.objective, rel=1e-6)


def test_exact_is_at_or_below_adam():
    task = make_task(n=20, classes=5, width=24, dim=16)
    ours = exact(task, 0.2, tol=1e-3)
    for lr in (1e-3, 1e-2):
        assert ours.objective <= adam(task, 0.2, lr=lr).objective * (1 + 1e-5)


def test_adam_is_torchs_adam_on_the_papers_schedule():
    task = make_task(n=6, classes=3, width=5, dim=4, views=3)
    start = task.linear.weight
    weight = start.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([weight], lr=1e-2, eps=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=7)
    for view in (1, 2, 0, 1, 2, 0, 1):
        one = Task(task.x[view], task.y, task.text, task.head, task.scale)
        optimizer.zero_grad()
        naive_objective(one, weight, 0.3).backward()
        optimizer.step()
        schedule.step()
    seen = []
    ours = adam(task, 0.3, lr=1e-2, epochs=7, progress=lambda done, of: seen.append((done, of)))
    torch.testing.assert_close(ours.weight, weight.detach(), rtol=1e-9, atol=1e-12)
    assert seen == [(i, 7) for i in range(1, 8)]


def test_float32_reaches_the_float64_minimum(steps):
    task = make_task(n=40, classes=8, width=64, dim=32, scale=100.0)
    a, b = exact(task, 0.1), exact(single(task), 0.1)
    assert b.weight.dtype == torch.float32
    assert b.objective == pytest.approx(a.objective, rel=1e-4)
    torch.testing.assert_close(b.weight.double(), a.weight, rtol=1e-2, atol=3e-3)


@pytest.mark.parametrize("lam", [0.1, 0.003])
@pytest.mark.parametrize(
    "shape",
    [
        {"n": 40, "classes": 8, "width": 64, "dim": 32},
        {"n": 210, "classes": 30, "width": 256, "dim": 200},  # products with F in float32
        {"n": 300, "classes": 30, "width": 128, "dim": 64},  # more rows than features
    ],
    ids=lambda shape: f"{shape['n']} rows",
)
def test_order_of_samples_and_threads_do_not_matter(shape, lam, steps):
    task = make_task(**shape, scale=100.0)
    x = task.x.float()
    head, text = Head(task.head.weight.float()), task.text.rows.float()
    order = torch.randperm(task.n, generator=torch.Generator().manual_seed(1))
    unit = torch.nn.functional.normalize

    def logits(x, y):
        weight = exact(Task(x, y, text, head, task.scale), lam).weight
        return task.scale * unit(task.x[0] @ weight.double(), dim=1) @ task.text.rows.T

    first = logits(x, task.y)
    reordered = logits(x[:, order], task.y[order])
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        other = logits(x, task.y)
    finally:
        torch.set_num_threads(threads)
    assert float((reordered - first).abs().max()) < 1e-4
    assert float((other - first).abs().max()) < 1e-4


def test_lam_zero_warns_and_stops():
    task = make_task(n=12, classes=4, width=30, dim=20)
    with pytest.warns(UserWarning, match="memorises"):
        solution = exact(task, 0.0)
    assert torch.isfinite(solution.weight).all()
    assert solution.objective < 0.05 * solution.start_objective


def test_lam_by_name():
    task = make_task(n=20, classes=4)
    assert lam_value("1/N", task) == pytest.approx(1 / 5)
    assert lam_value("1/N^2", task) == pytest.approx(1 / 25)
    assert lam_value(0.25, task) == 0.25
    assert lam_value("0.25", task) == 0.25


@pytest.mark.parametrize("wrong", ["1/M", -1.0, float("nan"), float("inf"), None, [1]])
def test_lam_that_means_nothing(wrong):
    with pytest.raises(UsageError, match="lam must be"):
        lam_value(wrong, make_task())


@settings(max_examples=60, suppress_health_check=FIXED)
@given(
    n=st.integers(2, 40),
    classes=st.integers(2, 12),
    width=st.integers(1, 30),
    dim=st.integers(2, 16),
    log_lam=st.floats(-6, 3),
    log_size=st.floats(-6, 6),
    scale=st.sampled_from([1.0, 20.0, 100.0]),
    damage=st.sampled_from(["none", "duplicates", "one pair", "low rank", "one row"]),
    bias=st.booleans(),
    half=st.booleans(),
    seed=st.integers(0, 3),
)
def test_any_problem_ends_finite_and_no_worse(
    n, classes, width, dim, log_lam, log_size, scale, damage, bias, half, seed, steps
):
    task = make_task(n, classes, width, dim, bias=bias, seed=seed, scale=scale)
    x, y = task.x.clone(), task.y.clone()
    if damage == "duplicates":
        x[:] = x[:, :1]
    elif damage == "one pair":
        y = torch.arange(n) % 2
    elif damage == "low rank":
        x = x[..., :1] @ torch.ones(1, width, dtype=x.dtype) + 1e-3
    elif damage == "one row":
        x, y = x[:, :1], y[:1]
    kind = torch.float32 if half else torch.float64
    task = Task((x * 10**log_size).to(kind), y, task.text, task.head, scale)
    solution = exact(task, 10**log_lam)
    assert torch.isfinite(solution.weight).all()
    assert math.isfinite(solution.objective)
    assert math.isfinite(solution.gradient)
    value, _ = value_and_gradient(task, solution.weight, 10**log_lam)
    start, _ = value_and_gradient(task, task.linear.weight.to(kind), 10**log_lam)
    assert value <= start * (1 + 1e-4) + 1e-6


@settings(max_examples=25, suppress_health_check=FIXED)
@given(
    n=st.integers(4, 24),
    classes=st.integers(2, 8),
    width=st.integers(4, 16),
    dim=st.integers(4, 12),
    log_lam=st.floats(-1, 2),
    seed=st.integers(0, 5),
)
def test_no_optimizer_finds_a_lower_point_nearby(n, classes, width, dim, log_lam, seed, steps):
    """The norm makes the objective non-convex, so the neighbourhood of our point is what is asked about."""
    task = make_task(n, classes, width, dim, seed=seed)
    ours = exact(task, 10**log_lam, tol=1e-5)
    value, _ = by_scipy(task, 10**log_lam, start=ours.weight)
    assert ours.objective <= value * (1 + 1e-5) + 1e-9


def test_numpy_features_are_welcome():
    rng = np.random.default_rng(0)
    task = Task(rng.normal(size=(6, 5)), [0, 1, 2, 0, 1, 2], rng.normal(size=(3, 5)))
    assert exact(task, 1.0).converged
