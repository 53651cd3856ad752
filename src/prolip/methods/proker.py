"""ProKeR: kernel ridge regression on what zero-shot leaves over, in closed form (Bendou et al., 2025).

With unit embeddings f, class texts T, support images X with one-hot labels Y, and zero-shot as cosines,
z(f) = f T', the function nearest to z, in the space of the kernel, that also fits the labels is

    g(f) = z(f) + k(f, X) (K + lam I)^-1 (Y - z(X)),        k(f, x) = exp( -beta (1 - f . x) ),  K = k(X, X)
    logits = s g(f)

K has one decomposition, K = U diag(e) U', which serves every lam. lam is searched over `LAM_GRID` on a
validation set or inside the support set; where there is nothing to hold out it is 10, which did best on 60
classes at a time of ImageNet's few-shot training sets (1 to 4 images; beta = 3, 5 and 10 did equally well
there).

Differences from the authors' program: there the second term has a factor lam more, which the paper has not;
lam and beta are searched together, on the validation split; several views are rows of their own (here an
image is the mean over its views, as in Tip-Adapter's cache).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, Task, Text
from prolip.core.arrays import Array, Tensors, unit_rows
from prolip.io.onnx_graph import Graph
from prolip.methods import selection
from prolip.methods.base import FitContext, Method, OptionError, Shape
from prolip.methods.classifiers import affinity, products, unit_features
from prolip.methods.registry import register
from prolip.methods.selection import Splits, Tuning

# Of lam; of equals the one nearer to zero-shot wins.
LAM_GRID = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
ONE_SHOT_LAM = 10.0


@register
@dataclass(frozen=True)
class ProKeR(Method):
    """Kernel ridge regression beside zero-shot.

    Parameters
    ----------
    lam
        Pull to zero-shot: "auto" (searched), or a positive number.
    beta
        Sharpness of the kernel.
    seed
        Random seed for the folds.
    """

    name: ClassVar[str] = "proker"
    summary: ClassVar[str] = "ProKeR: kernel ridge regression beside zero-shot, closed form"
    size: ClassVar[str] = "0"

    lam: str | float = "auto"
    beta: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.lam != "auto" and not (isinstance(self.lam, (int, float)) and self.lam > 0):
            raise OptionError("lam", '"auto" or a positive number', self.lam)
        if not self.beta > 0:
            raise OptionError("beta", "a positive number", self.beta)

    def needs_tuning(self) -> bool:
        """Whether lam is "auto"."""
        return self.lam == "auto"

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose lam from the grid."""
        if self.lam != "auto":
            return Tuning(self)
        if not splits.parts:
            return selection.fallback(self, "lam", ONE_SHOT_LAM)
        problems = [(KernelRegression(part.task, self.beta), part.x) for part in splits.parts]
        columns = [[problem.solve(lam).logits(x) for problem, x in problems] for lam in LAM_GRID]
        return splits.choose(self, "lam", LAM_GRID, columns)

    def solve(self, task: Task, context: FitContext) -> KernelClassifier:
        """Solve the regression for one lam."""
        return KernelRegression(task, self.beta).solve(float(self.lam))

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0


class KernelRegression:
    """The problem on a support set, decomposed once."""

    def __init__(self, task: Task, beta: float) -> None:
        self.task, self.beta = task, beta
        self.keys = unit_rows(unit_features(task.linear, task.x).mean(axis=0))  # X [n, D]
        kernel = affinity(self.keys, self.keys, beta).astype(np.float64)
        self.values, self.vectors = np.linalg.eigh(kernel)
        left = np.eye(task.classes)[task.y] - products(self.keys, task.text.rows)  # Y - z(X) [n, K]
        self.left = self.vectors.T @ left

    def solve(self, lam: float) -> KernelClassifier:
        """The classifier for this lam."""
        coefficients = self.vectors @ (self.left / (np.maximum(self.values, 0) + lam)[:, None])
        task = self.task
        coefficients = coefficients.astype(self.keys.dtype)
        return KernelClassifier(task.linear, task.text, task.scale, self.keys, coefficients, self.beta)


@register
@dataclass(frozen=True, eq=False)
class KernelClassifier(Fitted):
    """logits = s ( f T' + exp(-beta (1 - f X')) A ): support images X, and their coefficients by class."""

    kind: ClassVar[str] = "kernel"

    head: Head
    text: Text
    scale: float
    keys: Array  # X [n, D]
    coefficients: Array  # A [n, K]
    beta: float

    def logits(self, x: Any) -> Array:
        """Scores [m, K]: zero-shot, and what the images near by add."""
        f = unit_features(self.head, x)
        near = affinity(f, self.keys, self.beta)  # [n, m]
        added = near.T @ self.coefficients.astype(f.dtype, copy=False)
        return self.scale * (products(f, self.text.rows) + added)

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        f = graph.unit_rows(graph.head(self.head, x))
        near = graph.node("Sub", graph.node("MatMul", f, self.keys.T), 1.0)
        near = graph.node("Exp", graph.node("Mul", near, self.beta))
        added = graph.node("MatMul", near, self.scale * self.coefficients)
        return graph.node("Add", graph.node("MatMul", f, self.scale * self.text.rows.T), added)

    def tensors(self) -> Tensors:
        """The support images and their coefficients."""
        return {name: getattr(self, name).astype(np.float32) for name in ("keys", "coefficients")}

    def config(self) -> dict[str, Any]:
        """The scale, and the sharpness of the kernel."""
        return {"scale": self.scale, "beta": self.beta}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> KernelClassifier:
        """Put the regression beside the base model."""
        scale, beta = float(config["scale"]), float(config["beta"])
        return cls(head, text, scale, tensors["keys"], tensors["coefficients"], beta)
