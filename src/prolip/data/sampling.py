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
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Literal

from prolip.core.errors import InputError, unknown_name

Short = Literal["keep", "repeat"]


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


def sample_train_val(
    train_labels: Iterable[int],
    val_labels: Iterable[int],
    shots: int,
    seed: int,
    short: Short = "keep",
) -> tuple[list[int], list[int]]:
    """Training shots, then as many validation shots from the same random stream, as the paper draws them."""
    rng = random.Random(seed)
    train = _draw(train_labels, shots, rng, short)
    return train, _draw(val_labels, shots, rng, short)


def _draw(labels: Iterable[int], shots: int | None, rng: random.Random, short: Short) -> list[int]:
    if short not in ("keep", "repeat"):
        raise unknown_name("rule for short classes", short, ("keep", "repeat"))
    if shots is not None and shots < 1:
        raise InputError(f"shots must be at least 1, got {shots}")
    items: dict[int, list[int]] = {}
    for index, label in enumerate(labels):
        items.setdefault(int(label), []).append(index)
    chosen: list[int] = []
    for indices in items.values():
        if shots is None:
            chosen += indices
        elif len(indices) >= shots:
            chosen += rng.sample(indices, shots)
        elif short == "keep":
            chosen += indices
        else:
            chosen += rng.choices(indices, k=shots)
    return chosen
