"""What a method returns: something that gives logits for features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core.arrays import Array, as_features, softmax, unit_rows
from prolip.core.errors import InputError, UsageError
from prolip.core.head import Head
from prolip.core.onnx_graph import Graph
from prolip.core.text import Text


class Fitted(ABC):
    """A fitted classifier on features.

    `info` tells about the fit (lam, scale, objective, seconds of the solve, trained parameters). `kind`,
    `tensors()` and `restore()` are how it is saved: tensors hold what training made; the base model's own
    head, and the texts, are given back at loading.
    """

    kind: ClassVar[str]
    text: Text
    info: dict[str, Any]

    @abstractmethod
    def logits(self, x: Any) -> Array:
        """Class scores [m, K] of features x [m, Do]; their softmax is the prediction."""

    @abstractmethod
    def tensors(self) -> dict[str, Array]:
        """Named tensors that training made."""

    @classmethod
    @abstractmethod
    def restore(
        cls, tensors: dict[str, Array], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Fitted:
        """The inverse of `tensors()`."""

    def predict(self, x: Any) -> Array:
        """Labels [m]."""
        return self.logits(x).argmax(axis=1)

    def proba(self, x: Any) -> Array:
        """Probabilities [m, K]."""
        return softmax(self.logits(x))

    def with_text(self, text: Any) -> Fitted:
        """The same model asked about other classes; only open-class methods can."""
        raise InputError(f"{self.info.get('method', self.kind)} knows only the classes that it was fitted on")

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph; x is the name of the features, returned is the logits'."""
        raise UsageError(f"{self.info.get('method', self.kind)} cannot be exported to ONNX")

    def as_projected(self) -> Projected | None:
        """The same as a head and text rows, where that is all there is: scale * normalize(head(x)) T'."""
        return None

    def bind(self, encoder: Any) -> Fitted:
        """The same beside the base model's encoder, after loading; for models that run a tower themselves."""
        return self

    def encoder_for(self, base: Any) -> Any:
        """The encoder whose features `logits` reads: the base model's, unless training changed its tower."""
        return base


@dataclass(frozen=True, eq=False)
class Projected(Fitted):
    """logits = scale * normalize(head(x) A) T': zero-shot, ProLIP (its own head) and RLA (its own A).

    Nothing here depends on the classes but the text rows, so any other classes can be asked for.
    """

    kind: ClassVar[str] = "projected"

    head: Head
    text: Text
    scale: float
    adapter: Array | None = None  # A [D, D]
    tuned: bool = False  # whether `head` differs from the pretrained one
    info: dict[str, Any] = field(default_factory=dict)

    def embed(self, x: Any) -> Array:
        """Unit embeddings [m, D] in the adapted space."""
        v = self.head(as_features(x, "features"))
        return unit_rows(v if self.adapter is None else v @ self.adapter.astype(v.dtype, copy=False))

    def logits(self, x: Any) -> Array:
        """Class scores [m, K]."""
        z = self.embed(x)
        return self.scale * z @ self.text.rows.astype(z.dtype, copy=False).T

    def embed_to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `embed` computes to a graph."""
        v = graph.head(self.head, x)
        return graph.unit_rows(v if self.adapter is None else graph.node("MatMul", v, self.adapter))

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        return graph.node("MatMul", self.embed_to_onnx(graph, x), self.scale * self.text.rows.T)

    def as_projected(self) -> Projected | None:
        """Itself, unless a matrix follows the head."""
        return self if self.adapter is None else None

    def with_text(self, text: Any) -> Projected:
        """The same projection, other classes."""
        return replace(self, text=text if isinstance(text, Text) else Text(text))

    def tensors(self) -> dict[str, Array]:
        """The tuned matrices."""
        named = {"head.weight": self.head.weight if self.tuned else None, "adapter": self.adapter}
        return {name: tensor.astype(np.float32) for name, tensor in named.items() if tensor is not None}

    @classmethod
    def restore(
        cls, tensors: dict[str, Array], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Projected:
        """Put saved matrices around the base model's head."""
        tuned = "head.weight" in tensors
        if tuned:
            head = head.with_weight(tensors["head.weight"])
        return cls(head, text, scale, tensors.get("adapter"), tuned, info)
