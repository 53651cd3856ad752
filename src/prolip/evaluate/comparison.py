"""Compare methods, and the models that they adapt, by cross-validation on one support set; recommend one.

The figures of the default are those that a fit reports: its held-out accuracy. Every other method is fitted
on the rest of each fold, with its hyperparameter search inside that rest (nested cross-validation), since the
best of a grid looks too good on the folds that chose it: with 4 images per class, linear_probe by 1 to 6
points and gda by 0 to 4. The folds of the default choose nothing but the scale of its predictions.
Near-copies count as one image. The same images are held out for all, so that the gap between two methods is
judged by the images on which they differ.

The default, on the first model, is recommended unless another candidate is better by more than MIN_GAP, and
beyond chance: the gap must exceed the one-sided 5 % quantile of its paired standard error, divided among all
candidates that are tried, since the best of twenty equal methods is always a little ahead. Of several that
are, the first within MIN_GAP of the best is taken: models come in the order of the user's preference.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from prolip import methods
from prolip.core import Fitted, HeldOutPredictions, InputError, ProlipError, Task
from prolip.core.arrays import Array, softmax
from prolip.core.tabular import Tabular
from prolip.evaluate import metrics
from prolip.evaluate.confidence import fit_factor, fit_temperature, fold_share
from prolip.methods.base import Progress
from prolip.methods.selection import fold_parts
from prolip.solvers.threads import single_thread

MIN_GAP = 0.005  # of accuracy: what a default that stays one matrix may lose
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Candidate:
    """A method with options, as a fit takes it."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.method} ({options})" if options else self.method

    def create(self, seed: int) -> methods.Method:
        """Create the method; `seed` is that of its folds, if it has any."""
        seeded = {"seed": seed} if "seed" in methods.options(self.method) else {}
        return methods.create(self.method, **seeded | self.options)


DEFAULT = Candidate("anchored")
USUAL = tuple(map(Candidate, ("anchored", "prolip", "gda", "linear_probe", "zero_shot")))  # one of each kind
ON_FEATURES = Candidate("linear_probe", {"features": "pre"})


@dataclass(frozen=True)
class CandidateScore:
    """The figures of a candidate on held-out images."""

    candidate: Candidate
    model: str
    accuracy: float
    low: float  # 95 % interval of the accuracy
    high: float
    gap: float  # held-out accuracy over the default's, on the same images
    error: float  # its paired standard error
    calibration_error: float  # at the temperature that held-out images say
    seconds: float  # of one fit, on the rest of a fold
    open_class: bool

    def __str__(self) -> str:
        return f"{self.candidate} on {self.model}"

    def report(self) -> dict[str, Any]:
        """Return what `compare --json` prints."""
        values = asdict(self)
        return {**values.pop("candidate"), **values}


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Candidates from the most accurate down, which of them to take, and why."""

    scores: tuple[CandidateScore, ...]
    chosen: CandidateScore
    why: str
    images: int  # held out, each once; near-copies count as one
    classes: int
    shots: float
    left_out: dict[str, str]  # candidates that could not be fitted, and why
    decided: bool = True  # whether there are enough images to recommend a method

    def __repr__(self) -> str:
        size = f"{len(self.scores)} candidates on {self.images} held-out images of {self.classes} classes"
        return f"Comparison({size}: {self.why})"

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of each candidate, the most accurate first."""
        names = "model", "accuracy", "low", "high", "gap", "error", "calibration_error", "seconds"
        return [
            {"method": str(score.candidate), **{name: getattr(score, name) for name in names}}
            for score in self.scores
        ]

    def report(self) -> dict[str, Any]:
        """Return what `compare --json` prints."""
        return {
            "chosen": {**asdict(self.chosen.candidate), "model": self.chosen.model},
            "why": self.why,
            "images": self.images,
            "classes": self.classes,
            "shots": self.shots,
            "methods": [score.report() for score in self.scores],
            "left_out": self.left_out,
        }


def cached_feature_methods(task: Task) -> list[Candidate]:
    """Return the default and every other method that trains no tower."""
    candidates = [DEFAULT] if task.black_box else [DEFAULT, ON_FEATURES]
    for name, kind in methods.available().items():
        redundant = task.black_box and kind.redundant_on_black_box
        if not (kind.trains_tower or kind.research or redundant or name == DEFAULT.method):
            candidates.append(Candidate(name))
    return candidates


@single_thread()
def compare_models(
    models: Iterable[tuple[str, Task]],
    candidates: Sequence[Candidate] | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Cross-validate candidates on the features of named models, of the same images in the same order.

    `models` are taken one after the other. `progress` is called with (done, total) methods of each.
    """
    scores: list[CandidateScore] = []
    left_out: dict[str, str] = {}
    correct: Array | None = None  # which images the default on the first model predicts correctly [m]
    for model, task in models:
        tried = list(cached_feature_methods(task) if candidates is None else candidates)
        parts = fold_parts(task, seed)
        if not parts:
            raise InputError(
                "with one image per class none can be held out, nor methods compared: use the default"
            )
        for done, candidate in enumerate(tried):
            if progress is not None:
                progress(done, len(tried))
            method = candidate.create(seed)
            try:
                fit = _as_fitted(method, task, seed) if done == 0 else _nested(method, task, parts)
            except ProlipError as error:
                if correct is None:
                    raise
                left_out[f"{candidate} on {model}"] = str(error)
                continue
            correct = fit.correct if correct is None else correct
            scores.append(_score(candidate, model, fit, task, correct))
        if progress is not None:
            progress(len(tried), len(tried))
    default = scores[0]
    chosen, why = choose(default, scores[1:])
    images = round(sum(task.weights[held].sum() for _, held in parts))
    decided = not metrics.too_few(images, (default.low, default.high))
    if not decided:
        chosen = default
        why = (
            f"{images} held-out images are too few to tell methods apart: the accuracy of the default may be "
            f"anywhere from {100 * default.low:.0f} to {100 * default.high:.0f} %"
        )
    ranked = tuple(sorted(scores, key=lambda score: -score.accuracy))
    return Comparison(ranked, chosen, why, images, task.classes, task.shots, left_out, decided)


def choose(default: CandidateScore, others: Sequence[CandidateScore]) -> tuple[CandidateScore, str]:
    """Return the recommended candidate, and the reason in one sentence."""
    if not others:
        return default, "nothing else was tried"
    beyond = NormalDist().inv_cdf(1 - SIGNIFICANCE / len(others))
    ahead = [score for score in others if score.gap > max(MIN_GAP, beyond * score.error)]
    top = max(score.gap for score in ahead or others)
    best = next(score for score in ahead or others if score.gap >= (top - MIN_GAP if ahead else top))
    chance = 100 * beyond * best.error
    gap = f"{100 * best.gap:+.1f} points on the same images, where chance gives up to {chance:.1f}"
    if not ahead:
        return default, (
            f"nothing is ahead of it by more than {100 * MIN_GAP:g} points and beyond chance; nearest is "
            f"{best}, {gap}"
        )
    lost = default.open_class and not best.open_class
    price = "; what is given up: other classes cannot be added" if lost else ""
    return best, f"it is ahead of {default}: {gap}{price}"


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Held-out predictions at the scale of each fit, one of the fits, and the mean seconds of one."""

    predictions: HeldOutPredictions
    fitted: Fitted
    seconds: float

    @property
    def correct(self) -> Array:
        """Whether each image is predicted correctly, [m]."""
        hits: Array = self.predictions.logits.argmax(axis=1) == self.predictions.y
        return hits


def _as_fitted(method: methods.Method, task: Task, seed: int) -> _HeldOut:
    """Return the held-out predictions that a fit reports."""
    fitted, out = method.fit_held_out(task, None, seed)
    held_out = HeldOutPredictions(fit_factor(fitted) * out.logits, out.y, out.images)
    return _HeldOut(held_out, fitted, fitted.report["seconds"])


def _nested(method: methods.Method, task: Task, parts: Sequence[tuple[Array, Array]]) -> _HeldOut:
    """Fit on the rest of each fold, and predict the fold."""
    logits, seconds = np.zeros((task.n, task.classes), np.float32), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a fit warns of shows in its figures here
        for rest, held in parts:
            started = time.perf_counter()
            fitted = method.fit(task.subset(rest))
            seconds.append(time.perf_counter() - started)
            logits[held] = fit_factor(fitted) * fitted.logits(task.x[0, held])
    images = np.sort(np.concatenate([held for _, held in parts]))
    return _HeldOut(HeldOutPredictions(logits[images], task.y[images], images), fitted, fmean(seconds))


def _score(candidate: Candidate, model: str, fit: _HeldOut, task: Task, default: Array) -> CandidateScore:
    """Compute the figures on held-out images; `default` [m] marks what the default predicts correctly."""
    held_out, hits = fit.predictions, fit.correct
    weights = task.weights[held_out.images]
    n = float(weights.sum())
    share = fold_share(fit.fitted, task)
    accuracy, (low, high) = metrics.expected_accuracy(float(weights @ hits) / n, n, share)
    gaps = hits.astype(float) - default
    gap = float(weights @ gaps) / n
    error = math.sqrt(float(weights @ np.square(gaps - gap)) / max(n - 1, 1) / n)
    probabilities = softmax(held_out.logits / fit_temperature(held_out.logits, held_out.y, weights))
    calibration_error = metrics.calibration_error(probabilities, held_out.y, weights)
    open_class = methods.get(candidate.method).open_class
    return CandidateScore(
        candidate, model, accuracy, low, high, gap, error, calibration_error, fit.seconds, open_class
    )
