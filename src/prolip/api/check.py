"""Problems of labelled images: label errors, near-copies, images of none of the classes, unreadable ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.evaluate import evaluate_features
from prolip.api.fit import fit_support, make_support
from prolip.api.inputs import ReadOptions, encode, image_name, number_labels, require_known
from prolip.api.model import AdaptedModel, make_task
from prolip.api.recipe import Recipe
from prolip.core import InputError, Task
from prolip.core.arrays import Array
from prolip.core.tabular import Tabular
from prolip.data import ImageSet
from prolip.encoders import Encoder
from prolip.evaluate.near_copies import Pair, connected, near_copies, open_signature
from prolip.evaluate.out_of_distribution import outlier_scores
from prolip.features import Extraction
from prolip.io.progress import Progress
from prolip.io.writing import write_csv

UNREADABLE, LABEL_ERROR, NONE_OF_THESE = "unreadable", "label-error", "none-of-these"
TWO_CLASSES, TRAIN_AND_TEST, NEAR_COPY = "two-classes", "train-and-test", "near-copy"
KINDS = (UNREADABLE, LABEL_ERROR, TWO_CLASSES, TRAIN_AND_TEST, NEAR_COPY, NONE_OF_THESE)

COLUMNS = ("kind", "path", "label", "suggestion", "score", "other", "other_label", "reason")

SMALL = 3  # images; a class with fewer can hardly be held out, and has no learning curve


@dataclass(frozen=True)
class Finding:
    """One image with a problem."""

    kind: str  # one of `KINDS`
    image: int  # its index
    suggestion: str | None = None  # the probable class
    # For a label error, the label quality; for a near-copy, the cosine to `other`; for an image of none of
    # the classes, the cosine to the nearest class.
    score: float | None = None
    other: int | None = None  # the index of the image that this is a copy of
    reason: str | None = None  # why an image is unreadable


@dataclass(frozen=True, eq=False)
class Check(Tabular):
    """The problems of a set of images."""

    names: list[str]  # of the images: paths, or numbers
    images: list[Any]
    labels: list[Any]  # the class of each image
    test: Array  # which are test images, [n]
    classes: list[Any]
    counts: list[int]  # readable training images per class, without copies
    findings: list[Finding]  # by kind, worst first
    groups: list[list[int]]  # indices of near-copies
    accuracy: float | None  # that of a fit on these images, by held-out ones

    def __repr__(self) -> str:
        counts = {kind: len(self.of_kind(kind)) for kind in KINDS}
        problems = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "no problem"
        return f"Check({len(self.images)} images of {len(self.classes)} classes: {problems})"

    @property
    def small(self) -> list[tuple[Any, int]]:
        """Classes of fewer than `SMALL` images, and their number."""
        return [(name, n) for name, n in zip(self.classes, self.counts, strict=True) if n < SMALL]

    def of_kind(self, kind: str) -> list[Finding]:
        """Return the findings of a kind."""
        return [finding for finding in self.findings if finding.kind == kind]

    def rows(self) -> list[dict[str, Any]]:
        """Return the findings as rows of a table, or of JSON."""
        return [
            {
                "kind": finding.kind,
                "path": self.names[finding.image],
                "label": self.labels[finding.image],
                "suggestion": finding.suggestion,
                "score": None if finding.score is None else round(finding.score, 6),
                "other": None if finding.other is None else self.names[finding.other],
                "other_label": None if finding.other is None else self.labels[finding.other],
                "reason": finding.reason,
            }
            for finding in self.findings
        ]

    def write_csv(self, path: Path) -> None:
        """Write the findings to a .csv file."""
        write_csv(path, [COLUMNS, *(row.values() for row in self.rows())])


def check_images(
    encoder: Encoder,
    recipe: Recipe,
    train: ImageSet,
    test: ImageSet | None,
    reading: ReadOptions,
    *,
    model: AdaptedModel | None = None,
    progress: Progress | None = None,
) -> Check:
    """Find problems of training images, and copies of them among test images.

    `model` is a fitted model to use instead of a fit on `train` by `recipe`.
    """
    images = [*train.images, *(test.images if test is not None else ())]
    labels = train.label_names + (test.label_names if test is not None else [])
    extraction = encode(encoder, images, replace(reading, skip_bad=True), progress=progress)
    is_test = np.arange(len(images)) >= len(train)
    # Of copies of a file only the first counts.
    first = sorted({key: i for i, key in reversed(list(enumerate(extraction.hashes)))}.values())
    rows = [i for i in first if not is_test[extraction.kept[i]]]
    if not rows:
        raise InputError("none of the training images can be read")
    places = [extraction.kept[i] for i in rows]
    readable = train.subset(places)
    known, classes = number_labels(readable.label_names, () if model is None else model.classes)
    readable = replace(readable, labels=known, classes=classes)  # of classes that have images
    features = replace(
        extraction, features=extraction.features[:, rows], kept=list(range(len(rows))), bad=[],
        hashes=[extraction.hashes[i] for i in rows],
    )  # fmt: skip
    if model is None:
        support = make_support(encoder, recipe, readable, features)
        model = fit_support(encoder, recipe, readable.classes, support)
    require_known(readable, model.classes)
    report = evaluate_features(model, readable, features, held_out=True)
    pairs = _pairs(extraction, first, images)
    lost = sorted(set(range(len(images))) - set(extraction.kept))
    findings = [
        *(Finding(UNREADABLE, i, reason=why) for i, (_, why) in zip(lost, extraction.bad, strict=True)),
        *(
            Finding(LABEL_ERROR, places[report.places[error.index]], str(model.classes[error.suggestion]),
                    error.quality)
            for error in report.label_errors()
        ),
        *_copies(pairs, labels, is_test),
        *_none_of_these(make_task(encoder, features.features, readable.labels, model.text), places),
    ]  # fmt: skip
    counts = readable.counts()
    return Check(
        [image_name(image, i) for i, image in enumerate(images)], images, labels, is_test,
        list(train.classes), [counts.get(name, 0) for name in train.classes], findings, connected(pairs),
        report.accuracy,
    )  # fmt: skip


def _pairs(extraction: Extraction, first: list[int], images: Sequence[Any]) -> list[Pair]:
    """Return copies of files, then other near-copies, as pairs of indices."""
    kept, first_of = extraction.kept, {extraction.hashes[i]: i for i in first}
    exact = [
        Pair(kept[first_of[key]], kept[i], 1.0)
        for i, key in enumerate(extraction.hashes)
        if first_of[key] != i
    ]
    near = near_copies(extraction.features[0, first], lambda i: open_signature(images[kept[first[i]]]))
    return exact + [Pair(kept[first[pair.first]], kept[first[pair.second]], pair.cosine) for pair in near]


def _copies(pairs: list[Pair], labels: Sequence[Any], is_test: Array) -> list[Finding]:
    """Report each group of copies.

    If they are in two classes, all are reported; if in train and test, those in train; otherwise all but the
    first.
    """
    cosine = {(pair.first, pair.second): pair.cosine for pair in pairs}
    findings: list[Finding] = []
    for group in connected(pairs):
        in_test = [i for i in group if is_test[i]]
        first = in_test[0] if in_test else group[0]
        conflict = len({labels[i] for i in group}) > 1
        for i in group:
            if conflict:
                kind, other = TWO_CLASSES, next(j for j in group if labels[j] != labels[i])
            elif i == first:
                continue
            else:
                kind, other = TRAIN_AND_TEST if in_test and not is_test[i] else NEAR_COPY, first
            score = cosine.get((min(i, other), max(i, other)))
            findings.append(Finding(kind, i, None, score, other))
    return sorted(findings, key=lambda finding: KINDS.index(finding.kind))


def _none_of_these(task: Task, places: Sequence[int]) -> list[Finding]:
    scores, limit = outlier_scores(task)
    order = [i for i in np.argsort(scores, kind="stable").tolist() if scores[i] < limit]
    return [Finding(NONE_OF_THESE, places[i], None, float(scores[i])) for i in order]
