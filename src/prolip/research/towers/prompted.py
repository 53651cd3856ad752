"""What prompt tuning ends in: text rows from learned context, and the context itself.

    logits = s normalize(head(x)) T(context)'

A context that all classes share stays open-class: other class names can stand in it, where the encoder is at
hand to read them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from prolip.core import Head, InputError, Projected, SavedModelError, Text
from prolip.core.arrays import Array, Tensors, to_torch
from prolip.encoders import Encoder
from prolip.research.towers.tower_method import TowerFitted

if TYPE_CHECKING:
    from prolip.research.towers.prompts import Prompts

POSITIONS = ("end", "middle", "front")


@dataclass(frozen=True)
class Layout:
    """How a prompt is laid out: so many learned words, where the name stands, fixed words between them."""

    contexts: int
    position: str
    fixed: str = ""

    @classmethod
    def restore(cls, saved: dict[str, Any]) -> Layout:
        """From JSON that nobody vouches for."""
        if saved["position"] not in POSITIONS:
            raise SavedModelError(f"a prompt with its class name at {saved['position']!r}")
        return cls(int(saved["contexts"]), saved["position"], str(saved["fixed"]))

    def prompts(self, encoder: Encoder, names: tuple[str, ...]) -> Prompts:
        """The prompts of these classes."""
        towers = encoder.towers()

        from prolip.research.towers.prompts import Prompts

        return Prompts.build(encoder, towers, names, self.contexts, self.position, self.fixed)


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
    layout: Layout
    encoder: Encoder | None = None

    def as_projected(self) -> Projected:
        """The pretrained head and the learned rows."""
        return Projected(self.head, self.text, self.scale, settings=self.settings)

    def with_text(self, text: Any) -> Prompted:
        """The same context around other class names; `text` needs names, its rows are not used."""
        names, encoder = other_names(text, self.encoder, self.method)
        if self.context.ndim == 3:
            raise InputError(
                f"{self.method} learned a context for each class that it was fitted on, and other "
                "classes have none: class_specific=False learns one for all"
            )
        rows = self.layout.prompts(encoder, names).embed(to_torch(self.context, encoder.device))
        return replace(self, text=Text(rows, names))

    def bind(self, encoder: Encoder) -> Prompted:
        """Beside the encoder, which other class names need."""
        return replace(self, encoder=encoder)

    def tensors(self) -> Tensors:
        """Context, and the rows that it makes."""
        return {"context": self.context, "rows": self.text.rows}

    def config(self) -> dict[str, Any]:
        """The scale, and how prompts of other classes are laid out."""
        return {"scale": self.scale, "layout": asdict(self.layout)}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Prompted:
        """Put the learned rows in the place of the hand-written ones."""
        learned, scale = Text(tensors["rows"], text.classes), float(config["scale"])
        return cls(head, learned, scale, tensors["context"], Layout.restore(config["layout"]))


def other_names(text: Any, encoder: Encoder | None, method: str) -> tuple[tuple[str, ...], Encoder]:
    """The class names of a Text and the encoder that reads them; or why a prompt cannot be made."""
    if not isinstance(text, Text) or text.classes is None or encoder is None:
        raise InputError(
            f"{method} words classes by a learned context: give a Text with class names, to a "
            "model that is bound to its encoder"
        )
    return text.classes, encoder
