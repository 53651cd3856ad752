"""Every method's term in a sum: what it adds to zero-shot, and its gradient against differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prolip import methods
from prolip.core.arrays import softmax_loss
from prolip.methods import logit_bias
from prolip.methods.logit_bias import LogitBiasMethod, Sum
from prolip.methods.selection import Splits
from test_methods import create, cross_entropy, problem, zero_shot

TERMS = [
    name for name in methods.names() if issubclass(methods.get(name), LogitBiasMethod) and "+" not in name
]
NUMBERS = {"tip_adapter_f_star": {"alpha": 2.0, "beta": 3.0}}


def build(name, task, exact, **options):
    """A term with all its options settled."""
    tuning = create(name, **NUMBERS.get(name, {}) | options).tune(task, Splits(task))
    return tuning.method.bias(task, exact)


def near_the_start(term, seed=0, step=0.1):
    rng = np.random.default_rng(seed)
    return [start + step * rng.normal(size=start.shape) for start in term.start]


def along(function, arrays, seed=0, step=1e-5):
    """The slope of a function of several arrays along a random direction, by a central difference."""
    rng = np.random.default_rng(seed)
    direction = [rng.normal(size=array.shape) for array in arrays]
    ahead, behind = (
        function([a + sign * step * d for a, d in zip(arrays, direction, strict=True)]) for sign in (1, -1)
    )
    return (ahead - behind) / (2 * step), direction


def inner(a, b):
    return sum(float(np.vdot(x, y)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("exact", [True, False])
def test_a_term_is_what_the_method_adds_to_zero_shot(name, exact):
    task = problem(views=2)
    term = build(name, task, exact)
    parameters = near_the_start(term)
    added, _ = term.logits(parameters, slice(12, 24))  # the second view
    fitted = term.fitted(parameters)
    assert np.allclose(zero_shot(task, task.x[1]) + added, fitted.logits(task.x[1]), atol=1e-4)


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("exact", [True, False])
@given(shots=st.integers(1, 3), classes=st.integers(2, 4), views=st.integers(1, 2), seed=st.integers(0, 99))
@settings(max_examples=10)
def test_gradients_are_those_of_differences(name, exact, shots, classes, views, seed):
    task = problem(shots=shots, classes=classes, views=views, seed=seed, dtype=np.float64)
    term = build(name, task, exact)
    parameters, rows = near_the_start(term, seed), slice(0, task.n)
    slope = np.random.default_rng(seed).normal(size=(task.n, classes))
    _, pullback = term.logits(parameters, rows)
    found, direction = along(lambda p: float(np.vdot(slope, term.logits(p, rows)[0])), parameters)
    assert inner(pullback(slope), direction) == pytest.approx(found, rel=1e-5, abs=1e-5)
    found, direction = along(lambda p: term.penalty(p)[0], parameters)
    assert inner(term.penalty(parameters)[1], direction) == pytest.approx(found, rel=1e-5, abs=1e-6)


def test_pieces_of_a_large_problem_add_up(monkeypatch):
    task = problem(views=2, dtype=np.float64)
    total = Sum(task, [build(name, task, True) for name in ("prolip", "tip_adapter_f", "clip_adapter")])
    parameters = [array for term in total.terms for array in near_the_start(term)]
    for rows in (slice(None), slice(12, 24), np.array([5, 13, 2, 8])):
        whole, gradients = total.loss(parameters, rows)
        with monkeypatch.context() as patch:
            patch.setattr(logit_bias, "CHUNK_SIZE", 3)  # one row each, but no more than MAX_CHUNKS
            value, pieces = total.loss(parameters, rows)
        assert value == pytest.approx(whole, rel=1e-12)
        for a, b in zip(gradients, pieces, strict=True):
            assert np.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e4])  # logits that overflow an exponential as well
def test_cross_entropy_and_its_slope(size):
    rng = np.random.default_rng(0)
    logits, y = size * rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    losses, slope = softmax_loss(logits, y, 1 / 6)
    assert losses.mean() == pytest.approx(cross_entropy(logits, y))
    expected, direction = along(lambda p: cross_entropy(p[0], y), [logits], step=1e-4)
    assert inner([slope], direction) == pytest.approx(expected, rel=1e-5)


def test_the_loss_of_several_weighted_problems_is_that_of_each():
    rng = np.random.default_rng(0)
    logits, y, weights = rng.normal(size=(6, 2, 4)), rng.integers(0, 4, 6), rng.random((6, 2))
    losses, slope = softmax_loss(logits, y, weights)
    for b in range(2):
        alone, own = softmax_loss(logits[:, b], y, weights[:, b])
        np.testing.assert_allclose(losses[:, b], alone)
        np.testing.assert_allclose(slope[:, b], own)
