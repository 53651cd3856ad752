"""lam = "auto": chosen inside the support set, without a validation image.

The grid is relative to a unit that rescales with the problem. Multiply x by a and divide W by a: embeddings
stay, |W - W0|^2 falls by a^2; so lam is measured in u / N, u = mean |x|^2 / mean |v|^2 (1 for a black box,
where the paper's 1/N is one such unit).

Two images or more per class: 5-fold cross-validation. A fold is a set of weights on the rows, zero where a
row is held out, so that every fold shares the reduction and its decomposition, and all folds go down the
path of lam together as one batch. The score is the held-out log-likelihood. Accuracy chose as well with 16
images per class and worse with 4, where a few dozen held-out images leave ties everywhere.

One image per class: there is no second image to hold out. lam = 0.01 u / N, a value that was settled on four
sets (subsets of 50 and of 200 ImageNet classes, the built-in digits and textures) and only then tried on the
five of benchmarks/solver.py, where it is above 1/N on each. What did worse: cross-validation over classes (a
held-out class knows only its text, so the largest lam wins, and it is below 1/N); the largest lam that fits
the support to a given loss (better than 1/N on CLIP, not elsewhere); lam in proportion to the zero-shot
accuracy on the support, as the paper's supplement suggests (the best lam showed no such relation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prolip.core import Task
from prolip.core.errors import unknown_name
from prolip.solvers.minimise import Batch
from prolip.solvers.objective import flushed_denormals
from prolip.solvers.reduce import Reduced, reduce

GRID = tuple(10 ** (exponent / 2) for exponent in range(1, -10, -1))  # 3.2 .. 3e-5, in units of u / N
ONE_SHOT = 1e-2
FOLDS = 5
SCALES = (1.0, 0.5, 2.0)  # of the task's own, with scale="auto"
TOL, STEPS = 0.1, 40  # of a fit inside a fold
PATIENCE = 2  # values of lam without a better score, before a path ends


@dataclass(frozen=True)
class Trial:
    """A pair that was tried, and how it did on held-out images."""

    lam: float
    scale: float
    log_likelihood: float
    accuracy: float


@dataclass(frozen=True)
class Choice:
    """The lam and scale chosen, and why.

    Attributes
    ----------
    lam, scale
        The choice.
    reason
        "cross-validation" or "one image per class".
    unit
        u / N, what lam is measured in.
    tried
        Every pair tried, in order; empty without cross-validation.
    """

    lam: float
    scale: float
    reason: str
    unit: float
    tried: tuple[Trial, ...] = ()


@torch.no_grad()
def choose(task: Task, *, scale: str = "fixed", seed: int = 0, folds: int = FOLDS) -> Choice:
    """Choose lam, and with scale="auto" the scale too, for this task.

    Parameters
    ----------
    task
        The few-shot problem.
    scale
        "fixed" keeps the task's scale. "auto" tries half and twice of it as well: for an encoder whose
        temperature was never trained.
    seed
        Which images go into which fold. The same seed gives the same choice, in whatever order the
        images come.
    folds
        How many folds.
    """
    if scale not in ("fixed", "auto"):
        raise unknown_name("scale", str(scale), ("fixed", "auto"))
    unit = lam_unit(task)
    fold = assign_folds(task, folds, seed)
    if bool((fold < 0).all()):
        return Choice(ONE_SHOT * unit, task.scale, "one image per class", unit)
    tried: list[Trial] = []
    with flushed_denormals():
        reduced = reduce(task)
        for factor in SCALES if scale == "auto" else (1.0,):
            tried += descend_path(reduced, fold.repeat(task.views), folds, unit, factor * task.scale)
    best = max(tried, key=lambda trial: trial.log_likelihood)
    return Choice(best.lam, best.scale, "cross-validation", unit, tuple(tried))


def lam_unit(task: Task) -> float:
    """The unit u / N: mean squared length of the inputs over that of the embeddings, per image of a class."""
    inputs, _ = task.linear.split(task.x)
    lengths = [float(a.double().square().sum(dim=-1).mean()) for a in (inputs, task.embeddings())]
    return lengths[0] / max(lengths[1], 1e-30) / task.shots


def assign_folds(task: Task, folds: int, seed: int) -> Tensor:
    """The fold [n] in which each image is held out; -1, never, for the only image of its class.

    Each class is dealt out in turn, in an order that depends on the images themselves and on the seed, but
    not on their order in the task nor on their scale.
    """
    x = task.x[0].double().cpu()
    axis = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    key = (50 * (x @ axis) / x.norm(dim=1)) % 1.0
    y = task.y.cpu()
    fold = torch.full_like(y, -1)
    dealt = 0
    for label in torch.unique(y):
        images = (y == label).nonzero()[:, 0]
        if len(images) > 1:
            fold[images[key[images].argsort()]] = (torch.arange(len(images)) + dealt) % folds
            dealt += len(images)
    return fold


def descend_path(reduced: Reduced, fold: Tensor, folds: int, unit: float, scale: float) -> list[Trial]:
    """Held-out scores along the path of lam, all folds at once, until they only get worse."""
    fold = fold.to(reduced.y.device)
    kept = (fold[:, None] != torch.arange(folds, device=fold.device)).to(reduced.base)
    lam = torch.full_like(kept[0], GRID[0] * unit)
    batch = Batch(reduced, lam, kept / kept.sum(dim=0), scale)
    tried: list[Trial] = []
    best, worse = -math.inf, 0
    for step in GRID:
        if tried:
            batch.change_lam(torch.full_like(lam, step * unit))
        batch.descend(TOL, STEPS)
        if batch.rest is not None:
            batch.update_rest()
            batch.descend(TOL, STEPS)
        tried.append(score(batch, fold, step * unit))
        if tried[-1].log_likelihood > best:
            best, worse = tried[-1].log_likelihood, 0
        else:
            worse += 1
        if worse == PATIENCE:
            break
    return tried


def score(batch: Batch, fold: Tensor, lam: float) -> Trial:
    """How the held-out rows fare, each under the fit that did not see it."""
    rows = (fold >= 0).nonzero()[:, 0]
    v = batch.point.v[rows, fold[rows]]
    squared = v.square().sum(dim=1)
    if batch.rest is not None:
        squared = squared + batch.rest.squared[rows, fold[rows]]
    y = batch.reduced.y[rows]
    logp = (v @ batch.reduced.text.T * (batch.scale * squared.rsqrt()[:, None])).log_softmax(dim=1)
    likelihood = logp.gather(1, y[:, None]).double().mean()
    return Trial(lam, batch.scale, float(likelihood), float((logp.argmax(dim=1) == y).double().mean()))
