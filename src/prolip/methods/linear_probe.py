"""Linear probe: logistic regression on the images alone.

    minimise over W, b:   C sum_i CE( f_i W' + b, y_i )  +  |W|^2 / 2,      f = normalize(v)

as scikit-learn writes it. The text is not used. C is swept over {1e-6, 1e-4, .., 1e6} and then refined by
halving steps of log C around the best, on a validation set or by cross-validation inside the support set; of
equal candidates the one with the smaller C wins. With one image a class and no validation set, C = 100: on
the sets of `benchmarks/tasks.py` accuracy is flat from 10 to 1,000.

`C="grid"` is the search of CoOp's and LP++'s programs: of equal candidates in the sweep the largest C wins;
eight bisections of the decade on each side of it follow, and the end that won the last one is used. Their
scikit-learn stops early where C is very large or small: on WHU-RS19 (RN50) 0.8 and 1.7 points below the
minimum at the same C, with 1 and 4 shots.
`features="pre"` fits on the features before the projection instead, where there is more to be found.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from prolip.core import Task
from prolip.core.arrays import Array
from prolip.methods import selection
from prolip.methods.base import FitContext, Method, OptionError, Shape
from prolip.methods.classifiers import LinearClassifier, unit_features
from prolip.methods.registry import register
from prolip.methods.selection import Score, Splits, Tuning
from prolip.solvers.regression import Coefficients, SoftmaxRegression

SWEEP = (-6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0)  # log10 C
REFINE = (1.0, 0.5, 0.25)
BISECTIONS = 8
SWEEP_TOL, SWEEP_EVALUATIONS = 1e-4, 100  # good enough to compare by
ONE_SHOT_C = 100.0


@register
@dataclass(frozen=True)
class LinearProbe(Method):
    """Logistic regression.

    Parameters
    ----------
    C
        Inverse strength of the penalty: "auto" (searched), "grid" (searched as CoOp's and LP++'s
        programs do), or a number.
    features
        "embedding", or "pre" for what comes before the projection.
    seed
        Random seed for the folds.
    """

    name: ClassVar[str] = "linear_probe"
    summary: ClassVar[str] = "logistic regression on the images alone, C swept"
    size: ClassVar[str] = "K x D"

    C: Literal["auto", "grid"] | float = "auto"
    features: Literal["embedding", "pre"] = "embedding"
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.C, str) and self.C <= 0:
            raise OptionError("C", '"auto", "grid" or a number > 0', self.C)

    def needs_tuning(self) -> bool:
        """Whether C is searched."""
        return isinstance(self.C, str)

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Sweep C, and refine it."""
        if not self.needs_tuning():
            return Tuning(self)
        if not splits.parts:
            return selection.fallback(self, "C", ONE_SHOT_C)
        authors = self.C == "grid"
        sweep = _Sweep(self, splits, {} if authors else {"tol": SWEEP_TOL, "evaluations": SWEEP_EVALUATIONS})
        best = sweep.bisect() if authors else sweep.refine()
        tried = sorted(sweep.scores)
        report = splits.report("C", [10**e for e in tried], [sweep.scores[e] for e in tried])
        return Tuning(replace(self, C=10**best), report, splits.held_out(sweep.logits[best]))

    def solve(self, task: Task, context: FitContext) -> LinearClassifier:
        """Fit the regression for one C."""
        f, y = self.rows(task)
        found = SoftmaxRegression(f, y, task.classes).solve(1 / (2 * len(f) * float(self.C)))
        report = {"converged": found.minimum.converged}
        return LinearClassifier(
            task.linear, task.text, found.weight, found.bias, self.features, report=report
        )

    def count(self, shape: Shape) -> int:
        """K x D, or K x Do on the features before the projection."""
        return shape.classes * (shape.dim if self.features == "embedding" else shape.features)

    def rows(self, task: Task) -> tuple[Array, Array]:
        """Unit features [V * n, ..] and their labels."""
        x, y = task.rows()
        return unit_features(task.linear, x, self.features), y


class _Sweep:
    """Held-out scores along C. Each problem is decomposed once; each fit starts from its neighbour's."""

    def __init__(self, probe: LinearProbe, splits: Splits, stop: dict[str, Any]) -> None:
        self.splits, self.stop = splits, stop
        self.problems = selection.in_parallel(
            lambda part: SoftmaxRegression(*probe.rows(part.task), part.task.classes), splits.parts
        )
        self.held = [unit_features(part.task.linear, part.x, probe.features) for part in splits.parts]
        self.scores: dict[float, Score] = {}
        self.logits: dict[float, list[Array]] = {}
        self.starts: dict[float, list[Array]] = {}

    def refine(self) -> float:
        """Sweep, then take smaller and smaller steps around the best; of equals the smallest."""
        best = max(SWEEP, key=self.score)
        for step in REFINE:
            best = max((best - step, best, best + step), key=self.score)
        return best

    def bisect(self) -> float:
        """Sweep, then bisect as the authors' programs do, by accuracy alone."""
        peak = max(reversed(SWEEP), key=lambda exponent: self.score(exponent).accuracy)
        left, right, chosen = peak - 1, peak + 1, peak
        for _ in range(BISECTIONS):
            middle = (left + right) / 2
            if self.score(left).accuracy < self.score(right).accuracy:
                chosen, left = right, middle
            else:
                chosen, right = left, middle
        return chosen

    def score(self, exponent: float) -> Score:
        """The score of C = 10^exponent."""
        if exponent in self.scores:
            return self.scores[exponent]
        near = min(self.starts, key=lambda e: abs(e - exponent), default=None)

        def solve(i: int) -> Coefficients:
            problem = self.problems[i]
            lam = 1 / (2 * len(problem.y) * 10**exponent)
            start = None if near is None else self.starts[near][i]
            return problem.solve(lam, start=start, **self.stop)

        found = selection.in_parallel(solve, range(len(self.problems)))
        logits = [held @ each.weight.T + each.bias for held, each in zip(self.held, found, strict=True)]
        self.starts[exponent], self.logits[exponent] = [each.unknowns for each in found], logits
        self.scores[exponent] = score = self.splits.score(logits)
        return score
