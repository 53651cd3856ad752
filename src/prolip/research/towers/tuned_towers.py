"""What fine-tuning ends in: tensors of the towers that are others now.

Saved are the changed tensors alone, by their names in the model; LoRA saves the two thin factors of each
change. Loading puts them into a copy of the base model. The features of that copy are other features: it has
a fingerprint of its own, so those of the base model are never taken for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from prolip.core import Head, InputError, Projected, Text
from prolip.core.arrays import Array, Tensors, to_numpy
from prolip.encoders import Encoder
from prolip.research.towers.tower_method import TowerFitted

_TOWER, _ROWS = "tower.", "rows"


@dataclass(frozen=True, eq=False)
class Tuned(TowerFitted):
    """logits = s normalize(f(image)) T', f the changed tower; `logits` takes that tower's features."""

    kind: ClassVar[str] = "tuned"

    text: Text
    scale: float
    changed: dict[str, Array]  # tensors by name, or LoRA's factors by name, slot and letter
    lora: float | None = None  # what the product of LoRA's factors is multiplied by: alpha / sqrt(r)
    encoder: Encoder | None = None  # the changed one

    def as_projected(self) -> Projected:
        """The head of the changed tower, and the text rows."""
        if self.encoder is None:
            raise InputError(f"{self.method} changed the tower: bind the model to its encoder first")
        return Projected(self.encoder.head, self.text, self.scale, settings=self.settings)

    def with_text(self, text: Any) -> Tuned:
        """The same towers, other classes: texts of the changed encoder, where its text tower was trained."""
        return replace(self, text=text if isinstance(text, Text) else Text(text))

    def encoder_for(self, base: Any) -> Any:
        """The encoder with the changed tower, whose features are others."""
        return self.encoder or base

    def bind(self, encoder: Encoder) -> Tuned:
        """Put the changes into a copy of the base model's towers."""
        changed = self.changed if self.lora is None else merge(encoder, self.changed, self.lora)
        return replace(self, encoder=encoder.with_tensors(changed))

    def tensors(self) -> Tensors:
        """What changed, and the class rows."""
        changed = {_TOWER + name: tensor for name, tensor in self.changed.items()}
        return {_ROWS: self.text.rows, **changed}

    def config(self) -> dict[str, Any]:
        """The scale, and what LoRA's factors are multiplied by."""
        return {"scale": self.scale, "lora": self.lora}

    @classmethod
    def restore(cls, tensors: Tensors, config: dict[str, Any], head: Head, text: Text) -> Tuned:
        """Without the encoder, until it is bound to one."""
        changed = {name.removeprefix(_TOWER): tensor for name, tensor in tensors.items() if name != _ROWS}
        lora = None if config["lora"] is None else float(config["lora"])
        return cls(Text(tensors[_ROWS], text.classes), float(config["scale"]), changed, lora)


def merge(encoder: Encoder, factors: Mapping[str, Array], lora: float) -> dict[str, Array]:
    """The weights that LoRA's factors make of an encoder's own: W + lora B A, with lora = alpha / sqrt(r).

    A factor's name is `weight|slot|letter`; slots 0, 1, 2 are the query, key and value rows of a weight that
    holds all three, and a weight of one projection has slot 0 alone.
    """
    weights = encoder.towers().model.state_dict()
    merged: dict[str, Array] = {}
    for key, a in factors.items():
        name, slot, letter = key.split("|")
        if letter != "A":
            continue
        if name not in weights:
            raise InputError(f"{encoder.name} has no weight {name}")
        b = factors[f"{name}|{slot}|B"]
        weight = merged.setdefault(name, np.array(to_numpy(weights[name])))
        rows = slice(int(slot) * len(b), (int(slot) + 1) * len(b))
        weight[rows] += lora * b @ a
    return merged
