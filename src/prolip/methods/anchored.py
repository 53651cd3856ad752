"""Anchored: a convex regression on top of the zero-shot scores, folded into one matrix. The default method.

This is ours, not the paper's. Where `prolip` moves the projection W0 [Do, D] towards the labelled images and
has a penalty lam to hold it back, this method keeps the zero-shot scores as a fixed part of the logits and
fits a regression to what they leave over:

    logits_i = b (m p_i + r_i) T'  +  f_i E C,     f_i = x_i / |x_i|,   p_i = x_i W0 / c |x_i|

T [K, D] are the class texts. c is such that |p_i| is 1 on average, so that p_i T' are about the zero-shot
cosines; r_i = offset_i / c |x_i| where the head has an offset (a bias, a residual). b >= 0 is the text
weight, m the text share that is left of it beside labelled images. C [Do, K] minimises

    mean_i CE( logits_i, y_i )  +  lam |C|^2                                            (`solvers.regression`)

a convex problem. E is diagonal, the per-feature variance scaling: each feature is divided by the root of its
standard deviation over the labelled images, to which the mean variance of all features is added. A few
coordinates of CLIP's embeddings are ten to thirty times as large as the others, and would have all the
weight. |f_i E|^2 is 1 on average.

One matrix. The division is by |x_i|, not by the length of the embedding: a positive factor of an image
changes no prediction. So with T = U S V' the predictions are those of

    W = W0 (I - V V')  +  m W0 V V'  +  (c / b) E C U S^-1 V'

instead of W0: x_i W T' are the logits above, times c |x_i| / b. Nothing is fitted outside span(T), where
W0 keeps its full weight for classes that are added later. With m = b = 0 it would be logistic regression;
with C = 0 it is zero-shot. On a black box x is the embedding, and W0 the identity.

Everything is chosen inside the support set, without a validation image:

- b, the text weight, maximises the zero-shot likelihood of the labelled images: one number from all of them,
  one image a class included (`Problem.text_weight`).
- m, the text share, falls with the number of images. Cross-validation tries TEXT_SHARES; of those whose
  held-out log-likelihood is within two standard errors of the best, the one nearest to N^-SHARE_DECAY wins
  (`choose_text_share`). A fold is a set of weights on the rows, zero where a row is held out: all folds are
  one problem. With one image a class nothing can be held out: m = 1.
- lam = 1 / (PENALTY_SCALE N). Accuracy is flat over two decades around it, as for logistic regression.
- The scale of predictions is the number at which held-out images are likeliest: it changes no prediction,
  only its confidence. Without held-out images it is the fit's own, the mean of b |x_i W| / c |x_i|: 0.8 to
  1.7 times the likeliest on other images of 14 sets (0.3 on one whose predictions were all right).

What it was measured against, and what else was tried: docs/methods.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Head, HeldOutPredictions, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, Tensors, log_softmax, row_lengths
from prolip.core.capabilities import Capability
from prolip.methods.base import FitContext, Method, Shape
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning
from prolip.solvers.folds import assign_folds, canonical_order, some_classes
from prolip.solvers.regression import SoftmaxRegression
from prolip.solvers.threads import parallel_matmul

TEXT_SHARES = (1.0, 0.5, 0.25, 0.125)
SHARE_DECAY = 0.7  # the expected share is N^-SHARE_DECAY
MAX_STANDARD_ERRORS = 2.0  # that a held-out log-likelihood may stay below the best
PENALTY_SCALE = 2e5
TEMPERATURES = tuple(2 ** (k / 4) for k in range(-12, 17))  # factors of the fit's scale, for predictions
MAX_SEARCH_CLASSES = 300  # of more classes a sample is searched on: what is chosen is a strength, not a class
SEARCH_TOL, SEARCH_MAX_EVALUATIONS = 6e-3, 40  # of fits that are only compared
FINAL_TOL, FINAL_MAX_EVALUATIONS = 1e-5, 200
VARIANCE_SCALING_POWER = 0.5  # 1/3 and 1 are 0.1 to 0.2 points behind on average, 0 is 0.2
MIN_TEXT_WEIGHT = 1e-3  # as a share of the model's own scale, so that W0 is not lost altogether
MIN_SINGULAR_VALUE = 1e-3  # of T, as a share of the largest; below it two classes have the same text
ONE_SHOT_REASON = "one image per class"


@register
@dataclass(frozen=True, eq=False)
class AnchoredProjection(Projected):
    """The matrix W that replaces the projection, and the numbers that the fit found."""

    kind: ClassVar[str] = "anchored"

    text_weight: float | None = None  # b
    text_share: float | None = None  # m

    def config(self) -> dict[str, Any]:
        """The scales, and what was found."""
        found = {name: getattr(self, name) for name in ("fit_scale", "text_weight", "text_share")}
        return {"scale": self.scale, **found}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> AnchoredProjection:
        """Replace the base model's projection by the saved matrix."""
        names = ("fit_scale", "text_weight", "text_share")
        found = [None if config[name] is None else float(config[name]) for name in names]
        head = head.with_weight(tensors["head.weight"])
        return cls(head, text, float(config["scale"]), None, True, *found)


@register
@dataclass(frozen=True)
class Anchored(Method):
    """A regression on top of zero-shot.

    Parameters
    ----------
    lam
        Weight of |C|^2: "auto", 1 / (2e5 N), or a number > 0.
    text_weight, text_share
        b and m: "auto", chosen inside the support set, or numbers.
    scale
        What predictions multiply cosines by: "auto" (chosen), "fixed" (the model's own), or a number.
    seed
        Random seed for the folds.

    Examples
    --------
    >>> x = np.concatenate([np.eye(6), np.eye(6)]) + 0.1
    >>> fitted = Anchored().fit(Task(x, list(range(6)) * 2, np.eye(6)))
    >>> fitted.report["choice"]["reason"]
    'cross-validation'
    """

    name: ClassVar[str] = "anchored"
    summary: ClassVar[str] = "a regression on top of the zero-shot scores, folded into the image projection"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "Do x D"
    needs: ClassVar[Capability] = Capability.IMAGE_FEATURES

    lam: str | float = "auto"
    text_weight: str | float = "auto"
    text_share: str | float = "auto"
    scale: str | float = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.lam in ("1/N", "1/N^2"):
            raise UsageError(
                f'lam={self.lam!r} is a rule of the paper\'s objective: use it with method="prolip"; '
                "anchored chooses its penalty itself"
            )
        for name, words in (("lam", ()), ("text_weight", ()), ("text_share", ()), ("scale", ("fixed",))):
            value, allowed = getattr(self, name), ("auto", *words)
            if not (value in allowed or (isinstance(value, (int, float)) and 0 < value < math.inf)):
                listed = ", ".join(map(repr, allowed))
                raise UsageError(f"{name} must be {listed} or a number > 0, got {value!r}")

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose the text weight, the text share and the scale."""
        order = canonical_order(task)
        problem = Problem.of(self._scaled(task).subset(order))
        choice = choose(problem, self, splits.seed)
        settled = replace(
            self,
            lam=choice.lam,
            text_weight=choice.text_weight,
            text_share=choice.text_share,
            scale=choice.scale,
        )
        held_out = choice.held_out
        if held_out is not None:  # as the images came
            images = order[held_out.images]
            back = images.argsort()
            held_out = HeldOutPredictions(held_out.logits[back], held_out.y[back], images[back])
        return Tuning(settled, {"lam_rule": self.lam, **choice.report()}, held_out, (problem, choice))

    def solve(self, task: Task, context: FitContext) -> AnchoredProjection:
        """Fit C on all images, and fold it into the matrix."""
        problem, choice = context.start
        b, m, lam, rows = choice.text_weight, choice.text_share, choice.lam, len(problem.y)
        regression = choice.regression or problem.regression()
        regression = regression.on(b * problem.zero_shot(m), np.full((rows, 1), 1 / rows))
        found = regression.solve(lam, start=choice.start, tol=FINAL_TOL, evaluations=FINAL_MAX_EVALUATIONS)
        _, lengths = problem.cosines(regression.scores(found.unknowns, np.zeros(rows, int)), b, m)
        fit_scale = b * float(lengths.mean())
        scale = fit_scale if self.scale == "auto" else float(self.scale)
        report = {
            "solver": "exact",
            "objective": found.minimum.value,
            "start_objective": regression.value(np.zeros_like(found.unknowns), lam)[0],
            "evaluations": found.minimum.evaluations,
            "converged": found.minimum.converged,
        }
        return AnchoredProjection(
            task.linear.with_weight(problem.weight(found.weight.T.astype(np.float64), b, m)),
            task.text,
            scale,
            tuned=True,
            fit_scale=fit_scale,
            text_weight=b,
            text_share=m,
            settings=replace(self, scale=scale).to_settings(),
            report=report,
        )

    def _scaled(self, task: Task) -> Task:
        return task if isinstance(self.scale, str) else task.with_scale(self.scale)

    def count(self, shape: Shape) -> int:
        """The projection: Do x D."""
        return shape.features * shape.dim


@dataclass(frozen=True)
class ShareTrial:
    """A text share that was tried, and how it did on held-out images at its best `scale`."""

    text_share: float
    scale: float
    log_likelihood: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, and why."""

    lam: float
    text_weight: float
    text_share: float
    scale: str | float  # of predictions; "auto" where only the fit can tell it
    reason: str  # "cross-validation", ONE_SHOT_REASON, or "given"
    tried: tuple[ShareTrial, ...] = ()  # in order; empty without cross-validation
    # Predictions under this choice; None where nothing, or only a sample of classes, was held out.
    held_out: HeldOutPredictions | None = None
    regression: SoftmaxRegression | None = None  # on all images, decomposed already
    start: Array | None = None  # Z [r, 1, k] near the fit on all images

    def report(self) -> dict[str, Any]:
        """The choice, for people to read; nothing where there was none."""
        if self.reason == "given":
            return {"lam": self.lam}
        tried = {
            "reason": self.reason,
            "share": [trial.text_share for trial in self.tried],
            "scale": [trial.scale for trial in self.tried],
            "accuracy": [round(trial.accuracy, 4) for trial in self.tried],
            "likelihood": [round(trial.log_likelihood, 4) for trial in self.tried],
        }
        return {"lam": self.lam, "trust": self.text_weight, "share": self.text_share, "choice": tried}


def choose(problem: Problem, method: Anchored, seed: int) -> Choice:
    """Choose what `method` leaves open, by the folds of `seed`."""
    task = problem.task
    lam = _penalty(method, task)
    b = problem.text_weight() if method.text_weight == "auto" else float(method.text_weight)
    shares = TEXT_SHARES if method.text_share == "auto" else (float(method.text_share),)
    scale = task.scale if method.scale == "fixed" else method.scale
    choice = Choice(lam, b, shares[0], scale, "given")
    if len(shares) == 1 and scale != "auto":
        return choice
    searched = problem
    if task.classes > MAX_SEARCH_CLASSES:
        searched = Problem.of(some_classes(task, MAX_SEARCH_CLASSES, seed))
    fold = assign_folds(searched.task, seed)
    if (fold < 0).all():
        return replace(choice, reason=ONE_SHOT_REASON)
    regression, fits = fit_folds(searched, fold, b, shares, _penalty(method, searched.task))
    best = choose_text_share(np.stack([fit.log_likelihoods for fit in fits]), shares, task.shots)
    fit = fits[best]
    choice = replace(
        choice,
        text_share=shares[best],
        scale=fit.trial.scale if scale == "auto" else scale,
        reason="cross-validation",
        tried=tuple(each.trial for each in fits),
    )
    if searched is not problem:
        return choice
    held = np.flatnonzero(fold >= 0)
    logits = (float(choice.scale) * fit.cosines).astype(np.float32)
    return replace(
        choice,
        held_out=HeldOutPredictions(logits, task.y[held], held),
        regression=regression,
        start=fit.z.mean(axis=1, keepdims=True),
    )


def choose_text_share(log_likelihoods: Array, shares: Sequence[float], shots: float) -> int:
    """The index of the share to take, by the log-likelihoods [shares, m] of m held-out images.

    Of the shares that are within MAX_STANDARD_ERRORS of the best (paired, over the images), the one nearest
    to N^-SHARE_DECAY.
    """
    means = log_likelihoods.mean(axis=1)
    gaps = log_likelihoods[means.argmax()] - log_likelihoods
    errors = [_standard_error(gap) for gap in gaps]
    close = [
        i for i, mean in enumerate(means) if means.max() - mean <= MAX_STANDARD_ERRORS * errors[i] + 1e-12
    ]
    return min(close, key=lambda i: abs(math.log(shares[i] * shots**SHARE_DECAY)))


@dataclass(frozen=True, eq=False)
class FoldFits:
    """The fits of all folds at one text share, and their predictions for m held-out images."""

    trial: ShareTrial
    log_likelihoods: Array  # [m], at the best temperature
    cosines: Array  # [m, K]
    z: Array  # unknowns Z [r, folds, k]


def fit_folds(
    problem: Problem, fold: Array, b: float, shares: Sequence[float], lam: float
) -> tuple[SoftmaxRegression, list[FoldFits]]:
    """Fit all folds at every share, each from where the one before ended; the problem they share."""
    rows = np.tile(fold, problem.task.views)
    kept = (rows[:, None] != np.arange(fold.max() + 1)).astype(np.float64)
    regression = problem.regression(kept / kept.sum(axis=0))
    z, fits = None, []
    for share in shares:
        at = regression.on(b * problem.zero_shot(share))
        z = at.solve(lam, start=z, tol=SEARCH_TOL, evaluations=SEARCH_MAX_EVALUATIONS).unknowns
        fits.append(_score(problem, at.scores(z, np.maximum(rows, 0)), b, share, fold, z))
    return regression, fits


def _score(problem: Problem, scores: Array, b: float, share: float, fold: Array, z: Array) -> FoldFits:
    """How likely held-out images are: under the regression, to choose by; as cosines, for their scale."""
    task, held = problem.task, np.flatnonzero(fold >= 0)

    def of_images(rows: Array) -> Array:
        return rows.reshape(task.views, task.n, -1)[:, held]

    cosines, lengths = problem.cosines(scores, b, share)
    fit_scale = b * float(lengths.mean())
    each, _ = _likeliest(of_images(scores + b * problem.zero_shot(share)), task.y[held])
    _, temperature = _likeliest(of_images(fit_scale * cosines), task.y[held])
    accuracy = float((of_images(cosines).argmax(axis=2) == task.y[held]).mean())
    trial = ShareTrial(share, fit_scale * temperature, float(each.mean()), accuracy)
    return FoldFits(trial, each, of_images(cosines)[0], z)


def _likeliest(logits: Array, y: Array) -> tuple[Array, float]:
    """Log-likelihoods [m] of logits [V, m, K], mean over views, at the best temperature; and that."""
    labels = np.broadcast_to(y, logits.shape[:2])[..., None]

    def at(index: int) -> Array:
        found = np.take_along_axis(log_softmax(TEMPERATURES[index] * logits), labels, axis=2)
        return found[..., 0].mean(axis=0)

    low, high = 0, len(TEMPERATURES) - 1
    while low < high:  # the mean is concave in the temperature
        middle = (low + high) // 2
        if at(middle).mean() < at(middle + 1).mean():
            low = middle + 1
        else:
            high = middle
    return at(low), TEMPERATURES[low]


def _penalty(method: Anchored, task: Task) -> float:
    return 1 / (PENALTY_SCALE * task.shots) if method.lam == "auto" else float(method.lam)


def _standard_error(gap: Array) -> float:
    return float(gap.std(ddof=1)) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Problem:
    """A task in the terms of the module docstring: n rows (images times views), K classes, rank k of T."""

    task: Task
    y: Array  # [n]
    f: Array  # f E [n, Do]
    feature_weights: Array  # the diagonal of E [Do]
    c: float
    u: Array  # U [K, k]
    s: Array  # S [k]
    v: Array  # V [D, k]
    inside: Array  # p V [n, k]
    fixed: Array | float  # r V [n, k]
    outside: Array  # squared length of what p + r has outside span(T) [n]

    @classmethod
    def of(cls, task: Task) -> Problem:
        """Rewrite a task; every view is rows of its own."""
        rows, y = task.rows()
        x, offset = task.linear.split(rows)
        lengths = np.maximum(row_lengths(x), 1e-30)
        embeddings = task.linear(rows).astype(np.float32)
        squared = np.square(embeddings).sum(axis=1)
        c = math.sqrt(max(float(squared.mean()), 1e-30) / float(np.square(lengths).mean()))
        u, s, vt = np.linalg.svd(task.text.rows.astype(np.float64), full_matrices=False)
        keep = s > MIN_SINGULAR_VALUE * s[0]
        u, s, v = u[:, keep], s[keep], vt[keep].T
        units = (c * lengths).astype(np.float32)
        whole = parallel_matmul(embeddings, v.astype(np.float32)) / units
        fixed: Array | float = 0.0
        if offset is not None:
            fixed = (np.atleast_2d(offset) @ v).astype(np.float32) / units
        outside = np.maximum(squared / units[:, 0] ** 2 - np.square(whole).sum(axis=1), 0)
        f = (x / lengths).astype(np.float32)
        weights = _feature_weights(f)
        return cls(task, y, f * weights, weights, c, u, s, v, whole - fixed, fixed, outside)

    def zero_shot(self, share: float = 1.0) -> Array:
        """(m p + r) T' [n, K]."""
        return ((share * self.inside + self.fixed) * self.s) @ self.u.T

    def text_weight(self) -> float:
        """Return b, the weight of the zero-shot scores.

        It maximises the likelihood of the images under b times the zero-shot scores, with a normal prior
        whose deviation is the model's own scale: a few images that zero-shot gets right do not prove that
        it is never wrong. The function is concave, and b the root of its slope.
        """
        scores, every, images = self.zero_shot().astype(np.float64), np.arange(len(self.y)), self.task.views
        scale = self.task.scale

        def slope(b: float) -> float:
            p = np.exp(log_softmax(b * scores))
            gain = scores[every, self.y] - np.einsum("nk,nk->n", p, scores)
            return float(gain.sum()) / images - b / scale**2

        from scipy.optimize import brentq

        if slope(0.0) <= 0:
            return MIN_TEXT_WEIGHT * scale
        high = scale
        while slope(high) > 0:
            high *= 2
        return max(float(brentq(slope, 0.0, high, xtol=1e-3 * scale, rtol=1e-3)), MIN_TEXT_WEIGHT * scale)

    def regression(self, weights: Array | None = None) -> SoftmaxRegression:
        """The convex problem, for one or several weightings of the rows; its base is still zero."""
        basis = self.u if len(self.s) < self.task.classes else None
        return SoftmaxRegression(
            self.f, self.y, self.task.classes, weights=weights, intercept=False, basis=basis
        )

    def cosines(self, scores: Array, b: float, share: float) -> tuple[Array, Array]:
        """Cosines [n, K] with the texts under the matrix that f C [n, K] gives, and |x W| / c |x| [n]."""
        v = share * self.inside + self.fixed + (scores @ self.u) / (b * self.s)
        length = np.sqrt(np.maximum(np.square(v).sum(axis=1) + self.outside, 1e-30))
        return ((v * self.s) @ self.u.T) / length[:, None], length

    def weight(self, coefficients: Array, b: float, share: float) -> Array:
        """W [Do, D] of C [Do, K]."""
        w0 = self.task.linear.weight.astype(np.float64)
        step = self.feature_weights[:, None] * (coefficients @ self.u)
        inside = (share - 1) * (w0 @ self.v) + (self.c / b) * step / self.s
        return (w0 + inside @ self.v.T).astype(self.task.linear.weight.dtype)


def _feature_weights(f: Array) -> Array:
    """The diagonal of E [Do] for unit rows f [n, Do]."""
    squares = np.einsum("nd,nd->d", f, f, dtype=np.float64) / len(f)
    variances = np.maximum(squares - np.square(f.mean(axis=0, dtype=np.float64)), 0)
    weights = (variances + variances.mean() + 1e-12) ** (-VARIANCE_SCALING_POWER / 2)
    return (weights / math.sqrt(squares @ np.square(weights))).astype(np.float32)
