"""Folds, and an order of the images that is their own: what must not depend on the order they come in."""

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, row_lengths

FOLDS = 5  # at most
ROWS = 1 << 10


def assign_folds(task: Task, seed: int) -> Array:
    """The fold [n] in which each image is held out; -1, never, for the only image of its class.

    There are no more folds than the middle class has images, so that each takes one from every class. With
    two of each in five folds, the class of a held-out image would have one image where its rivals have two,
    and look worse than it is (calibrated on that, probabilities of digits were off by 23 % instead of 15).

    Each class is dealt out in turn, in an order that depends on the images themselves and on the seed, but
    not on their order in the task nor on their scale.
    """
    counts = np.bincount(task.y)
    several = counts[counts > 1]
    folds = min(FOLDS, int(np.median(several))) if len(several) else FOLDS
    key = (50 * sample_keys(task.x[0], seed)) % 1.0
    fold = np.full(task.n, -1)
    dealt = 0
    for label in np.flatnonzero(counts > 1):
        images = np.flatnonzero(task.y == label)
        fold[images[key[images].argsort()]] = (np.arange(len(images)) + dealt) % folds
        dealt += len(images)
    return fold


def canonical_order(task: Task) -> Array:
    """An order of the images [n] that depends on the images alone.

    Taken before a fit, it makes the result the same, to the last bit, in whatever order the images come.
    """
    return np.lexsort((task.y, sample_keys(task.x[0], seed=0)))


def sample_keys(x: Array, seed: int) -> Array:
    """A number for each row [n] of x, the same in whatever order, or at whatever scale, the rows come."""
    axis = np.random.default_rng(seed).normal(size=x.shape[1])
    parts = (x[start : start + ROWS].astype(np.float64) for start in range(0, len(x), ROWS))
    return np.concatenate(
        [np.einsum("nd,d->n", p, axis) / np.maximum(row_lengths(p)[:, 0], 1e-30) for p in parts]
    )


def some_classes(task: Task, count: int, seed: int) -> Task:
    """The task on a sample of its classes, those with the most images first."""
    images = np.bincount(task.y, minlength=task.classes)
    order = np.random.default_rng(seed).permutation(task.classes)
    chosen = np.sort(order[np.argsort(-images[order], kind="stable")][:count])
    position = np.full(task.classes, -1)
    position[chosen] = np.arange(len(chosen))
    kept = np.flatnonzero(position[task.y] >= 0)
    return Task(task.x[:, kept], position[task.y[kept]], task.text.subset(chosen), task.head, task.scale)
