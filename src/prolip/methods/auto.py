"""Auto: the method, or the ensemble of methods, that does best on held-out images of the support set.

Candidates are fitted on the whole support set, where each chooses its hyperparameters, and answer for the
images of each fold without having seen them. What counts is the likelihood of the held-out images: accuracy
on a few dozen of them is too coarse. The ensemble is one more candidate: each fold is judged under weights
found on the others, so that it has no advantage from having seen the answers. The fit has the settings of the
candidate that was chosen; its report says which, and why.

With one image a class and no validation set nothing can be compared, and the first candidate is taken.

Where this was settled: `benchmarks/method_tasks.py`, on sets apart from those that are reported. Means there
over twelve sets of 2 to 12 images a class: by likelihood 85.8 %, by accuracy 84.2, ProLIP alone 85.4. So the
rule matters, and the gain over ProLIP is small. With one image a class: ProLIP alone 82.1, averages of two or
three candidates 78.9 to 81.9.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from prolip.core import Fitted, HeldOutPredictions, Task, errors
from prolip.methods.common import cross_validation
from prolip.methods.common.method import Method, Progress, Shape
from prolip.methods.ensemble import MEMBERS, Ensemble, combine, fit_pool, stack, stacked
from prolip.solvers.folds import assign_folds
from prolip.solvers.threads import single_thread

RULES = ("likelihood", "accuracy")
ONE_SHOT = "one image a class, none to hold out: the first candidate"


@dataclass(frozen=True)
class Auto(Method):
    """Choose by cross-validation.

    Parameters
    ----------
    candidates
        Names of methods, or one string of them with commas between.
    by
        What decides on held-out images: their "likelihood" or the "accuracy"; the other settles ties.
    seed
        Of the candidates and the folds.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "the method, or ensemble, that does best inside the support set"
    needs: ClassVar[tuple[str, ...]] = ("image features before the projection",)
    size: ClassVar[str] = "of what it chooses"

    candidates: Sequence[str | Method] | str = MEMBERS
    by: str = "likelihood"
    seed: int = 0

    def __post_init__(self) -> None:
        self.ensemble()
        errors.check_name("by", self.by, RULES)

    def ensemble(self) -> Ensemble:
        """The candidates, as an ensemble has them."""
        return Ensemble(self.candidates, seed=self.seed)

    @single_thread()
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Compare the candidates and their ensemble."""
        if validation is None and (assign_folds(task, self.seed) < 0).all():
            started = self.begin(task)
            first = self.ensemble().create_members()[0]
            return _tell(first.fit(task, progress), started, chose=first.name, why=ONE_SHOT)
        return self._compare(task, validation)[0]

    @single_thread()
    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOutPredictions]:
        """The fit, and what the chosen candidate said about held-out images."""
        if seed != self.seed or (assign_folds(task, seed) < 0).all():
            return super().fit_held_out(task, progress, seed)
        return self._compare(task, None)

    def _compare(self, task: Task, validation: Task | None) -> tuple[Fitted, HeldOutPredictions]:
        started = self.begin(task, validation)
        members = self.ensemble().create_members()
        pool = fit_pool(members, task, self.seed, validation)
        logits = [*pool.logits, stacked(pool)]
        names = [*(member.name for member in members), "ensemble"]
        scores = [cross_validation.score([own], [pool.y]) for own in logits]
        place, second = sorted(range(len(scores)), key=lambda i: rank(scores[i], self.by))[:-3:-1]
        report: dict[str, Any] = {
            "chose": names[place],
            "why": f"{_describe(scores[place])}; next {names[second]} with {_describe(scores[second])}",
            "candidates": {
                name: {"accuracy": round(s.accuracy, 4), "likelihood": round(s.likelihood, 4)}
                for name, s in zip(names, scores, strict=True)
            },
        }
        held_out = HeldOutPredictions(logits[place], pool.y, pool.images)
        if place < len(members):
            return _tell(pool.fitted[place], started, **report), held_out
        weights = stack(pool.logits, pool.y)
        return combine(self.ensemble(), task, pool.fitted, weights, started, **report), held_out

    def chooses(self) -> bool:
        """What a validation set is used for: the candidate."""
        return True

    def count(self, shape: Shape) -> int:
        """Of all candidates together."""
        return self.ensemble().count(shape)


def rank(score: cross_validation.Score, by: str) -> tuple[float, float]:
    """What candidates are ordered by."""
    both = score.accuracy, score.likelihood
    return both if by == "accuracy" else both[::-1]


def _tell(fitted: Fitted, started: float, **choice: Any) -> Fitted:
    """A candidate's fit, with its own settings, that says why it was chosen."""
    report = {**fitted.report, **choice, "seconds": time.perf_counter() - started}
    return replace(fitted, report=report)


def _describe(score: cross_validation.Score) -> str:
    return (
        f"log-likelihood {score.likelihood:.3f} and accuracy {100 * score.accuracy:.1f} % on held-out images"
    )
