"""ProKeR: kernel ridge regression on what zero-shot leaves over, in closed form (Bendou et al., 2025).

With unit embeddings f, class texts T, support images X with one-hot labels Y, and zero-shot as cosines,
z(f) = f T', the function nearest to z, in the space of the kernel, that also fits the labels is

    g(f) = z(f) + k(f, X) (K + lam I)^-1 (Y - z(X)),        k(f, x) = exp( -beta (1 - f . x) ),  K = k(X, X)
    logits = s g(f)

K has one decomposition, K = U diag(e) U', which serves every lam. lam is searched over `LAM_GRID` on a
validation set or inside the support set; where there is nothing to hold out it is 10, which did best on 60
classes at a time of ImageNet's few-shot training sets (1 to 4 images; beta = 3, 5 and 10 did equally well
there).

Differences from the authors' program (`program=True` has it): there the second term has a factor lam more,
which the paper has not, and several views are rows of their own (here an image is the mean over its views, as
in Tip-Adapter's cache). The program has two ways to choose, both of which imply `program`: lam="grid"
searches lam and beta together on a validation set (beta 0.1 to 10 in 20 steps, lam 0.001 to 10 in 100, which
span their ranges for single datasets; of equals the first, beta outside); lam="imagenet" takes the constants
that their search on ImageNet found with RN50, by the number of shots, and searches nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
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
GRID_LAMS, GRID_BETAS = np.linspace(0.001, 10, 100).tolist(), np.linspace(0.1, 10, 20).tolist()
IMAGENET = {1: (0.05, 3.0), 2: (0.05, 2.6), 4: (0.05, 1.5), 8: (0.07, 1.66), 16: (0.1, 1.7)}  # lam, beta
LAM_RULES = ("auto", "grid", "imagenet")


@register
@dataclass(frozen=True)
class ProKeR(Method):
    """Kernel ridge regression beside zero-shot.

    Parameters
    ----------
    lam
        Pull to zero-shot: "auto" (searched), "grid" (the authors' search, which needs a validation set, of
        beta too), "imagenet" (the authors' constants for both), or a positive number.
    beta
        Sharpness of the kernel.
    seed
        Random seed for the folds.
    program
        Whether the formula is that of the authors' program.
    """

    name: ClassVar[str] = "proker"
    summary: ClassVar[str] = "ProKeR: kernel ridge regression beside zero-shot, closed form"
    size: ClassVar[str] = "0"

    lam: str | float = "auto"
    beta: float = 5.0
    seed: int = 0
    program: bool = False

    def __post_init__(self) -> None:
        if self.lam not in LAM_RULES and not (isinstance(self.lam, (int, float)) and self.lam > 0):
            raise OptionError("lam", '"auto", "grid", "imagenet" or a positive number', self.lam)
        if not self.beta > 0:
            raise OptionError("beta", "a positive number", self.beta)

    def needs_tuning(self) -> bool:
        """Whether lam is searched."""
        return self.lam in ("auto", "grid")

    def tune(self, task: Task, splits: Splits) -> Tuning:
        """Choose lam, and in the authors' ways beta."""
        if self.lam == "imagenet":
            shots = min(IMAGENET, key=lambda count: abs(np.log2(count / task.shots)))
            lam, beta = IMAGENET[shots]
            return Tuning(replace(self, lam=lam, beta=beta, program=True))
        if self.lam == "grid":
            splits.require_validation('lam="grid"', 'lam="auto"')
            return self._search(splits)
        if self.lam != "auto":
            return Tuning(self)
        if not splits.parts:
            return selection.fallback(self, "lam", ONE_SHOT_LAM)
        problems = [(KernelRegression(part.task, self.beta, self.program), part.x) for part in splits.parts]
        columns = [[problem.along_path(lam).logits(x) for problem, x in problems] for lam in LAM_GRID]
        return splits.choose(self, "lam", LAM_GRID, columns)

    def solve(self, task: Task, context: FitContext) -> KernelClassifier:
        """Solve the regression for one lam."""
        return KernelRegression(task, self.beta, self.program).solve(float(self.lam))

    def _search(self, splits: Splits) -> Tuning:
        """The best pair of lam and beta on the validation set; of equals the first, beta outside."""
        (part,) = splits.parts
        f, best, found = unit_features(part.task.linear, part.x), -1.0, self
        for beta in GRID_BETAS:
            problem = KernelRegression(part.task, beta, program=True)
            near = affinity(f, problem.keys, beta).T @ problem.spectrum[1].astype(f.dtype)
            zero = products(f, part.task.text.rows)
            for lam in GRID_LAMS:
                logits = zero + near @ problem.rotated(lam).astype(f.dtype)
                accuracy = float(np.mean(logits.argmax(axis=1) == part.y))
                if accuracy > best:
                    best, found = accuracy, replace(self, lam=lam, beta=beta, program=True)
        report = {"option": "lam, beta", "on": "validation", "values": [[found.lam, found.beta]]}
        return Tuning(found, {"search": {**report, "accuracy": [round(best, 4)]}})

    def count(self, shape: Shape) -> int:
        """Nothing is trained."""
        return 0


class KernelRegression:
    """The problem on a support set; its decomposition serves every lam."""

    def __init__(self, task: Task, beta: float, program: bool = False) -> None:
        self.task, self.beta, self.program = task, beta, program
        f = unit_features(task.linear, task.x)
        self.keys = f.reshape(-1, f.shape[2]) if program else unit_rows(f.mean(axis=0))  # X [n, D]
        self.kernel = affinity(self.keys, self.keys, beta).astype(np.float64)
        labels = np.tile(task.y, task.views) if program else task.y
        self.left = np.eye(task.classes)[labels] - products(self.keys, task.text.rows)  # Y - z(X) [n, K]

    @cached_property
    def spectrum(self) -> tuple[Array, Array, Array]:
        """Eigenvalues and eigenvectors of the kernel, and Y - z(X) in their basis."""
        values, vectors = np.linalg.eigh(self.kernel)
        return np.maximum(values, 0)[:, None], vectors, vectors.T @ self.left

    def rotated(self, lam: float) -> Array:
        """The coefficients [n, K] in the basis of the kernel's eigenvectors."""
        values, _, left = self.spectrum
        return self._factor(lam) * left / (values + lam)

    def along_path(self, lam: float) -> KernelClassifier:
        """The classifier for one lam of many."""
        return self._classifier(self.spectrum[1] @ self.rotated(lam))

    def solve(self, lam: float) -> KernelClassifier:
        """The classifier for this lam alone."""
        from scipy.linalg import solve

        system = self.kernel + lam * np.eye(len(self.kernel))
        return self._classifier(self._factor(lam) * solve(system, self.left, assume_a="pos"))

    def _factor(self, lam: float) -> float:
        return lam if self.program else 1.0

    def _classifier(self, coefficients: Array) -> KernelClassifier:
        task, coefficients = self.task, coefficients.astype(self.keys.dtype)
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
        logits: Array = self.scale * (products(f, self.text.rows) + added)
        return logits

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
