"""Ensemble: a weighted sum of the logits of fitted methods.

    logits = sum_i w_i logits_i,      w_i >= 0

The weights minimise the cross-entropy of held-out images: those of a validation set, or each image of the
support set under members fitted without it. Members choose their hyperparameters once, on the whole support
set, and keep them in the folds. The weights carry the temperature as well, so they need not sum to one.
Where there is nothing to hold out the logits are averaged.

The default members are one that starts from the texts, one that sees only the images, and one between. On
the sets of `benchmarks/development.py` no smaller pool did better than this one beyond the noise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from prolip import methods
from prolip.core import Fitted, Task, UsageError
from prolip.methods import search
from prolip.methods.base import Method, Progress, Shape
from prolip.methods.fitted import Combined
from prolip.solvers.smooth import autograd, minimise

MEMBERS = ("prolip", "linear_probe", "gda")


@dataclass(frozen=True)
class Ensemble(Method):
    """A weighted sum of logits.

    Parameters
    ----------
    members
        Names of methods, or one string of them with commas between.
    member_options
        Options by member.
    weights
        "auto" (from held-out images), "equal", or numbers.
    seed
        Of the members and the folds.
    """

    name: ClassVar[str] = "ensemble"
    summary: ClassVar[str] = "a weighted sum of the logits of several methods"
    open_class: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("image features before the projection",)
    size: ClassVar[str] = "of its members"

    members: Sequence[str] | str = MEMBERS
    member_options: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"linear_probe": {"features": "pre"}}
    )
    weights: Sequence[float] | str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.names():
            raise UsageError("an ensemble needs at least one member")
        if isinstance(self.weights, str):
            if self.weights not in ("auto", "equal"):
                raise UsageError(f'weights must be "auto", "equal" or numbers, got {self.weights!r}')
        elif len(self.weights) != len(self.names()):
            raise UsageError(f"{len(self.weights)} weights for {len(self.names())} members")

    def names(self) -> list[str]:
        """The members' names."""
        given = self.members.split(",") if isinstance(self.members, str) else self.members
        return [name.strip() for name in given if name.strip()]

    def create_members(self) -> list[Method]:
        """The members with their options."""
        built = []
        for name in self.names():
            options = {"seed": self.seed} if "seed" in methods.options(name) else {}
            built.append(methods.create(name, **options | self.member_options.get(name, {})))
        return built

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Combined:
        """Fit every member, then the weights."""
        started = time.perf_counter()
        members = self.create_members()
        fitted = tuple(member.fit(task, validation=validation) for member in members)
        reason = "given"
        if not isinstance(self.weights, str):
            weights = tuple(float(w) for w in self.weights)
        elif self.weights == "auto" and (parts := search.splits(task, validation, seed=self.seed)):
            reason = "held-out cross-entropy"
            weights = stack(held_out(members, fitted, parts), torch.cat([part.y for part in parts]))
        else:
            reason = "equal"
            weights = (1 / len(members),) * len(members)
        return combine(self, task, fitted, weights, started, {"reason": reason})

    def count(self, shape: Shape) -> int:
        """The sum over members."""
        return sum(member.count(shape) for member in self.create_members())


def held_out(
    members: Sequence[Method], fitted: Sequence[Fitted], parts: Sequence[search.Split]
) -> list[Tensor]:
    """For each member, the logits of every held-out image, under what it chose on the whole support set."""
    return [
        torch.cat(search.held_out_logits(member.settled(found.info).rough(), parts))
        for member, found in zip(members, fitted, strict=True)
    ]


def stack(logits: Sequence[Tensor], y: Tensor) -> tuple[float, ...]:
    """Weights >= 0 that minimise the cross-entropy of the weighted sum. A convex problem in w = u^2."""
    stacked = torch.stack(list(logits)).double()

    def loss(roots: Tensor) -> Tensor:
        return cross_entropy(torch.einsum("m,mnk->nk", roots.square(), stacked), y)

    start = stacked.new_full((len(stacked),), (1 / len(stacked)) ** 0.5)
    found = minimise(autograd(loss, [start.shape]), start, tol=1e-6, evaluations=200)
    return tuple(float(w) for w in found.x.square())


def combine(
    method: Method,
    task: Task,
    fitted: Sequence[Fitted],
    weights: Sequence[float],
    started: float,
    told: dict[str, Any],
) -> Combined:
    """The members' sum, as a fitted model."""
    parts, weights = tuple(fitted), tuple(weights)
    shares = {part.info["method"]: round(w, 4) for part, w in zip(parts, weights, strict=True)}
    info = method.report(task, started, shares=shares, **told, **Combined.describe(parts, weights))
    return Combined(parts, weights, info)
