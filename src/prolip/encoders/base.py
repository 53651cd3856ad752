"""The interface of an encoder. Each kind of encoder has a file beside this one.

Pixels, features and heads are NumPy arrays. torch appears only in the methods that need it: `towers` and
`with_model`, to train through the towers, and `trace`, to write one as a graph.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

from prolip.core.arrays import Array
from prolip.core.errors import ModelError, UsageError
from prolip.core.head import Head
from prolip.core.task import Text
from prolip.encoders.preprocess import Preprocess
from prolip.io.environment import require
from prolip.io.onnx_graph import Graph

if TYPE_CHECKING:
    from torch import Tensor, nn

    from prolip.encoders.trainable_towers import Towers

DEVICES = ("auto", "cpu", "cuda", "mps")


class Encoder(ABC):
    """A CLIP-like model, split where its last linear maps begin."""

    name: str  # as the user writes it, like "offline" or "open_clip:ViT-B-32/openai"
    fingerprint: str  # SHA-256 of weights, tokenizer and preprocessing: equal ones give equal features
    # The image head. `head(encode(pixels))` is the model's own image embedding, before normalisation.
    head: Head
    # The text head. `text_head(encode_text(prompts))` is the model's own text embedding, likewise.
    text_head: Head
    scale: float  # the factor that the model multiplies cosines by
    preprocess: Preprocess  # how images become pixels
    device: str  # where the towers run, like "cpu" or "cuda"
    licence: str | None = None  # of the weights, where it is known
    revision: str | None = None  # of the weights, where their source has revisions
    black_box_reason: str | None = None  # why the head is not part of the model, where it is not
    files: Mapping[str, Path] | None = None  # of a model of ONNX graphs, by their names in its folder
    precision: str = "fp32"  # of the towers
    original: str | None = None  # a model of ONNX graphs by its name in transformers or open_clip, if known
    library: str | None = None  # "hf" or "open_clip", where the model can be written as its checkpoint
    shows_sigmoid: bool = False  # whether the library shows a sigmoid of each score, as for SigLIP
    batch_size: int = 32
    graph_tolerance: float = 1e-4  # largest difference of an exported graph's output, on any batch
    writes_graphs: bool = False  # whether `image_to_onnx` is implemented

    def __repr__(self) -> str:
        return f"<encoder {self.name}: {self.head.width} features, {self.head.dim} dimensions, {self.device}>"

    @abstractmethod
    def encode(self, pixels: Array) -> Array:
        """Compute pre-projection features [B, head.width], float32, of uint8 pixels [B, S, S, 3]."""

    @abstractmethod
    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Compute pre-projection text features [len(prompts), Dt], float32."""

    def folded(self, head: Head, text_head: Head, scale: float) -> dict[str, Array]:
        """Return the tensors of a checkpoint that these heads and this scale change, by their names there."""
        raise ModelError(f"{self.name} cannot be written as a checkpoint")

    def with_preprocess(self, preprocess: Preprocess) -> Encoder:
        """Return a copy that prepares images in another way."""
        encoder = copy(self)
        encoder.preprocess = preprocess
        return encoder

    @property
    def width(self) -> int:
        """Number of columns of `encode`."""
        return self.head.width

    def text(self, classes: Sequence[str], templates: Sequence[str]) -> Text:
        """Compute class rows from an ensemble of templates, each with a `{}` for the class name."""
        prompts = [t.format(name_in_prompt(t, name)) for t in templates for name in classes]
        features = self.encode_text(prompts)
        return Text.from_features(
            features.reshape(len(templates), len(classes), -1), self.text_head, tuple(classes)
        )

    def image_to_onnx(self, graph: Graph, pixels: str) -> str:
        """Add the image tower to a graph, without torch; return the name of the features."""
        raise ModelError(f"{self.name} cannot write its towers as a graph")

    def trace(self, pixels: Tensor) -> Tensor:
        """Compute the same as `encode` in torch operations, so that torch can trace it into a graph."""
        raise ModelError(f"{self.name} cannot be traced into a graph")

    def tokens(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """Tokenize prompts for the text tower, all padded to one length, on the encoder's device."""
        raise ModelError(f"{self.name} has no towers that can be trained")

    def towers(self, copy: bool = False) -> Towers:
        """Return the towers in torch, open to gradients; training a copy leaves this encoder as it is."""
        raise ModelError(f"{self.name} has no towers that can be trained")

    def with_model(self, model: nn.Module, digest: str) -> Encoder:
        """Return an encoder around a changed copy of `towers().model`; the digest identifies the change."""
        raise ModelError(f"{self.name} has no towers that can be trained")


def name_in_prompt(template: str, name: str) -> str:
    """Return a class name without its article, if the template has one: not "a photo of a a long dress"."""
    if re.search(r"\b(a|an|the) \{\}", template, re.IGNORECASE):
        return re.sub(r"^(a|an|the) (?=\S)", "", name, flags=re.IGNORECASE)
    return name


def choose_torch_device(device: str) -> str:
    """Return the device to use for a model in torch."""
    if device == "cpu":
        return device
    torch = require("torch", "torch")
    return choose_device(device, cuda=torch.cuda.is_available(), mps=torch.backends.mps.is_available())


def choose_device(device: str, advice: str = "", **available: bool) -> str:
    """Return the device to use: for `auto` the first that is available; any other must be available."""
    check_device(device)
    if device == "auto":
        return next((kind for kind, found in available.items() if found), "cpu")
    if device != "cpu" and not available.get(device.split(":")[0], False):
        raise UsageError(f"device {device!r} is not available on this machine: choose auto or cpu{advice}")
    return device


def check_device(device: str) -> None:
    """Reject a name that no device has."""
    if not isinstance(device, str) or device.split(":")[0] not in DEVICES:
        raise UsageError(f"unknown device {device!r}: choose {', '.join(DEVICES)}")
