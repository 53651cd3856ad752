"""Few-shot sampling: N images of each class, the same for the same seed.

The rule is the authors': labels in the order in which they are first seen, one random stream, and
`random.sample` of N items for each label; validation shots come after the training shots, from the same
stream. `random.Random(seed)` draws what `random.seed(seed)` followed by `random.sample` draws, and a draw
depends only on how many items a label has. So for labels listed in the order of the split files that the
authors use, the same seed gives the very images of their experiments; for a folder, whose images are listed
by name, the draw is as random and as repeatable, but another one.

Where a class has fewer than N images there are two ways: `keep` takes all it has, once; `repeat` is what the
authors do, N draws with replacement. On a full batch, repeats only weigh some images more than others, so
`keep` is the default here.

The functions from `sample_support` on are the protocols' support sets, the authors' seed for seed: of the ten
datasets with split files, of ImageNet (`paired`: 2N images of a class in one draw, the first N train, the
last N validate), and of base-to-new (drawn over all classes, then the new ones dropped). What cannot be the
same: the augmented views, as the authors crop with torchvision's generator on several worker processes and
keep no record of it.
"""

import random
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from prolip.core.errors import InputError, check_name

Short = Literal["keep", "repeat"]
VALIDATION_RULES = ("shots", "min4", "split")  # N shots, min(N, 4) shots, the whole validation split


def sample_few_shot(labels: Iterable[int], shots: int | None, seed: int, short: Short = "keep") -> list[int]:
    """Indices of `shots` images per class, class after class.

    Parameters
    ----------
    labels
        One per image.
    shots
        N; None takes every image.
    seed
        Of the draw.
    short
        What a class with fewer than N images gives: "keep", all it has; "repeat", N with replacement.

    Examples
    --------
    >>> sample_few_shot([0, 0, 0, 1, 1, 1], shots=2, seed=1)
    [0, 2, 4, 3]
    """
    return _draw(labels, shots, random.Random(seed), short)


def warn_of_short_classes(labels: Sequence[int], shots: int | None) -> None:
    """Warn if classes have fewer images than requested."""
    sizes = sorted(Counter(labels).values())
    short = sum(shots is not None and size < shots for size in sizes)
    if short:
        warnings.warn(
            f"{shots} shots are requested, but {short} of {len(sizes)} classes have fewer images, "
            f"{sizes[0]} to {sizes[short - 1]}: all of theirs are taken",
            stacklevel=3,
        )


def sample_support(labels: Sequence[int], shots: int | None, seed: int, paired: bool = False) -> list[int]:
    """Indices of the training shots; None takes every image."""
    if paired and shots is not None:
        return sample_paired(labels, shots, seed)[0]
    return sample_few_shot(labels, shots, seed, short="repeat")


def sample_train_val(
    train_labels: Sequence[int],
    val_labels: Sequence[int] | None,
    shots: int,
    seed: int,
    paired: bool = False,
    rule: str = "shots",
) -> tuple[list[int], list[int], str]:
    """Indices of training and of validation images, and the split of the latter.

    `rule` is one of VALIDATION_RULES: N shots, from the same random stream; min(N, 4) shots, as CoOp's
    authors have; or the whole validation split. Without a validation split both come out of the training
    pool, like ImageNet's, and there are at most N validation shots.
    """
    check_name("rule for validation", rule, VALIDATION_RULES)
    validation_shots = min(shots, 4) if rule == "min4" else shots
    if paired or val_labels is None:
        train, val = sample_paired(train_labels, shots, seed)
        return train, [index for i, index in enumerate(val) if i % shots < validation_shots], "train"
    rng = random.Random(seed)
    train = _draw(train_labels, shots, rng, "repeat")
    if rule == "split":
        return train, list(range(len(val_labels))), "val"
    return train, _draw(val_labels, validation_shots, rng, "repeat"), "val"


def sample_paired(labels: Sequence[int], shots: int, seed: int) -> tuple[list[int], list[int]]:
    """2N images of each class in one draw: the first N and the last N.

    Examples
    --------
    >>> sample_paired([0] * 4 + [1] * 4, shots=1, seed=1)
    ([1, 4], [2, 5])
    """
    rng = random.Random(seed)
    train: list[int] = []
    val: list[int] = []
    for label, indices in _by_label(labels).items():
        if len(indices) < 2 * shots:
            raise InputError(
                f"{shots} shots to train and as many to validate need {2 * shots} images of each class; "
                f"class {label} has {len(indices)}: take fewer shots, or add a val/ split"
            )
        chosen = rng.sample(indices, 2 * shots)
        train += chosen[:shots]
        val += chosen[shots:]
    return train, val


def base_classes(classes: int) -> int:
    """How many classes are base: the first half, and the middle one of an odd number."""
    return -(-classes // 2)


def sample_base_support(
    labels: Sequence[int], classes: int, shots: int | None, seed: int, paired: bool = False
) -> list[int]:
    """Training shots of the base classes: drawn over all classes, then filtered."""
    base = base_classes(classes)
    return [index for index in sample_support(labels, shots, seed, paired) if labels[index] < base]


def _draw(labels: Iterable[int], shots: int | None, rng: random.Random, short: Short) -> list[int]:
    check_name("rule for short classes", short, ("keep", "repeat"))
    if shots is not None and not (isinstance(shots, (int, np.integer)) and shots >= 1):
        raise InputError(f"shots must be at least 1, got {shots!r}")
    chosen: list[int] = []
    for indices in _by_label(labels).values():
        if shots is None:
            chosen += indices
        elif len(indices) >= shots:
            chosen += rng.sample(indices, shots)
        elif short == "keep":
            chosen += indices
        else:
            chosen += rng.choices(indices, k=shots)
    return chosen


def _by_label(labels: Iterable[int]) -> dict[int, list[int]]:
    """Indices of each label, labels in the order in which they are first seen."""
    indices: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        indices.setdefault(int(label), []).append(index)
    return indices
