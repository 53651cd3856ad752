"""Convert and check arrays of NumPy, torch or lists; and shared computations on arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prolip.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Array = npt.NDArray[Any]
Tensors = dict[str, Array]  # by name
# Range of the largest value of a row: squares of smaller and larger ones are lost in float32.
SHORTEST, LONGEST = 1e-11, 1e12


def to_python_scalar(value: Any) -> Any:
    """Convert a scalar of NumPy or torch to Python; return anything else as it is."""
    return value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value


def to_numpy(x: Any) -> Array:
    """Convert any array to NumPy. A torch tensor is detached and moved; bfloat16 becomes float32."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.float() if x.is_floating_point() and x.element_size() == 2 else x
    return np.asarray(x)


def to_torch(array: Any, device: Any = "cpu") -> Tensor:
    """Copy an array to a torch tensor on a device."""
    import torch

    return torch.tensor(np.asarray(to_numpy(array), order="C"), device=device)


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to: what an immutable value holds."""
    view = array.view()
    view.setflags(write=False)
    return view


def as_features(x: Any, name: str) -> Array:
    """Convert to a finite float array. Half precision and integers become float32; float64 stays."""
    array = to_numpy(x)
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} must hold real numbers, got {array.dtype}")
    if array.dtype != np.float64:
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise InputError(f"{name} holds {bad} NaN or infinite values; encode those images again or drop them")
    return array


def as_labels(y: Any, classes: int) -> Array:
    """Convert labels [n] to int64, each in 0 .. classes - 1."""
    array = to_numpy(y)
    if array.ndim != 1 or array.dtype.kind not in "fiub" or not np.array_equal(array, np.round(array)):
        raise InputError(f"labels must be a vector [n] of integers, got {array.dtype} {list(array.shape)}")
    array = array.astype(np.int64)
    if len(array) and (array.min() < 0 or array.max() >= classes):
        raise InputError(
            f"labels must lie in 0 .. {classes - 1} (there are {classes} text rows), "
            f"got {array.min()} .. {array.max()}"
        )
    return array


def as_groups(groups: Any, n: int) -> Array:
    """Number groups [n] from 0; None is a group for each image."""
    if groups is None:
        return np.arange(n)
    array = to_numpy(groups)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InputError(f"groups must be {n} integers, got {array.dtype} {list(array.shape)}")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def group_weights(groups: Array, y: Array) -> Array:
    """Return what each image counts [n], so that the images of a group and class count as one together."""
    cells = np.stack([groups, y])
    _, place, sizes = np.unique(cells, axis=1, return_inverse=True, return_counts=True)
    weights: Array = 1 / sizes[place.reshape(-1)]
    return weights


def unit_rows(x: Array) -> Array:
    """Scale rows to unit length; a zero row stays zero."""
    return x / np.maximum(row_lengths(x), 1e-12)


def row_lengths(x: Array) -> Array:
    """Return the lengths [.., 1] of rows [.., D]."""
    lengths: Array = np.sqrt(np.einsum("...d,...d->...", x, x))[..., None]
    return lengths


def softmax(logits: Array) -> Array:
    """Return probabilities along the last axis."""
    p: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def log_softmax(logits: Array) -> Array:
    """Return logarithms of probabilities along the last axis."""
    z = logits - logits.max(axis=-1, keepdims=True)
    log_p: Array = z - np.log(np.exp(z).sum(axis=-1, keepdims=True))
    return log_p


def softmax_loss(
    logits: Array, y: Array, weights: Array | float = 1.0, *, out: Array | None = None
) -> tuple[Array, Array]:
    """Return the losses of softmax cross-entropy, not weighted, and the weighted gradient by the logits.

        loss_i     = log sum_k exp(z_ik) - z_i,y_i
        gradient_i = w_i (p_i - onehot(y_i)),     p_i = softmax(z_i)

    Logits z are [n, K], or [n, B, K] for B problems on the same rows; labels y [n]; weights w of the rows, a
    number or an array of the shape of the losses, [n] or [n, B]: a mean over rows has w = 1 / n. The gradient
    is written to `out`, which may be `logits`, where it is given.

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


def cross_entropy(logits: Array, y: Array) -> Array:
    """Return the losses [n] of logits [n, K] and labels [n]."""
    return -log_softmax(logits)[np.arange(len(y)), y]


def one_hot_sum(x: Array, y: Array, classes: int) -> Array:
    """Sum the rows of x [n, ..] by their labels [n]: [K, ..]."""
    order = np.argsort(y, kind="stable")
    present, starts = np.unique(y[order], return_index=True)
    total = np.zeros((classes, *x.shape[1:]), x.dtype)
    if len(y):
        total[present] = np.add.reduceat(x[order], starts, axis=0)
    return total


def require_directions(x: Array, name: str) -> None:
    """Reject rows without a direction: zero, or so small or large that their squares are lost."""
    size = np.abs(x).max(axis=-1, initial=0).reshape(-1)
    wrong = np.flatnonzero(~((size > SHORTEST) & (size < LONGEST)))
    if len(wrong):
        raise InputError(
            f"{name} has {len(wrong)} rows (the first is row {wrong[0]}) whose largest value does not lie "
            f"between {SHORTEST:g} and {LONGEST:g}: scale them, for example to unit length"
        )
