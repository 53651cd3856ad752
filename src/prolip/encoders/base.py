"""What every encoder offers. One file per kind stands beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from prolip.core.errors import ModelError, UsageError
from prolip.core.files import sha256_tensors
from prolip.core.head import Head
from prolip.core.text import Text
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.towers import Towers


class Encoder(ABC):
    """A CLIP-like model, taken apart where its last linear maps begin.

    Attributes
    ----------
    name
        As the user names it, like "offline" or "open_clip:ViT-B-32/openai".
    fingerprint
        SHA-256 of the weights: equal fingerprints give equal features.
    head
        The image head. `head(encode(pixels))` is the model's own image embedding, before normalisation.
    text_head
        The text head. `text_head(encode_text(prompts))` is the model's own text embedding, likewise.
    scale
        What the model multiplies cosines by.
    preprocess
        How pictures become pixels.
    licence
        Of the weights, where it is known.
    revision
        Of the weights, where their source has revisions.
    """

    name: str
    fingerprint: str
    head: Head
    text_head: Head
    scale: float
    preprocess: Preprocess
    device: torch.device
    licence: str | None = None
    revision: str | None = None
    black_box: str | None = None  # why the head is no part of the model, where it is not
    batch_size: int = 32

    @abstractmethod
    def encode(self, pixels: Tensor) -> Tensor:
        """Pre-projection features [B, head.width], float32 on the CPU, of uint8 pixels [B, S, S, 3]."""

    @abstractmethod
    def encode_text(self, prompts: Sequence[str]) -> Tensor:
        """Pre-projection text features [len(prompts), Dt], float32 on the CPU."""

    def folded(self, head: Head, text_head: Head, scale: float) -> dict[str, Tensor]:
        """What these heads and this scale change in the model, under the names of its own tensors."""
        changed = {"scale": torch.tensor(scale)}
        for name, before, after in (("head", self.head, head), ("text_head", self.text_head, text_head)):
            if after is not before:
                changed[f"{name}.weight"] = after.weight.to(torch.float32)
                if after.bias is not None:
                    changed[f"{name}.bias"] = after.bias.to(torch.float32)
        return changed

    def unfold(self, changed: dict[str, Tensor]) -> None:
        """Take what `folded` gave into this encoder."""
        self.scale = float(changed["scale"])
        if "head.weight" in changed:
            self.head = Head(changed["head.weight"], changed.get("head.bias"), self.head.residual)
        if "text_head.weight" in changed:
            self.text_head = Head(changed["text_head.weight"], changed.get("text_head.bias"))

    def trace(self, pixels: Tensor) -> Tensor:
        """The same as `encode`, in torch operations alone, so that it can be traced into a graph."""
        raise ModelError(f"{self.name} cannot be traced into a graph")

    def tokens(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """Prompts as the text tower takes them, all of one length."""
        raise ModelError(f"{self.name} cannot be traced into a graph")

    def trace_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """The same as `encode_text`, from tokens, in torch operations alone."""
        raise ModelError(f"{self.name} cannot be traced into a graph")

    @property
    def width(self) -> int:
        """Columns of what `encode` gives."""
        return self.head.width

    def towers(self, copy: bool = False) -> Towers:
        """The towers in torch, open to gradients; a copy can be changed without changing this encoder."""
        raise ModelError(f"{self.name} has no towers that can be trained")

    def with_model(self, model: nn.Module, digest: str) -> Encoder:
        """The encoder around a changed copy of its `towers().model`; the digest tells what was changed."""
        raise ModelError(f"{self.name} has no towers that can be trained")

    def with_tensors(self, changed: dict[str, Tensor]) -> Encoder:
        """A copy in which some tensors of `towers().model` are others; the encoder itself stays as it is."""
        model = self.towers(copy=True).model
        if unknown := model.load_state_dict(changed, strict=False).unexpected_keys:
            raise ModelError(f"{self.name} has no tensor {unknown[0]}")
        return self.with_model(model, sha256_tensors(changed.items()))

    def text(self, classes: Sequence[str], templates: Sequence[str]) -> Text:
        """Class rows from an ensemble of templates, each with a `{}` where the class name goes."""
        prompts = [template.format(name) for template in templates for name in classes]
        features = self.encode_text(prompts)
        return Text.from_features(
            features.reshape(len(templates), len(classes), -1), self.text_head, tuple(classes)
        )


def choose_device(device: str) -> torch.device:
    """`auto` takes a GPU where there is one; a device that is named must be there."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if available[kind]))
    kind = device.split(":")[0]
    if kind not in available:
        raise UsageError(f"unknown device {device!r}: choose auto, cpu, cuda or mps")
    if not available[kind]:
        raise UsageError(f"device {device!r} is not available on this machine: choose auto or cpu")
    return torch.device(device)
