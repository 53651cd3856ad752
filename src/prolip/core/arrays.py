"""numpy arrays and torch tensors in, float32 tensors out, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from prolip.core.errors import InputError


def as_features(x: Any, name: str) -> Tensor:
    """A float tensor of at least one dimension, finite. Half precision becomes float32; float64 stays."""
    tensor = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{name} must hold real numbers, got {tensor.dtype}")
    if tensor.dtype != torch.float64:
        tensor = tensor.to(torch.float32)
    tensor = tensor.detach()
    # A graph that is being traced holds no values to look at.
    if not torch.compiler.is_compiling() and not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor)).sum())
        raise InputError(f"{name} holds {bad} NaN or infinite values; encode those images again or drop them")
    return tensor


def as_labels(y: Any, classes: int) -> Tensor:
    """Labels [n] as int64, each in 0 .. classes - 1."""
    tensor = torch.as_tensor(np.asarray(y.cpu() if isinstance(y, Tensor) else y))
    if tensor.ndim != 1:
        raise InputError(f"labels must be a vector [n], got shape {list(tensor.shape)}")
    if tensor.is_floating_point() and not torch.equal(tensor, tensor.round()):
        raise InputError("labels must be whole numbers, got fractions")
    tensor = tensor.to(torch.int64)
    if len(tensor) and (tensor.min() < 0 or tensor.max() >= classes):
        raise InputError(
            f"labels must lie in 0 .. {classes - 1} (there are {classes} text rows), "
            f"got {int(tensor.min())} .. {int(tensor.max())}"
        )
    return tensor


def unit_rows(x: Tensor, eps: float = 1e-12) -> Tensor:
    """Rows of length one; a zero row stays zero."""
    return x / x.norm(dim=-1, keepdim=True).clamp_min(eps)


def require_nonzero_rows(x: Tensor, name: str) -> None:
    """Refuse rows that are all zero: they have no direction, hence no cosine with any class."""
    zero = (x == 0).all(dim=-1)
    if zero.any():
        first = int(zero.reshape(-1).nonzero()[0])
        raise InputError(f"{name} has {int(zero.sum())} all-zero rows (the first is row {first})")
