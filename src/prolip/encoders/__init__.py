"""Encoders, by name. Each kind's libraries are imported only when one of that kind is asked for."""

import importlib

from prolip.core.arguments import as_text
from prolip.core.errors import unknown_name
from prolip.encoders.base import Encoder, check_device, choose_device
from prolip.encoders.preprocess import Preprocess

__all__ = ["KINDS", "Encoder", "Preprocess", "choose_device", "load"]

# Name before the colon: module with a function `load(rest, device) -> Encoder`.
KINDS = {
    "offline": "prolip.encoders.offline",
    "open_clip": "prolip.encoders.open_clip",
    "hf": "prolip.encoders.huggingface",
    "arrays": "prolip.encoders.precomputed",
}


def load(name: str, device: str = "auto") -> Encoder:
    """The encoder of this name.

    Parameters
    ----------
    name
        `offline`, `open_clip:ARCH/TAG`, `open_clip:local-dir:PATH`, `hf:ID-or-PATH`; `arrays` for embeddings
        that you bring.
    device
        `cpu`, `cuda`, `mps`, or `auto`: a GPU where the kind of encoder uses one by itself.
    """
    kind, colon, rest = as_text(name, "model").partition(":")
    if kind not in KINDS or (colon and not rest and kind in ("offline", "arrays")):
        raise unknown_name(
            "model", name, [*KINDS, "open_clip:ViT-B-32/openai", "hf:openai/clip-vit-base-patch32"]
        )
    check_device(device)
    encoder: Encoder = importlib.import_module(KINDS[kind]).load(rest, device)
    return encoder
