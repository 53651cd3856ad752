"""An encoder of two towers in torch: what the models of open_clip and transformers become."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prolip.core.arrays import Array, to_numpy, to_torch
from prolip.core.errors import ModelError
from prolip.core.head import Head
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.split_tower_torch import SplitTower, head_of
from prolip.encoders.trainable_towers import Towers
from prolip.io.files import sha256_tensors

_PROMPTS_AT_ONCE = 256


def noise(preprocess: Preprocess, device: str) -> Tensor:
    """A picture to try a tower on, [1, 3, S, S], the same every time."""
    shape = (1, preprocess.size, preprocess.size, 3)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return preprocess.normalise(pixels.to(device))


def fingerprint(model: nn.Module, settings: dict[str, Any]) -> str:
    """SHA-256 of the weights and of the settings that change what they compute (like the activation)."""
    described = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(f"{described}\n{sha256_tensors(model.state_dict().items())}".encode()).hexdigest()


@dataclass(frozen=True)
class Anatomy:
    """What differs between models of two libraries."""

    split: Callable[[Any], tuple[SplitTower, SplitTower]]  # the image and the text tower of a model
    towers: Callable[[Any], Towers]  # the same, open to gradients
    tokenize: Callable[[list[str]], Tensor]  # prompts to token numbers [P, L]


class TowerEncoder(Encoder):
    """Two split towers, a tokenizer and a way to prepare pictures.

    `black_box_reason` says why `head` is the identity, where it is; `model` is the library's own, unchanged,
    and `assets` what the library keeps with it (configuration, tokenizer), to write it out again.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        anatomy: Anatomy,
        preprocess: Preprocess,
        device: str,
        fingerprint: str,
        assets: dict[str, Any],
        revision: str | None = None,
    ) -> None:
        with torch.no_grad():
            image, text = anatomy.split(model)
        self.name, self.fingerprint, self.revision = name, fingerprint, revision
        self.model, self.assets, self._anatomy = model, assets, anatomy
        self.preprocess, self.device = preprocess, device
        self.head, self.text_head, self.black_box_reason = image.head, text.head, image.black_box_reason
        # SigLIP adds a bias to its logits too: the same for every class, it does not change a softmax.
        self.scale = float(model.logit_scale.detach().exp())
        self._image, self._text = image.features, text.features
        self._head_parameters = (image.parameters, text.parameters)

    @torch.no_grad()
    def encode(self, pixels: Array) -> Array:
        """Pre-projection features [B, head.width] of uint8 pixels [B, S, S, 3]."""
        return to_numpy(self.trace(to_torch(pixels, self.device)))

    @torch.no_grad()
    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Pre-projection text features [len(prompts), Dt]."""
        batches = [
            to_numpy(self.trace_text(self.tokens(prompts[start : start + _PROMPTS_AT_ONCE])))
            for start in range(0, len(prompts), _PROMPTS_AT_ONCE)
        ]
        return np.concatenate(batches)

    def trace(self, pixels: Tensor) -> Tensor:
        """Features of pixels on the tower's device."""
        return self._image(self.preprocess.normalise(pixels)).float()

    def tokens(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """Token numbers [P, L] on the tower's device."""
        return {"input_ids": self._anatomy.tokenize(list(prompts)).to(self.device)}

    def trace_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Text features of token numbers on the tower's device."""
        return self._text(tokens["input_ids"]).float()

    def towers(self, copy: bool = False) -> Towers:
        """The model's towers, or a copy's."""
        return self._anatomy.towers(deepcopy(self.model) if copy else self.model)

    def with_model(self, model: nn.Module, digest: str) -> TowerEncoder:
        """The same around a changed model, split again where its heads are now."""
        return TowerEncoder(
            self.name,
            model.eval().requires_grad_(False),
            self._anatomy,
            self.preprocess,
            self.device,
            f"{self.fingerprint}-{digest}",
            self.assets,
            self.revision,
        )

    def folded(self, head: Head, text_head: Head, scale: float) -> dict[str, Array]:
        """What the model's `state_dict` holds instead, with these heads and this scale in it."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        changed = {"logit_scale": np.full(self.model.logit_scale.shape, math.log(scale), np.float32)}
        for parameters, before, after in zip(
            self._head_parameters, (self.head, self.text_head), (head, text_head), strict=True
        ):
            if after is before:
                continue
            if parameters is None:
                raise ModelError(f"{self.name} has no linear map at its end that could be replaced")
            weight = after.weight.T if parameters.transposed else after.weight
            changed[names[id(parameters.weight)]] = np.ascontiguousarray(weight, np.float32)
            if after.bias is not None and parameters.bias is not None:
                changed[names[id(parameters.bias)]] = after.bias.astype(np.float32)
        return changed

    def unfold(self, changed: Mapping[str, Array]) -> None:
        """Put what `folded` gave into the model itself, and read its heads and scale again."""
        tensors = {name: to_torch(array) for name, array in changed.items()}
        unknown = self.model.load_state_dict(tensors, strict=False).unexpected_keys
        if unknown:
            raise ModelError(f"{self.name} has no tensor {unknown[0]}")
        self.scale = float(self.model.logit_scale.detach().exp())
        self.head, self.text_head = (
            head if parameters is None else head_of(parameters, head.residual)
            for parameters, head in zip(self._head_parameters, (self.head, self.text_head), strict=True)
        )
