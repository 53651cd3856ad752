"""lam = "auto": chosen inside the support set, without a validation image.

What is fitted: a restrained form of the paper's objective. (An explicit lam means the paper's as it stands.)

    logits_i = s v_i T' / sqrt(|v_i| a_i),      W - W0 within span(T)

What embeddings have outside span(T), the span of the class texts, changes no prediction, only their length;
and so does a good part of what is inside. A fit that divides by |v_i| uses that length to satisfy the support
images one by one, and overfits. So nothing moves outside span(T), and lengths count by their root: half of
|v_i| gives way to a_i, which is in proportion to |x_i| and on average as large as |v_i| is at W0. Predictions
are cosines as ever.

lam. The unit is u / N with u = mean |x|^2 / mean |v|^2, because lam is not scale free: multiply x by a and
divide W by a, and embeddings stay while |W - W0|^2 falls by a^2. For a black box u = 1, and the paper's 1/N
is one unit. Accuracy is flat over two decades around PRIOR = 0.001 units, whatever the set, the number of
images and the encoder. So that is the choice unless the images object: cross-validation goes down a path
of lam, until it has left the best far behind, and the lam nearest to PRIOR wins among those whose held-out
log-likelihood is within two standard errors of the best. A fold is a set of weights on the rows, zero where a
row is held out: every fold shares the reduction and its decomposition, and all folds go down the path as one
problem. Their answers about held-out images are handed on, for calibration and for the report, and the fit on
all images starts from the mean of theirs. Of more than CLASSES classes a sample is looked at: what is
searched for is a strength, not a class.

Scale. The fit runs at the model's own scale. With scale="auto", predictions use the scale at which held-out
images are likeliest: it changes no answer, only how sure of it the model says it is.

One image per class. Nothing can be held out: PRIOR it is.

What else was tried, and where this was settled: docs/methods.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prolip.core import HeldOut, Task
from prolip.core.arrays import Array, log_softmax
from prolip.core.errors import unknown_name
from prolip.solvers.exact import solve
from prolip.solvers.folds import FOLDS, assign_folds, own_order, some_classes
from prolip.solvers.minimise import minimise
from prolip.solvers.objective import ReducedObjective
from prolip.solvers.reduction import Reduction, reduce
from prolip.solvers.solution import Solution
from prolip.solvers.threads import single_thread

PRIOR = 1e-3
GRID = (1.0, 1e-1, 10**-1.5, 1e-2, 10**-2.5, PRIOR, 10**-3.5)  # in units of u / N
ERRORS = 2.0  # standard errors that a score may stay below the best
FAR = 5.0  # standard errors below the best, twice and falling, at which to go no further down
TEMPERATURES = tuple(2 ** (k / 4) for k in range(-12, 17))  # of the scale of the fit, for predictions
CLASSES = 300
TOL, FINE = 3e-3, 1e-4  # of fits inside folds: to compare by, and under the lam that was chosen
MAX_EVALUATIONS = 20


@dataclass(frozen=True)
class LamTrial:
    """A lam that was tried, and how it did on held-out images at its best `scale`."""

    lam: float
    scale: float
    log_likelihood: float
    accuracy: float
    error: float = 0.0  # standard error of the gap to the best trial's log-likelihood


@dataclass(frozen=True, eq=False)
class Choice:
    """The lam and the scale that were chosen, and why."""

    lam: float  # weight of |W - W0|^2
    scale: float  # what to multiply cosines by in predictions; the fit has the task's own
    reason: str  # "cross-validation" or "one image per class"
    unit: float  # u / N, what lam is measured in
    tried: tuple[LamTrial, ...] = ()  # in order; empty without cross-validation
    held_out: HeldOut | None = None  # under this lam; None where nothing or only a sample of classes was
    start: Array | None = None  # Z Q [r, k] near the fit on all images


def automatic(task: Task, *, scale: str = "auto", seed: int = 0) -> tuple[Solution, Choice]:
    """Choose lam, then fit: the solution, its `scale` the one for predictions, and the choice.

    Examples
    --------
    >>> x = np.concatenate([np.eye(6), np.eye(6)]) + 0.1
    >>> solution, choice = automatic(Task(x, list(range(6)) * 2, np.eye(6)))
    >>> choice.reason, solution.lam == choice.lam
    ('cross-validation', True)
    """
    began, order = time.perf_counter(), own_order(task)
    task = task.subset(order)
    with single_thread():
        reduction = reduce(task, whole=True, folds=1 if task.classes > CLASSES else FOLDS)
        choice = choose(task, scale=scale, seed=seed, reduction=reduction)
        solution = solve(reduction, [choice.lam], choice.start, True, began)[0]
    if (out := choice.held_out) is not None:  # as the images came
        images = order[out.images]
        back = images.argsort()
        choice = replace(choice, held_out=HeldOut(out.logits[back], out.y[back], images[back]))
    return replace(solution, scale=choice.scale), choice


def choose(task: Task, *, scale: str = "fixed", seed: int = 0, reduction: Reduction | None = None) -> Choice:
    """Choose lam, and with scale="auto" the scale of predictions too.

    The seed says which images go into which fold: the same seed gives the same choice, in whatever order
    they come. `reduction` is the task's, where there is one already.
    """
    if scale not in ("fixed", "auto"):
        raise unknown_name("scale", str(scale), ("fixed", "auto"))
    unit, sample = lam_unit(task), task
    if task.classes > CLASSES:
        sample, reduction = some_classes(task, CLASSES, seed), None
    fold = assign_folds(sample, seed)
    if (fold < 0).all():
        return Choice(PRIOR * unit, task.scale, "one image per class", unit)
    with single_thread():
        folds = Folds(reduction or reduce(sample, whole=True, folds=FOLDS), sample, fold)
        steps = folds.path(unit, TEMPERATURES if scale == "auto" else (1.0,))
        scores = [step.each.mean() for step in steps]
        best = steps[int(np.argmax(scores))]
        tried = tuple(replace(s.trial, error=_standard_error(best.each - s.each)) for s in steps)
        close = [i for i, t in enumerate(tried) if max(scores) - scores[i] <= ERRORS * t.error]
        chosen = min(close, key=lambda i: abs(math.log(tried[i].lam / (PRIOR * unit))))
        choice = Choice(tried[chosen].lam, tried[chosen].scale, "cross-validation", unit, tried)
        if sample is not task:
            return choice
        z = folds.fit(choice.lam, steps[chosen].z, FINE)
        logits = (choice.scale * folds.cosines(z)[0]).astype(np.float32)
    return replace(choice, held_out=HeldOut(logits, task.y[folds.held], folds.held), start=z.mean(axis=1))


def lam_unit(task: Task) -> float:
    """The unit u / N: mean squared length of the inputs over that of the embeddings, per image of a class."""
    inputs, _ = task.linear.split(task.x)
    lengths = [float(np.square(a, dtype=np.float64).sum(axis=-1).mean()) for a in (inputs, task.embeddings())]
    return lengths[0] / max(lengths[1], 1e-30) / task.shots


@dataclass(frozen=True, eq=False)
class _Step:
    """One lam of the path: its trial, log-likelihoods [m] of held-out images, and Z Q [r, B, k]."""

    trial: LamTrial
    each: Array
    z: Array


class Folds:
    """All folds of a support set, as one problem."""

    def __init__(self, reduction: Reduction, task: Task, fold: Array) -> None:
        self.task, self.rows, self.held = task, np.tile(fold, task.views), np.flatnonzero(fold >= 0)
        kept = (self.rows[:, None] != np.arange(fold.max() + 1)).astype(np.float64)
        self.objective = ReducedObjective(reduction, kept / kept.sum(axis=0), 0.0, restrained=True)

    def fit(self, lam: float, z: Array, tol: float) -> Array:
        """The fits without each fold, from others nearby."""
        objective = self.objective.at(lam)
        scale = objective.preconditioner()
        return minimise(objective, z, tol=tol, evaluations=MAX_EVALUATIONS, scale=scale).x

    def cosines(self, z: Array) -> Array:
        """Cosines [V, m, K] of held-out images with the texts, under the fit that did not see them."""
        cosines = self.objective.cosines(z, np.maximum(self.rows, 0))
        return cosines.reshape(self.task.views, self.task.n, -1)[:, self.held]

    def path(self, unit: float, temperatures: Sequence[float]) -> list[_Step]:
        """Go down the path of lam, GRID times `unit`."""
        z = np.zeros(self.objective.shape, self.objective.reduction.regime.sums)
        scale, steps = self.task.scale, list[_Step]()
        for multiple in GRID:
            z = self.fit(multiple * unit, z, TOL)
            cosines = self.cosines(z)
            y = np.broadcast_to(self.task.y[self.held], cosines.shape[:2])[..., None]
            each = [
                np.take_along_axis(log_softmax(scale * t * cosines), y, axis=2)[..., 0].mean(axis=0)
                for t in temperatures
            ]
            best = int(np.argmax([e.mean() for e in each]))
            right = float((cosines.argmax(axis=2) == y[..., 0]).mean())
            likelihood = float(each[best].mean())
            trial = LamTrial(multiple * unit, scale * temperatures[best], likelihood, right)
            steps.append(_Step(trial, each[best], z))
            if is_past([step.each for step in steps]):
                break
        return steps


def is_past(likelihoods: Sequence[Array]) -> bool:
    """Whether the best lam has been passed: log-likelihoods [images] fell twice since, and far below it."""
    means = [float(each.mean()) for each in likelihoods]
    best = likelihoods[int(np.argmax(means))]
    behind = [best - each for each in likelihoods[-2:]]
    far = all(float(gap.mean()) > FAR * _standard_error(gap) for gap in behind)
    return far and means[-1] < means[-2]


def _standard_error(gap: Array) -> float:
    return float(gap.std(ddof=1)) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
