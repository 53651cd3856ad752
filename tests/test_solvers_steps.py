"""The parts of the optimizer, each against its definition."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from prolip.solvers.arithmetic import total
from prolip.solvers.line_search import ALL, ENOUGH, LineSearch
from prolip.solvers.minimise import AGAIN, Batch
from prolip.solvers.newton import newton_step
from prolip.solvers.order import sample_keys
from prolip.solvers.reduce import reduce
from prolip.solvers.reduced import sketch
from test_solvers import make_task

ROWS_OR_COLUMNS = pytest.mark.parametrize(
    "shape", [{"n": 12, "width": 20}, {"n": 30, "width": 9}], ids=["rows", "columns"]
)


def on_its_way(task, lam=0.2, restrained=False):
    """A batch of one problem, some steps from W0."""
    reduced = reduce(task, restrained)
    weights = torch.rand(len(reduced.y), 1, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    batch = Batch(reduced, reduced.base.new_tensor([lam]), weights / weights.sum(), task.scale, restrained)
    batch.descend(0.3, 20)
    return batch


@ROWS_OR_COLUMNS
def test_a_fresh_guess_is_the_diagonal_of_the_hessian(shape):
    task = make_task(**shape, classes=4, dim=8)
    batch = on_its_way(task)
    batch.refresh()
    reduced, z, weights = batch.reduced, batch.point.z[0], batch.weights[:, 0]
    base, factor, text = reduced.base, reduced.factor, reduced.text
    length = (base + factor @ z).square().sum(dim=1) + batch.rest.squared[:, 0]

    def loss(z):  # lengths held where they are
        logits = task.scale * (base + factor @ z) @ text.T / length.sqrt()[:, None]
        return weights @ torch.nn.functional.cross_entropy(logits, reduced.y, reduction="none")

    hessian = torch.autograd.functional.hessian(loss, z).reshape(z.numel(), z.numel())
    expected = 1 / (AGAIN * hessian.diagonal() + 2 * 0.2)
    torch.testing.assert_close(batch.inverse.flatten(), expected, rtol=1e-8, atol=0)


@given(st.floats(0.01, 100), st.floats(-3, 3), st.floats(0.0, 5))
def test_a_line_search_ends_neither_far_nor_short(width, place, bend):
    """On f(t) = ((t - p) / w)^2 + b sin(t - p)^2 / 4, downhill from 0."""

    def at(t):
        u = t - place
        return (u / width) ** 2 + bend * np.sin(u) ** 2 / 4

    slope = -2 * place / width**2 - bend * np.sin(2 * place) / 4
    assume(abs(slope) > 1e-3)
    down = -np.sign(slope)
    value, first = at(np.zeros(1)), np.array([-abs(slope)])
    search, t = LineSearch(value, first, 1e-15 * np.abs(value)), np.ones(1)
    far = False  # whether a step was; then no longer one need be tried
    for trial in range(40):
        there = at(down * t)
        far |= bool(value - there < ENOUGH * abs(slope) * t)
        other = search.next(t, there, last=trial == 39)
        if other is None:
            break
        t = other
    assert other is None
    gained, promised = float(value[0] - there[0]), abs(slope) * float(t[0])
    assert gained >= ENOUGH * promised - 1e-12
    assert far or gained <= (ALL + 1e-9) * promised + 1e-12 or at(2.5 * down * t)[0] >= there[0] - 1e-12


def test_a_sketch_keeps_norms():
    g = torch.Generator().manual_seed(3)
    a = torch.randn(50, 1024, generator=g) * torch.rand(1024, generator=g)
    assert float((a @ sketch(a)).norm()) == pytest.approx(float(a.norm()), rel=0.1)
    assert sketch(a[:, :60]) is None


@pytest.mark.parametrize("restrained", [False, True], ids=["the paper's", "restrained"])
@ROWS_OR_COLUMNS
def test_products_with_the_hessian_are_autograds(shape, restrained):
    task = make_task(**shape, classes=4, dim=8)
    batch = on_its_way(task, 0.2, restrained)
    reduced, z, weights = batch.reduced, batch.point.z[0], batch.weights[:, 0]
    outside = batch.rest.squared[:, 0]

    def objective(z):
        v = reduced.base + reduced.factor @ z
        length = (v.square().sum(dim=1) + outside).sqrt()
        if restrained:
            length = (length * batch.anchor[:, 0].sqrt()).sqrt()
        logits = task.scale * v @ reduced.text.T / length[:, None]
        losses = torch.nn.functional.cross_entropy(logits, reduced.y, reduction="none")
        return weights @ losses + 0.2 * z.square().sum()

    p = torch.randn(z.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    _, expected = torch.autograd.functional.hvp(objective, z, p)
    torch.testing.assert_close(batch.hessian()(p[None])[0], expected, rtol=1e-9, atol=1e-12)


def test_a_newton_step_solves_a_quadratic_and_goes_down_where_it_curves_downward():
    g = torch.Generator().manual_seed(7)
    q = torch.linalg.qr(torch.randn(12, 12, generator=g, dtype=torch.float64))[0]
    gradient = torch.randn(1, 12, 1, generator=g, dtype=torch.float64)
    guess = torch.rand(1, 12, 1, generator=g, dtype=torch.float64) + 0.5
    for lowest in (0.1, -5.0):
        matrix = q @ torch.diag(torch.linspace(lowest, 3, 12, dtype=torch.float64)) @ q.T
        step, products = newton_step(lambda p, a=matrix: a @ p, gradient, guess, 1e-9)
        assert float((step * gradient).sum()) < 0
        if lowest > 0:
            torch.testing.assert_close(matrix @ step, -gradient, rtol=1e-8, atol=1e-8)
            assert products <= 13  # as many as unknowns, but for rounding
        else:
            assert products < 12


def test_sums_do_not_depend_on_threads():
    x = torch.randn(2, 1_000_003, generator=torch.Generator().manual_seed(8))
    expected = x.double().sum(dim=1)
    threads, seen = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            seen.append(total(x))
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(seen[0].double(), expected, rtol=0, atol=0.01)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])


def test_keys_belong_to_the_samples():
    g = torch.Generator().manual_seed(9)
    x = torch.randn(3000, 40, generator=g)
    order = torch.randperm(len(x), generator=g)
    keys = sample_keys(x, seed=1)
    assert len(keys.unique()) == len(x)
    assert torch.equal(sample_keys(x[order], seed=1), keys[order])
    torch.testing.assert_close(sample_keys(4 * x, seed=1), keys)
    assert not torch.equal(sample_keys(x, seed=2), keys)
