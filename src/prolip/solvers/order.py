"""An order of samples that depends on the samples alone."""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.core import Task
from prolip.solvers.objective import TINY

ROWS = 1 << 10


def sample_keys(x: Tensor, seed: int) -> Tensor:
    """A number for each row [n] of x, the same in whatever order, or at whatever scale, the rows come."""
    axis = torch.randn(x.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    parts = (part.cpu().double() for part in x.split(ROWS))
    return torch.cat([(part * axis).sum(dim=1) / part.norm(dim=1).clamp_min(TINY) for part in parts])


def in_order(task: Task) -> Task:
    """The same task, its samples in an order of their own."""
    return task.subset(sample_keys(task.x[0], seed=0).argsort().to(task.y.device))
