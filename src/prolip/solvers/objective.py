"""ProLIP's objective and its gradient, in closed form.

For embeddings v_i = x_i W + b, unit text rows t_k and scale s, with z_i = v_i / |v_i|:

    CE_i         = -log softmax(s z_i T')[y_i]
    dCE_i / dv_i = s (p_i - onehot(y_i)) T / |v_i|  +  c_i v_i
    c_i          = -(p_i - onehot(y_i)) . logits_i / |v_i|^2          one number per sample

Two products with T, and no graph to keep. c_i is the slope in half the squared length of v_i: positive
where the sample is classified well and wants to be shorter, so that its cosines grow.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prolip.core import Task
from prolip.solvers.arithmetic import product

TINY = 1e-30
SAFE = 1e-20  # a probability down to which its logarithm has all its digits


def cross_entropy(v: Tensor, text: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Losses [n], their gradient with respect to embeddings v [n, D], and c [n]."""
    squared = v.square().sum(dim=-1)
    losses, residual, c = softmax_losses(v @ text.T, squared, y, scale)
    return losses, loss_gradient(v, residual, c, text), c


def softmax_losses(
    products: Tensor,
    squared: Tensor,
    y: Tensor,
    scale: float,
    weights: Tensor | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses from inner products v T' and squared lengths |v|^2.

    Parameters
    ----------
    products
        v T' [.., K]; overwritten.
    squared
        |v|^2 [..], whole: also what lies outside the span of the text.
    y
        Labels [..].
    scale
        What cosines are multiplied by.
    weights
        What the gradient and c of each sample are multiplied by [..]; the losses are not.
    out
        Memory for the gradient [.., K].

    Returns
    -------
    Losses [..]; the gradient with respect to the products, s (p - onehot(y)) / |v|, [.., K]; and c [..].
    """
    shrink = squared.clamp_min(TINY).rsqrt()
    slope = scale * shrink
    logits = products.mul_(slope.unsqueeze(-1))
    label = y.unsqueeze(-1)
    p = torch.softmax(logits, dim=-1, out=out)
    own = p.gather(-1, label)
    losses = own.log().neg_().squeeze(-1)
    if not bool((own > SAFE).all()):  # from the most likely class, whose p is never below 1 / K
        top, best = p.max(dim=-1, keepdim=True)
        losses = (logits.gather(-1, best) - logits.gather(-1, label) - top.log()).squeeze(-1)
    residual = p.scatter_add_(-1, label, torch.full_like(own, -1.0))
    c = logits.mul_(residual).sum(dim=-1).mul_(shrink.square()).neg_()
    if weights is not None:
        slope, c = slope * weights, c.mul_(weights)
    return losses, residual.mul_(slope.unsqueeze(-1)), c


def loss_gradient(v: Tensor, residual: Tensor, c: Tensor, text: Tensor, out: Tensor | None = None) -> Tensor:
    """The gradient with respect to v [.., k], from what `softmax_losses` gives."""
    flat = None if out is None else out.view(-1, out.shape[-1])
    return product(residual.flatten(0, -2), text, flat).view_as(v).addcmul_(v, c.unsqueeze(-1))


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
