"""lam = "auto": everything chosen inside the support set, without a validation image.

What is fitted is a regression on top of zero-shot scores (`residual`), convex and still one matrix. (An
explicit lam means the paper's objective as it stands.) Three numbers are to be settled.

b, how far the texts are believed, maximises the zero-shot likelihood of the labelled images: one number from
all of them, one image a class included.

m, how much of that is left beside the labelled images, falls as they become more. Cross-validation looks at
SHARES, and the one nearest to N^-POWER wins among those whose held-out log-likelihood is within two standard
errors of the best. A fold is a set of weights on the rows, zero where a row is held out: all folds are one
problem. Their answers about held-out images are handed on, for calibration and for the report, and the fit on
all images starts from the mean of theirs. Of more than CLASSES classes a sample is looked at: what is
searched for is a strength, not a class. With one image per class nothing can be held out: m = 1.

lam = 1 / (STRENGTH N). Accuracy is flat over two decades around it, as that of logistic regression is.

Scale. With scale="auto", predictions multiply cosines by the number at which held-out images are likeliest:
it changes no answer, only how sure of it the model says it is. Without held-out images it is the fit's own,
the mean of b |x_i W| / c |x_i|: 0.8 to 1.7 times the likeliest on other images of 14 sets (0.3 on one whose
answers were all right).

What else was tried, and where this was settled: docs/methods.md.
"""

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from prolip.core import HeldOutPredictions, Task
from prolip.core.arrays import Array, log_softmax
from prolip.core.errors import check_name
from prolip.methods.common.residual import Residual
from prolip.solvers.folds import assign_folds, canonical_order, some_classes
from prolip.solvers.regression import SoftmaxRegression
from prolip.solvers.solution import Solution
from prolip.solvers.threads import single_thread

SHARES = (1.0, 0.5, 0.25, 0.125)  # of b
POWER = 0.7
STRENGTH = 2e5
ERRORS = 2.0  # standard errors that a score may stay below the best
TEMPERATURES = tuple(2 ** (k / 4) for k in range(-12, 17))  # of the scale of the fit, for predictions
CLASSES = 300
ALONE = "one image per class"
TOL, EVALUATIONS = 6e-3, 40  # of fits inside folds, to compare by
FINE, MOST = 1e-5, 200  # of fits that answer


@dataclass(frozen=True)
class ShareTrial:
    """A share m that was tried, and how it did on held-out images at its best `scale`."""

    share: float
    scale: float
    log_likelihood: float
    accuracy: float
    error: float = 0.0  # standard error of the gap to the best trial's log-likelihood


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, and why."""

    lam: float  # weight of |C|^2
    trust: float  # b
    share: float  # m
    scale: float  # what to multiply cosines by in predictions
    fit_scale: float  # the same, as the fit itself has it: the mean of b |x W| / c |x|
    reason: str  # "cross-validation" or ALONE
    tried: tuple[ShareTrial, ...] = ()  # in order; empty without cross-validation
    held_out: HeldOutPredictions | None = (
        None  # under this choice; None where nothing or only a sample of classes was
    )
    start: Array | None = None  # Z [r, 1, k] near the fit on all images


def automatic(task: Task, *, scale: str = "auto", seed: int = 0) -> tuple[Solution, Choice]:
    """Choose, then fit: the solution, its `scale` the one for predictions, and the choice.

    Examples
    --------
    >>> x = np.concatenate([np.eye(6), np.eye(6)]) + 0.1
    >>> solution, choice = automatic(Task(x, list(range(6)) * 2, np.eye(6)))
    >>> choice.reason, solution.lam == choice.lam
    ('cross-validation', True)
    """
    began, order = time.perf_counter(), canonical_order(task)
    with single_thread():
        search = _Search(task.subset(order), scale, seed)
        choice = search.choose()
        solution, fit_scale = search.fit(choice, began)
    choice = replace(choice, fit_scale=fit_scale)
    if choice.reason == ALONE and scale == "auto":
        solution, choice = replace(solution, scale=fit_scale), replace(choice, scale=fit_scale)
    if (out := choice.held_out) is not None:  # as the images came
        places = order[out.images]
        back = places.argsort()
        choice = replace(choice, held_out=HeldOutPredictions(out.logits[back], out.y[back], places[back]))
    return solution, choice


def choose(task: Task, *, scale: str = "auto", seed: int = 0) -> Choice:
    """Choose b, m and lam, and with scale="auto" the scale of predictions too.

    The seed says which images go into which fold: the same seed gives the same choice, in whatever order
    they come.
    """
    with single_thread():
        return _Search(task, scale, seed).choose()


def residual_fit(task: Task, lam: float, trust: float, share: float) -> Solution:
    """The fit with numbers that are settled."""
    began = time.perf_counter()
    with single_thread():
        search = _Search(task.subset(canonical_order(task)), "fixed", 0)
        return search.fit(Choice(lam, trust, share, task.scale, task.scale, "given"), began)[0]


@dataclass(frozen=True, eq=False)
class _Step:
    """One share: its trial, log-likelihoods [m] and cosines [m, K] of held-out images, and Z [r, B, k]."""

    trial: ShareTrial
    each: Array
    cosines: Array
    fit_scale: float
    z: Array


class _Search:
    """A task, and the folds of its support set, in the terms of `residual`."""

    def __init__(self, task: Task, scale: str, seed: int) -> None:
        check_name("scale", scale, ("fixed", "auto"))
        self.task, self.scale, self.seed = task, scale, seed
        self.whole = Residual.of(task)
        self.regression: SoftmaxRegression | None = None

    def choose(self) -> Choice:
        """Try every share on the folds."""
        task, trust, lam = self.task, self.whole.trust(), 1 / (STRENGTH * self.task.shots)
        part = self.whole
        if task.classes > CLASSES:
            part = Residual.of(some_classes(task, CLASSES, self.seed))
        fold = assign_folds(part.task, self.seed)
        if (fold < 0).all():
            return Choice(lam, trust, 1.0, task.scale, task.scale, ALONE)
        steps = self._path(part, trust, fold)
        scores = [step.each.mean() for step in steps]
        best = steps[int(np.argmax(scores))]
        tried = tuple(replace(s.trial, error=_standard_error(best.each - s.each)) for s in steps)
        close = [i for i, t in enumerate(tried) if max(scores) - scores[i] <= ERRORS * t.error + 1e-12]
        chosen = min(close, key=lambda i: abs(math.log(tried[i].share * task.shots**POWER)))
        trial, step = tried[chosen], steps[chosen]
        scale = trial.scale if self.scale == "auto" else task.scale
        choice = Choice(lam, trust, trial.share, scale, step.fit_scale, "cross-validation", tried)
        if part is not self.whole:
            return choice
        held = np.flatnonzero(fold >= 0)
        held_out = HeldOutPredictions((scale * step.cosines).astype(np.float32), task.y[held], held)
        return replace(choice, held_out=held_out, start=step.z.mean(axis=1, keepdims=True))

    def fit(self, choice: Choice, began: float) -> tuple[Solution, float]:
        """The fit on all images, and what its own logits have in the place of a scale."""
        base, every = choice.trust * self.whole.zero_shot(choice.share), len(self.whole.y)
        regression = (self.regression or self.whole.regression()).on(base, np.full((every, 1), 1 / every))
        found = regression.solve(choice.lam, start=choice.start, tol=FINE, evaluations=MOST)
        weight = self.whole.weight(found.weight.T.astype(np.float64), choice.trust, choice.share)
        start, _ = regression.value(np.zeros_like(found.unknowns), choice.lam)
        own = regression.scores(found.unknowns, np.zeros(every, int))
        _, lengths = self.whole.cosines(own, choice.trust, choice.share)
        figures = found.minimum.value, start, found.minimum.evaluations, time.perf_counter() - began
        solution = Solution(weight, choice.lam, choice.scale, *figures, "exact", found.minimum.converged)
        return solution, choice.trust * float(lengths.mean())

    def _path(self, part: Residual, trust: float, fold: Array) -> list[_Step]:
        """Every share, from the largest down, each from where the one before ended."""
        lam = 1 / (STRENGTH * part.task.shots)
        rows = np.tile(fold, part.task.views)
        kept = (rows[:, None] != np.arange(fold.max() + 1)).astype(np.float64)
        regression = part.regression(kept / kept.sum(axis=0))
        if part is self.whole:
            self.regression = regression
        z, steps = None, []
        for share in SHARES:
            problem = regression.on(trust * part.zero_shot(share))
            z = problem.solve(lam, start=z, tol=TOL, evaluations=EVALUATIONS).unknowns
            scores = problem.scores(z, np.maximum(rows, 0))
            steps.append(_judge(part, scores, trust, share, fold, z))
        return steps


def _judge(part: Residual, scores: Array, trust: float, share: float, fold: Array, z: Array) -> _Step:
    """How likely held-out images are: under the regression, to choose by; as cosines, for their scale."""
    task, held = part.task, np.flatnonzero(fold >= 0)

    def of_images(rows: Array) -> Array:
        return rows.reshape(task.views, task.n, -1)[:, held]

    cosines, lengths = part.cosines(scores, trust, share)
    fit_scale = trust * float(lengths.mean())
    each, _ = _likeliest(of_images(scores + trust * part.zero_shot(share)), task.y[held])
    _, temperature = _likeliest(of_images(fit_scale * cosines), task.y[held])
    right = float((of_images(cosines).argmax(axis=2) == task.y[held]).mean())
    trial = ShareTrial(share, fit_scale * temperature, float(each.mean()), right)
    return _Step(trial, each, of_images(cosines)[0], fit_scale, z)


def _likeliest(logits: Array, y: Array) -> tuple[Array, float]:
    """Log-likelihoods [m] of logits [V, m, K], mean over views, at the best temperature; and that."""
    labels = np.broadcast_to(y, logits.shape[:2])[..., None]

    def at(place: int) -> Array:
        found = np.take_along_axis(log_softmax(TEMPERATURES[place] * logits), labels, axis=2)
        return found[..., 0].mean(axis=0)

    low, high = 0, len(TEMPERATURES) - 1
    while low < high:  # the mean is concave in the temperature
        middle = (low + high) // 2
        if at(middle).mean() < at(middle + 1).mean():
            low = middle + 1
        else:
            high = middle
    return at(low), TEMPERATURES[low]


def _standard_error(gap: Array) -> float:
    return float(gap.std(ddof=1)) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
