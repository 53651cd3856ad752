"""An encoder of two towers in torch, for the models of open_clip and transformers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
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
from prolip.encoders.split_tower_torch import SplitTower
from prolip.encoders.trainable_towers import Towers
from prolip.io.files import sha256_tensors

_PROMPTS_AT_ONCE = 256


def noise(preprocess: Preprocess, device: str) -> Tensor:
    """Return an image to try a tower on, [1, 3, S, S], the same every time."""
    shape = (1, preprocess.size, preprocess.size, 3)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return preprocess.normalise(pixels.to(device))


def fingerprint(model: nn.Module, settings: dict[str, Any]) -> str:
    """Return a SHA-256 of the weights and of the settings that change what they compute."""
    described = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(f"{described}\n{sha256_tensors(model.state_dict().items())}".encode()).hexdigest()


@dataclass(frozen=True)
class Anatomy:
    """How the models of one library are split, trained, tokenized for and written out again."""

    library: str  # "hf" or "open_clip"
    split: Callable[[Any], tuple[SplitTower, SplitTower]]  # the image and the text tower of a model
    towers: Callable[[Any], Towers]  # the same, open to gradients
    tokenize: Callable[[list[str]], Tensor]  # prompts to token numbers [P, L]
    # What a checkpoint holds beside the weights, in the library's own terms.
    config: Any
    tokenizer: Any
    image_processor: dict[str, Any]
    shows_sigmoid: bool = False


class TowerEncoder(Encoder):
    """Two split towers, a tokenizer and a preprocessing.

    `model` is the library's own, unchanged, and `anatomy` has what is needed to write it out again.
    `black_box_reason` says why `head` is the identity, where it is.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        anatomy: Anatomy,
        preprocess: Preprocess,
        device: str,
        fingerprint: str,
        revision: str | None = None,
    ) -> None:
        with torch.no_grad():
            image, text = anatomy.split(model)
        self.name, self.fingerprint, self.revision = name, fingerprint, revision
        self.model, self.anatomy = model, anatomy
        self.library, self.shows_sigmoid = anatomy.library, anatomy.shows_sigmoid
        self.preprocess, self.device = preprocess, device
        self.head, self.text_head, self.black_box_reason = image.head, text.head, image.black_box_reason
        # SigLIP adds a bias to its logits too: the same for every class, it does not change a softmax.
        self.scale = float(model.logit_scale.detach().exp())
        self._image, self._text = image.features, text.features
        self._head_parameters = (image.parameters, text.parameters)

    @torch.no_grad()
    def encode(self, pixels: Array) -> Array:
        """Compute pre-projection features [B, head.width] of uint8 pixels [B, S, S, 3]."""
        return to_numpy(self.trace(to_torch(pixels, self.device)))

    @torch.no_grad()
    def encode_text(self, prompts: Sequence[str]) -> Array:
        """Compute pre-projection text features [len(prompts), Dt]."""
        batches = [
            to_numpy(self._text(self.tokens(prompts[start : start + _PROMPTS_AT_ONCE])["input_ids"]).float())
            for start in range(0, len(prompts), _PROMPTS_AT_ONCE)
        ]
        return np.concatenate(batches)

    def trace(self, pixels: Tensor) -> Tensor:
        """Compute features of pixels on the tower's device."""
        return self._image(self.preprocess.normalise(pixels)).float()

    def tokens(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """Return token numbers [P, L] on the tower's device."""
        return {"input_ids": self.anatomy.tokenize(list(prompts)).to(self.device)}

    def towers(self, copy: bool = False) -> Towers:
        """Return the model's towers, or those of a copy."""
        return self.anatomy.towers(deepcopy(self.model) if copy else self.model)

    def with_model(self, model: nn.Module, digest: str) -> TowerEncoder:
        """Return an encoder around a changed model, split again where its heads are now."""
        changed = f"{self.fingerprint}-{digest}"
        frozen = model.eval().requires_grad_(False)
        return TowerEncoder(
            self.name, frozen, self.anatomy, self.preprocess, self.device, changed, self.revision
        )

    def folded(self, head: Head, text_head: Head, scale: float) -> dict[str, Array]:
        """Return the tensors of the model's `state_dict` that these heads and this scale change."""
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
