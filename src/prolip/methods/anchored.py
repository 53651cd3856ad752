"""Anchored: a convex regression on top of the zero-shot scores, folded into one matrix. The default method.

This is ours, not the paper's. Where `prolip` moves the projection W0 [Do, D] towards the labelled images and
has a penalty to hold it back, this method keeps the zero-shot scores as a fixed part of the logits and fits a
regression to what they leave over:

    logits_i = b (p_i + r_i) T'  +  f_i E C,     f_i = x_i / |x_i|,   p_i = x_i W0 / c |x_i|

T [K, D] are the class texts. c is such that |p_i| is 1 on average, so that p_i T' are about the zero-shot
cosines; r_i = offset_i / c |x_i| where the head has an offset (a bias, a residual). b > 0 is the text weight.
C [Do, K] minimises

    mean_i CE( logits_i, y_i )  +  lam |C|^2                                            (`solvers.regression`)

a convex problem. E is diagonal, the per-feature variance scaling: each feature is divided by a power of its
standard deviation over the labelled images, to which the mean variance of all features is added. A few
coordinates of CLIP's embeddings are ten to thirty times as large as the others, and would have all the
weight. |f_i E|^2 is 1 on average.

One matrix. The division is by |x_i|, not by the length of the embedding: a positive factor of an image
changes no prediction. So with T = U S V' the predictions are those of

    W = W0  +  (c / b) E C U S^-1 V'

instead of W0: x_i W T' are the logits above, times c |x_i| / b. Nothing is fitted outside span(T), so that
classes can be added later. With b = 0 it would be logistic regression; with C = 0 it is zero-shot. On a black
box x is the embedding, and W0 the identity.

Two numbers decide the fit, and both are formulas (`text_weight`, `penalty`):

    b = TEXT_SHARE min(b*, s) / N^SHARE_DECAY           N images a class
    lam = K^CLASSES_POWER / (2 PRIOR_VARIANCE n)        a normal prior for each coefficient; n images

b* is the scale at which zero-shot scores make the labelled images likeliest, s the model's own scale: texts
count as far as the labelled images agree with them, never more than the model itself would say. b* is 50 to
150 under CLIP (s = 100) and 2 to 20 under `offline` (s = 10). It has a wide prior around s (log b* is normal
with a standard deviation of SCALE_DEVIATION), which decides only where there are a handful of images: two
classes with one image each, one of them wrong by zero-shot, gave b* = 0 and 56 % where zero-shot had 92; with
the prior 94. Under `offline` two classes with one image each lose 0.6 points by it on average; from five
classes on nothing changes.

Nothing of this is chosen by cross-validation. On fifteen development sets under four encoders (ViT-B/16,
ViT-B/32, RN50 and `offline`), 1 to 16 images a class, the text share and the variance with the highest
held-out likelihood, or averages of fits weighted by it, were up to 0.8 points behind fixed ones with 2 images
a class and level with more: a few dozen held-out images say less about b than the rule does. The plateau is
wide. The prior is narrower where there are more classes: with one variance for all, 1,000 classes of ImageNet
with 4 images each are 0.4 points lower, or else aerial scenes under CLIP 0.2. TEXT_SHARE and PRIOR_VARIANCE
can be exchanged, since what matters is one against the other: 0.4 and 10, 0.5 and 30, 0.7 and 100, 1 and
1,000 differ by at most 0.3 points on average. More variance favours weak texts with 4 to 8 images a class,
less favours strong texts with 16, and 1,000 classes. With SHARE_DECAY = 0 aerial scenes lose up to 1.3 points
with 12 images a class, with 0.4 strong texts up to a point. Without min(.., s), aerial scenes under CLIP lose
1.6 points with 2 images a class and photos under `offline` 0.7. Of 54 combinations of the four constants, the
best on eight of nine sets was on the ninth at most 0.3 points below these, and never more than 0.1 above.

Scale. With scale="auto", predictions multiply cosines by the number at which held-out images are likeliest:
it changes no prediction, only its probability. A fold is a set of weights on the rows, zero where a row is
held out: all folds are one problem. Their predictions are passed on, for calibration and for the report, and
the fit on all images starts from the mean of theirs. With one image a class nothing can be held out; the
scale is then the fit's own, the mean of SHARPNESS b |x_i W| / c |x_i|. The prior makes a fit underconfident
by a factor that hardly depends on anything: other images were likeliest at 1.4 to 3.1 b |x_i W| / c |x_i|
(once 4.8) on eleven sets with 1 to 16 images a class, 2.1 in the middle.

What it was measured against, and what else was tried: docs/explanation/anchored.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Head, HeldOutPredictions, Projected, Task, Text, UsageError
from prolip.core.arrays import Array, Tensors, log_softmax, row_lengths
from prolip.core.capabilities import Capability
from prolip.methods.base import FitContext, Method, OptionError, Shape
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning
from prolip.solvers.folds import assign_folds, canonical_order, some_classes
from prolip.solvers.regression import SoftmaxRegression
from prolip.solvers.softmax_loss import softmax_loss
from prolip.solvers.threads import parallel_matmul

TEXT_SHARE = 0.6
SHARE_DECAY = 0.15
PRIOR_VARIANCE = 80.0
CLASSES_POWER = 0.3
SCALE_DEVIATION = 2.0
SHARPNESS = 2.1
TEMPERATURES = tuple(2 ** (k / 4) for k in range(-12, 17))  # factors of the fit's scale, for predictions
MAX_SEARCH_CLASSES = 300  # of more classes, a sample is held out
FOLD_TOL, FOLD_MAX_EVALUATIONS = 6e-3, 40  # of fits inside folds
FINAL_TOL, FINAL_MAX_EVALUATIONS = 1e-5, 200
# Under CLIP 0 is up to 1.2 points behind, 0.5 up to 0.5; 1 is level under CLIP and up to 0.3 behind under
# `offline` (WHU-RS19, photos; text share 1, variance 1,000).
VARIANCE_SCALING_POWER = 0.75
MIN_TEXT_WEIGHT = 1e-3  # as a share of the model's own scale, so that W0 is not lost altogether
MIN_SINGULAR_VALUE = 1e-3  # of T, as a share of the largest; below it two classes have the same text
ONE_SHOT_REASON = "one image per class"


@register
@dataclass(frozen=True, eq=False)
class AnchoredProjection(Projected):
    """The matrix W that replaces the projection, and the text weight b that the fit found."""

    kind: ClassVar[str] = "anchored"

    text_weight: float | None = None

    def config(self) -> dict[str, Any]:
        """The scales, and what was found."""
        return {"scale": self.scale, "fit_scale": self.fit_scale, "text_weight": self.text_weight}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> AnchoredProjection:
        """Replace the base model's projection by the saved matrix."""
        found = [
            None if config[name] is None else float(config[name]) for name in ("fit_scale", "text_weight")
        ]
        head = head.with_weight(tensors["head.weight"])
        return cls(head, text, float(config["scale"]), None, True, *found)


@register
@dataclass(frozen=True)
class Anchored(Method):
    """A regression on top of zero-shot.

    Parameters
    ----------
    lam
        Weight of |C|^2: "auto" (a formula), or a number > 0.
    text_weight
        The weight b of the zero-shot scores: "auto" (a formula), or a number > 0.
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
    scale: str | float = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.lam in ("1/N", "1/N^2"):
            raise UsageError(
                f'lam={self.lam!r} is a rule of the paper\'s objective: use it with method="prolip"; '
                "anchored chooses its penalty itself"
            )
        for name, words in (("lam", ()), ("text_weight", ()), ("scale", ("fixed",))):
            value, allowed = getattr(self, name), ("auto", *words)
            if not (value in allowed or (isinstance(value, (int, float)) and 0 < value < math.inf)):
                listed = ", ".join(map(repr, allowed))
                raise OptionError(name, f"{listed} or a number > 0", value)

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Compute the formulas, and choose the scale on held-out images."""
        task = task if isinstance(self.scale, str) else task.with_scale(self.scale)
        order = canonical_order(task)
        problem = Problem.of(task.subset(order))
        choice = choose(problem, self, splits.seed)
        settled = replace(self, lam=choice.lam, text_weight=choice.text_weight, scale=choice.scale)
        held_out = choice.held_out
        if held_out is not None:  # as the images came
            images = order[held_out.images]
            back = images.argsort()
            held_out = HeldOutPredictions(held_out.logits[back], held_out.y[back], images[back])
        return Tuning(settled, {"lam_rule": self.lam, **choice.report()}, held_out, (problem, choice))

    def solve(self, task: Task, context: FitContext) -> AnchoredProjection:
        """Fit C on all images, and fold it into the matrix."""
        problem, choice = context.start
        b, lam, rows = choice.text_weight, choice.lam, len(problem.y)
        regression = choice.regression or problem.regression()
        regression = regression.on(b * problem.zero_shot(), np.full((rows, 1), 1 / rows))
        found = regression.solve(lam, start=choice.start, tol=FINAL_TOL, evaluations=FINAL_MAX_EVALUATIONS)
        _, lengths = problem.cosines(regression.scores(found.unknowns, np.zeros(rows, int)), b)
        fit_scale = own_scale(b, lengths)
        scale = fit_scale if self.scale == "auto" else float(self.scale)
        report = {
            "solver": "exact",
            "objective": found.minimum.value,
            "start_objective": regression.value(np.zeros_like(found.unknowns), lam)[0],
            "evaluations": found.minimum.evaluations,
            "converged": found.minimum.converged,
        }
        return AnchoredProjection(
            task.linear.with_weight(problem.weight(found.weight.T.astype(np.float64), b)),
            task.text,
            scale,
            tuned=True,
            fit_scale=fit_scale,
            text_weight=b,
            settings=replace(self, scale=scale).to_settings(),
            report=report,
        )

    def count(self, shape: Shape) -> int:
        """The projection: Do x D."""
        return shape.features * shape.dim


def text_weight(problem: Problem) -> float:
    """Return b of a problem, by its formula."""
    b: float = TEXT_SHARE * problem.likeliest_scale() / problem.task.shots**SHARE_DECAY
    return b


def penalty(task: Task) -> float:
    """Return lam of a task, by its formula."""
    lam: float = task.classes**CLASSES_POWER / (2 * PRIOR_VARIANCE * task.n)
    return lam


def own_scale(b: float, lengths: Array) -> float:
    """Return the scale of a fit, from the |x W| / c |x| of its rows."""
    return SHARPNESS * b * float(lengths.mean())


@dataclass(frozen=True, eq=False)
class Choice:
    """The numbers of a fit, and its predictions for held-out images."""

    lam: float
    text_weight: float
    scale: str | float  # of predictions; "auto" where only the fit can tell it
    reason: str  # where the scale comes from: "cross-validation", ONE_SHOT_REASON, or "given"
    log_likelihood: float | None = None  # mean over held-out images, at `scale`
    accuracy: float | None = None  # on held-out images
    held_out: HeldOutPredictions | None = (
        None  # None where nothing, or only a sample of classes, was held out
    )
    regression: SoftmaxRegression | None = None  # on all images, decomposed already
    start: Array | None = None  # Z [r, 1, k] near the fit on all images

    def report(self) -> dict[str, Any]:
        """The choice, for people to read; only lam where all was given."""
        if self.reason == "given":
            return {"lam": self.lam}
        choice = {"reason": self.reason, "accuracy": self.accuracy, "likelihood": self.log_likelihood}
        return {"lam": self.lam, "text_weight": self.text_weight, "choice": choice}


def choose(problem: Problem, method: Anchored, seed: int) -> Choice:
    """Settle what `method` leaves open: b and lam by their formulas, the scale by the folds of `seed`."""
    task = problem.task
    lam = penalty(task) if method.lam == "auto" else float(method.lam)
    b = text_weight(problem) if method.text_weight == "auto" else float(method.text_weight)
    scale = task.scale if method.scale == "fixed" else method.scale
    choice = Choice(lam, b, scale, "given")
    if not (method.scale in ("auto", "fixed") or "auto" in (method.lam, method.text_weight)):
        return choice
    part = problem
    if task.classes > MAX_SEARCH_CLASSES:
        part = Problem.of(some_classes(task, MAX_SEARCH_CLASSES, seed))
    fold = assign_folds(part.task, seed)
    if (fold < 0).all():
        return replace(choice, reason=ONE_SHOT_REASON)
    choice = hold_out(part, fold, choice, penalty(part.task) if method.lam == "auto" else lam)
    return choice if part is problem else replace(choice, held_out=None, regression=None, start=None)


def hold_out(problem: Problem, fold: Array, choice: Choice, lam: float) -> Choice:
    """Fit without each fold in turn: the scale at which held-out images are likeliest, and predictions."""
    task, held, b = problem.task, np.flatnonzero(fold >= 0), choice.text_weight
    rows = np.tile(fold, task.views)
    kept = (rows[:, None] != np.arange(fold.max() + 1)).astype(np.float64)
    regression = problem.regression(kept / kept.sum(axis=0)).on(b * problem.zero_shot())
    z = regression.solve(lam, tol=FOLD_TOL, evaluations=FOLD_MAX_EVALUATIONS).unknowns
    cosines, lengths = problem.cosines(regression.scores(z, np.maximum(rows, 0)), b)
    cosines, y = cosines.reshape(task.views, task.n, -1)[:, held], task.y[held]
    scale = choice.scale
    if scale == "auto":
        fit_scale = own_scale(b, lengths)
        scale = fit_scale * _likeliest_factor(fit_scale * cosines, y)
    scale = float(scale)
    return replace(
        choice,
        scale=scale,
        reason="cross-validation",
        log_likelihood=float(_log_likelihoods(scale * cosines, y).mean()),
        accuracy=float((cosines.argmax(axis=2) == y).mean()),
        held_out=HeldOutPredictions((scale * cosines[0]).astype(np.float32), y, held),
        regression=regression,
        start=z.mean(axis=1, keepdims=True),
    )


def _log_likelihoods(logits: Array, y: Array) -> Array:
    """Log-likelihoods [m] of logits [V, m, K], mean over views."""
    labels = np.broadcast_to(y, logits.shape[:2])[..., None]
    means: Array = np.take_along_axis(log_softmax(logits), labels, axis=2)[..., 0].mean(axis=0)
    return means


def _likeliest_factor(logits: Array, y: Array) -> float:
    """The factor of logits [V, m, K] at which the labels are likeliest."""
    low, high = 0, len(TEMPERATURES) - 1
    while low < high:  # the mean is concave in the factor
        middle = (low + high) // 2
        here, there = (_log_likelihoods(TEMPERATURES[k] * logits, y).mean() for k in (middle, middle + 1))
        low, high = (middle + 1, high) if here < there else (low, middle)
    return TEMPERATURES[low]


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
    inside: Array  # (p + r) V [n, k]
    outside: Array  # squared length of what p + r has outside span(T) [n]

    @classmethod
    def of(cls, task: Task) -> Problem:
        """Rewrite a task; every view is rows of its own."""
        rows, y = task.rows()
        x, _ = task.linear.split(rows)
        lengths = np.maximum(row_lengths(x), 1e-30)
        embeddings = task.linear(rows).astype(np.float32)
        squared = np.square(embeddings).sum(axis=1)
        c = math.sqrt(max(float(squared.mean()), 1e-30) / float(np.square(lengths).mean()))
        u, s, vt = np.linalg.svd(task.text.rows.astype(np.float64), full_matrices=False)
        keep = s > MIN_SINGULAR_VALUE * s[0]
        u, s, v = u[:, keep], s[keep], vt[keep].T
        units = (c * lengths).astype(np.float32)
        inside = parallel_matmul(embeddings, v.astype(np.float32)) / units
        outside = np.maximum(squared / units[:, 0] ** 2 - np.square(inside).sum(axis=1), 0)
        f = (x / lengths).astype(np.float32)
        weights = _feature_weights(f)
        return cls(task, y, f * weights, weights, c, u, s, v, inside, outside)

    def zero_shot(self) -> Array:
        """(p + r) T' [n, K]."""
        return (self.inside * self.s) @ self.u.T

    def likeliest_scale(self) -> float:
        """Return min(b*, s): the factor of zero-shot scores at which the labels are likeliest.

        A few images that zero-shot gets right do not prove that it is never wrong: it is at most the model's
        own scale. Below it likelihood and prior are concave, and the factor the root of their slope.
        """
        scores, scale = self.zero_shot().astype(np.float64), self.task.scale

        def slope(b: float) -> float:
            likelihood = -float(np.vdot(softmax_loss(b * scores, self.y)[1], scores)) / self.task.views
            return likelihood - math.log(b / scale) / (SCALE_DEVIATION**2 * b)

        from scipy.optimize import brentq

        if slope(MIN_TEXT_WEIGHT * scale) <= 0:
            return MIN_TEXT_WEIGHT * scale
        if slope(scale) >= 0:
            return scale
        return float(brentq(slope, MIN_TEXT_WEIGHT * scale, scale, xtol=1e-3 * scale, rtol=1e-3))

    def regression(self, weights: Array | None = None) -> SoftmaxRegression:
        """The convex problem, for one or several weightings of the rows; its base is still zero."""
        basis = self.u if len(self.s) < self.task.classes else None
        return SoftmaxRegression(
            self.f, self.y, self.task.classes, weights=weights, intercept=False, basis=basis
        )

    def cosines(self, scores: Array, b: float) -> tuple[Array, Array]:
        """Cosines [n, K] with the texts under the matrix that f C [n, K] gives, and |x W| / c |x| [n]."""
        v = self.inside + (scores @ self.u) / (b * self.s)
        length = np.sqrt(np.maximum(np.square(v).sum(axis=1) + self.outside, 1e-30))
        return ((v * self.s) @ self.u.T) / length[:, None], length

    def weight(self, coefficients: Array, b: float) -> Array:
        """W [Do, D] of C [Do, K]."""
        w0 = self.task.linear.weight
        step = self.feature_weights[:, None] * (coefficients @ self.u)
        weight: Array = (w0 + (self.c / b) * (step / self.s) @ self.v.T).astype(w0.dtype)
        return weight


def _feature_weights(f: Array) -> Array:
    """The diagonal of E [Do] for unit rows f [n, Do]."""
    squares = np.einsum("nd,nd->d", f, f, dtype=np.float64) / len(f)
    variances = np.maximum(squares - np.square(f.mean(axis=0, dtype=np.float64)), 0)
    weights: Array = (variances + variances.mean() + 1e-12) ** (-VARIANCE_SCALING_POWER / 2)
    return (weights / math.sqrt(squares @ np.square(weights))).astype(np.float32)
