"""Answers of an adapted model about images: one, or a million a chunk at a time."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.api.groups import Groups
from prolip.api.model import AdaptedModel
from prolip.api.reading import Progress, Reading
from prolip.core import UsageError
from prolip.core.arrays import Array
from prolip.evaluate.out_of_distribution import FALSE_REJECT
from prolip.features import Extraction, NoImageLeft
from prolip.io.files import sha256_tensors

if TYPE_CHECKING:
    from prolip.evaluate.unlabelled import Evidence, TransductivePredictions

CHUNK = 512  # images that are read together, at most
FIRST_CHUNK = 32
BEHIND = 1.0  # seconds of work in a chunk


@dataclass(frozen=True)
class PredictOptions:
    """What an answer is to hold."""

    top: int = 1  # how many classes are ranked
    reject: bool = False  # whether pictures that seem to belong to no class get the class None
    false_reject: float = FALSE_REJECT
    false_accept: float | None = None
    groups: Groups | None = None  # to answer with, in the place of the classes
    transductive: bool = False  # whether all images are classified together

    def __post_init__(self) -> None:
        if self.top < 1:
            raise UsageError(f"top must be at least 1, got {self.top}")


def features(
    model: AdaptedModel, images: Any, reading: Reading, progress: Progress | None = None
) -> Extraction:
    """Pre-projection features of images: what `model.fitted` reads, of its own tower where it changed it."""
    return reading.features(model.fitted.encoder_for(model.encoder), images, progress=progress)


def transductive(model: AdaptedModel, x: Array) -> TransductivePredictions:
    """Probabilities of features [n, width], classified together where that helps; and the evidence."""
    from prolip.evaluate.unlabelled import predict_transductive

    return predict_transductive(model.fitted, model.confidence, model.support.task, x, model.recipe.seed)


def predict(model: AdaptedModel, x: Array, asked: PredictOptions) -> list[Any]:
    """The most probable class of each of features [n, width]; None for what is rejected."""
    # From the probabilities, whose rounding may make two classes equal, so that both always agree.
    probabilities = transductive(model, x).probabilities if asked.transductive else model.probabilities(x)
    answers = probabilities.argmax(axis=1)
    refused = [False] * len(answers)
    if asked.reject:
        refused = model.rejects(x, answers, asked.false_reject, asked.false_accept).tolist()
    return [None if no else model.classes[k] for k, no in zip(answers.tolist(), refused, strict=True)]


def answers(
    model: AdaptedModel,
    images: Iterable[tuple[str, Any]],
    asked: PredictOptions,
    reading: Reading,
    *,
    skipped: list[tuple[str, str]] | None = None,
    evidence: list[Evidence] | None = None,
    total: int | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """An answer for each (name, image), in order, as it is found; images are read a chunk at a time.

    `skipped` takes (image, reason) of images that cannot be read, where `reading` passes over them;
    `evidence` takes what spoke for or against classifying them together, where that was asked; `total` is how
    many images there are, where that is known.
    """
    source, done = iter(images), 0
    size = FIRST_CHUNK
    while batch := list(itertools.islice(source, None if asked.transductive else size)):
        began = time.monotonic()
        names, pictures = [name for name, _ in batch], [image for _, image in batch]

        def tell(count: int, _: int, done: int = done, size: int = len(batch)) -> None:
            if progress is not None:
                progress(done + count, total if total is not None else done + size)

        try:
            yield from _chunk(model, names, pictures, asked, reading, skipped, evidence, tell)
        except NoImageLeft as none:
            if not reading.skip_bad:
                raise
            if skipped is not None:
                skipped += none.bad
        done += len(batch)
        # No answer waits much longer than a second for those beside it.
        pace = len(batch) / max(time.monotonic() - began, 1e-6)
        size = int(min(CHUNK, 2 * size, max(FIRST_CHUNK, BEHIND * pace)))


def _chunk(
    model: AdaptedModel,
    names: Sequence[str],
    images: Sequence[Any],
    asked: PredictOptions,
    reading: Reading,
    skipped: list[tuple[str, str]] | None,
    evidence: list[Evidence] | None,
    progress: Progress,
) -> Iterator[dict[str, Any]]:
    found = features(model, images, reading, progress)
    x = found.features[0]
    if asked.transductive:
        joint = transductive(model, x)
        probabilities = joint.probabilities
        if evidence is not None:
            evidence.append(joint.evidence)
    else:
        probabilities = model.probabilities(x)
    if skipped is not None:
        skipped += found.bad
    refused: list[bool | None] = [None] * len(probabilities)
    if asked.reject:
        best = probabilities.argmax(axis=1)
        refused = model.rejects(x, best, asked.false_reject, asked.false_accept).tolist()
    classes = model.classes
    if asked.groups is not None:
        classes, probabilities = asked.groups.names, asked.groups.sum(probabilities)
    for i, row, no in zip(found.kept, probabilities, refused, strict=True):
        yield one_answer(classes, names[i], row, asked.top, no)


def one_answer(
    classes: Sequence[Any], image: str, row: Array, top: int, refused: bool | None
) -> dict[str, Any]:
    """The best classes of one image; `refused` is None where nothing is rejected."""
    best = np.argsort(-row, kind="stable")[:top]
    ranked = [{"class": classes[k], "probability": round(float(row[k]), 6)} for k in best]
    answer: dict[str, Any] = {"image": image, **ranked[0]}
    if refused is not None:
        answer |= {"class": None if refused else ranked[0]["class"], "rejected": refused}
    return {**answer, "top": ranked}


def run_name(model: AdaptedModel, asked: PredictOptions) -> str:
    """Eight digits that the answers of one model to one question have in common, and no others."""
    tensors = {**model.fitted.tensors(), **model.confidence.tensors(), "text": model.text.rows}
    parts = [
        sha256_tensors(tensors.items()),
        model.confidence.temperature,
        model.classes,
        sorted(vars(asked).items()),
    ]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:8]
