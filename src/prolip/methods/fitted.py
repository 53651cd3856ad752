"""What the methods end in, besides `Projected`: linear, cached, adapted, re-texted and combined classifiers.

In all of them f = normalize(head(x)) is the pretrained model's unit embedding, T its text rows, s the scale.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip.core import Fitted, Head, InputError, SavedModelError, Text
from prolip.core.arrays import as_features, unit_rows

SPACES = ("embedding", "pre")


def unit_features(head: Head, x: Any, space: str = "embedding") -> Tensor:
    """Unit features [.., D]: embeddings, or with space="pre" what comes before the projection [.., Do]."""
    x = as_features(x, "features")
    return unit_rows(head(x) if space == "embedding" else head.split(x)[0])


def _float32(**named: Tensor | None) -> dict[str, Tensor]:
    return {name: tensor.to(torch.float32) for name, tensor in named.items() if tensor is not None}


@dataclass(frozen=True, eq=False)
class LinearClassifier(Fitted):
    """logits = f W' + b: a row of W [K, D] and a number of b [K] for each class."""

    kind: ClassVar[str] = "linear"

    head: Head
    text: Text
    weight: Tensor
    bias: Tensor
    space: str = "embedding"
    info: dict[str, Any] = field(default_factory=dict)

    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K]."""
        f = unit_features(self.head, x, self.space)
        return f @ self.weight.to(f.dtype).T + self.bias.to(f.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """W and b."""
        return _float32(weight=self.weight, bias=self.bias)

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> LinearClassifier:
        """Put W and b behind the base model's head."""
        return cls(head, text, tensors["weight"], tensors["bias"], info.get("space", "embedding"), info)


@dataclass(frozen=True, eq=False)
class CacheClassifier(Fitted):
    """logits = s f T' + alpha exp(-beta (1 - f k')) V: support images as keys, their labels as values."""

    kind: ClassVar[str] = "cache"

    head: Head
    text: Text
    scale: float
    keys: Tensor  # [n, D]
    labels: Tensor  # [n]
    alpha: float
    beta: float
    info: dict[str, Any] = field(default_factory=dict)

    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K]."""
        f = unit_features(self.head, x)
        cached = affinity(f, self.keys.to(f.dtype), self.labels, len(self.text), self.beta)
        return self.scale * f @ self.text.rows.to(f.dtype).T + self.alpha * cached

    def tensors(self) -> dict[str, Tensor]:
        """Keys and their labels."""
        return {"keys": self.keys.to(torch.float32), "labels": self.labels}

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> CacheClassifier:
        """Put the cache beside the base model."""
        chosen = info["chosen"]
        return cls(
            head, text, scale, tensors["keys"], tensors["labels"], chosen["alpha"], chosen["beta"], info
        )


def affinity(f: Tensor, keys: Tensor, labels: Tensor, classes: int, beta: float) -> Tensor:
    """exp(-beta (1 - f k')) summed over the keys of each class, [m, K]."""
    near = torch.exp(
        beta * (keys @ f.T - 1)
    )  # [n, m]: summing rows by label is quicker than a product with V
    return near.new_zeros(classes, near.shape[1]).index_add(0, labels, near).T


@dataclass(frozen=True, eq=False)
class AdapterClassifier(Fitted):
    """logits = s normalize(alpha v + (1 - alpha) relu(relu(v W1) W2)) T', with v = head(x)."""

    kind: ClassVar[str] = "adapter"

    head: Head
    text: Text
    scale: float
    down: Tensor  # W1 [D, B]
    up: Tensor  # W2 [B, D]
    alpha: float
    info: dict[str, Any] = field(default_factory=dict)

    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K]."""
        z = unit_rows(adapt(self.head(as_features(x, "features")), self.down, self.up, self.alpha))
        return self.scale * z @ self.text.rows.to(z.dtype).T

    def with_text(self, text: Any) -> AdapterClassifier:
        """The same adapter, other classes."""
        return replace(self, text=text if isinstance(text, Text) else Text(text))

    def tensors(self) -> dict[str, Tensor]:
        """The two layers."""
        return _float32(down=self.down, up=self.up)

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> AdapterClassifier:
        """Put the layers behind the base model's head."""
        return cls(head, text, scale, tensors["down"], tensors["up"], info["chosen"]["alpha"], info)


def adapt(v: Tensor, down: Tensor, up: Tensor, alpha: float) -> Tensor:
    """CLIP-Adapter's mixture of an embedding and its two-layer image."""
    return alpha * v + (1 - alpha) * torch.relu(torch.relu(v @ down.to(v.dtype)) @ up.to(v.dtype))


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
    rows: Tensor | None = None  # of the classes it was fitted on, where the text features are not at hand
    info: dict[str, Any] = field(default_factory=dict)

    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K]."""
        f = unit_features(self.head, x)
        rows = self.rows
        if rows is None:
            rows = text_rows(self.text.features, self.projection, self.per_template)
        return self.scale * f @ rows.to(f.dtype).T

    def with_text(self, text: Any) -> TextProjected:
        """The same text projection, other classes."""
        if not isinstance(text, Text) or text.features is None:
            raise InputError(
                "prolip_text tunes the text projection: give a Text with features from before it, "
                "as an encoder's `text(classes, templates)` does"
            )
        return replace(self, text=text, rows=None)

    def tensors(self) -> dict[str, Tensor]:
        """The tuned projection and the class rows that it makes."""
        rows = self.rows
        if rows is None:
            rows = text_rows(self.text.features, self.projection, self.per_template)
        return _float32(projection=self.projection.weight, projection_bias=self.projection.bias, rows=rows)

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> TextProjected:
        """Put the tuned projection in the base model's place."""
        projection = Head(tensors["projection"], tensors.get("projection_bias"))
        return cls(head, text, scale, projection, info.get("per_template", True), tensors["rows"], info)


def text_rows(features: Tensor, projection: Head, per_template: bool = True) -> Tensor:
    """Unit class rows [K, D] of prompts [templates, K, Dt]; `per_template` normalises each prompt first."""
    projected = projection(features)
    return unit_rows((unit_rows(projected) if per_template else projected).mean(dim=0))


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

    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K]."""
        total = self.weights[0] * self.parts[0].logits(x)
        for weight, part in zip(self.weights[1:], self.parts[1:], strict=True):
            total = total + weight * part.logits(x)
        return total

    def with_text(self, text: Any) -> Combined:
        """The same parts, other classes, if all of them can."""
        return replace(self, parts=tuple(part.with_text(text) for part in self.parts))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of part i behind the prefix `i.`."""
        return {
            f"{i}.{name}": tensor
            for i, part in enumerate(self.parts)
            for name, tensor in part.tensors().items()
        }

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Combined:
        """Restore each part by its kind."""
        from prolip.methods import restore

        parts = []
        for i, described in enumerate(info["parts"]):
            own = {
                name.partition(".")[2]: tensor for name, tensor in tensors.items() if name.startswith(f"{i}.")
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
