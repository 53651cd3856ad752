"""Folds, and an order of the images that is their own: what must not depend on the order they come in."""

import numpy as np

from prolip.core import Task
from prolip.core.arrays import Array, row_lengths

FOLDS = 5  # at most
ROWS = 1 << 10


def assign_folds(task: Task, seed: int) -> Array:
    """The fold [n] in which each image is held out; -1, never, for a class with a single group of images.

    Images of a group are held out together. There are no more folds than the middle class has groups, so
    that each takes one from every class. With two of each in five folds, the class of a held-out image would
    have one image where its rivals have two, and look worse than it is (calibrated on that, probabilities of
    digits were off by 23 % instead of 15).

    Each class is dealt out in turn, in an order that depends on the images themselves and on the seed, but
    not on their order in the task nor on their scale. A group in several classes is dealt with the first.
    """
    key = (50 * sample_keys(task.x[0], seed)) % 1.0
    members = [np.flatnonzero(task.y == label) for label in range(task.classes)]
    groups = [np.unique(task.groups[images]) for images in members]
    folds = fold_count(task)
    fold_of = np.full(task.n, -1)  # of groups
    first = np.full(task.n, np.inf)
    np.minimum.at(first, task.groups, key)
    fold, dealt = np.full(task.n, -1), 0
    for images, own in zip(members, groups, strict=True):
        if len(own) < 2:
            continue
        new = own[fold_of[own] < 0]
        taken = np.bincount(fold_of[own[fold_of[own] >= 0]], minlength=folds)
        # The folds with the fewest groups of this class first, each in turn.
        level = taken[:, None] + np.arange(len(new))
        turn = np.broadcast_to((np.arange(folds)[:, None] - dealt) % folds, level.shape)
        order = np.lexsort((turn.ravel(), level.ravel()))[: len(new)]
        fold_of[new[first[new].argsort()]] = np.repeat(np.arange(folds), len(new))[order]
        dealt += len(new)
        if len(np.unique(fold_of[own])) > 1:  # groups of several classes may all be in one
            fold[images] = fold_of[task.groups[images]]
    held_out = fold >= 0
    fold[held_out] = np.unique(fold[held_out], return_inverse=True)[1]  # no fold without images
    return fold


def fold_count(task: Task) -> int:
    """How many folds there are: FOLDS, or as many as the middle class has groups."""
    pairs = np.unique(np.stack([task.y, task.groups]), axis=1)
    counts = np.bincount(pairs[0])
    several = counts[counts > 1]
    return min(FOLDS, int(np.median(several))) if len(several) else FOLDS


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
    return task.select_classes(chosen)
