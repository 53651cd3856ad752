import numpy as np
import pytest

from prolip.evaluate import metrics


def test_accuracy_per_class_and_confusion_by_hand():
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    y = np.array([0, 1, 0, 2])
    assert metrics.accuracy(logits, y) == 0.75
    assert metrics.per_class_accuracy(logits, y) == [1.0, 1.0, 0.0]
    assert metrics.confusion(logits, y).tolist() == [[2, 0, 0], [0, 1, 0], [0, 1, 0]]


def test_a_class_without_images_has_no_accuracy():
    assert metrics.per_class_accuracy(np.eye(3)[:2], np.array([0, 1])) == [1.0, 1.0, None]


def test_calibration_error_of_a_known_gap():
    # Always 90 % sure, right half the time.
    p = np.array([[0.9, 0.1]] * 10)
    y = np.array([0, 1] * 5)
    assert metrics.calibration_error(p, y) == pytest.approx(0.4, abs=1e-6)


def test_calibration_error_against_a_loop():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([0.5] * 4, 300)
    y = rng.integers(0, 4, 300)
    confidence, hit = p.max(axis=1), p.argmax(axis=1) == y
    expected = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & (confidence < low + 1 / 15)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - hit[inside].mean())
    assert metrics.calibration_error(p, y) == pytest.approx(expected, abs=1e-9)
