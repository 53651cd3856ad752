"""What prompt tuning ends in: text rows from learned context, and the context itself.

    logits = s normalize(head(x)) T(context)'

A context that all classes share stays open-class: other class names can stand in it, where the encoder is at
hand to read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from prolip.core import Fitted, Head, InputError, Text
from prolip.core.arrays import as_features, unit_rows
from prolip.encoders import Encoder
from prolip.methods.prompts.words import Prompts


@dataclass(frozen=True, eq=False)
class Prompted(Fitted):
    """The pretrained image side, and classes worded by a learned context.

    `context` is [M, De], or [K, M, De] for a context of each class's own.
    """

    kind: ClassVar[str] = "prompted"

    head: Head
    text: Text  # learned
    scale: float
    context: Tensor
    encoder: Encoder | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def logits(self, x: Any) -> Tensor:
        """Class scores [m, K]."""
        z = unit_rows(self.head(as_features(x, "features")))
        return self.scale * z @ self.text.rows.to(z.dtype).T

    def with_text(self, text: Any) -> Prompted:
        """The same context around other class names; `text` needs names, its rows are not used."""
        names = other_names(self, text)
        if self.context.ndim == 3:
            raise InputError(
                f"{self.info['method']} learned a context for each class that it was fitted on, and other "
                "classes have none: class_specific=False learns one for all"
            )
        rows = prompts_of(self, names).embed(self.context.to(self.encoder.device))  # type: ignore[union-attr]
        return replace(self, text=Text(rows.cpu(), names))

    def bind(self, encoder: Encoder) -> Prompted:
        """Beside the encoder, which other class names need."""
        return replace(self, encoder=encoder)

    def tensors(self) -> dict[str, Tensor]:
        """Context, and the rows that it makes."""
        return {"context": self.context.float(), "rows": self.text.rows}

    @classmethod
    def restore(
        cls, tensors: dict[str, Tensor], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Prompted:
        """Put the learned rows in the place of the hand-written ones."""
        return cls(head, Text(tensors["rows"], text.classes), scale, tensors["context"], info=info)


def other_names(fitted: Any, text: Any) -> tuple[str, ...]:
    """The class names of a Text; or why a prompt cannot be made from it."""
    if not isinstance(text, Text) or text.classes is None or fitted.encoder is None:
        raise InputError(
            f"{fitted.info['method']} words classes by a learned context: give a Text with class names, to a "
            "model that is bound to its encoder"
        )
    return text.classes


@torch.no_grad()
def prompts_of(fitted: Any, names: tuple[str, ...]) -> Prompts:
    """The prompts of other classes, with the slots and the position of the fit."""
    described = fitted.info["prompt"]
    return Prompts.build(
        fitted.encoder,
        fitted.encoder.towers(),
        names,
        described["contexts"],
        described["position"],
        described.get("fixed", ""),
    )
