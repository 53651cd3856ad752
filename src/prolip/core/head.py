"""The linear map at the end of an image (or text) encoder.

An encoder is f = f2 . f1: f1 the frozen tower, f2 this head,

    v = x W + b        x [.., Do], W [Do, D], b [D] or none

SigLIP's last linear map has a residual around it, so each sample brings a fixed vector r of its own:
v = r + x W + b. A head with `residual=True` finds r in the last D columns of its input, so that features
of any encoder are one array, to be stored, sampled and sliced alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from prolip.core.arrays import Array, as_features, read_only
from prolip.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Head:
    """A linear head: weight [Do, D], bias [D] or none, and whether inputs carry an offset.

    Examples
    --------
    >>> head = Head(np.eye(3)[:, :2], bias=[0.0, 1.0])
    >>> head(np.array([[1.0, 2.0, 3.0]])).tolist()
    [[1.0, 3.0]]
    """

    weight: Array
    bias: Array | None = None
    residual: bool = False

    def __repr__(self) -> str:
        width, dim = self.weight.shape
        more = ("" if self.bias is None else ", bias") + (", residual" if self.residual else "")
        return f"Head({width} x {dim}{more})"

    def __post_init__(self) -> None:
        weight = as_features(self.weight, "head weight")
        if weight.ndim != 2:
            raise InputError(f"head weight must be [Do, D], got shape {list(weight.shape)}")
        object.__setattr__(self, "weight", read_only(weight))
        if self.bias is not None:
            bias = as_features(self.bias, "head bias")
            if bias.shape != (weight.shape[1],):
                raise InputError(f"head bias must be [{weight.shape[1]}], got shape {list(bias.shape)}")
            object.__setattr__(self, "bias", read_only(bias))

    @classmethod
    def identity(cls, dim: int) -> Head:
        """The head of a black box, whose output is already the embedding."""
        return cls(np.eye(dim, dtype=np.float32))

    @property
    def width(self) -> int:
        """Columns that an input has: Do, and D more for the offset of a residual head."""
        return int(self.weight.shape[0] + (self.weight.shape[1] if self.residual else 0))

    @property
    def dim(self) -> int:
        """D, the dimension of the shared image-text space."""
        return int(self.weight.shape[1])

    def split(self, x: Array) -> tuple[Array, Array | None]:
        """Inputs of the linear map [.., Do], and what is added to its output whatever W is."""
        if x.shape[-1] != self.width:
            raise InputError(f"features have {x.shape[-1]} columns, the head expects {self.width}")
        if not self.residual:
            return x, self.bias
        inputs, offset = x[..., : -self.dim], x[..., -self.dim :]
        return inputs, offset if self.bias is None else offset + self.bias

    def __call__(self, x: Array) -> Array:
        """Embeddings v [.., D] of features x [.., width], not normalised."""
        inputs, fixed = self.split(x)
        v: Array = inputs @ self.weight.astype(inputs.dtype, copy=False)
        if fixed is not None:
            v = v + fixed.astype(v.dtype, copy=False)
        return v

    def with_weight(self, weight: Array) -> Head:
        """The same head around another matrix."""
        return replace(self, weight=weight)
