"""What a method returns: something that gives logits for features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

import numpy as np

from prolip.core.arrays import Array, Tensors, as_features, read_only, softmax, unit_rows
from prolip.core.errors import InputError, SavedModelError, UsageError, is_json_of
from prolip.core.head import Head
from prolip.core.task import Text

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


KINDS: dict[str, type[Fitted]] = {}  # every class that has been imported and can be saved, by its kind


class Fitted(Described, ABC):
    """A fitted classifier on features: a frozen dataclass whose fields are all that a prediction needs.

    With a `kind`, its name in files, it can be saved: the arrays among its fields as `tensors()`, the scalars
    as `config()`. `restore()` is given the base model's own `head` and the texts, which are fields, too. A
    model for experiments needs `logits` alone.
    """

    kind: ClassVar[str] = ""
    text: Text

    def __post_init__(self) -> None:
        """Hold every array as a read-only view."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                object.__setattr__(self, name, read_only(value))

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls
        if "__repr__" not in vars(cls):  # that of dataclasses has every array
            cls.__repr__ = Fitted.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.text)} classes)"

    @abstractmethod
    def logits(self, x: Any) -> Array:
        """Class scores [m, K] of features x [m, Do]; their softmax is the prediction."""

    def tensors(self) -> Tensors:
        """Return the arrays, by the names of their fields, in float32 or as integers."""
        if not self.kind:
            raise UsageError(f"{self.method} is for experiments: its models cannot be saved")
        arrays = {name: getattr(self, name) for name, hint in _saved_fields(type(self)) if _is_array(hint)}
        return {
            name: array.astype(np.float32) if array.dtype.kind == "f" else array
            for name, array in arrays.items()
            if array is not None
        }

    def config(self) -> dict[str, Any]:
        """Return what else a prediction needs, as JSON has it: numbers, words, lists."""
        saved = _saved_fields(type(self)) if self.kind else []
        return {name: getattr(self, name) for name, hint in saved if not _is_array(hint)}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Fitted:
        """The inverse of `tensors()` and `config()`."""
        values: dict[str, Any] = {}
        for name, hint in _saved_fields(cls):
            if _is_array(hint):
                values[name] = tensors[name] if hint == Array else tensors.get(name)
            elif is_json_of(config[name], hint):
                values[name] = config[name]
            else:
                raise SavedModelError(f"{name} is {config[name]!r:.80}")
        return cls(head=head, text=text, **values)  # type: ignore[call-arg]

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


def _saved_fields(cls: type[Fitted]) -> list[tuple[str, Any]]:
    """Return the fields that are saved with a model, and their types."""
    hints, given = get_type_hints(cls), ("head", "text", "settings", "report")
    return [(field.name, hints[field.name]) for field in fields(cls) if field.name not in given]


def _is_array(hint: Any) -> bool:
    return hint == Array or Array in get_args(hint)


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
        tuned = {"head.weight": self.head.weight.astype(np.float32)} if self.tuned else {}
        return super().tensors() | tuned

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Fitted:
        """Put saved matrices around the base model's head."""
        head = head.with_weight(tensors["head.weight"]) if config["tuned"] else head
        return super().restore(tensors, config, head, text)
