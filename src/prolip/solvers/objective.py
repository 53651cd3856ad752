"""ProLIP's objective and its gradient, in closed form.

For embeddings v_i = x_i W + b, unit text rows t_k and scale s, with z_i = v_i / |v_i|:

    CE_i = -log softmax(s z_i T')[y_i]
    dCE_i / dv_i = (g_i - (g_i . z_i) z_i) / |v_i|,      g_i = s (p_i - onehot(y_i)) T

Two products with T, and no graph to keep. The second line says that a step along v_i changes nothing:
only its direction matters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.core import Task

TINY = 1e-12


def cross_entropy(v: Tensor, text: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Losses [n] of embeddings v [n, D], and their gradient [n, D] with respect to v, row by row."""
    norm = v.norm(dim=1, keepdim=True).clamp_min(TINY)
    logits = (v @ text.T).mul_(scale / norm)
    logp = logits.log_softmax(dim=1)
    losses = -logp.gather(1, y[:, None])[:, 0]
    residual = logp.exp_()  # p - onehot(y)
    residual.scatter_add_(1, y[:, None], residual.new_full((len(y), 1), -1.0))
    along = (residual * logits).sum(dim=1, keepdim=True) / norm  # g . z
    gradient = (residual @ text).mul_(scale).addcmul_(v, along, value=-1.0).div_(norm)
    return losses, gradient


def value_and_gradient(task: Task, weight: Tensor, lam: float) -> tuple[float, Tensor]:
    """The objective over every view, and its gradient [Do, D]. One view at a time: memory stays flat."""
    head = task.linear
    start = head.weight.to(weight)
    text, y = task.text.rows.to(weight), task.y.to(weight.device)
    delta = weight - start
    gradient = 2 * lam * delta
    value = lam * float(delta.square().sum(dtype=torch.float64))
    count = task.views * task.n
    for view in task.x:
        inputs, fixed = head.split(view.to(weight))
        v = inputs @ weight
        losses, slope = cross_entropy(v if fixed is None else v + fixed.to(v), text, y, task.scale)
        value += float(losses.sum(dtype=torch.float64)) / count
        gradient.addmm_(inputs.T, slope, alpha=1 / count)
    return value, gradient
