"""Predictions of an adapted model, for every interface: Python, command line, server, page and reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from prolip.api.inputs import ReadOptions, image_name
from prolip.api.model import AdaptedModel
from prolip.core import UsageError
from prolip.core.arrays import Array, softmax
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.features.extract import extract, none_readable
from prolip.io.progress import Progress

CHUNK = 64  # images that are read together: results appear as they come


@dataclass(frozen=True)
class PredictOptions:
    """What is predicted, and how."""

    top: int = 1  # number of classes to rank
    reject: bool = False  # whether out-of-distribution images get the class None, not only the mark
    false_reject: float = FALSE_REJECT
    coverage: float | None = None  # of prediction sets, where they are asked for

    def __post_init__(self) -> None:
        if self.top < 1:
            raise UsageError(f"top must be at least 1, got {self.top}")


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for n images."""

    classes: tuple[Any, ...]  # of the columns of `probabilities`
    probabilities: Array  # calibrated, [n, K]
    rejected: Array | None = None  # which images seem out-of-distribution, bool [n]; None if not known
    top: int = 1  # number of classes that `ranking` and `to_json` have
    reject: bool = False  # whether the class of those is None
    sets: list[list[int]] | None = None  # columns of the classes of each prediction set

    def __len__(self) -> int:
        return len(self.probabilities)

    @cached_property
    def best(self) -> Array:
        """The column [n] of the most probable class, whether rejected or not."""
        return np.asarray(self.probabilities.argmax(axis=1))

    @cached_property
    def confidence(self) -> Array:
        """The largest probability [n]."""
        return np.asarray(self.probabilities.max(axis=1))

    @property
    def labels(self) -> list[Any]:
        """The most probable class of each image; with `reject`, None for those that are rejected."""
        rejected = np.array(self.is_rejected) & self.reject
        return [None if no else self.classes[k] for k, no in zip(self.best, rejected, strict=True)]

    @property
    def is_rejected(self) -> list[bool]:
        """Whether each image seems out-of-distribution; none does if that is not known."""
        return [False] * len(self) if self.rejected is None else self.rejected.tolist()

    def to_json(self, images: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return one object per image: its name if `images` has them, class, probability and ranking."""
        rows = []
        ranking = np.argsort(-self.probabilities, axis=1, kind="stable")[:, : self.top].tolist()
        for i, (best, row) in enumerate(zip(ranking, self.probabilities, strict=True)):
            ranked = [{"class": self.classes[k], "probability": round(float(row[k]), 6)} for k in best]
            answer: dict[str, Any] = ({} if images is None else {"image": images[i]}) | ranked[0]
            if self.rejected is not None:
                answer["rejected"] = bool(self.rejected[i])
                answer["class"] = None if self.reject and answer["rejected"] else answer["class"]
            if self.sets is not None:
                answer["set"] = [self.classes[k] for k in self.sets[i]]
            rows.append({**answer, "top": ranked})
        return rows


def predict(
    model: AdaptedModel,
    x: Array,
    options: PredictOptions = PredictOptions(),  # noqa: B008  (it is frozen)
    logits: Array | None = None,
) -> Predictions:
    """Predict the classes of features [n, width].

    `logits` [n, K] replace those of the model, such as out-of-fold ones of its training images.
    """
    logits = model.fitted.logits(x) if logits is None else logits
    probabilities = softmax(logits / model.confidence.temperature)
    rejected = None
    if options.reject or model.confidence.out_of_distribution is not None:
        rejected = model.rejects(x, probabilities.argmax(axis=1), options.false_reject)
    sets = None if options.coverage is None else model.prediction_sets(x, options.coverage)
    return Predictions(model.classes, probabilities, rejected, options.top, options.reject, sets)


def predict_stream(
    model: AdaptedModel,
    images: Sequence[Any],
    options: PredictOptions,
    reading: ReadOptions,
    skipped: list[tuple[str, str]],
    progress: Progress | None = None,
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each image with the JSON of its prediction, in order, a few images at a time.

    (image, reason) of what `reading` skips is appended to `skipped`.
    """
    for start in range(0, len(images), CHUNK):
        batch = images[start : start + CHUNK]

        def report(done: int, size: int, start: int = start) -> None:
            if progress is not None:
                progress(start + done, len(images))

        extraction = extract(model.encoder, batch, progress=report, **vars(reading))
        skipped.extend(extraction.bad)
        predictions = predict(model, extraction.features[0], options)
        names = [image_name(batch[i], start + i) for i in extraction.kept]
        yield from zip([batch[i] for i in extraction.kept], predictions.to_json(names), strict=True)
    if len(skipped) == len(images):
        raise none_readable(skipped)
