"""Few-shot problems to compare on, of made-up features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from prolip.core import Head, Task, Text
from prolip.core.arrays import Array, unit_rows

SHOTS, VIEWS = (1, 4, 16), (1, 10)
SCALE = 25.0  # of made-up cosines, which differ more between classes than CLIP's do


@dataclass(frozen=True, eq=False)
class Problem:
    """A support set, as many validation images, and test images x [m, width], y [m]."""

    name: str
    task: Task
    validation: Task
    x: Array
    y: Array

    def wide(self) -> Problem:
        """The same with features in float64, in which methods then compute."""
        task, validation = (
            replace(each, x=each.x.astype(np.float64)) for each in (self.task, self.validation)
        )
        return replace(self, task=task, validation=validation, x=self.x.astype(np.float64))


def made_up(
    classes: int = 19,
    width: int = 96,
    dim: int = 64,
    per_class: int = 100,
    shots: tuple[int, ...] = SHOTS,
    views: tuple[int, ...] = VIEWS,
) -> Iterator[Problem]:
    """Images around a direction of their class, and texts that are right about some two in three of them."""
    rng = np.random.default_rng(0)
    head = Head(_float32(rng.normal(size=(width, dim)) / width**0.5), _float32(0.1 * rng.normal(size=dim)))
    centres = rng.normal(size=(classes, width)) / width**0.5
    prompts = rng.normal(size=(2, classes, dim)) / dim**0.5
    towards = unit_rows(head(_float32(centres)))[None] + 1.6 * prompts  # what the prompts come out as
    rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    projection, features = Head(_float32(rotation)), 8 * towards @ rotation.T
    text = Text.from_features(_float32(features), projection, [f"class {k}" for k in range(classes)])

    def draw(count: int) -> tuple[Array, Array]:
        y = np.repeat(np.arange(classes), count)
        x = centres[y] + 1.3 * rng.normal(size=(len(y), width)) / width**0.5
        return _float32(x), y

    test, held, support = draw(per_class), draw(max(shots)), draw(max(shots))
    for each in shots:
        first = np.tile(np.arange(max(shots)) < each, classes)
        held_out = Task(held[0][first], held[1][first], text, head, SCALE)
        for count in views:
            x = augmented(support[0][first], count, 0.3, rng)
            task = Task(x, support[1][first], text, head, SCALE)
            yield Problem(f"made up, {each} shots, {count} views", task, held_out, *test)


def augmented(x: Array, views: int, noise: float, rng: np.random.Generator) -> Array:
    """Views [V, n, width]: the features themselves, then with noise of a share of their length."""
    lengths = np.linalg.norm(x, axis=1, keepdims=True) / x.shape[1] ** 0.5
    return np.stack(
        [x, *(_float32(x + noise * lengths * rng.normal(size=x.shape)) for _ in range(views - 1))]
    )


def _float32(x: Array) -> Array:
    return x.astype(np.float32)
