"""Methods as biases on the zero-shot logits, and how a sum of them is trained.

The paper, after Tang et al. (2024), sees each method as a bias that is added to the zero-shot logits:

    logits = s f T' + bias_1(x; p_1) + bias_2(x; p_2) + ..

A `Bias` is one such term on the support set. Its parameters are tensors; it has a penalty on them (or none),
and it can turn trained ones into a `Fitted`. Whatever has a `Bias` can be trained alone or with any others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from prolip.core import Fitted, Task
from prolip.core.arrays import unit_rows
from prolip.methods.base import Method, Progress
from prolip.solvers.arithmetic import flushed_denormals, single_thread
from prolip.solvers.smooth import autograd, join, minimise, split

SMALL = 1 << 20  # rows x classes: beyond it, the last digits of a minimum cost minutes and change nothing
ALONE = 1 << 14  # rows x classes that are too few to share among threads


class Bias(ABC):
    """One method's term on the support set.

    Attributes
    ----------
    start
        The parameters to begin from.
    smooth
        Whether a minimum of the penalised loss exists and can be gone to; if not, only steps can be taken.
    """

    start: tuple[Tensor, ...]
    smooth: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, parameters: Sequence[Tensor], rows: Any) -> Tensor:
        """The bias [m, K] on rows of the support set, an index into `task.rows()`."""

    def penalty(self, parameters: Sequence[Tensor]) -> Tensor | float:
        """What is added to the mean cross-entropy."""
        return 0.0

    @abstractmethod
    def fitted(self, parameters: Sequence[Tensor], info: dict[str, Any]) -> Fitted:
        """The method's own classifier, zero-shot logits included, with these parameters."""


class BiasMethod(Method):
    """A method that can be one term of a sum.

    Attributes
    ----------
    in_sum
        Options that differ from the defaults when the method is a term of a sum.
    """

    in_sum: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def bias(self, task: Task, exact: bool) -> Bias:
        """The term on this task. `exact` may use unknowns in which only the minimum is the same."""

    def settle(self, task: Task, validation: Task | None) -> tuple[Task, BiasMethod, dict[str, Any]]:
        """Choose what has to be chosen before training; the task comes back with its scale."""
        return task, self, {}


@dataclass(frozen=True, eq=False)
class Trained:
    """Parameters of each term, and the loss that they reached."""

    parameters: list[list[Tensor]]
    objective: float
    start_objective: float
    evaluations: int
    converged: bool

    def report(self) -> dict[str, Any]:
        """For `info`."""
        return {
            "objective": self.objective,
            "start_objective": self.start_objective,
            "evaluations": self.evaluations,
            "converged": self.converged,
        }


class AdamW:
    """Adam with decoupled weight decay, in place. (To import PyTorch's own takes longer than most fits.)"""

    def __init__(self, tensors: Sequence[Tensor], eps: float, decay: float) -> None:
        self.tensors, self.eps, self.decay, self.steps = tensors, eps, decay, 0
        self.moments = [(torch.zeros_like(t), torch.zeros_like(t)) for t in tensors]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], lr: float) -> None:
        """One step."""
        self.steps += 1
        first, second = 1 - 0.9**self.steps, math.sqrt(1 - 0.999**self.steps)
        for tensor, gradient, (mean, square) in zip(self.tensors, gradients, self.moments, strict=True):
            mean.lerp_(gradient, 0.1)
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            spread = square.sqrt().div_(second).add_(self.eps)
            tensor.mul_(1 - lr * self.decay).addcdiv_(mean, spread, value=-lr / first)


class Sum:
    """Zero-shot logits and biases on a task's support set."""

    def __init__(self, task: Task, terms: Sequence[Bias]) -> None:
        self.task, self.terms = task, list(terms)
        x, self.y = task.rows()
        f = unit_rows(task.linear(x))
        self.base = task.scale * f @ task.text.rows.to(f).T
        self.shapes = [tensor.shape for term in self.terms for tensor in term.start]
        self.start = [tensor for term in self.terms for tensor in term.start]

    def by_term(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """A flat list of tensors, term by term."""
        left = iter(tensors)
        return [[next(left) for _ in term.start] for term in self.terms]

    def loss(self, *tensors: Tensor, rows: Any = slice(None)) -> Tensor:
        """Mean cross-entropy on some rows, and every penalty."""
        logits = self.base[rows]
        penalty: Tensor | float = 0.0
        for term, parameters in zip(self.terms, self.by_term(tensors), strict=True):
            logits = logits + term(parameters, rows)
            penalty = penalty + term.penalty(parameters)
        return cross_entropy(logits, self.y[rows]) + penalty

    def minimise(self, start: Sequence[Tensor] | None = None, rough: bool = False) -> Trained:
        """Go to the minimum, from `start` or the terms' own; `rough` is good enough to compare by."""
        if not self.start:
            return self._untrained()
        with torch.no_grad():
            first = float(self.loss(*self.start))
        fine = (1e-4, 300) if self.base.numel() <= SMALL else (1e-3, 120)
        tol, evaluations = (3e-2, 20) if rough else fine
        with flushed_denormals(), single_thread(self.base.numel() <= ALONE):
            found = minimise(
                autograd(self.loss, self.shapes),
                join(self.start if start is None else start),
                tol=tol,
                evaluations=evaluations,
            )
        tensors = split(found.x, self.shapes)
        return Trained(self.by_term(tensors), found.value, first, found.evaluations, found.converged)

    def adam(
        self,
        *,
        lr: float,
        epochs: int,
        eps: float = 1e-4,
        decay: float = 0.0,
        batch: int | None = None,
        seed: int = 0,
        judge: Callable[[list[list[Tensor]]], float] | None = None,
        progress: Progress | None = None,
    ) -> Trained:
        """Adam (AdamW where `decay`), a cosine from `lr` to zero, one augmented view an epoch.

        Full batches, or shuffled ones of `batch` images. Views come in the order 1, 2, .., V - 1, 0, as the
        authors'. With `judge`, the best epoch by it is kept (of equals the later), not the last.
        """
        if not self.start:
            return self._untrained()
        tensors = [tensor.clone().requires_grad_(True) for tensor in self.start]
        optimizer = AdamW(tensors, eps, decay)
        generator = torch.Generator().manual_seed(seed)
        n = self.task.n
        steps = math.ceil(n / batch) if batch else 1
        with torch.no_grad():
            first = float(self.loss(*self.start))
        kept, best = [], -math.inf
        with flushed_denormals():
            for epoch in range(epochs):
                order = torch.randperm(n, generator=generator).to(self.y.device) if batch else None
                offset = (epoch + 1) % self.task.views * n
                for step in range(steps):
                    part: Any = slice(offset, offset + n)
                    if order is not None and batch:
                        part = offset + order[step * batch : (step + 1) * batch]
                    done = (epoch * steps + step) / (epochs * steps)
                    gradients = torch.autograd.grad(self.loss(*tensors, rows=part), tensors)
                    optimizer.step(gradients, 0.5 * lr * (1 + math.cos(math.pi * done)))
                if judge is not None:
                    now = [tensor.detach().clone() for tensor in tensors]
                    verdict = judge(self.by_term(now))
                    if verdict >= best:
                        kept, best = now, verdict
                if progress is not None:
                    progress(epoch + 1, epochs)
        final = kept or [tensor.detach() for tensor in tensors]
        with torch.no_grad():
            value = float(self.loss(*final))
        return Trained(self.by_term(final), value, first, epochs * steps, math.isfinite(value))

    def _untrained(self) -> Trained:
        value = float(self.loss())
        return Trained(self.by_term([]), value, value, 1, True)
