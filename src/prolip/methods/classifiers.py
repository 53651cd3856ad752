"""What the methods end in, besides `Projected`: linear, cached, adapted and re-texted classifiers.

In all of them f = normalize(head(x)) is the pretrained model's unit embedding, T its text rows, s the scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from prolip.core import Fitted, Head, InputError, SavedModelError, Text
from prolip.core.arrays import Array, Tensors, as_features, unit_rows
from prolip.io.onnx_graph import Graph
from prolip.methods.registry import register

SPACES = ("embedding", "pre")


def unit_features(head: Head, x: Any, space: str = "embedding") -> Array:
    """Unit features [.., D]: embeddings, or with space="pre" what comes before the projection [.., Do]."""
    x = as_features(x, "features")
    return unit_rows(head(x) if space == "embedding" else head.split(x)[0])


def products(f: Array, rows: Array) -> Array:
    """The product f T' [.., K], in the precision of f."""
    scores: Array = f @ rows.astype(f.dtype, copy=False).T
    return scores


def _float32(**named: Array | None) -> dict[str, Array]:
    return {name: array.astype(np.float32) for name, array in named.items() if array is not None}


@register
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

    def tensors(self) -> Tensors:
        """The matrix W and the intercepts b."""
        return _float32(weight=self.weight, bias=self.bias)

    def config(self) -> dict[str, Any]:
        """Which features are read: embeddings, or those before the projection."""
        return {"space": self.space}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> LinearClassifier:
        """Put W and b behind the base model's head."""
        if config["space"] not in SPACES:
            raise SavedModelError(f"a linear classifier on features of an unknown kind: {config['space']!r}")
        return cls(head, text, tensors["weight"], tensors["bias"], config["space"])


@register
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

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        f = graph.unit_rows(graph.head(self.head, x))
        near = graph.node("MatMul", f, self.keys.T)
        near = graph.node("Exp", graph.node("Mul", graph.node("Sub", near, 1.0), self.beta))
        values = np.eye(len(self.text), dtype=np.float32)[self.labels]  # V [n, K]
        cached = graph.node("MatMul", near, self.alpha * values)
        return graph.node("Add", graph.node("MatMul", f, self.scale * self.text.rows.T), cached)

    def tensors(self) -> Tensors:
        """Keys and their labels."""
        return {"keys": self.keys.astype(np.float32), "labels": self.labels}

    def config(self) -> dict[str, Any]:
        """The scale of zero-shot, weight and sharpness of the cache."""
        return {"scale": self.scale, "alpha": self.alpha, "beta": self.beta}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> CacheClassifier:
        """Put the cache beside the base model."""
        scale, alpha, beta = (float(config[name]) for name in ("scale", "alpha", "beta"))
        return cls(head, text, scale, tensors["keys"], tensors["labels"], alpha, beta)


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


@register
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

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        v = graph.head(self.head, x)
        v = graph.unit_rows(v) if self.unit_input else v
        hidden = graph.node("Relu", graph.node("MatMul", v, self.down))
        changed = graph.node("Relu", graph.node("MatMul", hidden, self.up))
        z = graph.node("Add", graph.node("Mul", v, self.alpha), graph.node("Mul", changed, 1 - self.alpha))
        z = z if self.unit_input else graph.unit_rows(z)
        return graph.node("MatMul", z, self.scale * self.text.rows.T)

    def with_text(self, text: Any) -> AdapterClassifier:
        """The same adapter, other classes."""
        return replace(self, text=text if isinstance(text, Text) else Text(text))

    def tensors(self) -> Tensors:
        """The layers W1 and W2."""
        return _float32(down=self.down, up=self.up)

    def config(self) -> dict[str, Any]:
        """The scale, the share of the pretrained embedding, and what is normalised."""
        return {"scale": self.scale, "alpha": self.alpha, "unit_input": self.unit_input}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> AdapterClassifier:
        """Put the layers behind the base model's head."""
        scale, alpha, unit_input = float(config["scale"]), float(config["alpha"]), config["unit_input"]
        if not isinstance(unit_input, bool):
            raise SavedModelError(f"unit_input must be true or false, got {unit_input!r}")
        return cls(head, text, scale, tensors["down"], tensors["up"], alpha, unit_input)


@register
@dataclass(frozen=True, eq=False)
class TextProjected(Fitted):
    """logits = s f T(P)', with text rows from a tuned text projection P.

    It stays open-class, but other classes must come as a `Text` with features from before the projection.
    """

    kind: ClassVar[str] = "text_projected"

    head: Head
    text: Text
    scale: float
    projection: Head
    per_template: bool = True
    rows: Array | None = None  # of the classes it was fitted on, where the text features are not at hand

    def class_rows(self) -> Array:
        """The class rows T(P) [K, D], as the tuned projection makes them."""
        if self.rows is not None:
            return self.rows
        assert self.text.features is not None
        return text_rows(self.text.features, self.projection, self.per_template)

    def logits(self, x: Any) -> Array:
        """Scores [m, K] against the rows of the tuned projection."""
        return self.scale * products(unit_features(self.head, x), self.class_rows())

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        f = graph.unit_rows(graph.head(self.head, x))
        return graph.node("MatMul", f, self.scale * self.class_rows().T)

    def with_text(self, text: Any) -> TextProjected:
        """The same text projection, other classes."""
        if not isinstance(text, Text) or text.features is None:
            raise InputError(
                "prolip_text tunes the text projection: give a Text with features from before it, "
                "as an encoder's `text(classes, templates)` does"
            )
        return replace(self, text=text, rows=None)

    def tensors(self) -> Tensors:
        """The tuned projection and the class rows that it makes."""
        return _float32(
            projection=self.projection.weight, projection_bias=self.projection.bias, rows=self.class_rows()
        )

    def config(self) -> dict[str, Any]:
        """The scale, and whether each prompt is normalised before their mean."""
        return {"scale": self.scale, "per_template": self.per_template}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> TextProjected:
        """Put the tuned projection in the base model's place."""
        projection = Head(tensors["projection"], tensors.get("projection_bias"))
        scale, per_template = float(config["scale"]), config["per_template"]
        if not isinstance(per_template, bool):
            raise SavedModelError(f"per_template must be true or false, got {per_template!r}")
        return cls(head, text, scale, projection, per_template, tensors["rows"])


def text_rows(features: Array, projection: Head, per_template: bool = True) -> Array:
    """Unit class rows [K, D] of prompts [templates, K, Dt]; `per_template` normalises each prompt first."""
    projected = projection(features)
    return unit_rows((unit_rows(projected) if per_template else projected).mean(axis=0))
