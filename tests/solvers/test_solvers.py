"""The exact solver against independent computations: differences, SciPy on the whole matrix, Adam."""

import math

import numpy as np
import pytest
import scipy.optimize
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prolip.core import Head, Task, UsageError
from prolip.core.arrays import cross_entropy, softmax, unit_rows
from prolip.methods.anchored import Anchored
from prolip.solvers import exact, lam_value, threads
from prolip.solvers.adam import half
from prolip.solvers.objective import ReducedObjective, value_and_gradient
from prolip.solvers.reduction import reduce


def make_task(n=20, classes=4, width=12, dim=8, *, views=1, bias=False, residual=False, seed=0, scale=20.0):
    """Features that cluster by class, and texts that lie near the clusters, as a CLIP-like model gives."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    weight = rng.normal(size=(width, dim)) / math.sqrt(width)
    centres = rng.normal(size=(classes, width))
    x = centres[y] + 0.8 * rng.normal(size=(views, n, width)) + 0.3
    text = centres @ weight + 0.5 * rng.normal(size=(classes, dim))
    b = 0.1 * rng.normal(size=dim) if bias else None
    if residual:
        x = np.concatenate([x, 0.3 * rng.normal(size=(views, n, dim))], axis=-1)
    return Task(x, y, text, Head(weight, b, residual), scale)


def single(task):
    """The same task in float32."""
    half = np.float32
    head = Head(task.head.weight.astype(half))
    return Task(task.x.astype(half), task.y, task.text.rows.astype(half), head, task.scale)


def naive(task, weight, lam):
    """The paper's objective and its gradient, with the Jacobian of the normalisation written out."""
    rows, y = task.rows()
    inputs, fixed = task.linear.split(rows)
    v = inputs @ weight if fixed is None else inputs @ weight + fixed
    length = np.linalg.norm(v, axis=1)
    z = v / length[:, None]
    logits = task.scale * z @ task.text.rows.T
    delta = weight - task.linear.weight
    value = cross_entropy(logits, y).mean() + lam * np.square(delta).sum()
    by_z = task.scale * (softmax(logits) - np.eye(task.classes)[y]) @ task.text.rows / len(y)
    jacobian = (np.eye(v.shape[1]) - z[:, :, None] * z[:, None, :]) / length[:, None, None]
    by_v = np.einsum("nd,nde->ne", by_z, jacobian)
    return value, inputs.T @ by_v + 2 * lam * delta


def by_scipy(task, lam, start=None):
    """The minimum over the whole matrix: no reduction, no preconditioner."""
    shape = task.linear.weight.shape

    def fun(flat):
        value, gradient = naive(task, flat.reshape(shape), lam)
        return value, gradient.ravel()

    result = scipy.optimize.minimize(
        fun,
        (task.linear.weight if start is None else start).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 5000, "maxfun": 5000, "gtol": 1e-10, "ftol": 1e-15},
    )
    return result.fun, result.x.reshape(shape)


def logits(task, weight):
    return task.scale * unit_rows(task.linear.with_weight(weight)(task.x[0])) @ task.text.rows.T


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
        "n": 40, "classes": 4, "width": 10, "dim": 14, "bias": True, "residual": True, "views": 2,
    },
}  # fmt: skip
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


@every_shape
def test_gradient_is_that_of_differences(shape):
    task = make_task(**shape)
    weight = task.linear.weight + 0.05
    value, gradient = value_and_gradient(task, weight, 0.3)
    assert value == pytest.approx(naive(task, weight, 0.3)[0], rel=1e-12)
    rng = np.random.default_rng(1)
    for _ in range(5):
        direction = rng.normal(size=weight.shape)
        ahead, behind = (naive(task, weight + t * direction, 0.3)[0] for t in (1e-6, -1e-6))
        assert np.vdot(gradient, direction) == pytest.approx((ahead - behind) / 2e-6, rel=1e-6, abs=1e-8)


@every_shape
def test_the_reduced_gradient_is_that_of_differences(shape):
    objective = ReducedObjective(reduce(make_task(**shape)), 0.2)
    rng = np.random.default_rng(2)
    z = 0.1 * rng.normal(size=objective.shape)
    _, gradient = objective(z)
    step = 1e-6
    for _ in range(3):
        direction = rng.normal(size=z.shape) / np.sqrt(z.size)
        ahead, behind = (objective(z + t * direction)[0] for t in (step, -step))
        slope = (ahead - behind) / (2 * step)
        assert np.vdot(gradient, direction) == pytest.approx(slope, rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("lam", [0.02, 0.5])
@every_shape
def test_reduced_problem_has_the_full_problems_minimum(shape, lam):
    task = make_task(**shape)
    value, weight = by_scipy(task, lam)
    ours = exact(task, lam)
    assert ours.converged
    assert ours.objective == pytest.approx(value, rel=1e-5)
    np.testing.assert_allclose(logits(task, ours.weight), logits(task, weight), atol=0.05)


@every_shape
def test_a_large_problem_reaches_the_minimum_in_chunks_of_float32(shape, monkeypatch):
    monkeypatch.setattr(threads, "SMALL", 0)
    monkeypatch.setattr(threads, "CHUNK_MULTIPLICATIONS", 100)
    monkeypatch.setattr(threads, "MIN_CHUNK_ROWS", 2)
    task = make_task(**shape)
    value, _ = by_scipy(task, 0.5)
    inputs = Task(task.x.astype("f"), task.y, task.text, task.head, task.scale)
    reduction = reduce(inputs)
    assert (reduction.factor.dtype, reduction.chunks > 1) == (np.float32, True)
    assert exact(inputs, 0.5).objective == pytest.approx(value, rel=2e-4)


@pytest.mark.parametrize(
    ("shape", "lam"),
    [
        ({"n": 8, "classes": 2, "width": 14, "dim": 2, "seed": 4, "scale": 10.0}, 0.0298),
        ({"n": 5, "classes": 5, "width": 11, "dim": 2, "seed": 3, "scale": 100.0}, 0.0191),
    ],
)
def test_the_objective_is_that_of_the_weights_also_where_embeddings_shrink_to_nothing(shape, lam):
    """Float32 has not the digits for the direction of an embedding that is nearly zero."""
    task = single(make_task(**shape))
    solution = exact(task, lam)
    value, _ = value_and_gradient(task, solution.weight, lam)
    assert solution.objective == pytest.approx(value, rel=1e-3)
    assert not solution.converged
    assert value <= solution.start_objective


@pytest.mark.parametrize("lam", [0.1, 0.003])
@pytest.mark.parametrize(
    "shape",
    [
        {"n": 40, "classes": 8, "width": 64, "dim": 32},
        {"n": 210, "classes": 30, "width": 256, "dim": 200},
        {"n": 300, "classes": 30, "width": 128, "dim": 64},
    ],
    ids=lambda shape: f"{shape['n']} rows",
)
def test_order_of_samples_and_threads_do_not_matter(shape, lam, monkeypatch):
    task = single(make_task(**shape, scale=100.0))
    order = np.random.default_rng(1).permutation(task.n)
    first = logits(task, exact(task, lam).weight)
    reordered = logits(task, exact(task.subset(order), lam).weight)
    np.testing.assert_allclose(reordered, first, atol=0.01)
    assert (reordered.argmax(axis=1) == first.argmax(axis=1)).all()
    monkeypatch.setattr(threads, "CHUNK_MULTIPLICATIONS", 1 << 12)
    in_chunks = []
    for count in (1, 2):
        monkeypatch.setattr(threads, "cores", lambda count=count: count)
        in_chunks.append(exact(task, lam).weight)
    np.testing.assert_array_equal(*in_chunks)


def test_lam_zero_warns_and_stops():
    task = make_task(n=12, classes=4, width=30, dim=20)
    with pytest.warns(UserWarning, match="memorises"):
        solution = exact(task, 0.0)
    assert np.isfinite(solution.weight).all()
    assert solution.objective < 0.05 * solution.start_objective


@pytest.mark.parametrize(("lam", "value"), [("1/N", 1 / 5), ("1/N^2", 1 / 25), (0.25, 0.25), ("0.25", 0.25)])
def test_lam_by_name(lam, value):
    assert lam_value(lam, make_task(n=20, classes=4)) == pytest.approx(value)


@pytest.mark.parametrize("wrong", ["1/M", -1.0, float("nan"), float("inf"), None, [1]])
def test_lam_that_means_nothing(wrong):
    with pytest.raises(UsageError):
        lam_value(wrong, make_task())


@example(12, 2, 3, 3, -1.0, -1.5, 20.0, "low rank", True, False, 0)  # turns that lead upwards
@settings(max_examples=80)
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
    n, classes, width, dim, log_lam, log_size, scale, damage, bias, half, seed
):
    task = make_task(n, classes, width, dim, bias=bias, seed=seed, scale=scale)
    x, y = task.x.copy(), task.y.copy()
    if damage == "duplicates":
        x[:] = x[:, :1]
    elif damage == "one pair":
        y = np.arange(n) % 2
    elif damage == "low rank":
        x = x[..., :1] @ np.ones((1, width)) + 1e-3
    elif damage == "one row":
        x, y = x[:, :1], y[:1]
    kind = np.float32 if half else np.float64
    task = Task((x * 10**log_size).astype(kind), y, task.text, task.head, scale)
    solution = exact(task, 10**log_lam)
    assert np.isfinite(solution.weight).all()
    assert math.isfinite(solution.objective)
    assert solution.objective <= solution.start_objective * (1 + 1e-6)
    value, _ = value_and_gradient(task, solution.weight, 10**log_lam)
    start, _ = value_and_gradient(task, task.linear.weight.astype(kind), 10**log_lam)
    assert value <= start * (1 + 1e-4) + 1e-6
    fitted = Anchored().fit(task)  # and so does a fit that settles everything by itself
    assert np.isfinite(fitted.head.weight).all()
    if len(set(y.tolist())) > 1:  # images of one class alone leave the model as it is
        assert fitted.report["objective"] <= fitted.report["start_objective"] * (1 + 1e-6)


def test_half_rounds_as_a_cast_to_float16_does():
    """Every float16 number, the middles between neighbours, their neighbours in float32, and beyond."""
    exact = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = (exact[1:] + exact[:-1]) / 2
    near = [np.nextafter(middle, np.float32(end)) for end in (0, 1e9)]
    x = np.concatenate([exact, middle, *near, np.array([65519, 65520, 1e9, np.inf], np.float32)])
    with np.errstate(over="ignore"):
        for signed in (x, -x):
            assert np.array_equal(half(signed), signed.astype(np.float16).astype(np.float32))
