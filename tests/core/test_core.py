import numpy as np
import pytest

from prolip import Head, Task, Text
from prolip.core import InputError, Projected
from prolip.io.files import sha256_tensors


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_head_applies_weight_bias_and_the_samples_own_offset():
    weight, bias, x, r = gaussian(5, 3), gaussian(3, seed=1), gaussian(4, 5, seed=2), gaussian(4, 3, seed=3)
    plain = Head(weight, bias)
    np.testing.assert_allclose(plain(x), x @ weight + bias, atol=1e-6)
    residual = Head(weight, bias, residual=True)
    assert residual.width == 8
    np.testing.assert_allclose(residual(np.hstack([x, r])), r + x @ weight + bias, atol=1e-6)


def test_text_rows_are_unit_and_the_ensemble_averages_unit_prompts():
    features, projection = gaussian(7, 4, 6), Head(gaussian(6, 5, seed=1))
    text = Text.from_features(features, projection, ["a", "b", "c", "d"])
    expected = np.zeros((4, 5))
    for template in features:
        v = template @ projection.weight
        expected += v / np.linalg.norm(v, axis=1, keepdims=True) / 7
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(text.rows, expected, atol=1e-6)


def test_some_classes_of_a_text_keep_their_names_and_features():
    text = Text(np.eye(3), ("a", "b", "c"), gaussian(2, 3, 4))
    some = text.subset([2, 0])
    assert some.classes == ("c", "a")
    assert np.array_equal(some.rows, text.rows[[2, 0]])
    assert np.array_equal(some.features, text.features[:, [2, 0]])


def test_task_takes_half_precision_and_views():
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float16)
    task = Task(x, np.array([0, 0, 1, 1, 2, 2]), gaussian(3, 4))
    assert (task.views, task.n, task.classes, task.shots) == (2, 6, 3, 2)
    assert task.x.dtype == np.float32
    rows, y = task.rows()
    assert rows.shape == (12, 4)
    assert y.tolist() == [0, 0, 1, 1, 2, 2] * 2
    assert np.array_equal(rows[7], task.x[1, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0, 1, 2, 3]}, "labels must lie in 0 .. 2"),
        ({"y": [0, 1, -1, 0]}, "labels must lie in 0 .. 2"),
        ({"y": [0, 1, 2]}, "4 images but 3 labels"),
        ({"y": [0.5, 1, 2, 0]}, "integers"),
        ({"text": gaussian(3, 6)}, "5 dimensions, text has 6"),
        ({"text": gaussian(1, 5), "y": [0, 0, 0, 0]}, "at least two classes"),
        ({"text": np.zeros((3, 5))}, "text has 3 rows"),
        ({"x": np.full((4, 5), np.nan)}, "20 NaN or infinite"),
        ({"x": np.zeros((4, 5))}, "features has 4 rows"),
        ({"x": gaussian(4)}, r"\[n, Do\] or \[views, n, Do\]"),
        ({"x": gaussian(4, 6), "head": Head(gaussian(7, 5))}, "6 columns, the head expects 7"),
        ({"scale": -1.0}, "scale must be a positive number"),
    ],
)
def test_task_says_what_is_wrong(change, message):
    good = {"x": gaussian(4, 5), "y": [0, 1, 2, 0], "text": gaussian(3, 5, seed=1)}
    Task(**good)
    with pytest.raises(InputError, match=message):
        Task(**{**good, **change})


def test_projected_answers_for_other_classes():
    head, text, x = Head(gaussian(6, 4)), Text(gaussian(3, 4, seed=1)), gaussian(5, 6, seed=2)
    fitted = Projected(head, text, 10.0)
    other = gaussian(2, 4, seed=3)
    logits = fitted.with_text(other).logits(x)
    v = x @ head.weight
    cosine = (v / np.linalg.norm(v, axis=1, keepdims=True)) @ (
        other / np.linalg.norm(other, axis=1, keepdims=True)
    ).T
    np.testing.assert_allclose(logits, 10 * cosine, atol=1e-4)


def test_weight_digest_depends_on_names_shapes_and_values():
    a = gaussian(3, 4)
    digests = {
        sha256_tensors([("w", a)]),
        sha256_tensors([("v", a)]),
        sha256_tensors([("w", a.reshape(4, 3))]),
        sha256_tensors([("w", a + 1e-6)]),
    }
    assert len(digests) == 4
    assert sha256_tensors([("a", a), ("b", a)]) == sha256_tensors([("b", a), ("a", a)])


def test_the_arrays_of_a_value_cannot_be_written_to():
    x, weight = np.ones((4, 3), np.float32), np.eye(3, 2, dtype=np.float32)
    task = Task(x, [0, 0, 1, 1], Text(np.eye(2), features=np.ones((1, 2, 5))), Head(weight, np.ones(2)))
    fitted = Projected(task.head, task.text, 1.0, adapter=np.eye(2))
    arrays = [task.x, task.y, task.head.weight, task.head.bias, task.text.rows, task.text.features]
    for array in (*arrays, fitted.adapter):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    x[0, 0] = weight[0, 0] = 2.0  # what the caller has stays the caller's
