"""Checkpoints as open_clip and transformers write them.

    open_clip       open_clip_config.json, open_clip_model.safetensors           loads with local-dir:
    transformers    config.json, model.safetensors, preprocessor_config.json     loads with from_pretrained

and a tokenizer where it is not the library's own. No file name is in both lists, so one folder can be both.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError

from prolip.core.arrays import Array, to_torch
from prolip.core.errors import ModelError, UsageError, first_line
from prolip.encoders import load
from prolip.encoders.base import Encoder
from prolip.encoders.hub import cache_only, loading
from prolip.encoders.huggingface import no_progress_bars
from prolip.encoders.onnx_files import split_precision
from prolip.encoders.preprocess import Preprocess
from prolip.io.environment import MissingPackageError, require
from prolip.io.writing import write_json

if TYPE_CHECKING:
    from torch import Tensor

LIBRARIES = ("hf", "open_clip")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A whole model, before it is written."""

    library: str  # "hf" or "open_clip"
    config: Any  # transformers' configuration object, or open_clip's `model_cfg`
    state: dict[str, Tensor]  # the `state_dict`
    tokenizer: Any  # the library's object
    image_processor: dict[str, Any]  # how images are prepared, in the library's terms
    preprocess: Preprocess  # the same in ours


class OriginalRequiredError(ModelError):
    """The weights that ONNX graphs were made of are not on this machine, and nobody said to download them."""

    def __init__(self, name: str, original: str, reason: str) -> None:
        self.name, self.original = name, original
        super().__init__(
            f"a checkpoint of {name} needs the original weights, {original}, which cannot be loaded without "
            f'a download ({reason}): pass weights="{original}" to download them (hundreds of MB), or '
            'weights="hf:FOLDER" for a copy'
        )


def require_original(encoder: Encoder, weights: str | None = None) -> str | None:
    """Return the name of the model of transformers or open_clip that ONNX graphs were made of.

    None if the encoder itself is a model of these libraries. `weights` is the name that the user gives.
    """
    if encoder.library is not None:
        if weights is not None:
            raise UsageError(f"weights are for models on ONNX graphs: {encoder.name} has its own")
        return None
    if encoder.files is None:
        raise ModelError(
            f"{encoder.name} is not a model of open_clip or transformers, and has no counterpart there: "
            'export it to="onnx" or to="adapter"'
        )
    if encoder.precision == "int8":
        raise ModelError(
            f"{encoder.name} is made of int8 graphs, whose features are not those of the original weights: "
            f'fit on {split_precision(encoder.name)[0]}@fp32, or export it to="onnx"'
        )
    name = weights or encoder.original
    if name is None or name.partition(":")[0] not in LIBRARIES:
        raise UsageError(
            f"name the model of transformers or open_clip that {encoder.name} was made of, such as "
            'weights="hf:ID-or-FOLDER" or weights="open_clip:ARCH/TAG"'
        )
    return name


def load_original(encoder: Encoder, weights: str | None = None) -> Encoder:
    """Load the model of transformers or open_clip that ONNX graphs were made of; other weights are an error.

    It is downloaded only if the user names it (`weights`).
    """
    name = require_original(encoder, weights)
    if name is None:
        return encoder
    try:
        with nullcontext() if weights else cache_only():
            original = load(name, "cpu")
    except MissingPackageError:
        raise
    except ModelError as error:
        if weights:
            raise
        raise OriginalRequiredError(encoder.name, name, first_line(error)) from error
    tolerance = {"fp32": 1e-6, "fp16": 2e-3}[encoder.precision]
    for ours, theirs in ((encoder.head, original.head), (encoder.text_head, original.text_head)):
        if ours.weight.shape != theirs.weight.shape or not np.allclose(
            ours.weight, theirs.weight, rtol=tolerance, atol=1e-6
        ):
            raise ModelError(f"{name} has another projection than {encoder.name}: it is not the same model")
    return original


def checkpoint_of(encoder: Encoder, changes: dict[str, Array] | None = None) -> Checkpoint:
    """Return the checkpoint of a library that an encoder was loaded from, some of its tensors replaced."""
    model, anatomy = encoder.model, encoder.anatomy  # type: ignore[attr-defined]
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    state |= {name: to_torch(array) for name, array in (changes or {}).items()}
    return Checkpoint(
        anatomy.library,
        anatomy.config,
        state,
        anatomy.tokenizer,
        anatomy.image_processor,
        encoder.preprocess,
    )


def write_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write the files of one library into an existing folder."""
    with _full_disks():
        if checkpoint.library == "hf":
            _write_hf(checkpoint, folder)
        else:
            _write_open_clip(checkpoint, folder)


def load_checkpoint(library: str, folder: Path) -> Encoder:
    """Load the files of one library in a folder as an encoder, on the CPU."""
    return load(f"hf:{folder}" if library == "hf" else f"open_clip:local-dir:{folder}", "cpu")


def _write_hf(checkpoint: Checkpoint, folder: Path) -> None:
    torch, transformers = require("torch", "hf"), require("transformers", "hf")
    kind = {"clip": transformers.CLIPModel, "siglip": transformers.SiglipModel}[checkpoint.config.model_type]
    with loading("the exported model", local=True):
        with torch.device("meta"):
            model = kind(checkpoint.config)
        model.load_state_dict(checkpoint.state, assign=True)
        with no_progress_bars(transformers):
            model.save_pretrained(folder)
        checkpoint.tokenizer.save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", checkpoint.image_processor)


def _write_open_clip(checkpoint: Checkpoint, folder: Path) -> None:
    from safetensors.torch import save_file

    config = {"model_cfg": checkpoint.config, "preprocess_cfg": checkpoint.image_processor}
    write_json(folder / "open_clip_config.json", config)
    # Towers of transformers may use one tensor under two names, which safetensors refuses.
    state = {name: tensor.clone().contiguous() for name, tensor in checkpoint.state.items()}
    save_file(state, folder / "open_clip_model.safetensors", {"format": "pt"})
    if checkpoint.config["text_cfg"].get("hf_tokenizer_name"):
        checkpoint.tokenizer.save_pretrained(folder)


@contextmanager
def _full_disks() -> Iterator[None]:
    """Turn safetensors' own error for a full disk into an OSError."""
    try:
        yield
    except (SafetensorError, ModelError) as error:
        if "os error 28" in str(error):
            raise OSError(errno.ENOSPC, "No space left on device") from error
        raise
