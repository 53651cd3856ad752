"""What every encoder offers. One file per kind stands beside this one.

Pixels, features and heads are NumPy arrays. An encoder whose towers run in torch says so where torch is
needed: `towers` and `with_model` to train through them, `trace` and its like to write them as a graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import ModelError, UsageError
from prolip.core.head import Head
from prolip.core.text import Text
from prolip.encoders.hub import require
from prolip.encoders.preprocess import Preprocess
from prolip.io.files import sha256_tensors
from prolip.io.onnx_graph import Graph

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.encoders.trainable_towers import Towers

DEVICES = ("auto", "cpu", "cuda", "mps")


class Encoder(ABC):
    """A CLIP-like model, taken apart where its last linear maps begin."""

    name: str  # as the user names it, like "offline" or "open_clip:ViT-B-32/openai"
    fingerprint: str  # SHA-256 of the weights: equal fingerprints give equal features
    # The image head. `head(encode(pixels))` is the model's own image embedding, before normalisation.
    head: Head
    # The text head. `text_head(encode_text(prompts))` is the model's own text embedding, likewise.
    text_head: Head
    scale: float  # what the model multiplies cosines by
    preprocess: Preprocess  # how pictures become pixels
    device: str  # where the towers run: "cpu", "cuda" or "mps"
    licence: str | None = None  # of the weights, where it is known
    revision: str | None = None  # of the weights, where their source has revisions
    encodes_images: bool = True  # else it reads embeddings that the user brings
    black_box_reason: str | None = None  # why the head is no part of the model, where it is not
    batch_size: int = 32
    # Where pictures come singly: how many are worth a call of `encode`, and how many calls go side by side.
    run_size: int = 32
    runs: int = 1
    writes_graphs: bool = False  # whether `image_to_onnx` and `text_to_onnx` are there

    @abstractmethod
    def encode(self, pixels: Array) -> Array:
        """Pre-projection features [B, head.width], float32, of uint8 pixels [B, S, S, 3]."""

    @abstractmethod
    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Pre-projection text features [len(prompts), Dt], float32."""

    def read(self, images: Any) -> Array:
        """Embeddings [n, D] that the user brings; for encoders that take those in the place of pictures."""
        raise ModelError(f"{self.name} takes pictures, not embeddings")

    def folded(self, head: Head, text_head: Head, scale: float) -> dict[str, Array]:
        """What these heads and this scale change in the model, under the names of its own tensors."""
        changed = {"scale": np.array(scale, np.float32)}
        for name, before, after in (("head", self.head, head), ("text_head", self.text_head, text_head)):
            if after is not before:
                changed[f"{name}.weight"] = after.weight.astype(np.float32)
                if after.bias is not None:
                    changed[f"{name}.bias"] = after.bias.astype(np.float32)
        return changed

    def unfold(self, changed: Mapping[str, Array]) -> None:
        """Take what `folded` gave into this encoder."""
        self.scale = float(changed["scale"].item())
        if "head.weight" in changed:
            self.head = Head(changed["head.weight"], changed.get("head.bias"), self.head.residual)
        if "text_head.weight" in changed:
            self.text_head = Head(changed["text_head.weight"], changed.get("text_head.bias"))

    def with_preprocess(self, preprocess: Preprocess) -> Encoder:
        """The same towers, with pictures prepared in another way."""
        changed = copy(self)
        changed.preprocess = preprocess
        return changed

    @property
    def width(self) -> int:
        """Columns of what `encode` gives."""
        return self.head.width

    def text(self, classes: Sequence[str], templates: Sequence[str]) -> Text:
        """Class rows from an ensemble of templates, each with a `{}` where the class name goes."""
        prompts = [template.format(name) for template in templates for name in classes]
        features = self.encode_text(prompts)
        return Text.from_features(
            features.reshape(len(templates), len(classes), -1), self.text_head, tuple(classes)
        )

    def image_to_onnx(self, graph: Graph, pixels: str) -> str:
        """Add the image tower to a graph, without torch; returns the name of the features."""
        raise ModelError(f"{self.name} cannot write its towers as a graph")

    def text_to_onnx(self, graph: Graph, tokens: Mapping[str, str]) -> str:
        """Add the text tower to a graph, likewise; `tokens` names the graph's inputs."""
        raise ModelError(f"{self.name} cannot write its towers as a graph")

    def token_arrays(self, prompts: Sequence[str]) -> dict[str, Array]:
        """Prompts as the text tower takes them, all of one length."""
        return {name: to_numpy(tensor) for name, tensor in self.tokens(prompts).items()}

    def trace(self, pixels: Tensor) -> Tensor:
        """The same as `encode`, in torch operations alone, so that it can be traced into a graph."""
        raise ModelError(f"{self.name} cannot be traced into a graph")

    def tokens(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """The same as `token_arrays`, as tensors on the encoder's device."""
        raise ModelError(f"{self.name} cannot be traced into a graph")

    def trace_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """The same as `encode_text`, from tokens, in torch operations alone."""
        raise ModelError(f"{self.name} cannot be traced into a graph")

    def towers(self, copy: bool = False) -> Towers:
        """The towers in torch, open to gradients; a copy can be changed without changing this encoder."""
        raise ModelError(f"{self.name} has no towers that can be trained")

    def with_model(self, model: nn.Module, digest: str) -> Encoder:
        """The encoder around a changed copy of its `towers().model`; the digest tells what was changed."""
        raise ModelError(f"{self.name} has no towers that can be trained")

    def with_tensors(self, changed: Mapping[str, Any]) -> Encoder:
        """A copy in which some tensors of `towers().model` are others; the encoder itself stays as it is."""
        torch = require("torch", "torch")
        model = self.towers(copy=True).model
        tensors = {name: torch.tensor(to_numpy(value)) for name, value in changed.items()}
        if unknown := model.load_state_dict(tensors, strict=False).unexpected_keys:
            raise ModelError(f"{self.name} has no tensor {unknown[0]}")
        return self.with_model(model, sha256_tensors(changed.items()))


def choose_device(device: str) -> str:
    """`auto` takes a GPU where there is one; a device that is named must be there. Asks torch."""
    check_device(device)
    if device == "cpu":
        return device
    torch = require("torch", "torch")
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next((kind for kind, there in available.items() if there), "cpu")
    if not available[device.split(":")[0]]:
        raise UsageError(f"device {device!r} is not available on this machine: choose auto or cpu")
    return device


def check_device(device: str) -> None:
    """Refuse a name that no device has."""
    if not isinstance(device, str) or device.split(":")[0] not in DEVICES:
        raise UsageError(f"unknown device {device!r}: choose auto, cpu, cuda or mps")
