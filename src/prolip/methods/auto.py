"""Auto: the method, or the ensemble of methods, that does best on held-out images of the support set.

Candidates are fitted on the whole support set, where each chooses its hyperparameters, and then without the
images of each fold in turn. What counts is accuracy on the held-out images, and their likelihood between
equals. The ensemble is one more candidate: each fold is judged under weights found on the others, so that it
has no advantage from having seen the answers. `info` says which was chosen, and why.

With one image a class and no validation set nothing can be compared, and the logits of the candidates in
`ONE_SHOT` are averaged: one that starts from the texts, and one that sees only the images.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip.core import Fitted, Task
from prolip.methods import search
from prolip.methods.base import Method, Progress, Shape
from prolip.methods.ensemble import MEMBERS, Ensemble, combine, held_out, stack

ONE_SHOT = ("prolip", "linear_probe")


@dataclass(frozen=True)
class Auto(Method):
    """Choose by cross-validation.

    Parameters
    ----------
    candidates
        Names of methods, or one string of them with commas between.
    seed
        Of the candidates and the folds.
    """

    name: ClassVar[str] = "auto"
    summary: ClassVar[str] = "the method, or ensemble, that does best inside the support set"
    open_class: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("image features before the projection",)
    size: ClassVar[str] = "of what it chooses"

    candidates: Sequence[str] | str = MEMBERS
    seed: int = 0

    def __post_init__(self) -> None:
        self.ensemble()

    def ensemble(self) -> Ensemble:
        """The candidates, as an ensemble has them."""
        return Ensemble(self.candidates, seed=self.seed)

    def fit(self, task: Task, progress: Progress | None = None, validation: Task | None = None) -> Fitted:
        """Compare the candidates and their ensemble."""
        started = time.perf_counter()
        parts = search.splits(task, validation, seed=self.seed)
        if not parts:
            return self._one_shot(task, started)
        members = self.ensemble().create_members()
        fitted = [member.fit(task, validation=validation) for member in members]
        labels = [part.y for part in parts]
        logits = [part.split([len(y) for y in labels]) for part in held_out(members, fitted, parts)]
        names = [*(member.name for member in members), "ensemble"]
        scores = [search.score(own, labels) for own in logits]
        scores.append(search.score(_stacked(logits, labels), labels))
        place = search.best(scores)
        told: dict[str, Any] = {
            "chose": names[place],
            "why": _why(names, scores, place),
            "candidates": {
                name: {"accuracy": round(s.accuracy, 4), "likelihood": round(s.likelihood, 4)}
                for name, s in zip(names, scores, strict=True)
            },
        }
        if place < len(fitted):
            info = {**fitted[place].info, **told, "method": self.name}
            info["seconds"] = time.perf_counter() - started
            return replace(fitted[place], info=info)  # type: ignore[type-var]
        weights = stack([torch.cat(own) for own in logits], torch.cat(labels))
        return combine(self, task, fitted, weights, started, told)

    def count(self, shape: Shape) -> int:
        """Of all candidates together."""
        return self.ensemble().count(shape)

    def _one_shot(self, task: Task, started: float) -> Fitted:
        names = [name for name in self.ensemble().names() if name in ONE_SHOT] or self.ensemble().names()
        members = Ensemble(names, seed=self.seed).create_members()
        fitted = [member.fit(task) for member in members]
        told = {
            "chose": "ensemble" if len(names) > 1 else names[0],
            "why": f"one image a class, none to hold out: {' and '.join(names)} averaged",
        }
        return combine(self, task, fitted, [1 / len(fitted)] * len(fitted), started, told)


def _stacked(logits: Sequence[Sequence[Tensor]], labels: Sequence[Tensor]) -> list[Tensor]:
    """The ensemble's logits on each fold, under weights from the other folds (its own if it is alone)."""
    folds = range(len(labels))
    combined = []
    for fold in folds:
        others = [k for k in folds if k != fold] or [fold]
        weights = stack(
            [torch.cat([own[k] for k in others]) for own in logits],
            torch.cat([labels[k] for k in others]),
        )
        combined.append(sum(w * own[fold] for w, own in zip(weights, logits, strict=True)))
    return combined  # type: ignore[return-value]


def _why(names: Sequence[str], scores: Sequence[search.Score], place: int) -> str:
    order = sorted(range(len(scores)), key=lambda i: (scores[i].accuracy, scores[i].likelihood), reverse=True)
    second = order[1] if order[0] == place else order[0]
    return (
        f"{100 * scores[place].accuracy:.1f} % of held-out support images right, "
        f"next {names[second]} with {100 * scores[second].accuracy:.1f} %"
    )
