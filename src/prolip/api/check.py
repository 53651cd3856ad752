"""Problems of labelled images: label errors, near-copies, images of none of the classes, unreadable ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prolip.api.evaluate import LabelledPredictions, figures, predict_labelled_features
from prolip.api.fit import fit_support
from prolip.api.inputs import require_known
from prolip.api.model import AdaptedModel, Support
from prolip.api.recipe import Recipe
from prolip.api.support import ReadOptions, class_text, encode, group_images, image_name, make_task
from prolip.core import InputError
from prolip.core.arrays import Array
from prolip.core.tabular import Tabular
from prolip.data import ImageSet
from prolip.encoders import Encoder
from prolip.evaluate import metrics
from prolip.evaluate.near_copies import Pair, connected, near_copies, open_signature
from prolip.evaluate.out_of_distribution import outlier_scores
from prolip.features import Extraction
from prolip.io.csv import write_csv
from prolip.io.progress import Progress

UNREADABLE, LABEL_ERROR, NONE_OF_THESE = "unreadable", "label-error", "none-of-these"
TWO_CLASSES, TRAIN_AND_TEST, NEAR_COPY = "two-classes", "train-and-test", "near-copy"
KINDS = (UNREADABLE, LABEL_ERROR, TWO_CLASSES, TRAIN_AND_TEST, NEAR_COPY, NONE_OF_THESE)

SMALL = 3  # images; a class with fewer can hardly be held out, and has no learning curve
MIN_CONFUSED = 0.25  # fraction of the held-out images of two classes that are confused


@dataclass(frozen=True)
class Finding:
    """One image with a problem."""

    kind: str  # one of `KINDS`
    image: int  # its index
    suggestion: str | None = None  # the probable class; for an unreadable image, the reason
    # For a label error, the label quality; for a near-copy, the cosine to `other`; for an image of none of
    # the classes, the cosine to the nearest class.
    score: float | None = None
    other: int | None = None  # the index of the image that this is a copy of


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
    alike: list[tuple[Any, Any, float]]  # (class, class, share): classes that are often confused
    accuracy: float | None  # that of a fit on these images, by held-out ones

    def __repr__(self) -> str:
        counts = {kind: len(self.of_kind(kind)) for kind in KINDS}
        found = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n) or "no problem"
        return f"Check({len(self.images)} images of {len(self.classes)} classes: {found})"

    @property
    def small(self) -> list[tuple[Any, int]]:
        """Classes of fewer than `SMALL` images, and their number."""
        return [(name, n) for name, n in zip(self.classes, self.counts, strict=True) if n < SMALL]

    def of_kind(self, kind: str) -> list[Finding]:
        """Return the findings of a kind."""
        return [one for one in self.findings if one.kind == kind]

    def rows(self) -> list[dict[str, Any]]:
        """Return the findings as rows of a table, or of JSON."""
        return [
            {
                "kind": one.kind,
                "path": self.names[one.image],
                "label": self.labels[one.image],
                "suggestion": one.suggestion,
                "score": None if one.score is None else round(one.score, 6),
                "other": None if one.other is None else self.names[one.other],
                "other_label": None if one.other is None else self.labels[one.other],
            }
            for one in self.findings
        ]

    def write_csv(self, path: Path) -> None:
        """Write the findings to a .csv file; `reason` is that of an unreadable image."""
        header = ["path", "label", "suggested_label", "kind", "score", "other", "other_label", "reason"]
        table = []
        for row in self.rows():
            unreadable = row["kind"] == UNREADABLE
            suggested, reason = (None, row["suggestion"]) if unreadable else (row["suggestion"], None)
            rest = row["kind"], row["score"], row["other"], row["other_label"], reason
            table.append([row["path"], row["label"], suggested, *rest])
        write_csv(path, [header, *table])


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
    is_test = np.arange(len(images)) >= len(train.images)
    # Of copies of a file only the first counts.
    first = sorted({key: i for i, key in reversed(list(enumerate(extraction.hashes)))}.values())
    kept = np.array(extraction.kept)
    fresh = np.array([i for i in first if not is_test[kept[i]]], dtype=np.int64)
    if not len(fresh):
        raise InputError("none of the training images can be read")
    own = replace(extraction, features=extraction.features[:, fresh], kept=kept[fresh].tolist(), bad=[],
                  hashes=[extraction.hashes[i] for i in fresh])  # fmt: skip
    if model is None:
        model = _fit(encoder, recipe, train, own)
        train = _in_order(train, model.classes)
    require_known(_readable(train, own), model.classes)
    predicted = predict_labelled_features(model, train, own, out_of_fold=True)
    pairs = _pairs(extraction, first, images)
    findings = [
        *_unreadable(extraction, len(images)),
        *_label_errors(model, predicted, _indices(train, predicted)),
        *_copies(pairs, labels, is_test),
        *_none_of_these(model, train, own),
    ]
    counts = np.bincount([train.labels[i] for i in own.kept], minlength=len(train.classes)).tolist()
    return Check(
        [image_name(image, i) for i, image in enumerate(images)], images, labels, is_test,
        list(train.classes), counts, findings, connected(pairs), _confused(predicted, model),
        figures(model, predicted).accuracy,
    )  # fmt: skip


def _fit(encoder: Encoder, recipe: Recipe, train: ImageSet, own: Extraction) -> AdaptedModel:
    """Fit a model on the readable images without copies; leave out classes without any."""
    kept = train.subset(own.kept)
    present, labels = np.unique(kept.labels, return_inverse=True)
    if len(present) < 2:
        raise InputError("fewer than two classes have a readable image")
    classes = [train.classes[k] for k in present]
    text = class_text(encoder, recipe, classes)
    groups = group_images(own.features[0], labels, kept.images, kept.group_numbers())
    task = make_task(encoder, own.features, labels, text, groups)
    return fit_support(encoder, recipe, classes, Support(tuple(own.hashes), task))


def _in_order(train: ImageSet, classes: Sequence[Any]) -> ImageSet:
    """Number the classes as a model does; classes that it does not have come last."""
    known = [*classes, *(name for name in train.classes if name not in set(classes))]
    place = {name: k for k, name in enumerate(known)}
    return replace(train, labels=[place[name] for name in train.label_names], classes=known)


def _readable(train: ImageSet, own: Extraction) -> ImageSet:
    """Return the images that have features, and their classes."""
    kept = train.subset(own.kept)
    return replace(kept, classes=train.classes[: max(kept.labels) + 1])


def _indices(train: ImageSet, labelled: LabelledPredictions) -> list[int]:
    """Return the index of the image of each prediction."""
    place = {image_name(image, i): i for i, image in enumerate(train.images)}
    return [place[name] for name in labelled.names]


def _unreadable(found: Extraction, count: int) -> list[Finding]:
    lost = sorted(set(range(count)) - set(found.kept))
    return [Finding(UNREADABLE, i, reason) for i, (_, reason) in zip(lost, found.bad, strict=True)]


def _label_errors(model: AdaptedModel, labelled: LabelledPredictions, indices: list[int]) -> list[Finding]:
    return [
        Finding(LABEL_ERROR, indices[each.index], str(model.classes[each.suggestion]), each.quality)
        for each in labelled.label_errors()
    ]


def _pairs(found: Extraction, first: list[int], images: Sequence[Any]) -> list[Pair]:
    """Return copies of files, then other near-copies, as pairs of indices."""
    first_of = {found.hashes[i]: i for i in first}
    exact = [
        Pair(found.kept[first_of[key]], found.kept[i], 1.0)
        for i, key in enumerate(found.hashes)
        if first_of[key] != i
    ]
    near = near_copies(found.features[0, first], lambda i: open_signature(images[found.kept[first[i]]]))
    return exact + [
        Pair(found.kept[first[pair.first]], found.kept[first[pair.second]], pair.cosine) for pair in near
    ]


def _copies(pairs: list[Pair], labels: Sequence[Any], is_test: Array) -> list[Finding]:
    """Report each group of copies.

    If they are in two classes, all are reported; if in train and test, those in train; otherwise all but the
    first.
    """
    cosine = {(pair.first, pair.second): pair.cosine for pair in pairs}
    findings: dict[str, list[Finding]] = {TWO_CLASSES: [], TRAIN_AND_TEST: [], NEAR_COPY: []}
    for group in connected(pairs):
        in_test = [i for i in group if is_test[i]]
        first = in_test[0] if in_test else group[0]
        conflict = len({labels[j] for j in group}) > 1
        for i in group:
            other = first if i != first else next(j for j in group if j != i)
            if conflict:
                other = next(j for j in group if labels[j] != labels[i])
            score = cosine.get((min(i, other), max(i, other)))
            if conflict:
                findings[TWO_CLASSES].append(Finding(TWO_CLASSES, i, None, score, other))
            elif in_test and not is_test[i]:
                findings[TRAIN_AND_TEST].append(Finding(TRAIN_AND_TEST, i, None, score, other))
            elif i != first:
                findings[NEAR_COPY].append(Finding(NEAR_COPY, i, None, score, other))
    return [one for kind in findings.values() for one in kind]


def _none_of_these(model: AdaptedModel, train: ImageSet, own: Extraction) -> list[Finding]:
    y = np.array(train.subset(own.kept).labels)
    known = np.flatnonzero(y < len(model.classes))
    task = make_task(model.encoder, own.features[:, known], y[known], model.text)
    scores, limit = outlier_scores(task)
    order = [i for i in np.argsort(scores, kind="stable").tolist() if scores[i] < limit]
    return [Finding(NONE_OF_THESE, own.kept[known[i]], None, float(scores[i])) for i in order]


def _confused(labelled: LabelledPredictions, model: AdaptedModel) -> list[tuple[Any, Any, float]]:
    """Return pairs of classes that are confused in at least `MIN_CONFUSED` of their images, and three."""
    counts = metrics.confusion(labelled.logits, labelled.y)
    own = counts.sum(axis=1)
    confused = np.triu(counts + counts.T, 1)
    share = confused / np.maximum(own[:, None] + own[None, :], 1)
    found = [(i, j) for i, j in np.argwhere(share >= MIN_CONFUSED).tolist() if confused[i, j] >= 3]
    found.sort(key=lambda pair: -share[pair])
    return [(model.classes[i], model.classes[j], float(share[i, j])) for i, j in found]
