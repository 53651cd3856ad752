"""The paper's Adam in torch, for a GPU: the same steps as `adam` on the same objective.

In float16 every operation of the graph rounds as the authors' does; Adam itself is torch's, on float16.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from prolip.core import Task
from prolip.core.arrays import Array
from prolip.solvers.adam import cosine

EVERY = 20  # epochs between two calls of `progress`, for which the GPU is waited for


def has_gpu() -> bool:
    """Return whether torch can use a GPU here."""
    return torch.cuda.is_available()


def train(
    task: Task,
    lam: float,
    lr: float,
    epochs: int,
    eps: float,
    precision: str,
    progress: Callable[[int, int], None] | None = None,
    device: str = "cuda",
) -> Array:
    """Return the last W [Do, D] of a training."""
    kind = torch.float16 if precision == "float16" else torch.float32
    inputs, fixed = task.linear.split(task.x)  # [V, n, Do]
    x, w0, text = (
        torch.tensor(np.ascontiguousarray(array), dtype=kind, device=device)
        for array in (inputs, task.linear.weight, task.text.rows)
    )
    offset = None if fixed is None else torch.tensor(np.asarray(fixed), dtype=kind, device=device)
    y = torch.tensor(task.y, device=device)
    weight = torch.nn.Parameter(w0.clone())
    optimizer = torch.optim.Adam([weight], lr=lr, eps=eps)
    for epoch in range(epochs):
        view = (epoch + 1) % task.views
        optimizer.param_groups[0]["lr"] = cosine(lr, epoch / epochs)
        v = x[view] @ weight
        if offset is not None:
            v = v + (offset if offset.ndim == 1 else offset[view])
        logits = task.scale * (v / v.norm(dim=1, keepdim=True)) @ text.T
        loss = cross_entropy(logits, y)
        if lam:
            loss = loss + lam * (weight - w0).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if progress is not None and ((epoch + 1) % EVERY == 0 or epoch + 1 == epochs):
            progress(epoch + 1, epochs)
    found: Array = weight.detach().float().cpu().numpy()
    return found
