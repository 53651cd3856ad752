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

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from prolip import methods
from prolip.core import Fitted, HeldOutPredictions, InputError, ProlipError, Task
from prolip.core.arrays import Array, softmax
from prolip.core.tabular import Tabular
from prolip.evaluate import metrics
from prolip.evaluate.calibration import fit_factor, fit_temperature
from prolip.evaluate.confidence import fold_share
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
Exports = Callable[[Fitted], tuple[str, ...]]  # returns the formats that a fitted model can be exported to


@dataclass(frozen=True)
class ModelFacts:
    """What it takes to use a model; None is unknown."""

    name: str
    download: int | None = None  # MB; 0 is installed with this package
    licence: str | None = None
    free: bool = True  # whether the licence allows every use


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
    calibration_error_floor: float  # what chance alone gives
    seconds: float  # of one fit, on the rest of a fold
    open_class: bool
    exports: tuple[str, ...]  # what the fitted model can be exported to

    def report(self) -> dict[str, Any]:
        """Return what `compare --json` prints."""
        figures = {name: value for name, value in vars(self).items() if name != "candidate"}
        return {**asdict(self.candidate), **figures, "exports": list(self.exports)}


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Candidates from the most accurate down, which of them to take, and why."""

    scores: tuple[CandidateScore, ...]
    chosen: CandidateScore
    why: str
    images: int  # held out, each once; near-copies count as one
    classes: int
    shots: float
    left_out: dict[str, str]  # methods that could not be fitted, and why
    decided: bool = True  # whether there are enough images to recommend a method
    models: tuple[ModelFacts, ...] = ()

    def __repr__(self) -> str:
        what = "candidates" if len(self.models) > 1 else "methods"
        size = f"{len(self.scores)} {what} on {self.images} held-out images of {self.classes} classes"
        return f"Comparison({size}: {self.why})"

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of each candidate, the most accurate first."""
        names = "model", "accuracy", "low", "high", "gap", "error", "calibration_error", "seconds"
        return [
            {"method": str(each.candidate), **{name: getattr(each, name) for name in names}}
            for each in self.scores
        ]

    def title(self, score: CandidateScore) -> str:
        """Return the name of a candidate, with its model if there are several."""
        return _title(score, len(self.models) > 1)

    def report(self) -> dict[str, Any]:
        """Return what `compare --json` prints."""
        return {
            "chosen": {**asdict(self.chosen.candidate), "model": self.chosen.model},
            "why": self.why,
            "images": self.images,
            "classes": self.classes,
            "shots": self.shots,
            "methods": [each.report() for each in self.scores],
            "models": [asdict(each) for each in self.models],
            "left_out": self.left_out,
        }


def cached_feature_methods(task: Task) -> list[Candidate]:
    """Return the default and every other method that trains no tower."""
    found = [DEFAULT] if task.black_box else [DEFAULT, ON_FEATURES]
    for name, kind in methods.available().items():
        redundant = task.black_box and kind.redundant_on_black_box
        if not (kind.trains_tower or kind.research or redundant or name == DEFAULT.method):
            found.append(Candidate(name))
    return found


@single_thread()
def compare_models(
    models: Iterable[tuple[ModelFacts, Task, Exports]],
    candidates: Sequence[Candidate] | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Cross-validate candidates on the features of several models, of the same images in the same order.

    `models` are taken one after the other, and not kept. `progress` is called with (done, total) methods of
    each.
    """
    scores: list[CandidateScore] = []
    left_out: dict[str, str] = {}
    compared: list[ModelFacts] = []
    correct: Array | None = None  # which images the default on the first model predicts correctly [m]
    for facts, task, exports in models:
        compared.append(facts)
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
                left_out[f"{candidate} on {facts.name}"] = str(error)
                continue
            held_out, fitted, seconds = fit
            known = {"seconds": seconds, "open_class": method.open_class, "exports": exports(fitted)}
            share, weights = fold_share(fitted, task), task.weights[held_out.images]
            scores.append(_score(candidate, facts.name, held_out, weights, share, correct, **known))
            if correct is None:
                correct = held_out.logits.argmax(axis=1) == held_out.y
        if progress is not None:
            progress(len(tried), len(tried))
    if len(compared) == 1:
        left_out = {name.removesuffix(f" on {facts.name}"): why for name, why in left_out.items()}
    default = scores[0]
    chosen, why = choose(default, scores[1:], compared)
    ranked = tuple(sorted(scores, key=lambda each: -each.accuracy))
    images = round(sum(task.weights[held].sum() for _, held in parts))
    decided = not metrics.too_few(images, (default.low, default.high))
    if not decided:
        chosen = default
        why = (
            f"{images} held-out images are too few to tell methods apart: the accuracy of the default may be "
            f"anywhere from {100 * default.low:.0f} to {100 * default.high:.0f} %"
        )
    sizes = images, task.classes, task.shots
    return Comparison(ranked, chosen, why, *sizes, left_out, decided, tuple(compared))


def choose(
    default: CandidateScore, others: Sequence[CandidateScore], models: Sequence[ModelFacts] = ()
) -> tuple[CandidateScore, str]:
    """Return the recommended candidate, and the reason in one sentence."""
    if not others:
        return default, "nothing else was tried"
    several = len(models) > 1
    beyond = NormalDist().inv_cdf(1 - SIGNIFICANCE / len(others))
    ahead = [each for each in others if each.gap > max(MIN_GAP, beyond * each.error)]
    top = max(each.gap for each in ahead or others)
    best = next(each for each in ahead or others if each.gap >= (top - MIN_GAP if ahead else top))
    chance = 100 * beyond * best.error
    gap = f"{100 * best.gap:+.1f} points on the same images, where chance gives up to {chance:.1f}"
    if best.gap <= 0:
        return default, (
            f"nothing is ahead of it; next is {_title(best, several)}, {100 * best.gap:+.1f} points"
        )
    if not ahead:
        return default, (
            f"nothing is ahead of {_title(default, several)} by more than {100 * MIN_GAP:g} points and "
            f"beyond chance; nearest is {_title(best, several)}, {gap}"
        )
    lost = [] if best.open_class or not default.open_class else ["other classes cannot be added"]
    if missing := [form for form in default.exports if form not in best.exports]:
        lost.append(f"no export to {', '.join(missing)}")
    price = f"; what is given up: {', '.join(lost)}" if lost else ""
    facts = {each.name: each for each in models}
    after = facts.get(best.model)
    if best.model != default.model and after and not after.free:
        price += f"; its licence is not free for every use ({after.licence})"
    return best, f"it is ahead of {_title(default, several)}: {gap}{price}"


def _title(score: CandidateScore, several: bool) -> str:
    return f"{score.candidate} on {score.model}" if several else str(score.candidate)


def _as_fitted(method: methods.Method, task: Task, seed: int) -> tuple[HeldOutPredictions, Fitted, float]:
    """Return the held-out predictions that a fit reports, at the scale of the fit; the fit; its seconds."""
    fitted, out = method.fit_held_out(task, None, seed)
    held_out = HeldOutPredictions(fit_factor(fitted) * out.logits, out.y, out.images)
    return held_out, fitted, fitted.report["seconds"]


def _nested(
    method: methods.Method, task: Task, parts: Sequence[tuple[Array, Array]]
) -> tuple[HeldOutPredictions, Fitted, float]:
    """Return predictions, each at the scale of its fit; one of the fits; and the mean seconds of one."""
    logits, seconds = np.zeros((task.n, task.classes), np.float32), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a fit warns of shows in its figures here
        for rest, held in parts:
            started = time.perf_counter()
            fitted = method.fit(task.subset(rest))
            seconds.append(time.perf_counter() - started)
            logits[held] = fit_factor(fitted) * fitted.logits(task.x[0, held])
    images = np.sort(np.concatenate([held for _, held in parts]))
    return HeldOutPredictions(logits[images], task.y[images], images), fitted, fmean(seconds)


def _score(
    candidate: Candidate,
    model: str,
    held_out: HeldOutPredictions,
    weights: Array,
    share: float,
    default: Array | None,
    **known: Any,
) -> CandidateScore:
    """Compute the figures, by the weights [m] of the images, of which each fit had a `share`.

    `default` [m] marks what the default predicts correctly, None for itself.
    """
    hits = held_out.logits.argmax(axis=1) == held_out.y
    n = float(weights.sum())
    accuracy, (low, high) = metrics.expected_accuracy(float(weights @ hits) / n, n, share)
    gaps = hits.astype(float) - (hits if default is None else default)
    gap = float(weights @ gaps) / n
    variance = float(weights @ np.square(gaps - gap)) / max(n - 1, 1)
    probabilities = softmax(held_out.logits / fit_temperature(held_out.logits, held_out.y, weights))
    return CandidateScore(
        candidate,
        model,
        accuracy,
        low,
        high,
        gap=gap,
        error=math.sqrt(variance / n),
        calibration_error=metrics.calibration_error(probabilities, held_out.y, weights),
        calibration_error_floor=metrics.calibration_floor(probabilities, weights),
        **known,
    )
