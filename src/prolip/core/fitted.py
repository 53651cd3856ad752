"""What a method returns: something that gives logits for features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from prolip.core.arrays import Array, Tensors, as_features, read_only, softmax, unit_rows
from prolip.core.errors import InputError, UsageError
from prolip.core.head import Head
from prolip.core.text import Text

if TYPE_CHECKING:
    from prolip.io.onnx_graph import Graph


@dataclass(frozen=True)
class Settings:
    """A method and all its options as a fit settled on them, with nothing left to search: plain JSON.

    `prolip.methods.from_settings` makes the method of it.
    """

    method: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Described:
    """What every fitted model says about itself."""

    settings: Settings = Settings("")  # how to fit the same again
    # Figures of the fit, for people to read: seconds of the solve, objective, trained parameters, ... Nothing
    # is decided by it.
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class HeldOutPredictions:
    """Out-of-fold predictions on the support set."""

    logits: Array  # [m, K], each row by a model that did not see the image
    y: Array  # labels [m]
    images: Array  # indices in the support set [m]

    def __len__(self) -> int:
        return len(self.y)


class Fitted(Described, ABC):
    """A fitted classifier on features: a frozen dataclass whose fields are all that a prediction needs.

    Where it can be saved, it is as its `kind`, `tensors()` and `config()`, and comes back through
    `restore()`, which is given the base model's own head and the texts. `kind` is the class's place,
    "package.module:Class", unless the class has a name of its own. A model for experiments needs `logits`
    alone.
    """

    kind: ClassVar[str]
    text: Text

    def __post_init__(self) -> None:
        """Hold every array as a read-only view."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                object.__setattr__(self, name, read_only(value))

    def __init_subclass__(cls) -> None:
        if "kind" not in vars(cls):
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"
        if "__repr__" not in vars(cls):  # that of dataclasses has every array
            cls.__repr__ = Fitted.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.text)} classes)"

    @abstractmethod
    def logits(self, x: Any) -> Array:
        """Class scores [m, K] of features x [m, Do]; their softmax is the prediction."""

    def tensors(self) -> Tensors:
        """What training made, by name."""
        raise UsageError(f"{self.method} is for experiments: its models cannot be saved")

    def config(self) -> dict[str, Any]:
        """Return what else a prediction needs, as JSON has it: numbers, words, lists."""
        return {}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Fitted:
        """The inverse of `tensors()` and `config()`."""
        raise UsageError(f"models of the kind {cls.kind} cannot be saved")

    @property
    def method(self) -> str:
        """The name of the method that made it, for messages."""
        return self.settings.method or self.kind

    def predict(self, x: Any) -> Array:
        """The most probable class [m] of features x [m, Do], by its place in `text`."""
        best: Array = self.logits(x).argmax(axis=1)
        return best

    def proba(self, x: Any) -> Array:
        """Probabilities [m, K] of the classes for features x [m, Do]."""
        return softmax(self.logits(x))

    def with_text(self, text: Any) -> Fitted:
        """Return the same model for other classes; only open-class methods can."""
        raise InputError(f"{self.method} knows only the classes that it was fitted on")

    @property
    def has_graph(self) -> bool:
        """Whether `to_onnx` is implemented."""
        return type(self).to_onnx is not Fitted.to_onnx

    def to_onnx(self, graph: Graph, x: str) -> str:
        """Add what `logits` computes to a graph; x is the name of the features, returned is the logits'."""
        raise UsageError(f"{self.method} cannot be exported to ONNX")

    def as_projected(self) -> Projected | None:
        """The same as a head and text rows, where that is all there is: scale * normalize(head(x)) T'."""
        return None

    def encoder_for(self, base: Any) -> Any:
        """The encoder whose features `logits` reads: the base model's, unless training changed its tower."""
        return base


@dataclass(frozen=True, eq=False)
class Projected(Fitted):
    """logits = scale * normalize(head(x) A) T': zero-shot, ProLIP (its own head) and RLA (its own A).

    Nothing here depends on the classes but the text rows, so it can classify any other classes.
    """

    kind: ClassVar[str] = "projected"

    head: Head
    text: Text
    scale: float
    adapter: Array | None = None  # A [D, D]
    tuned: bool = False  # whether `head` differs from the pretrained one
    fit_scale: float | None = None  # what the fit multiplied cosines by, where `scale` was chosen after it

    def embed(self, x: Any) -> Array:
        """Unit embeddings [m, D] in the adapted space."""
        v = self.head(as_features(x, "features"))
        return unit_rows(v if self.adapter is None else v @ self.adapter.astype(v.dtype, copy=False))

    def logits(self, x: Any) -> Array:
        """Cosines with the text rows, times the scale, [m, K]."""
        z = self.embed(x)
        logits: Array = self.scale * z @ self.text.rows.astype(z.dtype, copy=False).T
        return logits

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

    def tensors(self) -> Tensors:
        """The tuned matrices."""
        named = {"head.weight": self.head.weight if self.tuned else None, "adapter": self.adapter}
        return {name: tensor.astype(np.float32) for name, tensor in named.items() if tensor is not None}

    def config(self) -> dict[str, Any]:
        """The scale of the cosines, and that of the fit, which is another where `scale` was given."""
        return {"scale": self.scale, "fit_scale": self.fit_scale}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Projected:
        """Put saved matrices around the base model's head."""
        tuned = "head.weight" in tensors
        if tuned:
            head = head.with_weight(tensors["head.weight"])
        fit_scale = None if config["fit_scale"] is None else float(config["fit_scale"])
        return cls(head, text, float(config["scale"]), tensors.get("adapter"), tuned, fit_scale)
