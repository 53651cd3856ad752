"""Anchored: a convex regression on top of the zero-shot scores, folded into one matrix. The default method.

This is ours, not the paper's. `prolip` moves the projection W0 [Do, D] towards the labelled images, held back
by a penalty; this method keeps the zero-shot scores as a fixed part of the logits, and fits the rest:

    logits_i = b (p_i + r_i) T'  +  f_i E C,     f_i = x_i / |x_i|,   p_i = x_i W0 / c |x_i|

T [K, D] are the class texts. c is such that |p_i| is 1 on average, so that p_i T' are about the zero-shot
cosines; r_i = offset_i / c |x_i| where the head has an offset (a bias, a residual). b > 0 is the text weight.
E is diagonal and standardises: each feature is divided by its standard deviation over the labelled images, to
whose square the mean variance of all features is added, and |f_i E|^2 is 1 on average. C [Do, K] minimises

    mean_i CE( logits_i, y_i )  +  lam |C|^2                                            (`solvers.regression`)

a convex problem. Images of one group count as one, in the mean and in n below. A positive factor of an image,
like c |x_i|, changes no prediction. So with T = U S V' the predictions are those of one matrix,

    W = W0  +  (c / b) E C U S^-1 V'

With C = 0 it is zero-shot. On a black box x is the embedding, W0 the identity. The two numbers are formulas:

    b = TEXT_SHARE b*,      lam = ln K / (PRIOR_LOGIT^2 n)         n images of K classes

b* is the scale at which zero-shot scores make the labels likeliest, at most the model's own scale s, with a
unit normal prior on log b* around log s, for a handful of images: texts count as far as the labelled images
agree with them. lam is a normal prior for the logits f_i E C with the variance PRIOR_LOGIT^2 / (2 ln K), so
that the largest of K of them is about PRIOR_LOGIT, whatever K is. Predictions multiply cosines by the mean of
(b / TEXT_SHARE) |x_i W| / c |x_i|, the scale at which texts alone were likeliest.

Classes without images. The regression's logits have no bound: fitted classes gain on all images, and a class
that has only a name would hardly be predicted. A cosine is bounded. So where the model has classes without
images (`Method.fit` leaves them out of the softmax), the paper's objective takes over, with its lam = 1/N, on
standardised features, at a lower scale:

    minimise over D:    mean_i CE( OPEN_SCALE s normalize(p_i + r_i + f_i E D) T', y_i )  +  |D|^2 / N

A bounded logit cannot leave a wrong start, so where texts say little the regression stays: the result is
share (W0 + c E D) + (1 - share) W with share = min(1, explained / EXPLAINED), where `explained` is the part
of the labels' information that the texts give, 1 - mean_i CE(b* (p_i + r_i) T', y_i) / ln K.
docs/measurements/default.md has what each constant is worth, and on what it was chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, HeldOutPredictions, Projected, Task
from prolip.core.arrays import Array, row_lengths, softmax_loss
from prolip.core.capabilities import Capability
from prolip.methods.base import FitContext, Method, OptionError
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning
from prolip.solvers import exact
from prolip.solvers.folds import assign_folds, canonical_order
from prolip.solvers.regression import SoftmaxRegression
from prolip.solvers.threads import parallel_matmul

TEXT_SHARE = 0.5
PRIOR_LOGIT = 12.5
OPEN_SCALE = 0.7
EXPLAINED = 0.4

TOL, FOLD_TOL = 1e-5, 6e-3  # of the fit on all images, and of those without a fold
MIN_SINGULAR_VALUE = 1e-3  # of T, as a share of the largest; below it two classes have the same text


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
        What predictions multiply cosines by: "auto" (that of the fit), or a number > 0.

    Examples
    --------
    >>> x = np.concatenate([np.eye(6), np.eye(6)]) + 0.1
    >>> Anchored().fit(Task(x, list(range(6)) * 2, np.eye(6))).predict(x).tolist()
    [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    """

    name: ClassVar[str] = "anchored"
    summary: ClassVar[str] = "a regression on top of the zero-shot scores, folded into the image projection"
    open_class: ClassVar[bool] = True
    size: ClassVar[str] = "Do x D"
    needs: ClassVar[Capability] = Capability.IMAGE_FEATURES

    lam: str | float = "auto"
    text_weight: str | float = "auto"
    scale: str | float = "auto"

    def __post_init__(self) -> None:
        for name in self.options():
            value = getattr(self, name)
            if not (value == "auto" or (isinstance(value, (int, float)) and 0 < value < math.inf)):
                raise OptionError(name, "'auto' or a number > 0 (1/N is a rule of prolip)", value)

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Put numbers in the place of the formulas."""
        lam, b = self.lam, self.text_weight
        if lam == "auto":
            lam = math.log(task.classes) / (PRIOR_LOGIT**2 * task.independent)
        if b == "auto":
            b = TEXT_SHARE * Problem.of(task).likeliest_scale()[0]
        chosen = {"lam": float(lam), "text_weight": float(b)}
        return Tuning(replace(self, **chosen), {"lam_rule": self.lam, **chosen})

    def solve(self, task: Task, context: FitContext) -> Projected:
        """Fit C on all images, and fold it into the matrix."""
        problem = Problem.of(task.subset(canonical_order(task)))
        return self._solve(problem, problem.regression(), context)

    def solve_with_folds(
        self, task: Task, context: FitContext, seed: int
    ) -> tuple[Fitted, HeldOutPredictions]:
        """Fit without each fold, all as one problem, and on all images."""
        order = canonical_order(task)
        problem = Problem.of(task.subset(order))
        fold, regression = assign_folds(problem.task, seed), problem.regression()
        held = np.flatnonzero(fold >= 0)
        if not len(held):
            return super().solve_with_folds(task, context, seed)
        rows = np.tile(fold, task.views)
        kept = (rows[:, None] != np.arange(fold.max() + 1)) * problem.weights[:, None]  # 0: held out
        b = float(self.text_weight)
        regression = regression.on(b * problem.zero_shot(), kept / kept.sum(axis=0))
        z = regression.solve(float(self.lam), tol=FOLD_TOL).unknowns
        fitted = self._solve(problem, regression, context)
        cosines = problem.cosines(regression.scores(z, np.maximum(rows, 0)), b)[0][held]
        logits, images = (fitted.scale * cosines).astype(np.float32), order[held]
        back = images.argsort()
        return fitted, HeldOutPredictions(logits[back], problem.task.y[held][back], images[back])

    def _solve(self, problem: Problem, regression: SoftmaxRegression, context: FitContext) -> Projected:
        task, b = problem.task, float(self.text_weight)
        regression = regression.on(b * problem.zero_shot(), problem.weights[:, None])
        found = regression.solve(float(self.lam), tol=TOL)
        weight = problem.weight(found.weight.T.astype(np.float64), b)
        _, lengths = problem.cosines(regression.scores(found.unknowns, np.zeros(len(problem.y), int)), b)
        scale = b / TEXT_SHARE * float(problem.weights @ lengths)
        report: dict[str, Any] = {
            "solver": "exact",
            "objective": found.minimum.value,
            "start_objective": regression.value(np.zeros_like(found.unknowns), 0.0)[0],
            "evaluations": found.minimum.evaluations,
            "converged": found.minimum.converged,
        }
        if context.unseen:
            explained = problem.likeliest_scale()[1]
            share = min(1.0, explained / EXPLAINED)
            weight = share * problem.open_weight() + (1 - share) * weight
            scale = share * OPEN_SCALE * task.scale + (1 - share) * scale
            report |= {"explained_by_texts": explained, "open_share": share}
        head = task.linear.with_weight(weight.astype(task.linear.weight.dtype))
        factor = scale if self.scale == "auto" else float(self.scale)
        return Projected(head, task.text, factor, tuned=True, fit_scale=scale, report=report)


@dataclass(frozen=True, eq=False)
class Problem:
    """A task in the terms of the module docstring: n rows (images times views), K classes, rank k of T."""

    task: Task
    y: Array  # [n]
    weights: Array  # of the rows [n], their sum is 1
    f: Array  # f E [n, Do]
    offsets: Array | None  # r [n, D]
    e: Array  # the diagonal of E [Do]
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
        weights = np.tile(task.weights, task.views)
        weights /= weights.sum()
        x, offsets = task.linear.split(rows)
        lengths = np.maximum(row_lengths(x), 1e-30)
        embeddings = task.linear(rows).astype(np.float32)
        squared = np.square(embeddings).sum(axis=1)
        c = math.sqrt(max(float(weights @ squared), 1e-30) / float(weights @ np.square(lengths)[:, 0]))
        u, s, vt = np.linalg.svd(task.text.rows.astype(np.float64), full_matrices=False)
        keep = s > MIN_SINGULAR_VALUE * s[0]
        u, s, v = u[:, keep], s[keep], vt[keep].T
        units = (c * lengths).astype(np.float32)
        inside = parallel_matmul(embeddings, v.astype(np.float32)) / units
        outside = np.maximum(squared / units[:, 0] ** 2 - np.square(inside).sum(axis=1), 0)
        f = (x / lengths).astype(np.float32)
        squares = np.einsum("n,nd,nd->d", weights, f, f)
        variances = np.maximum(squares - np.square(weights @ f), 0)
        e = 1 / np.sqrt(variances + variances.mean() + 1e-12)
        e = (e / math.sqrt(squares @ np.square(e))).astype(np.float32)
        offsets = None if offsets is None else np.broadcast_to(offsets, embeddings.shape) / units
        return cls(task, y, weights, f * e, offsets, e, c, u, s, v, inside, outside)

    def zero_shot(self) -> Array:
        """(p + r) T' [n, K]."""
        return (self.inside * self.s) @ self.u.T

    def likeliest_scale(self) -> tuple[float, float]:
        """Return b*, the root of the slope, and the part of the labels' information that texts give at it."""
        from scipy.optimize import brentq

        scores, scale = self.zero_shot().astype(np.float64), self.task.scale

        def slope(b: float) -> float:
            gradient = softmax_loss(b * scores, self.y, self.weights)[1]
            return -self.task.independent * float(np.vdot(gradient, scores)) - math.log(b / scale) / b

        best = scale if slope(scale) >= 0 else float(brentq(slope, 1e-9 * scale, scale, rtol=1e-3))
        loss = float(self.weights @ softmax_loss(best * scores, self.y)[0])
        return best, max(0.0, 1 - loss / math.log(self.task.classes))

    def regression(self) -> SoftmaxRegression:
        """The convex problem; its base and weights are still to be given."""
        basis = self.u if len(self.s) < self.task.classes else None
        return SoftmaxRegression(self.f, self.y, self.task.classes, intercept=False, basis=basis)

    def cosines(self, scores: Array, b: float) -> tuple[Array, Array]:
        """Cosines [n, K] with the texts under the matrix that f C [n, K] gives, and |x W| / c |x| [n]."""
        v = self.inside + (scores @ self.u) / (b * self.s)
        length = np.sqrt(np.maximum(np.square(v).sum(axis=1) + self.outside, 1e-30))
        return ((v * self.s) @ self.u.T) / length[:, None], length

    def weight(self, coefficients: Array, b: float) -> Array:
        """W [Do, D] of C [Do, K]."""
        step = self.e[:, None] * ((coefficients @ self.u) / self.s) @ self.v.T
        weight: Array = self.task.linear.weight + (self.c / b) * step
        return weight

    def open_weight(self) -> Array:
        """W0 + c E D [Do, D], for a model with classes without images."""
        task, start = self.task, self.task.linear.weight / (self.c * self.e[:, None])
        x = self.f if self.offsets is None else np.concatenate([self.f, self.offsets], axis=1)
        head = Head(start.astype(np.float32), residual=self.offsets is not None)
        x = x.reshape(task.views, task.n, -1)
        solution = exact(replace(task, x=x, head=head, scale=OPEN_SCALE * task.scale), 1 / task.shots)
        weight: Array = self.c * self.e[:, None] * solution.weight.astype(np.float64)
        return weight
