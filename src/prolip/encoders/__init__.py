"""Encoders by name. The libraries of a kind are imported only when an encoder of that kind is loaded.

A package can add a kind by an entry point: `prolip.encoders`, the name of the kind = "package.module:load",
a function `load(rest, device) -> Encoder`.
"""

import importlib
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

from prolip.core.errors import ModelError, UnknownNameError, as_text
from prolip.encoders.base import Encoder, check_device
from prolip.encoders.preprocess import Preprocess
from prolip.encoders.pretrained import MODELS, DownloadRequiredError, find_source, is_here, is_hub_name
from prolip.encoders.pretrained import download as get_files

__all__ = ["KINDS", "MODELS", "Encoder", "Preprocess", "check_model", "fetch", "kinds", "load"]

GROUP = "prolip.encoders"

# The part of a name before the colon: a module with a function `load(rest, device) -> Encoder`.
KINDS = {
    "offline": "prolip.encoders.offline",
    "onnx": "prolip.encoders.onnx",
    "open_clip": "prolip.encoders.open_clip",
    "hf": "prolip.encoders.huggingface",
}


def load(
    name: str,
    device: str = "auto",
    *,
    download: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Encoder:
    """Load an encoder by its name.

    Parameters
    ----------
    name
        `offline`; a short name of `prolip models`, like `clip`; `onnx:ID-or-PATH`, `open_clip:ARCH/TAG`,
        `open_clip:local-dir:PATH`, `hf:ID-or-PATH`; or a kind that another package adds, `KIND:REST`.
    device
        `cpu`, `cuda`, `mps`, or `auto`: a GPU where the kind of encoder uses one by itself.
    download
        Whether a short name or `onnx:ID` may be downloaded; otherwise one that is not on this machine is
        refused.
    progress
        Called with (done, total) bytes while a model is downloaded.
    """
    check_model(name)
    kind, _, rest = name.partition(":")
    check_device(device)
    if download:
        fetch(name, progress)
    if name.partition("@")[0] in MODELS:
        from prolip.encoders.onnx import load_pretrained

        return load_pretrained(name, device)
    encoder = _loader(kind)(rest, device)
    if not isinstance(encoder, Encoder):
        raise ModelError(f"the entry point {kind} of {GROUP} gave no Encoder, but {type(encoder).__name__}")
    return encoder


def check_model(name: str, require_here: bool = False) -> None:
    """Refuse a name that no model has; if `require_here`, one that is yet to be downloaded."""
    kind, colon, rest = as_text(name, "model").partition(":")
    unknown = kind not in kinds() or (colon and not rest and kind == "offline")
    if unknown and name.partition("@")[0] not in MODELS:
        raise UnknownNameError(
            "model", name, [*kinds(), *MODELS, "open_clip:ViT-B-32/openai", "hf:openai/clip-vit-base-patch32"]
        )
    if require_here and is_hub_name(name) and not is_here(name):
        raise DownloadRequiredError(name, find_source(name))


def fetch(name: str, progress: Callable[[int, int], None] | None = None) -> None:
    """Download the files of a short name or of `onnx:ID`, unless they are on this machine."""
    if is_hub_name(name) and not is_here(name):
        get_files(name, find_source(name), progress)


def kinds() -> list[str]:
    """Return the names of all kinds, those of installed packages last."""
    return [*KINDS, *(name for name in _entry_points() if name not in KINDS)]


def _loader(kind: str) -> Callable[[str, str], Any]:
    if kind in KINDS:
        loader: Callable[[str, str], Any] = importlib.import_module(KINDS[kind]).load
        return loader
    try:
        loader = _entry_points()[kind].load()
        return loader
    except Exception as error:  # another package may fail in any way when it is imported
        raise ModelError(f"the entry point {kind} of {GROUP} cannot be loaded: {error}") from error


@cache
def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}
