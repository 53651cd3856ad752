"""The minimum itself. First version: the left reduction and L-BFGS."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from prolip.core import Task
from prolip.solvers.objective import cross_entropy, value_and_gradient
from prolip.solvers.solution import Solution


def exact(task: Task, lam: float, *, tol: float = 1e-3, start: Tensor | None = None) -> Solution:
    """Minimise over W [Do, D]; W - W0 stays in the row space of x.

    Parameters
    ----------
    task
        The few-shot problem; every view counts.
    lam
        Weight of |W - W0|^2.
    tol
        Stop when the gradient has shrunk to this fraction of its norm at W0.
    start
        A matrix to start from.
    """
    head = task.linear
    begin = time.perf_counter()
    rows, y = task.rows()
    inputs, fixed = head.split(rows)
    w0, text, y = head.weight.to(rows), task.text.rows.to(rows), y.to(rows.device)
    base = inputs @ w0
    if fixed is not None:
        base = base + fixed.to(base)
    u, s, vt = torch.linalg.svd(inputs, full_matrices=False)
    keep = s > s[0] * 1e-6
    reduced, vt = (u * s)[:, keep], vt[keep]
    z = torch.zeros(len(vt), head.dim, dtype=rows.dtype, device=rows.device)
    if start is not None:
        z = vt @ (start.to(rows) - w0)
    z.requires_grad_(True)
    optimizer = torch.optim.LBFGS(
        [z],
        max_iter=200,
        history_size=20,
        tolerance_grad=0,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )
    count = 0

    def closure() -> float:
        nonlocal count
        count += 1
        with torch.no_grad():
            losses, slope = cross_entropy(base + reduced @ z, text, y, task.scale)
            z.grad = reduced.T @ slope / len(y) + 2 * lam * z
            return float(losses.mean() + lam * z.square().sum())

    optimizer.step(closure)
    weight = w0 + vt.T @ z.detach()
    seconds = time.perf_counter() - begin
    start_value, slope0 = value_and_gradient(task, w0, lam)
    value, slope = value_and_gradient(task, weight, lam)
    gradient = float(slope.norm() / slope0.norm().clamp_min(1e-30))
    return Solution(
        weight, lam, task.scale, value, start_value, gradient, count, seconds, "exact", gradient <= tol
    )
