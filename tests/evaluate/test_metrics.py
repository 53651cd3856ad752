import numpy as np
import pytest

from prolip.evaluate import metrics


def test_accuracy_per_class_and_confusion_by_hand():
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    y = np.array([0, 1, 0, 2])
    assert metrics.accuracy(logits, y) == 0.75
    counts = metrics.confusion(logits, y)
    assert counts.tolist() == [[2, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert metrics.per_class_accuracy(counts) == [1.0, 1.0, 0.0]


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


def test_a_wilson_interval_is_the_textbook_one():
    low, high = metrics.wilson(10, 20)
    assert (round(low, 4), round(high, 4)) == (0.2993, 0.7007)  # R: prop.test(10, 20, correct=FALSE)
    assert metrics.wilson(0, 7)[0] == 0.0
    assert metrics.wilson(7, 7)[1] == 1.0


def test_accuracy_of_each_class_and_f1_count_classes_not_images():
    y = np.array([0] * 8 + [1] * 2)
    answers = np.array([0] * 8 + [0, 1])
    logits = np.eye(3)[answers]  # the third class has no image
    assert metrics.accuracy(logits, y) == 0.9
    counts = metrics.confusion(logits, y)
    assert metrics.per_class_accuracy(counts) == [1.0, 0.5, None]
    precision, recall = 8 / 9, 1.0
    f1 = 2 * precision * recall / (precision + recall)
    assert np.isclose(metrics.macro_f1(counts), (f1 + 2 / 3) / 2)


def test_a_fit_on_all_images_is_expected_to_be_better_than_those_of_folds():
    assert metrics.expected_accuracy(0.7, 40, 1.0) == (0.7, pytest.approx(metrics.wilson(28, 40)))
    accuracy, (low, high) = metrics.expected_accuracy(0.7, 40, 0.5)
    assert accuracy == pytest.approx(1 - 0.3 * 0.5 ** (1 / 3))
    assert low < 0.7 < accuracy < high
    wider = metrics.expected_accuracy(0.7, 10, 0.5)[1]
    assert wider[0] < low
    assert wider[1] > high
