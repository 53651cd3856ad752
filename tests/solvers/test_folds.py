"""Folds: every image is held out once, groups together, and classes stay balanced."""

import numpy as np
import pytest

from prolip.core import Task
from prolip.solvers.folds import assign_folds, some_classes


def make_task(y, groups=None, seed=0):
    rng = np.random.default_rng(seed)
    return Task(rng.normal(size=(len(y), 6)), y, rng.normal(size=(max(y) + 1, 6)), groups=groups)


def test_images_of_a_group_are_held_out_together():
    y = np.repeat(np.arange(5), 14)
    groups = np.repeat(np.arange(10), 7)  # two bursts of each class
    fold = assign_folds(make_task(y, groups), seed=0)
    assert [len(set(fold[groups == g])) for g in range(10)] == [1] * 10
    for label in range(5):  # one burst of each class in each of two folds
        assert np.bincount(fold[y == label]).tolist() == [7, 7]


def test_groups_of_one_image_are_dealt_like_no_groups():
    y = np.repeat(np.arange(4), 7)
    alone = np.random.default_rng(1).permutation(1000)[:28]
    np.testing.assert_array_equal(
        assign_folds(make_task(y), seed=3), assign_folds(make_task(y, alone), seed=3)
    )


@pytest.mark.parametrize("seed", range(5))
def test_groups_may_span_classes(seed):
    rng = np.random.default_rng(seed)
    y, groups = np.repeat(np.arange(6), 20), rng.integers(0, 9, 120)  # nine days
    fold = assign_folds(make_task(y, groups, seed), seed)
    assert all(len(set(fold[groups == g])) == 1 for g in range(9))
    assert sorted(set(fold.tolist())) == list(range(fold.max() + 1))
    for held in range(fold.max() + 1):
        assert set(y[fold != held]) == set(range(6))


def test_a_class_of_one_group_is_never_held_out():
    y = [0, 0, 0, 1, 1, 1]
    fold = assign_folds(make_task(y, [0, 0, 0, 1, 2, 3]), seed=0)
    assert (fold[:3] == -1).all()
    assert sorted(fold[3:].tolist()) == [0, 1, 2]
    assert (assign_folds(make_task(y, [0, 0, 0, 1, 1, 1]), seed=0) == -1).all()


def test_a_group_counts_as_one_image_of_each_class_it_has():
    task = make_task([0, 0, 0, 1, 1], [7, 7, 2, 7, 3])
    np.testing.assert_allclose(task.weights, [1 / 2, 1 / 2, 1, 1, 1])
    assert task.independent == 4
    assert make_task([0, 0, 1]).independent == 3
    part = task.subset(np.array([1, 2, 4]))
    np.testing.assert_allclose(part.weights, [1, 1, 1])
    assert len(set(part.groups.tolist())) == 3
    sample = some_classes(task, 2, seed=0)
    np.testing.assert_array_equal(np.bincount(sample.groups), [1, 1, 3])
