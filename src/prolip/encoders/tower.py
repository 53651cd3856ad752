"""Towers in torch, taken apart at their last linear map: f = f2 . f1, f2 the head.

Where that map is a module, it is found and checked by running the tower. Let h be its input, u = W h + c its
output, and v the tower's embedding. With u replaced by zero the tower gives some r:

    r = 0 and v = u          the map is the last thing that happens: features h
    v = r + u                there is a residual around it (SigLIP's pooling head): features [h, r]
    anything else            something stands between it and the embedding: a black box, features v

So no tower needs to be known by name, and a model is never changed: other code may use it as it was.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy as shallow_copy
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prolip.core.arrays import Array, to_numpy
from prolip.core.errors import ModelError
from prolip.core.files import sha256_tensors
from prolip.core.head import Head
from prolip.encoders.base import Encoder
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.towers import Towers, to_torch

Run = Callable[[Tensor], Tensor]

_TOLERANCE = 1e-4  # of the largest entry of the embedding: float32, whatever the device's order of summation
_PROMPTS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class Place:
    """The parameters of a model that are its head: where a tuned head goes back."""

    weight: Tensor  # [Do, D], or [D, Do] if transposed
    bias: Tensor | None = None
    transposed: bool = False


@dataclass(frozen=True)
class Split:
    """A tower in two parts: `head(features(x))` is its own embedding.

    `place` is where the head stands in the model; `black_box` tells why the head is only the identity, where
    it is.
    """

    features: Run
    head: Head
    place: Place | None = None
    black_box: str | None = None


def checked(split: Split, run: Run, features: Tensor, embedding: Tensor) -> Split:
    """The split if its head makes the tower's own embedding of features; otherwise a black box."""
    meant = to_numpy(embedding)
    error = np.abs(split.head(to_numpy(features)) - meant).max()
    if error <= _TOLERANCE * np.abs(meant).max():
        return split
    return black_box(run, embedding, f"features and head differ from the model's embedding by {error:.1e}")


def black_box(run: Run, embedding: Tensor, reason: str) -> Split:
    """The tower as it is, with the identity for a head."""
    return Split(run, Head.identity(embedding.shape[1]), black_box=reason)


def split_at_linear(tower: nn.Module, run: Run, probe: Tensor) -> Split:
    """Find the last linear module that `run` calls inside `tower`, and split there."""
    embedding, name, linear = _last_linear(tower, run, probe)
    if linear is None:
        return black_box(run, embedding, "the tower has no linear map")
    h, r = _muted(linear, run, probe)
    if h.shape != (len(probe), linear.in_features) or linear.out_features != embedding.shape[1]:
        return black_box(
            run, embedding, f"the last linear map, {name}, does not make one embedding per input"
        )
    residual = bool(r.any())

    def join(h: Tensor, r: Tensor) -> Tensor:
        return torch.cat([h, r], dim=1) if residual else h

    place = Place(linear.weight, linear.bias, transposed=True)
    split = Split(lambda x: join(*_muted(linear, run, x)), head_of(place, residual), place)
    return checked(split, run, join(h, r), embedding)


def split_at_matrix(owner: nn.Module, name: str, run: Run, probe: Tensor) -> Split:
    """Split where the tower ends with `x @ owner.name`, a bare matrix [Do, D] that may be None."""

    def features(x: Tensor) -> Tensor:
        with swapped(owner, name, None):
            return run(x)

    place = Place(getattr(owner, name))
    return checked(Split(features, head_of(place), place), run, features(probe), run(probe))


@contextmanager
def swapped(owner: nn.Module, name: str, value: nn.Module | None) -> Iterator[None]:
    """Put `value` in the place of a module or parameter for a while."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _last_linear(tower: nn.Module, run: Run, probe: Tensor) -> tuple[Tensor, str, nn.Linear | None]:
    """The tower's embedding of `probe`, and the linear module that was called last on the way to it."""
    called: list[tuple[str, nn.Linear | None]] = [("", None)]
    handles = [
        module.register_forward_hook(lambda *_, found=(name, module): called.append(found))
        for name, module in tower.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        embedding = run(probe)
    finally:
        for handle in handles:
            handle.remove()
    return embedding, *called[-1]


def _muted(linear: nn.Linear, run: Run, x: Tensor) -> tuple[Tensor, Tensor]:
    """Input of the linear map [B, Do], and the tower's output [B, D] when the map gives zero."""
    inputs: list[Tensor] = []

    def mute(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        inputs.append(args[0].flatten(1))
        return torch.zeros_like(output)

    handle = linear.register_forward_hook(mute)
    try:
        rest = run(x)
    finally:
        handle.remove()
    return inputs[-1], rest


def head_of(place: Place, residual: bool = False) -> Head:
    """The head that stands at a place of a model: a copy, float32."""
    weight = place.weight.T if place.transposed else place.weight
    return Head(_copied(weight), None if place.bias is None else _copied(place.bias), residual)


def _copied(parameter: Tensor) -> Array:
    return np.array(to_numpy(parameter), np.float32, order="C")


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
    """How models of a library are taken apart: at their heads, and for training."""

    split: Callable[[Any], tuple[Split, Split]]  # image and text
    towers: Callable[[Any], Towers]


class TowerEncoder(Encoder):
    """Two split towers, a tokenizer and a way to prepare pictures.

    `black_box` tells why `head` is the identity, where it is; `model` is the library's own, unchanged, and
    `beside` what the library keeps with it (configuration, tokenizer), to write it out again.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        image: Split,
        text: Split,
        tokenize: Callable[[list[str]], Tensor],
        preprocess: Preprocess,
        device: str,
        settings: dict[str, Any],
        beside: dict[str, Any],
        anatomy: Anatomy,
        revision: str | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.beside = beside
        self._anatomy = anatomy
        self.head, self.text_head = image.head, text.head
        self.black_box = image.black_box
        self.preprocess = preprocess
        self.device = device
        self.revision = revision
        self.fingerprint = fingerprint(model, settings)
        # SigLIP adds a bias to its logits too: the same for every class, it does not change a softmax.
        self.scale = float(model.logit_scale.detach().exp())
        self._tokenize = tokenize
        self._take(image, text)

    def _take(self, image: Split, text: Split) -> None:
        self._image, self._text = image.features, text.features
        self._places = (image.place, text.place)

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
        return {"input_ids": self._tokenize(list(prompts)).to(self.device)}

    def trace_text(self, tokens: dict[str, Tensor]) -> Tensor:
        """Text features of tokens."""
        return self._text(tokens["input_ids"]).float()

    def towers(self, copy: bool = False) -> Towers:
        """The model's towers, or a copy's."""
        return self._anatomy.towers(deepcopy(self.model) if copy else self.model)

    def with_model(self, model: nn.Module, digest: str) -> TowerEncoder:
        """The same around a changed model, split again where its heads are now."""
        changed = shallow_copy(self)
        changed.model = model.eval().requires_grad_(False)
        with torch.no_grad():
            image, text = self._anatomy.split(model)
        changed.head, changed.text_head, changed.black_box = image.head, text.head, image.black_box
        changed.fingerprint = f"{self.fingerprint}-{digest}"
        changed._take(image, text)
        return changed

    def folded(self, head: Head, text_head: Head, scale: float) -> dict[str, Array]:
        """What the model's `state_dict` holds instead, with these heads and this scale in it."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        changed = {"logit_scale": np.full(self.model.logit_scale.shape, math.log(scale), np.float32)}
        for place, before, after in zip(
            self._places, (self.head, self.text_head), (head, text_head), strict=True
        ):
            if after is before:
                continue
            if place is None:
                raise ModelError(f"{self.name} has no linear map at its end that could be replaced")
            weight = after.weight.T if place.transposed else after.weight
            changed[names[id(place.weight)]] = np.ascontiguousarray(weight, np.float32)
            if after.bias is not None and place.bias is not None:
                changed[names[id(place.bias)]] = after.bias.astype(np.float32)
        return changed

    def unfold(self, changed: Mapping[str, Array]) -> None:
        """Put what `folded` gave into the model itself, and into the heads that stand for it here."""
        tensors = {name: to_torch(array) for name, array in changed.items()}
        unknown = self.model.load_state_dict(tensors, strict=False).unexpected_keys
        if unknown:
            raise ModelError(f"{self.name} has no tensor {unknown[0]}")
        self.scale = float(self.model.logit_scale.detach().exp())
        self.head, self.text_head = (
            head if place is None else head_of(place, head.residual)
            for place, head in zip(self._places, (self.head, self.text_head), strict=True)
        )
