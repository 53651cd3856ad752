"""Checkpoints as open_clip and transformers write them.

    open_clip       open_clip_config.json, open_clip_model.safetensors           loads with local-dir:
    transformers    config.json, model.safetensors, preprocessor_config.json     loads with from_pretrained

and a tokenizer where it is not the library's own. No file name is in both lists, so one folder can be both.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from prolip.core.arrays import Array, to_torch
from prolip.core.errors import ModelError
from prolip.encoders import load
from prolip.encoders.base import Encoder
from prolip.encoders.hub import loading
from prolip.encoders.huggingface import no_progress_bars
from prolip.encoders.preprocess import Preprocess
from prolip.io.environment import require
from prolip.io.writing import write_json

if TYPE_CHECKING:
    from torch import Tensor

LIBRARIES = ("hf", "open_clip")
TOLERANCE = 1e-4  # relative to an embedding's largest entry, between the model and the written one


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A whole model, before it is written."""

    library: str  # "hf" or "open_clip"
    config: Any  # transformers' configuration object, or open_clip's `model_cfg`
    state: dict[str, Tensor]  # the `state_dict`
    tokenizer: Any  # the library's object
    image_processor: dict[str, Any]  # how images are prepared, in the library's terms
    preprocess: Preprocess  # the same in ours


def require_library(encoder: Encoder) -> str:
    """Return the library that an encoder is a model of; refuse one that has none."""
    if encoder.library is None:
        if encoder.files is not None:
            raise ModelError(
                f"{encoder.name} is made of ONNX graphs, without weights for transformers or open_clip: fit "
                'on its float32 graphs (NAME@fp32), export to="adapter", load the same model in either '
                "library, and call prolip.export.apply_adapter(model, folder)"
            )
        raise ModelError(
            f"{encoder.name} is not a model of open_clip or transformers, and has no counterpart there: "
            'export it to="onnx" or to="adapter"'
        )
    return encoder.library


def checkpoint_of(encoder: Encoder, changes: dict[str, Array] | None = None) -> Checkpoint:
    """Return the checkpoint that an encoder was loaded from, with some of its tensors replaced."""
    library = require_library(encoder)
    model, anatomy = encoder.model, encoder.anatomy  # type: ignore[attr-defined]
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    state |= {name: to_torch(array) for name, array in (changes or {}).items()}
    return Checkpoint(
        library,
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
