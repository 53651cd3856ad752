"""What prompt tuning ends in: text rows from learned context, and the context itself.

    logits = s normalize(head(x)) T(context)'

A context that all classes share stays open-class: other class names can stand in it, where the encoder is at
hand to read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from prolip.core import Head, InputError, Projected, Text
from prolip.core.arrays import Array, to_torch
from prolip.encoders import Encoder
from prolip.methods.towers import TowerFitted

if TYPE_CHECKING:
    from prolip.methods.prompts.words import Prompts


@dataclass(frozen=True, eq=False)
class Prompted(TowerFitted):
    """The pretrained image side, and classes worded by a learned context.

    `context` is [M, De], or [K, M, De] for a context of each class's own.
    """

    kind: ClassVar[str] = "prompted"

    head: Head
    text: Text  # learned
    scale: float
    context: Array
    encoder: Encoder | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def as_projected(self) -> Projected:
        """The pretrained head and the learned rows."""
        return Projected(self.head, self.text, self.scale, info=self.info)

    def with_text(self, text: Any) -> Prompted:
        """The same context around other class names; `text` needs names, its rows are not used."""
        names, encoder = other_names(text, self.encoder, self.info)
        if self.context.ndim == 3:
            raise InputError(
                f"{self.info['method']} learned a context for each class that it was fitted on, and other "
                "classes have none: class_specific=False learns one for all"
            )
        rows = prompts_of(encoder, names, self.info).embed(to_torch(self.context, encoder.device))
        return replace(self, text=Text(rows, names))

    def bind(self, encoder: Encoder) -> Prompted:
        """Beside the encoder, which other class names need."""
        return replace(self, encoder=encoder)

    def tensors(self) -> dict[str, Array]:
        """Context, and the rows that it makes."""
        return {"context": self.context, "rows": self.text.rows}

    @classmethod
    def restore(
        cls, tensors: dict[str, Array], head: Head, text: Text, scale: float, info: dict[str, Any]
    ) -> Prompted:
        """Put the learned rows in the place of the hand-written ones."""
        return cls(head, Text(tensors["rows"], text.classes), scale, tensors["context"], info=info)


def other_names(text: Any, encoder: Encoder | None, info: dict[str, Any]) -> tuple[tuple[str, ...], Encoder]:
    """The class names of a Text and the encoder that reads them; or why a prompt cannot be made."""
    if not isinstance(text, Text) or text.classes is None or encoder is None:
        raise InputError(
            f"{info['method']} words classes by a learned context: give a Text with class names, to a "
            "model that is bound to its encoder"
        )
    return text.classes, encoder


def prompts_of(encoder: Encoder, names: tuple[str, ...], info: dict[str, Any]) -> Prompts:
    """The prompts of other classes, with the slots and the position of the fit that `info` tells of."""
    towers = encoder.towers()

    from prolip.methods.prompts.words import Prompts

    how = info["prompt"]
    return Prompts.build(encoder, towers, names, how["contexts"], how["position"], how.get("fixed", ""))
