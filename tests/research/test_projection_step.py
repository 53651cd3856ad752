"""Test-time adaptation of the projection; `tests/reference` and `tests/full` compare its closed form."""

import numpy as np
import pytest

from closeness import assert_close
from prolip.core import Head, InputError, Projected, Text
from prolip.core.arrays import softmax
from prolip.research.towers import test_time


def problem(kind, seed=0, views=8, images=5):
    """Random views [V, n, width] and a model to start from; float64, so that roundings do not blur."""
    rng = np.random.default_rng(seed)

    def random(*shape):
        return rng.normal(size=shape)

    bias = None if kind == "plain" else random(6)
    head = Head(random(10, 6), bias, residual=kind == "residual")
    text = Text(random(4, 6), ("cat", "dog", "bird", "fish"))
    return random(views, images, head.width), Projected(head, text, 5.0)


def test_every_image_starts_from_the_same_model():
    x, start = problem("plain")
    way = test_time.TestTimeProLIP(lr=0.05, views=8)
    alone = np.concatenate([way.logits(x[:, i : i + 1], start) for i in range(5)])
    assert_close(way.logits(x, start), alone)
    assert np.array_equal(start.head.weight, problem("plain")[1].head.weight)


def test_the_step_lowers_the_entropy():
    x, start = problem("plain", seed=3)
    x[1:] = x[:1] + 0.1 * x[1:]  # views that look alike
    way = test_time.TestTimeProLIP(lr=0.02, views=8, rho=1.0)
    before, after = start.proba(x[0]), softmax(way.logits(x, start))
    assert (test_time.entropy(after) < test_time.entropy(before)).all()


def test_entropy_of_a_certain_prediction_has_no_nan():
    v = rows = np.eye(3, dtype=np.float32)
    assert np.isfinite(test_time.entropy_gradient(v, rows, 1000.0)).all()
    assert test_time.entropy(np.array([[1.0, 0.0]])).item() == 0


def test_wrong_use_raises():
    x, start = problem("plain")
    adapter = Projected(start.head, start.text, 5.0, adapter=np.eye(6))
    with pytest.raises(InputError):
        test_time.TestTimeProLIP(views=8).logits(x, adapter)
