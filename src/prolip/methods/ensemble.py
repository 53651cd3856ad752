"""Ensemble: a weighted sum of the logits of fitted methods.

    logits = sum_i w_i logits_i,      w_i >= 0

The weights minimise the cross-entropy of held-out images: those of a validation set, or each image of the
support set under members fitted without it (`Method.fit_held_out`). Members choose their hyperparameters
once, on the whole support set. The weights carry the temperature as well, so they need not sum to one. Where
there is nothing to hold out the logits are averaged.

The default members are one that starts from the texts, one that sees only the images, and one between. On
the sets of `benchmarks/method_tasks.py` no smaller pool did better than this one beyond the noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from prolip import methods, solvers
from prolip.core import Fitted, HeldOutPredictions, Settings, Task, UsageError
from prolip.core.arrays import Array
from prolip.methods.common import cross_validation
from prolip.methods.common.combined import Combined
from prolip.methods.common.logit_bias import cross_entropy
from prolip.methods.common.method import Method, Progress, Shape
from prolip.solvers.folds import assign_folds
from prolip.solvers.threads import single_thread

MEMBERS = ("prolip", "linear_probe", "gda")


@dataclass(frozen=True, eq=False)
class Pool:
    """Members fitted on the whole support set, and what each says about the same held-out images."""

    fitted: tuple[Fitted, ...]
    logits: tuple[Array, ...]  # [m, K] of each member
    y: Array  # labels [m]
    images: Array  # places [m] in the support (or validation) set
    fold: Array  # in which each was held out, [m]


@dataclass(frozen=True)
class Ensemble(Method):
    """A weighted sum of logits.

    Parameters
    ----------
    members
        Names of methods, or one string of them with commas between; or methods with their options, as they
        are or as their settings.
    member_options
        Options by member.
    weights
        "auto" (from held-out images), "equal", or numbers.
    seed
        Of the members and the folds.
    """

    name: ClassVar[str] = "ensemble"
    summary: ClassVar[str] = "a weighted sum of the logits of several methods"
    needs: ClassVar[tuple[str, ...]] = ("image features before the projection",)
    size: ClassVar[str] = "of its members"

    members: Sequence[str | Method | Mapping[str, Any]] | str = MEMBERS
    member_options: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"linear_probe": {"features": "pre"}}
    )
    weights: Sequence[float] | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        count = len(self.given())
        if not count:
            raise UsageError("an ensemble needs at least one member")
        if isinstance(self.weights, str):
            if self.weights not in ("auto", "equal"):
                raise UsageError(f'weights must be "auto", "equal" or numbers, got {self.weights!r}')
        elif len(self.weights) != count:
            raise UsageError(f"{len(self.weights)} weights for {count} members")

    def given(self) -> list[str | Method | Mapping[str, Any]]:
        """The members as they were given, one by one."""
        if isinstance(self.members, str):
            return [name.strip() for name in self.members.split(",") if name.strip()]
        return list(self.members)

    def create_members(self) -> list[Method]:
        """The members with their options."""
        built = []
        for member in self.given():
            if isinstance(member, str):
                options = {"seed": self.seed} if "seed" in methods.options(member) else {}
                member = methods.create(member, **options | self.member_options.get(member, {}))
            elif isinstance(member, Mapping):
                member = methods.from_settings(Settings(**member))
            built.append(member)
        return built

    @single_thread()
    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Combined:
        """Fit every member, then the weights."""
        started, members = self.begin(task, validation), self.create_members()
        if self.weights == "auto":
            pool = fit_pool(members, task, self.seed, validation)
            fitted, (weights, reason) = pool.fitted, self._weights(pool)
        else:
            fitted = tuple(fit_member(member, task, validation) for member in members)
            weights, reason = self._weights(None)
        return combine(self, task, fitted, weights, started, reason=reason)

    @single_thread()
    def fit_held_out(
        self, task: Task, progress: Progress | None = None, seed: int = 0
    ) -> tuple[Fitted, HeldOutPredictions]:
        """The fit, and the sum of what its members say about each fold, under weights from the others."""
        if self.weights == "auto" and seed != self.seed:
            return super().fit_held_out(task, progress, seed)
        started = self.begin(task)
        pool = fit_pool(self.create_members(), task, seed)
        weights, reason = self._weights(pool)
        logits = stacked(pool) if self.weights == "auto" else weighted(weights, pool.logits)
        fitted = combine(self, task, pool.fitted, weights, started, reason=reason)
        return fitted, HeldOutPredictions(logits, pool.y, pool.images)

    def chooses(self) -> bool:
        """The weights, or what a member has to choose."""
        return self.weights == "auto" or any(member.chooses() for member in self.create_members())

    def count(self, shape: Shape) -> int:
        """The sum over members."""
        return sum(member.count(shape) for member in self.create_members())

    def _weights(self, pool: Pool | None) -> tuple[tuple[float, ...], str]:
        """Weights of the members, and where they come from."""
        if not isinstance(self.weights, str):
            return tuple(float(w) for w in self.weights), "given"
        if self.weights == "auto" and pool is not None and len(pool.y):
            return stack(pool.logits, pool.y), "held-out cross-entropy"
        count = len(self.given())
        return (1 / count,) * count, "equal"


def fit_pool(members: Sequence[Method], task: Task, seed: int, validation: Task | None = None) -> Pool:
    """Fit every member on everything; what is held out are the folds of `seed`, or the validation set."""
    if validation is not None:
        (part,) = cross_validation.splits(task, validation)
        fitted = tuple(fit_member(member, task, validation) for member in members)
        logits = tuple(each.logits(part.x) for each in fitted)
        return Pool(fitted, logits, part.y, np.arange(len(part.y)), np.zeros(len(part.y), int))
    pairs = [member.fit_held_out(task, seed=seed) for member in members]
    fold = assign_folds(task, seed)
    images = np.flatnonzero(fold >= 0)
    logits = tuple(held_out.logits[np.argsort(held_out.images)] for _, held_out in pairs)
    return Pool(tuple(fitted for fitted, _ in pairs), logits, task.y[images], images, fold[images])


def fit_member(member: Method, task: Task, validation: Task | None) -> Fitted:
    """A member's fit; a validation set is shown to those that have something to choose on it."""
    return member.fit(task, validation=validation if member.chooses() else None)


def stack(logits: Sequence[Array], y: Array) -> tuple[float, ...]:
    """Weights >= 0 that minimise the cross-entropy of the weighted sum. A convex problem in w = u^2."""
    members = np.stack(list(logits)).astype(np.float64)  # [members, m, K]

    def loss(roots: Array) -> tuple[float, Array]:
        value, slope = cross_entropy(np.tensordot(roots**2, members, 1), y, len(y))
        return value, 2 * roots * np.tensordot(members, slope, 2)

    start = np.full(len(members), (1 / len(members)) ** 0.5)
    found = solvers.minimise(loss, start, tol=1e-10)
    return tuple(float(w) for w in found.x**2)


def stacked(pool: Pool) -> Array:
    """The ensemble's logits [m, K], each fold under weights from the other folds (its own if it is alone)."""
    combined = np.zeros_like(pool.logits[0])
    for fold in np.unique(pool.fold):
        held = pool.fold == fold
        others = held if held.all() else ~held
        weights = stack([own[others] for own in pool.logits], pool.y[others])
        combined[held] = weighted(weights, [own[held] for own in pool.logits])
    return combined


def weighted(weights: Sequence[float], logits: Sequence[Array]) -> Array:
    """The weighted sum of the members' logits [m, K]."""
    return np.sum([w * own for w, own in zip(weights, logits, strict=True)], axis=0)


def combine(
    method: Ensemble,
    task: Task,
    fitted: Sequence[Fitted],
    weights: Sequence[float],
    started: float,
    **figures: Any,
) -> Combined:
    """The members' sum, as a fitted model; its settings are the members with what they chose, and weights."""
    members = tuple(asdict(part.settings) for part in fitted)
    shares = {part.method: round(weight, 4) for part, weight in zip(fitted, weights, strict=True)}
    settled = replace(method, members=members, member_options={}, weights=tuple(weights))
    combined = Combined(tuple(fitted), tuple(weights))
    return settled.finish(combined, task, started, shares=shares, **figures)
