"""Softmax cross-entropy: value and gradient, for every solver and method.

    loss_i     = log sum_k exp(z_ik) - z_i,y_i
    gradient_i = w_i (p_i - onehot(y_i)),     p_i = softmax(z_i)

Shapes: logits z [n, K], or [n, B, K] for B problems on the same rows; labels y [n]; weights w of the rows, a
number or an array of the shape of the losses, [n] or [n, B]. A mean over rows has w = 1 / n.
"""

import numpy as np

from prolip.core.arrays import Array


def softmax_loss(
    logits: Array, y: Array, weights: Array | float = 1.0, *, out: Array | None = None
) -> tuple[Array, Array]:
    """Return the losses, not weighted, and the weighted gradient by the logits.

    The gradient is written to `out`, which may be `logits`, where it is given.

    Examples
    --------
    >>> losses, gradient = softmax_loss(np.zeros((1, 4)), np.array([2]))
    >>> losses.round(4).tolist(), gradient.tolist()
    ([1.3863], [[0.25, 0.25, -0.75, 0.25]])
    """
    rows = np.arange(len(y))
    labels = (rows, y) if logits.ndim == 2 else (rows, slice(None), y)
    p = np.subtract(logits, logits.max(axis=-1, keepdims=True), out=out)
    own = p[labels]
    np.exp(p, out=p)
    total = p.sum(axis=-1)
    losses = np.log(total) - own
    p *= (weights / total)[..., None]
    p[labels] -= weights
    return losses, p
