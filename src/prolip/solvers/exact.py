"""The minimum itself, not an approach to it.

`reduce` rewrites the problem without approximation, `minimise` holds the optimizer. Here the two parts of
the unknowns take turns: steps inside span(T), one linear solve for the rest, until the whole gradient is
small against what it was at W0. The turns converge quickly (each divides the error by ten or more),
because the parts meet only in the lengths of the embeddings.

Not every problem has a minimum to go to. Where lam is small for the encoder, and an image far from its text,
the cheapest way to please it is an embedding that shrinks to nothing and leaves in the right direction: the
objective falls for ever, its slope grows, and what is left to say is when to stop. (With `offline` this
happens from lam = 1/N down; the restrained form, where lengths count by their root, was not seen to do it.)
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from prolip.core import Task
from prolip.solvers.arithmetic import flushed_denormals, single_thread
from prolip.solvers.line_search import Numbers
from prolip.solvers.minimise import COARSE, Batch
from prolip.solvers.objective import TINY
from prolip.solvers.order import in_order
from prolip.solvers.reduce import PRECISE, is_large, is_small, reduce
from prolip.solvers.solution import Solution

TOL, TOL_WHOLE = 7e-4, 1.5e-2
FINE, FINE_RESTRAINED = 1.5e-6, 3e-7
ROUGH, GAIN = 0.3, 0.07  # tolerance of the first turn, and of each later one as a share of what is left
TURNS, STEPS, QUICK = 12, 200, 60  # at most; steps of a turn before and after TOL is reached


def exact(
    task: Task, lam: float, *, tol: float | None = None, start: Tensor | None = None, restrained: bool = False
) -> Solution:
    """Minimise the objective over W [Do, D].

    Parameters
    ----------
    task
        The few-shot problem; every view counts as rows of its own.
    lam
        Weight of |W - W0|^2.
    tol
        Stop when the gradient, as a share of its norm at W0, is below tol times the objective, as a share of
        its value at W0. By default 0.0007, which leaves the objective within 1e-6 of the minimum; then on to
        1.5e-6 (3e-7 for the restrained form), which leaves logits within 1e-4 of the minimum's, unless it
        is slow. With n K above half a million, where all is float32, 0.0007; 0.015, to within 1e-4 of the
        objective, where K is nearly D or above and an evaluation costs as much as two zero-shot passes.
    start
        A matrix to start from.
    restrained
        Fit the form of the objective that lam = "auto" uses: see `selection`.

    Examples
    --------
    >>> import torch
    >>> task = Task(torch.eye(4), [0, 0, 1, 1], torch.eye(4)[:2] + 0.5)
    >>> solution = exact(task, 0.1)
    >>> solution.converged, solution.objective < solution.start_objective
    (True, True)
    """
    return path(task, [lam], tol=tol, start=start, restrained=restrained)[0]


@torch.no_grad()
def path(
    task: Task,
    lams: Sequence[float],
    *,
    tol: float | None = None,
    start: Tensor | None = None,
    restrained: bool = False,
) -> list[Solution]:
    """Solutions for several lam, in the order given, with one decomposition and warm starts.

    Large to small is the quick order: each solution is then near the next.
    """
    if min(lams) == 0:
        warnings.warn(
            "lam = 0 has no penalty: the fit memorises the support set and forgets the pretrained model; "
            'use lam="auto" or a small positive number',
            stacklevel=3,
        )
    solutions = []
    with flushed_denormals():
        begin = time.perf_counter()
        if is_large(task):
            task = in_order(task)
        with torch.inference_mode():
            # A small lam magnifies rounding: products of the restrained form keep float64 for longer.
            reduced = reduce(task, restrained, PRECISE * 128 if restrained else PRECISE)
            weights = torch.full_like(reduced.base[:, :1], 1 / len(reduced.y))
            batch = Batch(reduced, reduced.base.new_tensor([lams[0]]), weights, task.scale, restrained)
            if start is not None:
                batch.move(reduced.coordinates(start.to(task.x)))
        wanted, fine = (tol, tol) if tol else tolerances(batch)
        for lam in lams:
            evaluations = batch.evaluations
            with torch.inference_mode(), single_thread(is_small(task)):
                if lam != float(batch.lam):
                    batch.change_lam(torch.full_like(batch.lam, lam))
                converged = take_turns(batch, wanted, fine)
                gradient = float(batch.gradient_norm()[0] / max(batch.start_norm[0], TINY))
            weight = reduced.weight(batch.point.z, batch.rest)
            end = time.perf_counter()
            solutions.append(
                Solution(
                    weight=weight,
                    lam=lam,
                    scale=task.scale,
                    objective=float(batch.value()[0]),
                    start_objective=float(batch.start_value[0]),
                    gradient=gradient,
                    evaluations=batch.evaluations - evaluations,
                    seconds=end - begin,
                    solver="exact",
                    converged=converged,
                )
            )
            begin = end
    return solutions


def tolerances(batch: Batch) -> tuple[float, float]:
    """What must be reached, and what is worth going on to where sums have float64."""
    if batch.v.dtype == torch.float64:
        return TOL, FINE_RESTRAINED if batch.restrained else FINE
    return (TOL, TOL) if batch.rest is not None else (TOL_WHOLE, TOL_WHOLE)


def take_turns(batch: Batch, tol: float, fine: float) -> bool:
    """Minimise inside span(T) and outside it in turns; whether the whole gradient reached its goal.

    Past `tol` they go on to `fine` as long as every turn at least halves what is left.
    """
    free = batch.rest is not None and not batch.restrained and bool((batch.lam > 0).all())
    rough, best, met = max(fine, ROUGH), math.inf, False
    for turn in range(TURNS):
        value = batch.value()
        descend = batch.approach if rough >= COARSE else batch.descend
        descend(0.7 * rough if free else rough, QUICK if met else STEPS)
        norm = batch.gradient_norm()
        excess, met = float((norm / batch.goal(fine)).max()), bool((norm <= batch.goal(tol)).all())
        slow = excess > (0.5 if met else 0.8) * best
        if excess <= 1 or (slow and (met or rough == fine or not lower(batch.value(), value))):
            break
        if free and not batch.update_rest():
            break
        if turn == 0:
            batch.refresh()
        rough, best = fine * max(1.0, GAIN * excess), min(best, excess)
    return met


def lower(value: Numbers, before: Numbers) -> bool:
    """Whether an objective fell by more than a hundred-thousandth."""
    return bool((value < 0.99999 * before).any())
