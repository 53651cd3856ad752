"""ProLIP's objective and its gradient, in closed form.

For embeddings v_i = x_i W + b, unit text rows t_k and scale s, with z_i = v_i / |v_i|:

    CE_i         = -log softmax(s z_i T')[y_i]
    dCE_i / dv_i = s (p_i - onehot(y_i)) T / |v_i|  +  c_i v_i
    c_i          = -(p_i - onehot(y_i)) . logits_i / |v_i|^2          one number per sample

Two products with T, and no graph to keep. c_i is the slope in half the squared length of v_i: positive
where the sample is classified well and wants to be shorter, so that its cosines grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from prolip.core import Task

TINY = 1e-30


def cross_entropy(
    v: Tensor, text: Tensor, y: Tensor, scale: float, rest: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses, their gradient with respect to v, and c, for embeddings v [.., k].

    Parameters
    ----------
    v
        Embeddings [.., k], not normalised, in any orthonormal coordinates that hold the text.
    text
        Text rows [K, k] in the same coordinates.
    y
        Labels [..].
    scale
        What cosines are multiplied by.
    rest
        Squared length [..] of what an embedding has outside these coordinates.

    Returns
    -------
    Losses [..], dloss/dv [.., k], and c [..].
    """
    squared = v.square().sum(dim=-1, keepdim=True)
    if rest is not None:
        squared = squared + rest.unsqueeze(-1)
    shrink = squared.clamp_min(TINY).rsqrt()
    logits = (v @ text.T).mul_(scale * shrink)
    logp = logits.log_softmax(dim=-1)
    label = y.unsqueeze(-1)
    losses = -logp.gather(-1, label).squeeze(-1)
    residual = logp.exp_()
    residual.scatter_add_(-1, label, torch.full_like(losses, -1.0).unsqueeze(-1))
    c = (residual * logits).sum(dim=-1, keepdim=True).mul_(shrink.square()).neg_()
    gradient = (residual @ text).mul_(scale * shrink).addcmul_(v, c)
    return losses, gradient, c.squeeze(-1)


def value_and_gradient(task: Task, weight: Tensor, lam: float) -> tuple[float, Tensor]:
    """The objective over every view, and its gradient [Do, D]. One view at a time: memory stays flat."""
    head = task.linear
    text, y = task.text.rows.to(weight), task.y.to(weight.device)
    delta = weight - head.weight.to(weight)
    gradient = 2 * lam * delta
    value = lam * float(delta.square().sum(dtype=torch.float64))
    count = task.views * task.n
    for view in task.x:
        inputs, fixed = head.split(view.to(weight))
        v = inputs @ weight
        losses, slope, _ = cross_entropy(v if fixed is None else v + fixed.to(v), text, y, task.scale)
        value += float(losses.sum(dtype=torch.float64)) / count
        gradient.addmm_(inputs.T, slope, alpha=1 / count)
    return value, gradient


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Count numbers below 1e-38 as zero: a CPU handles them ten times slower, and moments decay into them."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
