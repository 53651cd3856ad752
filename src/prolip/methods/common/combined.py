"""A weighted sum of fitted models: the result of a sum of methods."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Fitted, Head, SavedModelError, Settings, Text
from prolip.core.arrays import Array, Tensors
from prolip.io.onnx_graph import Graph


@dataclass(frozen=True, eq=False)
class Combined(Fitted):
    """logits = sum_i w_i logits_i of fitted parts.

    A sum of logit biases on the zero-shot logits z is
    z + sum_i (logits_i - z): weights 1, and 1 - (number of parts) for zero-shot itself.
    """

    kind: ClassVar[str] = "combined"

    parts: tuple[Fitted, ...]
    weights: tuple[float, ...]

    @property
    def text(self) -> Text:  # type: ignore[override]
        """The classes, which all parts share."""
        return self.parts[0].text

    def logits(self, x: Any) -> Array:
        """The weighted sum of the parts' scores, [m, K]."""
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

    def tensors(self) -> Tensors:
        """The tensors of part i behind the prefix `i.`."""
        return {
            f"{i}.{name}": array
            for i, part in enumerate(self.parts)
            for name, array in part.tensors().items()
        }

    def config(self) -> dict[str, Any]:
        """Each part as it would be saved alone, and the weights."""
        parts = [
            {"kind": part.kind, "config": part.config(), "settings": asdict(part.settings)}
            for part in self.parts
        ]
        return {"parts": parts, "weights": list(self.weights)}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Combined:
        """Restore each part by its kind."""
        from prolip.methods import restore

        saved, weights = config["parts"], tuple(float(weight) for weight in config["weights"])
        if not saved or len(saved) != len(weights):
            raise SavedModelError(f"a sum of {len(saved)} models with {len(weights)} weights")
        parts = []
        for i, part in enumerate(saved):
            prefix = f"{i}."
            own = {name.removeprefix(prefix): a for name, a in tensors.items() if name.startswith(prefix)}
            settings = Settings(**part["settings"])
            parts.append(restore(part["kind"], own, part["config"], head, text, settings, {}))
        return cls(tuple(parts), weights)
