"""Which images are drawn: the authors' support sets, seed for seed.

The same for the same seed: the training and validation shots of the ten datasets with split files, of
ImageNet (2N images of a class in one draw: the first N train, the last N validate), and of base-to-new (drawn
over all classes, then the new ones dropped). What cannot be the same: the augmented views, as the authors
crop with torchvision's generator on several worker processes and keep no record of it.

A class with fewer than N images gives N draws with replacement, as theirs does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from prolip.core import InputError
from prolip.data import sample_few_shot, sample_train_val


def draw_train(labels: Sequence[int], shots: int | None, seed: int, paired: bool = False) -> list[int]:
    """Places of the training shots; None takes every image."""
    if shots is None:
        return sample_few_shot(labels, None, seed)
    if paired:
        return draw_paired(labels, shots, seed)[0]
    return sample_few_shot(labels, shots, seed, short="repeat")


def draw_train_val(
    train: Sequence[int], val: Sequence[int] | None, shots: int, seed: int, paired: bool = False
) -> tuple[list[int], list[int], str]:
    """Places of training and validation shots, and the part that the latter lie in.

    Without a validation part both come out of the training pool, like ImageNet's.
    """
    if paired or val is None:
        return *draw_paired(train, shots, seed), "train"
    return *sample_train_val(train, val, shots, seed, short="repeat"), "val"


def draw_paired(labels: Sequence[int], shots: int, seed: int) -> tuple[list[int], list[int]]:
    """2N images of each class in one draw: the first N and the last N.

    Examples
    --------
    >>> draw_paired([0] * 4 + [1] * 4, shots=1, seed=1)
    ([1, 4], [2, 5])
    """
    rng = random.Random(seed)
    items: dict[int, list[int]] = {}
    for place, label in enumerate(labels):
        items.setdefault(int(label), []).append(place)
    train: list[int] = []
    val: list[int] = []
    for label, places in items.items():
        if len(places) < 2 * shots:
            raise InputError(
                f"{shots} shots to train and as many to validate need {2 * shots} images of each class; "
                f"class {label} has {len(places)}: take fewer shots, or add a val/ part"
            )
        chosen = rng.sample(places, 2 * shots)
        train += chosen[:shots]
        val += chosen[shots:]
    return train, val


def base_classes(classes: int) -> int:
    """How many classes are base: the first half, and the middle one of an odd number."""
    return -(-classes // 2)


def draw_base(labels: Sequence[int], classes: int, shots: int, seed: int, paired: bool = False) -> list[int]:
    """Training shots of the base classes: drawn over all classes, then filtered."""
    base = base_classes(classes)
    return [place for place in draw_train(labels, shots, seed, paired) if labels[place] < base]
