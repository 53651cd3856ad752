"""Split towers in torch at their last linear map: f = f2 . f1, f2 the head.

Where that map is a module, it is found and checked by running the tower. Let h be its input, u = W h + c its
output, and v the tower's embedding. With u replaced by zero the tower gives some r:

    r = 0 and v = u          the map is the last thing that happens: features h
    v = r + u                there is a residual around it (SigLIP's pooling head): features [h, r]
    anything else            there is something between it and the embedding: a black box, features v

So no tower has to be known by name. The model itself is never changed.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from prolip.core.arrays import Array, to_numpy
from prolip.core.head import Head

Run = Callable[[Tensor], Tensor]

_TOLERANCE = 1e-4  # of the largest entry of the embedding: float32, whatever the device's order of summation


@dataclass(frozen=True, eq=False)
class HeadParameters:
    """The parameters of a model that are its head; a tuned head replaces them."""

    weight: Tensor  # [Do, D], or [D, Do] if transposed
    bias: Tensor | None = None
    transposed: bool = False


@dataclass(frozen=True)
class SplitTower:
    """A tower in two parts: `head(features(x))` is its own embedding.

    `parameters` are the head's own in the model; `black_box_reason` says why the head is only the identity,
    where it is.
    """

    features: Run
    head: Head
    parameters: HeadParameters | None = None
    black_box_reason: str | None = None


def checked(split: SplitTower, run: Run, features: Tensor, embedding: Tensor) -> SplitTower:
    """Return the split if its head gives the tower's own embedding; otherwise a black box."""
    expected = to_numpy(embedding)
    error = np.abs(split.head(to_numpy(features)) - expected).max()
    if error <= _TOLERANCE * np.abs(expected).max():
        return split
    return black_box(run, embedding, f"features and head differ from the model's embedding by {error:.1e}")


def black_box(run: Run, embedding: Tensor, reason: str) -> SplitTower:
    """Return the whole tower, with the identity as its head."""
    return SplitTower(run, Head.identity(embedding.shape[1]), black_box_reason=reason)


def split_at_linear(tower: nn.Module, run: Run, probe: Tensor) -> SplitTower:
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

    parameters = HeadParameters(linear.weight, linear.bias, transposed=True)
    split = SplitTower(lambda x: join(*_muted(linear, run, x)), head_of(parameters, residual), parameters)
    return checked(split, run, join(h, r), embedding)


def split_without(
    owner: nn.Module, name: str, value: nn.Module | None, parameters: HeadParameters, run: Run, probe: Tensor
) -> SplitTower:
    """Split a tower that returns features if its head, `owner.name` with these parameters, is `value`."""

    def features(x: Tensor) -> Tensor:
        original = getattr(owner, name)
        setattr(owner, name, value)
        try:
            return run(x)
        finally:
            setattr(owner, name, original)

    return checked(SplitTower(features, head_of(parameters), parameters), run, features(probe), run(probe))


def _last_linear(tower: nn.Module, run: Run, probe: Tensor) -> tuple[Tensor, str, nn.Linear | None]:
    """Return the tower's embedding of `probe`, and the linear module that was called last."""
    called: list[tuple[str, nn.Linear | None]] = [("", None)]
    with ExitStack() as hooks:
        for found in tower.named_modules():
            if isinstance(found[1], nn.Linear):
                hooks.enter_context(found[1].register_forward_hook(lambda *_, own=found: called.append(own)))
        embedding = run(probe)
    return embedding, *called[-1]


def _muted(linear: nn.Linear, run: Run, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the input of the linear map [B, Do], and the tower's output [B, D] if the map gives zero."""
    inputs: list[Tensor] = []

    def mute(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        inputs.append(args[0].flatten(1))
        return torch.zeros_like(output)

    with linear.register_forward_hook(mute):
        rest = run(x)
    return inputs[-1], rest


def head_of(parameters: HeadParameters, residual: bool = False) -> Head:
    """Return the head of these parameters: a copy, float32."""
    weight = parameters.weight.T if parameters.transposed else parameters.weight
    return Head(_copy(weight), None if parameters.bias is None else _copy(parameters.bias), residual)


def _copy(parameter: Tensor) -> Array:
    return np.array(to_numpy(parameter), np.float32, order="C")
