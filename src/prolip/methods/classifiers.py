"""What the methods end in, besides `Projected`: linear, cached, adapted and re-texted classifiers.

In all of them f = normalize(head(x)) is the pretrained model's unit embedding, T its text rows, s the scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from prolip.core import Fitted, Head, InputError, Text
from prolip.core.arrays import Array, as_features, unit_rows
from prolip.io.onnx_graph import Graph


def unit_features(head: Head, x: Any, space: str = "embedding") -> Array:
    """Unit features [.., D]: embeddings, or with space="pre" what comes before the projection [.., Do]."""
    x = as_features(x, "features")
    return unit_rows(head(x) if space == "embedding" else head.split(x)[0])


def products(f: Array, rows: Array) -> Array:
    """The product f T' [.., K], in the precision of f."""
    scores: Array = f @ rows.astype(f.dtype, copy=False).T
    return scores


@dataclass(frozen=True, eq=False)
class LinearClassifier(Fitted):
    """logits = f W' + b: a row of W [K, D] and a number of b [K] for each class."""

    kind: ClassVar[str] = "linear"

    head: Head
    text: Text
    weight: Array
    bias: Array
    space: str = "embedding"

    def logits(self, x: Any) -> Array:
        """Scores [m, K] of the linear map."""
        f = unit_features(self.head, x, self.space)
        logits: Array = products(f, self.weight) + self.bias.astype(f.dtype, copy=False)
        return logits

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        if self.space == "embedding":
            v = graph.head(self.head, x)
        else:
            v = graph.columns(x, 0, len(self.head.weight)) if self.head.residual else x
        return graph.node("Gemm", graph.unit_rows(v), self.weight, self.bias, transB=1)


@dataclass(frozen=True, eq=False)
class CacheClassifier(Fitted):
    """logits = s f T' + alpha exp(-beta (1 - f k')) V: support images as keys, their labels as values."""

    kind: ClassVar[str] = "cache"

    head: Head
    text: Text
    scale: float
    keys: Array  # [n, D]
    labels: Array  # [n]
    alpha: float
    beta: float

    def logits(self, x: Any) -> Array:
        """Scores [m, K]: zero-shot, and what the nearest keys say."""
        f = unit_features(self.head, x)
        near = affinity(f, self.keys, self.beta)
        return self.scale * products(f, self.text.rows) + self.alpha * by_class(
            near, self.labels, len(self.text)
        )


def affinity(f: Array, keys: Array, beta: float) -> Array:
    """exp(-beta (1 - f k')) of every key with every row of f, [n, m]."""
    near: Array = keys.astype(f.dtype, copy=False) @ f.T
    near -= 1
    near *= beta
    return np.exp(near, out=near)


def by_class(near: Array, labels: Array, classes: int) -> Array:
    """Affinities [n, m] summed over the keys of each class, [m, K]: a product with V, which is sparse."""
    values = csr_array(
        (np.ones(len(labels), near.dtype), (labels, np.arange(len(labels)))), (classes, len(labels))
    )
    sums: Array = (values @ near).T
    return sums


@dataclass(frozen=True, eq=False)
class AdapterClassifier(Fitted):
    """logits = s normalize(alpha v + (1 - alpha) relu(relu(v W1) W2)) T', with v = head(x).

    Where `unit_input`, v is normalised instead of the mix.
    """

    kind: ClassVar[str] = "adapter"

    head: Head
    text: Text
    scale: float
    down: Array  # W1 [D, B]
    up: Array  # W2 [B, D]
    alpha: float
    unit_input: bool = False

    def logits(self, x: Any) -> Array:
        """Scores [m, K] of the mixed embedding."""
        v = self.head(as_features(x, "features"))
        v = unit_rows(v) if self.unit_input else v
        down, up = (layer.astype(v.dtype, copy=False) for layer in (self.down, self.up))
        changed = np.maximum(np.maximum(v @ down, 0) @ up, 0)
        mixed = self.alpha * v + (1 - self.alpha) * changed
        return self.scale * products(mixed if self.unit_input else unit_rows(mixed), self.text.rows)

    def with_text(self, text: Any) -> AdapterClassifier:
        """The same adapter, other classes."""
        return replace(self, text=text if isinstance(text, Text) else Text(text))


@dataclass(frozen=True, eq=False)
class TextProjected(Fitted):
    """logits = s f T(P)', with text rows from a tuned text projection P.

    It stays open-class, but other classes must come as a `Text` with features from before the projection.
    """

    kind: ClassVar[str] = "text_projected"

    head: Head
    text: Text
    scale: float
    projection: Array  # P [Dt, D]
    projection_bias: Array | None
    rows: Array  # T(P) [K, D]
    per_template: bool = True

    def logits(self, x: Any) -> Array:
        """Scores [m, K] against the rows of the tuned projection."""
        return self.scale * products(unit_features(self.head, x), self.rows)

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        f = graph.unit_rows(graph.head(self.head, x))
        return graph.node("MatMul", f, self.scale * self.rows.T)

    def with_text(self, text: Any) -> TextProjected:
        """The same text projection, other classes."""
        if not isinstance(text, Text) or text.features is None:
            raise InputError(
                "prolip_text tunes the text projection: give a Text with features from before it, "
                "as an encoder's `text(classes, templates)` does"
            )
        projection = Head(self.projection, self.projection_bias)
        return replace(self, text=text, rows=text_rows(text.features, projection, self.per_template))


def text_rows(features: Array, projection: Head, per_template: bool = True) -> Array:
    """Unit class rows [K, D] of prompts [templates, K, Dt]; `per_template` normalises each prompt first."""
    projected = projection(features)
    return unit_rows((unit_rows(projected) if per_template else projected).mean(axis=0))
