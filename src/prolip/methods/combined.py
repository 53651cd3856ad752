"""A weighted sum of fitted models: what a sum of methods and an ensemble end in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, SavedModelError, Text
from prolip.core.arrays import Array
from prolip.core.onnx_graph import Graph


@dataclass(frozen=True, eq=False)
class Combined(Fitted):
    """logits = sum_i w_i logits_i of fitted parts.

    An ensemble has weights from a search. A composition of logit biases on the zero-shot logits z is
    z + sum_i (logits_i - z): weights 1, and 1 - (number of parts) for zero-shot itself.
    """

    kind: ClassVar[str] = "combined"

    parts: tuple[Fitted, ...]
    weights: tuple[float, ...]
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> Text:  # type: ignore[override]
        """The classes, which all parts share."""
        return self.parts[0].text

    def logits(self, x: Any) -> Array:
        """Class scores [m, K]."""
        scores = [weight * part.logits(x) for weight, part in zip(self.weights, self.parts, strict=True)]
        return np.sum(scores, axis=0)

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph."""
        weighted = [
            graph.node("Mul", part.to_onnx(graph, x), weight)
            for weight, part in zip(self.weights, self.parts, strict=True)
        ]
        return graph.node("Sum", *weighted)

    def with_text(self, text: Any) -> Combined:
        """The same parts, other classes, if all of them can."""
        return replace(self, parts=tuple(part.with_text(text) for part in self.parts))

    def tensors(self) -> dict[str, Array]:
        """The tensors of part i behind the prefix `i.`."""
        return {
            f"{i}.{name}": array
            for i, part in enumerate(self.parts)
            for name, array in part.tensors().items()
        }

    @classmethod
    def restore(
        cls, tensors: dict[str, Array], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Combined:
        """Restore each part by its kind."""
        from prolip.methods import restore

        parts = []
        for i, described in enumerate(info["parts"]):
            own = {
                name.partition(".")[2]: array for name, array in tensors.items() if name.startswith(f"{i}.")
            }
            parts.append(
                restore(described["kind"], own, head, text, described.get("scale", scale), described["info"])
            )
        if not parts:
            raise SavedModelError("a combined model has no parts")
        return cls(tuple(parts), tuple(info["weights"]), info)

    @staticmethod
    def describe(parts: tuple[Fitted, ...], weights: tuple[float, ...]) -> dict[str, Any]:
        """What `info` must hold for `restore`."""
        described = [
            {"kind": part.kind, "info": part.info} | ({"scale": part.scale} if hasattr(part, "scale") else {})
            for part in parts
        ]
        return {"parts": described, "weights": list(weights)}
